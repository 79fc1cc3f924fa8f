"""The library that makes unmodified programs workers (docs/caffe.md) refuses, with a message, programs that
it can't stand before, and leaves alone those that have nothing to do with Caffe."""

import os
import shutil
import subprocess

import cluster


class PreloadTest(cluster.ClusterTest):
    def run_preloaded(self, *command):
        cluster.needs_preloading(self)
        library = os.path.join(cluster.programs(), "libposeidon_caffe_preload.so")
        # Without what tests of builds with sanitizers run with.
        environment = {name: os.environ[name] for name in os.environ if name != "ASAN_OPTIONS"}
        done = subprocess.run(
            command,
            env={**environment, "LD_PRELOAD": library},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stderr

    def program(self, name):
        return os.path.join(cluster.programs(), "../tests", name)

    def test_other_programs_run_as_ever(self):
        code, said = self.run_preloaded("/bin/sh", "-c", "exit 7")
        self.assertEqual((code, said), (7, ""))

    def test_a_program_with_address_sanitizer_runs(self):
        """Its runtime refuses to start behind a library that it does not know."""
        program = self.path("with_sanitizer")
        subprocess.run(
            ["c++", "-fsanitize=address", "-x", "c++", "-", "-o", program],
            input="int main() { return 7; }",
            text=True,
            timeout=60,
            check=True,
        )
        self.assertEqual(self.run_preloaded(program), (7, ""))

    def test_what_a_program_is_started_with(self):
        """What the user preloads comes first, as the runtime of a sanitizer has to; and OpenBLAS has
        the job's threads."""
        cluster.needs_preloading(self)
        job = cluster.replay_config(workers=1, servers=1, training="threads: 3")
        config = self.write("config.prototxt", job)
        run = self.start(
            "poseidon",
            "run",
            f"--config={config}",
            f"--out={self.path('out')}",
            "--",
            *("/bin/sh", "-c", 'echo "$OPENBLAS_NUM_THREADS $LD_PRELOAD"; exit 7'),
            name="run",
            prefix=(
                "env",
                *("-u", "OPENBLAS_NUM_THREADS", "-u", "GOTO_NUM_THREADS", "-u", "OMP_NUM_THREADS"),
                "LD_PRELOAD=libm.so.6",
            ),
        )
        self.assertEqual(run.wait(), 7)
        with open(self.path("out/logs/worker-0.log"), encoding="utf-8") as log:
            self.assertRegex(log.read(), r"3 libm\.so\.6:\S*libposeidon_caffe_preload\.so\n")

    def test_refuses_static_linking(self):
        code, said = self.run_preloaded(self.program("caffe_linked_statically"))
        self.assertEqual(code, cluster.CONFIG_ERROR)
        self.assertIn("the program has Caffe linked statically", said)

    def test_refuses_a_program_with_the_patch_inside(self):
        code, said = self.run_preloaded(self.program("caffe_with_patch_inside"))
        self.assertEqual(code, cluster.CONFIG_ERROR)
        self.assertIn("the program has Poseidon's patch inside", said)

    def test_refuses_another_caffe(self):
        code, said = self.run_preloaded(self.program("caffe_of_another_version"))
        self.assertEqual(code, cluster.CONFIG_ERROR)
        self.assertRegex(
            said,
            r"the libcaffe\.so of this program \(.*/libcaffe\.so\) has no "
            r"_ZN5caffe6SolverIfEC2ERKNSt7__cxx1112basic_string",
        )

    def test_says_what_it_takes_where_there_is_no_patch(self):
        if os.path.exists(os.path.join(cluster.programs(), "libposeidon_caffe.so")):
            self.skipTest("this build has the patch")
        os.environ["POSEIDON_JOB"], os.environ["POSEIDON_RANK"] = "job.prototxt", "0"
        self.addCleanup(os.environ.pop, "POSEIDON_JOB")
        self.addCleanup(os.environ.pop, "POSEIDON_RANK")
        code, said = self.run_preloaded(self.program("caffe_without_patch"))
        self.assertEqual(code, cluster.CONFIG_ERROR)
        self.assertIn(
            "libposeidon_caffe.so, which makes programs that use Caffe workers of a job; "
            "build Poseidon with -DCaffe_DIR",
            said,
        )

    def test_build_without_the_library(self):
        """It is said before anything is started, and not by a worker that never joins."""
        poseidon = os.path.join(self.directory, "poseidon")
        shutil.copy(os.path.join(cluster.programs(), "poseidon"), poseidon)
        config = self.write("config.prototxt", cluster.replay_config())
        run = self.spawn("run", [poseidon, "run", f"--config={config}", "--", "/bin/true"])
        self.assertEqual(run.wait(cluster.ENDING), 1)
        self.assertRegex(run.output(), "there is no .*/libposeidon_caffe_preload.so, which makes a")
        self.assertNotIn("starting", run.output())

    def test_paths_that_can_not_be_preloaded(self):
        """Nothing in LD_PRELOAD keeps a blank or a colon from parting a path."""
        config = self.write("config.prototxt", cluster.replay_config())
        said = "has a blank or a colon in it, so the library that makes a program a worker can't"
        for name in ("my programs", "of:all"):
            os.mkdir(self.path(name))
            poseidon = self.path(f"{name}/poseidon")
            shutil.copy(os.path.join(cluster.programs(), "poseidon"), poseidon)
            library = self.write(f"{name}/libposeidon_caffe_preload.so", "")
            run = self.spawn("run", [poseidon, "run", f"--config={config}", "--", "/bin/true"])
            self.assertEqual(run.wait(cluster.ENDING), 1)
            self.assertIn(f"{library} {said}", run.output())
        run = self.start(
            "poseidon",
            "run",
            f"--config={config}",
            f"--hosts={self.write('hosts', 'a 127.0.0.1')}",
            "--remote_programs=/opt/my programs",
            "--",
            "/bin/true",
            name="run",
        )
        self.assertEqual(run.wait(cluster.ENDING), 1)
        self.assertIn(f"--remote_programs: /opt/my programs {said}", run.output())

    def test_leaves_programs_alone_that_take_part_by_themselves(self):
        self.assertEqual(self.run_preloaded(self.program("caffe_with_front_door")), (0, ""))

    def test_programs_run_without_it(self):
        for name in (
            "caffe_linked_statically",
            "caffe_of_another_version",
            "caffe_with_patch_inside",
        ):
            self.assertEqual(subprocess.run([self.program(name)], check=False).returncode, 0)


if __name__ == "__main__":
    cluster.main()
