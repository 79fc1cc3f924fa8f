"""The Debian packages: what `cpack -G DEB` makes, in a clean root, is enough to build programs, to run them, and to
run the demo away from the repository.

Root unpacks them by dpkg itself, which knows what this machine has, so that it refuses packages whose dependencies
are not met, or that have a file in common. For others they are extracted. Nothing changes the machine; what the
packages depend on is also compared with what the files need."""

import glob
import os
import re
import shutil
import tempfile

import cluster
import installed


class PackageTest(installed.InstalledTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="poseidon-package-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        build = os.path.dirname(cluster.programs())
        installed.checked(
            [
                "cpack",
                "-G",
                "DEB",
                "--config",
                os.path.join(build, "CPackConfig.cmake"),
                "-B",
                cls.folder,
            ],
            600,
            cwd=cls.folder,
            umask=installed.STRICT_UMASK,
        )
        cls.packages = {
            os.path.basename(path).split("_")[0]: path
            for path in glob.glob(os.path.join(cls.folder, "*.deb"))
        }
        root = os.path.join(cls.folder, "root")
        if os.geteuid() == 0:
            cls.install(root)
        else:
            for path in cls.packages.values():
                installed.checked(["dpkg-deb", "--extract", path, root], 300)
        cls.installed = installed.Installed(
            os.path.join(root, "usr"), os.path.join(cls.folder, "programs")
        )
        cls.installed.write_examples()

    @classmethod
    def install(cls, root):
        database = os.path.join(root, "var", "lib", "dpkg")
        os.makedirs(database)
        shutil.copy("/var/lib/dpkg/status", database)
        # dpkg looks for ldconfig, which is not in everybody's path.
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        # A package's script calls ldconfig, and the clean root has no shell for it: that is left out.
        for what in (
            ["--unpack", *cls.packages.values()],
            ["--no-act", "--configure", *cls.packages],
        ):
            installed.checked(
                ["dpkg", f"--root={root}", *what], 300, env={**os.environ, "PATH": path}
            )

    def field(self, package, name):
        return installed.checked(["dpkg-deb", "--field", self.packages[package], name], 60).strip()

    def test_packages_depend_on_what_they_need(self):
        self.assertEqual(set(self.packages), {"poseidon", "libposeidon-dev"})
        version = self.field("poseidon", "Version")
        self.assertEqual(self.field("libposeidon-dev", "Depends"), f"poseidon (= {version})")
        depends = self.field("poseidon", "Depends")
        for library in ("libc6", "libzmq5", r"libprotobuf\d+", r"libgoogle-glog\w+", "libxxhash0"):
            self.assertRegex(depends, rf"(^|, ){library}\b")

    def contents(self, package):
        """A line for each directory, file and link, with its rights first and its path last."""
        return installed.checked(
            ["dpkg-deb", "--contents", self.packages[package]], 60
        ).splitlines()

    def test_all_may_use_what_is_packaged_under_a_strict_umask(self):
        for package in self.packages:
            for line in self.contents(package):
                self.assertRegex(line, r"^(drwxr-xr-x|-rwxr-xr-x|-rw-r--r--|lrwxrwxrwx) ")

    def test_each_file_is_in_its_package(self):
        def files(package):
            return {
                line.split(" ./usr/", 1)[1].split(" -> ")[0]
                for line in self.contents(package)
                if " ./usr/" in line and not line.startswith("d")
            }

        program, development = files("poseidon"), files("libposeidon-dev")
        self.assertEqual(program & development, set())
        self.assertLessEqual(
            {
                "bin/poseidon",
                "bin/poseidon_scheduler",
                "bin/poseidon_server",
                "bin/poseidon_worker",
                "bin/poseidon_demo",
                "lib/poseidon/libposeidon_caffe_preload.so",
                "lib/poseidon/libposeidon_images.so",
                "lib/poseidon/libposeidon_python.so",
                "lib/poseidon/poseidon_torch_worker",
                "lib/poseidon/poseidon_report/report.py",
                "share/bash-completion/completions/poseidon",
                "share/poseidon/configs/lenet_digits.prototxt",
            },
            program,
        )
        if shutil.which("help2man"):
            for page in ("poseidon", "poseidon-run", "poseidon_worker"):
                self.assertIn(f"share/man/man1/{page}.1.gz", program)
        self.assertTrue(
            all(
                re.match(r"(include/poseidon/\w+\.h|lib/.*(\.cmake|\.pc|libposeidon\.so))$", name)
                for name in development
            ),
            development,
        )
        self.assertIn("include/poseidon/session.h", development)

    def test_programs_are_built_against_them_and_run(self):
        built = self.installed.build_by_find_package(*installed.HEADERS)
        self.check_communicator(os.path.join(built, "communicator"))
        self.check_training(os.path.join(built, "caffe_worker"), 200)
        self.check_training(self.installed.build_by_pkg_config("session"), 500)

    def test_the_demo_runs_away_from_the_repository(self):
        if not cluster.has_torch():
            self.skipTest("built without libtorch: workers can't compute LeNet")
        demo = self.spawn(
            "demo", ["env", "-C", self.directory, self.installed.file("bin/poseidon_demo")]
        )
        self.assertEqual(demo.wait(400), cluster.SUCCESS)
        self.assert_nothing_left()
        summary = self.read_json("out/demo/summary.json")
        self.assert_same_parameters(summary, 4)
        self.assertGreater(summary["test_accuracy"], 0.95)


if __name__ == "__main__":
    cluster.main()
