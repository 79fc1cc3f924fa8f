"""Runs the table of trials (trials.py). Whatever is tried, a command ends in time by itself, not by a
signal, with a code that fits; it says what is wrong in words for people; and it leaves no process and no
half-written file behind.

  hostile_test.py --bin=DIR [--torch] [--slow] [--seed=N]
"""

import os
import random
import re
import subprocess
import sys
import time

import cluster
import surroundings
import trials

# Words of libraries and of our own mistakes, which no user should read.
UNFIT = r"Check failed|terminate called|std::|\[json\.exception|Traceback|Segmentation"

_seed = random.randrange(10**6)


def namespaces():
    """Networks of this machine's own that somebody has made."""
    folder = "/var/run/netns"
    return os.listdir(folder) if os.path.isdir(folder) else []


class Workshop:
    """A directory in which a trial is prepared, and its random numbers."""

    def __init__(self, test, number):
        self.random = random.Random(f"{_seed} {number}")
        self._test = test
        self._directory = test.path(f"trial-{number}")
        os.mkdir(self._directory)

    def path(self, name):
        return os.path.join(self._directory, name)

    def write(self, name, content):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        mode = "wb" if isinstance(content, bytes) else "w"
        with open(self.path(name), mode) as file:  # pylint: disable=unspecified-encoding
            file.write(content)
        return self.path(name)

    def succeed(self, *arguments):
        self._test.succeed(*arguments)

    def material(self, name):
        """The path of a file or directory as it should be."""
        return self._test.material(name)

    def training(self, iterations, snapshots):
        return self._test.training(self._directory, iterations, snapshots)

    def small_disk(self, size):
        return surroundings.small_disk(self._test, self.path("disk"), size)

    def full_disk(self):
        return surroundings.full_disk(self._test, self.path("full"))

    def with_few_threads(self, threads):
        os.chmod(os.path.dirname(self._directory), 0o755)
        os.chmod(self._directory, 0o777)
        program = os.path.join(cluster.programs(), "poseidon")
        return surroundings.with_few_threads(program, threads)


class HostileTest(cluster.ClusterTest):
    def setUp(self):
        super().setUp()
        self._made = False

    def succeed(self, *arguments):
        self.assertEqual(self.start("poseidon", *arguments).wait(), cluster.SUCCESS)

    def material(self, name):
        if not self._made:
            self._made = True
            self.make_materials()
        return self.path(
            {
                "lmdb": "data/train_lmdb",
                "net": "net.prototxt",
                "snapshots": "good",
                "model": "good/small_iter_2.caffemodel",
                "model.h5": "good/hdf5_iter_2.caffemodel.h5",
            }[name]
        )

    def make_materials(self):
        rows = "".join(f"{i % 256},{i % 7},{i % 5},{9 - i % 10},{i % 3}\n" for i in range(60))
        table = self.write("table.csv", rows)
        self.succeed(
            "convert",
            "csv",
            f"--source={table}",
            f"--out={self.path('data')}",
            "--train_records=40",
        )
        net = trials.NET.format(source=self.path("data/train_lmdb"), backend="LMDB")
        self.write("net.prototxt", net)
        self.succeed(*self.training(self.path("binary"), 2, self.path("good")))
        self.succeed(*self.training(self.path("hdf5"), 2, self.path("good"), "HDF5"))

    def training(self, directory, iterations, snapshots, file_format="BINARYPROTO"):
        """The command of a training of the small net with a snapshot each iteration."""
        os.makedirs(directory, exist_ok=True)
        prefix = "hdf5" if file_format == "HDF5" else "small"
        solver = f"""net: "{self.path('net.prototxt')}" base_lr: 0.001 lr_policy: "fixed" momentum: 0.9
            max_iter: {iterations} snapshot: 1 snapshot_prefix: "{snapshots}/{prefix}"
            snapshot_format: {file_format} random_seed: 1"""
        job = f"""cluster {{ workers: 1 servers: 1 }}
            training {{ solver: "{directory}/solver.prototxt" threads: 1 }}"""
        for name, text in (("solver.prototxt", solver), ("job.prototxt", job)):
            with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
                file.write(text)
        return ["run", f"--config={directory}/job.prototxt", f"--out={directory}/out"]

    def test_quick(self):
        self.try_all(lambda trial: trial.rounds)

    @cluster.slow
    def test_all(self):
        self.try_all(lambda trial: trial.slow_rounds)

    def try_all(self, rounds_of):
        number = 0
        for trial in trials.TRIALS:
            if trial.computes and not cluster.has_torch():
                continue
            begin = time.monotonic()
            for _ in range(rounds_of(trial)):
                number += 1
                with self.subTest(trial.name, seed=_seed, number=number):
                    self.run_trial(trial, Workshop(self, number))
            print(f"{time.monotonic() - begin:6.1f} s  {trial.name}", file=sys.stderr)

    def run_trial(self, trial, workshop):
        command = trial.make(workshop)
        environment = trial.environment(workshop)
        prefix = ["env", *(f"{name}={value}" for name, value in environment.items())]
        prefix += trial.prefix(workshop)
        program = os.path.join(cluster.programs(), "poseidon")
        process = self.spawn("trial", [*prefix, program, *command])
        try:
            if trial.signal_after:
                text, numbers, most_delay = trial.signal_after
                process.await_output(text, trial.seconds)
                time.sleep(workshop.random.uniform(0, most_delay))
                process.signal(workshop.random.choice(numbers))
            trial.beside(self, process)
            self.check_end(trial, command, process)
            trial.check(self, workshop)
        finally:
            process.popen.kill()
            process.popen.wait()
            self.processes.remove(process)
        self.assert_nothing_left(cluster.ENDING)
        self.assert_no_half_written_files(workshop.path(""))
        self.assert_no_namespaces(process.pid)

    def check_end(self, trial, command, process):
        code = process.wait(trial.seconds)
        said = process.output()
        shown = f"{subprocess.list2cmdline(command)}\nended with {code} and said\n{said[-2000:]}"
        self.assertIn(code, trial.codes, shown)
        self.assertTrue(re.search(trial.words, said), shown)
        self.assertIsNone(re.search(UNFIT, said), shown)
        if code > 0 and code != cluster.INTERRUPTED:
            # Words, which parts of a path are not.
            words = re.findall(r"(?<![\w/.-])[A-Za-z]{2,}(?![\w/-])", said.strip().splitlines()[-1])
            self.assertGreaterEqual(len(words), 2, f"nothing was said:\n{shown}")

    def assert_no_half_written_files(self, directory):
        for folder, _, names in os.walk(directory):
            for name in names:
                self.assertNotRegex(name, r"\.tmp\d*$|\.part$", folder)
            self.assertNotRegex(folder, r"_lmdb\.\w{6}$")

    def assert_no_namespaces(self, pid):
        left = [name for name in namespaces() if name.startswith(f"poseidon-{pid}-")]
        self.assertEqual(left, [])


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        if argument.startswith("--seed="):
            _seed = int(argument.removeprefix("--seed="))
            sys.argv.remove(argument)
    print(f"seed {_seed}", file=sys.stderr)
    cluster.main()
