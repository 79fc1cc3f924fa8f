"""`cmake --install` makes a tree that needs neither the build nor the repository: programs find it by
CMake and pkg-config and run, the command finds what belongs to it. The tree is moved before it is
used, so nothing in it may remember where it was installed to."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import cluster
import installed

PROGRAMS = pathlib.Path(__file__).resolve().parent
ROOT = PROGRAMS.parents[2]


def interface(library):
    """What a shared library defines, demangled."""
    names = installed.checked(["nm", "-DC", "--defined-only", library], 60)
    return [line.split(" ", 2)[2] for line in names.splitlines()]


class InstallTest(installed.InstalledTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="poseidon-install-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        first = os.path.join(cls.folder, "first")
        installed.checked(
            ["cmake", "--install", os.path.dirname(cluster.programs()), "--prefix", first],
            120,
            env={key: value for key, value in os.environ.items() if key != "DESTDIR"},
            umask=installed.STRICT_UMASK,
        )
        os.rename(first, os.path.join(cls.folder, "prefix"))
        cls.installed = installed.Installed(
            os.path.join(cls.folder, "prefix"), os.path.join(cls.folder, "programs")
        )
        cls.installed.write_examples()
        shutil.copy(PROGRAMS / "misuse.cc", cls.installed.folder)
        cls.built = cls.installed.build_by_find_package(*installed.HEADERS, "misuse")

    def program(self, name):
        return os.path.join(self.built, name)

    def test_all_may_use_what_is_installed_under_a_strict_umask(self):
        for folder, _, files in os.walk(self.installed.prefix):
            self.assertEqual(os.stat(folder).st_mode & 0o777, 0o755, folder)
            for path in (os.path.join(folder, name) for name in files):
                self.assertIn(os.stat(path).st_mode & 0o777, (0o755, 0o644), path)

    def test_communicator_example(self):
        self.check_communicator(self.program("communicator"))

    def test_c_example(self):
        self.check_communicator(self.program("poseidon"))

    def test_session_example(self):
        self.check_training(self.program("session"), 500)

    def test_rewound_example(self):
        self.check_training(self.program("rewound"), 500, installed.RECOVERING_JOB)

    def test_caffe_worker_example(self):
        self.check_training(self.program("caffe_worker"), 200)

    def test_pkg_config(self):
        self.check_communicator(self.installed.build_by_pkg_config("communicator"))

    def test_a_program_without_a_job_is_told_how_to_get_one(self):
        said = subprocess.run(
            [self.program("session")], capture_output=True, text=True, timeout=60, check=False
        ).stderr
        self.assertIn("POSEIDON_JOB is not set; start the program by `poseidon run", said)

    def test_mistakes_of_a_program_are_named(self):
        summary = self.run_program(self.program("misuse"), self.path("said"), workers=1)
        self.assert_same_parameters(summary, 1)
        with open(self.path("said"), encoding="utf-8") as file:
            said = file.read().splitlines()
        expected = [
            "values was called before Declare",
            "Begin was called before Declare, its place is between Declare and Begin",
            "the model has no layers",
            "RestoreOptimizerState in a training that begins with iteration 0",
            "values was called for layer 1 of a model with 1",
            "mean_gradient is for models whose optimizer is kMeanGradient",
            'EndIteration of iteration 0 before GradientReady of layer "only"',
            'GradientReady was called twice in iteration 0 for layer "only"',
            "Finish between a GradientReady and EndIteration",
            "Finish after 1 of 2 iterations",
            "GradientReady was called after Finish or an error",
        ]
        self.assert_said(said, expected)

    def test_mistakes_of_a_program_that_goes_on_are_named(self):
        """Its optimizer begins without a state, as nobody gives it one."""
        summary = self.run_program(self.program("misuse"), self.path("said"), "later")
        self.assert_same_parameters(summary, 2)
        self.assertEqual(summary["iterations"], 2)
        with open(self.path("said"), encoding="utf-8") as file:
            said = file.read().splitlines()
        expected = [
            "RestoreOptimizerState was given 3 floats; the state of this model has 2",
            'GradientReady was called in iteration 6 before WaitFresh for layer "only"',
        ]
        self.assert_said(said, expected)

    def assert_said(self, said, expected):
        self.assertEqual(len(said), len(expected), said)
        for line, part in zip(said, expected):
            self.assertIn(part, line)

    def misuse(self, how, code):
        """What `poseidon run` says of two workers that end their job in such a way, and with what code."""
        job = self.write("job.prototxt", installed.JOB.format(workers=2))
        run = self.spawn(
            "run",
            [
                self.installed.file("bin/poseidon"),
                "run",
                f"--config={job}",
                f"--out={self.path('out')}",
                "--",
                self.program("misuse"),
                how,
            ],
        )
        self.assertEqual(run.wait(), code, run.output())
        self.assert_nothing_left(cluster.ENDING)
        return run.output()

    def test_a_program_that_gives_up_ends_the_job(self):
        said = self.misuse("give-up", 1)
        self.assertIn("the program ended its session before Finish", said)

    def test_what_a_program_throws_while_it_waits_is_told_to_the_others(self):
        said = self.misuse("throw", 1)
        self.assertIn("no more of this", said)
        self.assertNotIn("the program ended its session before Finish", said)

    def test_children_that_a_program_forks_leave_its_session_alone(self):
        summary = self.run_program(self.program("misuse"), "fork", workers=1)
        self.assert_same_parameters(summary, 1)
        with open(self.path("out/logs/worker-0.log"), encoding="utf-8") as log:
            self.assertRegex(log.read(), r"this session was made by process \d+, of which this one")

    def test_a_session_whose_declare_has_failed_has_no_memory(self):
        self.misuse("differ", cluster.CONFIG_ERROR)
        for rank in range(2):
            with open(self.path(f"out/logs/worker-{rank}.log"), encoding="utf-8") as log:
                self.assertIn("values was called after Finish or an error", log.read())

    def test_the_library_shows_its_classes_and_functions_only(self):
        library = os.path.join(self.installed.library_directory(), "libposeidon.so")
        ours = re.compile(
            r"((typeinfo|vtable) for )?poseidon::"
            r"(Session|SessionOptions|Communicator|CaffeWorker|Location|\w*Error|PeerLost|"
            r"DeadlineExceeded|Rewound)\b"
            r"|poseidon_\w+$"
        )
        names = interface(library)
        self.assertTrue(names)
        self.assertEqual([name for name in names if not ours.match(name)], [])
        for part in ("zmq", "protobuf", "wire::", "xxhash"):
            self.assertNotIn(f"#include <{part}", self.headers())

    def headers(self):
        folder = pathlib.Path(self.installed.file("include/poseidon"))
        return "".join(path.read_text(encoding="utf-8") for path in sorted(folder.iterdir()))

    def test_pages_find_what_they_show_and_what_they_lead_to(self):
        pages = sorted(pathlib.Path(self.installed.file("share/doc/poseidon")).rglob("*.md"))
        self.assertIn("monitoring.md", [page.name for page in pages])
        link = re.compile(r"\]\(([^)#\s]+)|^\[[^\]]+\]: *([^#\s]+)", re.M)
        for page in pages:
            for match in link.finditer(page.read_text(encoding="utf-8")):
                path = match[1] or match[2]
                if ":" not in path:
                    self.assertTrue((page.parent / path).is_file(), f"{page}: {path}")

    def test_a_job_on_kubernetes_is_there(self):
        """Without keys: whoever installs may have made some for a job of theirs."""
        installed_files = os.listdir(self.installed.file("share/poseidon/deploy/kubernetes"))
        folder = os.path.join(cluster.REPOSITORY, "deploy/kubernetes")
        self.assertEqual(set(installed_files), set(os.listdir(folder)) - {"keys"})

    def test_the_command_finds_what_belongs_to_it(self):
        replay = cluster.replay_config(iterations=5)
        config = self.write("config.prototxt", replay)
        run = self.spawn(
            "run",
            [
                self.installed.file("bin/poseidon"),
                "run",
                f"--config={config}",
                f"--out={self.path('out')}",
            ],
        )
        self.assertEqual(run.wait(), cluster.SUCCESS)
        plan = installed.checked(
            [
                self.installed.file("bin/poseidon"),
                "plan",
                "--workers=2",
                "--servers=1",
                f"--net={self.installed.file('share/poseidon/configs/models/lenet/net.prototxt')}",
            ],
            60,
            cwd=self.directory,
        )
        self.assertIn("ip1", plan)
        for script in ("report.py", "report_data.py"):
            self.assertTrue(
                os.path.isfile(self.installed.file(f"lib/poseidon/poseidon_report/{script}"))
            )
        version = installed.checked([self.installed.file("bin/poseidon"), "--version"], 60)
        self.assertRegex(version, r"^poseidon \d+\.\d+\.\d+\+[0-9a-f]{12}\n$")

    def verbs(self):
        """Of `poseidon --help`, with the words of groups."""
        text = installed.checked([self.installed.file("bin/poseidon"), "--help"], 60)
        return re.findall(r"^  ([a-z]+(?: [a-z0-9]+)?)  +\S", text, re.M)

    def test_every_verb_has_a_page_of_the_manual(self):
        manual = self.installed.file("share/man/man1")
        if not os.path.isdir(manual):
            self.skipTest("built without help2man")
        verbs = self.verbs()
        self.assertLessEqual({"run", "convert cifar10"}, set(verbs))
        pages = {f"poseidon-{verb.replace(' ', '-')}.1.gz" for verb in verbs}
        pages |= {
            "poseidon.1.gz",
            *(f"poseidon_{role}.1.gz" for role in ("scheduler", "server", "worker")),
        }
        self.assertEqual(set(os.listdir(manual)), pages)
        page = installed.checked(["zcat", os.path.join(manual, "poseidon-run.1.gz")], 60)
        self.assertRegex(page, r'(?m)^\.TH POSEIDON-RUN "1"')
        self.assertRegex(page, r"(?m)^\\fB\\-\\-config\\fR=\\fI\\,?FILE")

    def complete(self, *words):
        """What bash offers for the last word."""
        script = (
            'source "$1"; shift; compopt() { :; }; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
            "_poseidon; printf '%s\\n' \"${COMPREPLY[@]}\""
        )
        return installed.checked(
            [
                "bash",
                "-c",
                script,
                "bash",
                self.installed.file("share/bash-completion/completions/poseidon"),
                self.installed.file("bin/poseidon"),
                *words,
            ],
            60,
            cwd=self.directory,
        ).split()

    def test_bash_completes_verbs_flags_and_files(self):
        self.assertEqual(set(self.complete("")), {verb.split()[0] for verb in self.verbs()})
        self.assertEqual(self.complete("ru"), ["run"])
        self.assertLessEqual({"csv", "cifar10"}, set(self.complete("convert", "")))
        self.assertEqual(self.complete("run", "--conf"), ["--config="])
        self.assertEqual(self.complete("convert", "csv", "--sour"), ["--source="])
        self.write("job.prototxt", "")
        self.assertEqual(self.complete("run", "--config", "=", "jo"), ["job.prototxt"])


class ScriptsTest(cluster.ClusterTest):
    """Parts of the install by themselves, for places of which a whole one would cost too much."""

    def run_script(self, name, definitions, **environment):
        installed.checked(
            [
                "cmake",
                *(f"-D{key}={value}" for key, value in definitions.items()),
                "-P",
                os.path.join(cluster.REPOSITORY, "packaging", name),
            ],
            60,
            cwd=self.directory,
            env={**os.environ, **environment},
            umask=installed.STRICT_UMASK,
        )

    def test_a_stage_may_be_relative(self):
        self.run_script(
            "make_directories.cmake",
            {"directories": "share/poseidon", "CMAKE_INSTALL_PREFIX": "/usr/local"},
            DESTDIR="a stage",
        )
        for folder in ("a stage", "a stage/usr/local/share/poseidon"):
            self.assertEqual(os.stat(self.path(folder)).st_mode & 0o777, 0o755)

    def test_pkg_config_knows_places_outside_the_prefix(self):
        places = {
            "CMAKE_INSTALL_FULL_LIBDIR": self.path("libraries/lib64"),
            "CMAKE_INSTALL_FULL_INCLUDEDIR": self.path("headers"),
        }
        self.run_script(
            "pkg_config.cmake",
            {"CMAKE_INSTALL_PREFIX": "/usr/local", "PROJECT_VERSION": "0.1.0", **places},
        )
        folder = self.path("libraries/lib64/pkgconfig")
        os.makedirs(folder)
        shutil.move(self.path("poseidon.pc"), folder)
        for variable, place in zip(("libdir", "includedir"), places.values()):
            said = installed.checked(
                ["pkg-config", f"--variable={variable}", "poseidon"],
                60,
                env={**os.environ, "PKG_CONFIG_PATH": folder},
            )
            self.assertEqual(os.path.normpath(said.strip()), place)


class FolderTest(installed.InstalledTest):
    """A project that has this one in a folder."""

    PROJECT = """cmake_minimum_required(VERSION 3.22)
project(outer CXX)
list(APPEND CMAKE_MODULE_PATH ${PROJECT_SOURCE_DIR}/cmake)
add_library(lmdb INTERFACE)
add_subdirectory(poseidon)
foreach(program communicator session)
  add_executable(${program} ${program}.cc)
  target_link_libraries(${program} PRIVATE Poseidon::poseidon)
endforeach()
if(TARGET header_check)
  message(FATAL_ERROR "tests, unasked")
endif()
"""

    def setUp(self):
        super().setUp()
        folder = self.path("project")
        self.installed = installed.Installed(os.path.join(folder, "build", "poseidon"), folder)
        self.installed.write("CMakeLists.txt", self.PROJECT)
        # Modules of its own, with names that this project has, too.
        os.makedirs(os.path.join(folder, "cmake"))
        for module in pathlib.Path(cluster.REPOSITORY, "cmake").glob("*.cmake"):
            self.installed.write(
                f"cmake/{module.name}", 'message(FATAL_ERROR "the outer project\'s")\n'
            )
        os.symlink(cluster.REPOSITORY, os.path.join(folder, "poseidon"))
        for header in ("communicator", "session"):
            example = installed.example_of(f"{cluster.REPOSITORY}/include/poseidon/{header}.h")
            self.installed.write(f"{header}.cc", example)

    def call(self, seconds, *command):
        folder = self.installed.folder
        return installed.checked(["cmake", *command], seconds, cwd=folder)

    def configure(self):
        self.call(
            120,
            *("-S", ".", "-B", "build", "-G", "Ninja"),
            *("-DPOSEIDON_TORCH=OFF", "-DPOSEIDON_CUDA=OFF"),
        )

    def test_it_can_be_configured(self):
        self.configure()

    @cluster.slow
    def test_it_builds_and_runs_its_programs(self):
        self.configure()
        self.call(2400, "--build", "build", "--parallel", "2")
        self.check_communicator(os.path.join(self.installed.folder, "build", "communicator"))
        self.check_training(os.path.join(self.installed.folder, "build", "session"), 500)


class WheelCommand(unittest.TestCase):
    """`poseidon`, as the wheel installs it (tests/torch/wheel_test.py builds a real one)."""

    def test_it_starts_where_pytorch_is_not(self):
        module, function = re.search(
            r'^poseidon = "(\w+(?:\.\w+)*):(\w+)"$',
            (ROOT / "python/pyproject.toml").read_text(),
            re.MULTILINE,
        ).groups()
        with tempfile.TemporaryDirectory(prefix="poseidon-wheel-") as folder:
            site = pathlib.Path(folder)
            for package in ("poseidon_torch", "poseidon_torch_command"):
                shutil.copytree(ROOT / "python" / package, site / package)
            (site / "torch.py").write_text("raise ImportError('torch was imported')\n")
            (site / "poseidon_torch/bin").mkdir()
            program = site / "poseidon_torch/bin/poseidon"
            program.write_text('#!/bin/sh\necho "$@"\n')

            def call():
                return subprocess.run(
                    [
                        sys.executable,
                        "-c",
                        f"from {module} import {function}; {function}()",
                        "plan",
                        "--net=x",
                    ],
                    env={**os.environ, "PYTHONPATH": folder},
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )

            refused = call()  # it is no program yet
            self.assertEqual(refused.returncode, 1)
            self.assertEqual(
                refused.stderr,
                f"poseidon: can't start {program.resolve()}: Permission denied; install the wheel again\n",
            )
            program.chmod(0o755)
            done = call()
            self.assertEqual(done.stdout, "plan --net=x\n", done.stderr)


if __name__ == "__main__":
    cluster.main()
