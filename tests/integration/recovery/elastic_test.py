"""Real daemons train while workers come and go, 2 -> 4 -> 3 of them: a layer in the net writes down
every sample that it sees, and a training by one process, with as many samples an iteration, has the
same losses."""

import csv
import os
import random
import re
import signal

import cluster
import lenet
import rounding

ITERATIONS = 160
# Whose losses are compared: the workers have changed by then. The net learns its records by heart after that, and a
# difference of one unit grows until trainings of other workers are as far apart as those that only round otherwise.
COMPARED = 60
BATCH = 8
RECORDS = 300
# What begins, what there is later, and what is left at last.
WORKERS = (2, 4, 3)
# Who is waited for needs seconds to start, on a busy machine many; so long an iteration takes until
# the test has seen what it waits for. With these the training does not come to its end before.
PAUSE = 0.5

# Between the data and the rest of the net. Where the file `fast` is, it does not hold up anybody.
LEDGER = '''
import caffe
import hashlib
import os
import time


class Ledger(caffe.Layer):
    """Appends to DIRECTORY/PROCESS a line an iteration: its number, and a hash of each sample."""

    def setup(self, bottom, top):
        self.directory = self.param_str

    def reshape(self, bottom, top):
        top[0].reshape(1)

    def forward(self, bottom, top):
        seen = [hashlib.sha1(sample.tobytes()).hexdigest() for sample in bottom[0].data]
        with open(os.path.join(self.directory, str(os.getpid())), "a") as file:
            print(self.iteration, *seen, file=file)
        if not os.path.exists(os.path.join(self.directory, "fast")):
            time.sleep(%s)

    def backward(self, top, propagate_down, bottom):
        pass
'''

LAYERS = """
layer {{
  name: "ledger" type: "Python" bottom: "data" top: "ledger" include {{ phase: TRAIN }}
  python_param {{ module: "ledger" layer: "Ledger" param_str: "{directory}" }}
}}
layer {{ name: "nothing" type: "Silence" bottom: "ledger" include {{ phase: TRAIN }} }}
"""


class ElasticTrainingTest(lenet.LenetTest):
    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(cluster.programs(), "libposeidon_python.so")):
            self.skipTest("this build has no Python layers")
        with open(f"{lenet.CONFIGS}/data/digits.csv", encoding="utf-8") as file:
            self.rows = list(csv.reader(file))
        # By digit in the file.
        random.Random(1).shuffle(self.rows)
        self.copy_solver()
        self.write("ledger.py", LEDGER % PAUSE)

    def make_data(self, name, first):
        """A data base of the records, of which the one with this number comes first."""
        rows, test = self.rows[:RECORDS], self.rows[RECORDS : RECORDS + 99]
        with open(self.path(f"{name}.csv"), "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows[first:] + rows[:first] + test)
        convert = self.start(
            "poseidon",
            "convert",
            "csv",
            f"--source={self.path(name)}.csv",
            f"--out={self.path(name)}",
            "--max_value=16",
            "--scale_height=28",
            "--scale_width=28",
            f"--train_records={RECORDS}",
            "--noshuffle",
            name=f"convert-{name}",
        )
        self.assertEqual(convert.wait(), cluster.SUCCESS)

    def make_solver(self, name, first=0):
        """Of a net that reads such a data base and writes its ledger into a directory of this name."""
        self.make_data(name, first)
        os.mkdir(self.path(f"ledger-{name}"))
        self.copy_net(digits=self.path(name))
        with open(self.path("net.prototxt"), encoding="utf-8") as file:
            net = file.read()
        self.write(
            f"net-{name}.prototxt",
            net + LAYERS.format(directory=self.path(f"ledger-{name}")),
        )
        with open(f"{lenet.CONFIGS}/models/lenet/solver.prototxt", encoding="utf-8") as file:
            solver = file.read()
        solver = solver.replace(
            "configs/models/lenet/net.prototxt", self.path(f"net-{name}.prototxt")
        )
        solver = re.sub("(?m)^test_i.*$", "", solver)
        solver += f'test_iter: 1 test_interval: 100000 snapshot_prefix: "{self.path(name)}"\n'
        return self.write(f"solver-{name}.prototxt", solver)

    def job(self, solver, workers, batch, iterations, more="", training=""):
        return f"""
            cluster {{ workers: {workers} servers: 1 }}
            communication {{ policy: BYTES deterministic: true }}
            training {{
              solver: "{solver}" iterations: {iterations} batch_per_worker: {batch} seed: 3
              threads: 1 shuffle: false {training}
            }} {more}"""

    def ledger(self, name, pid):
        """By iteration what the process has seen."""
        with open(self.path(f"ledger-{name}/{pid}"), encoding="ascii") as file:
            lines = [line.split() for line in file]
        seen = {int(number): samples for number, *samples in lines}
        self.assertEqual(len(seen), len(lines), "an iteration was computed twice")
        return seen

    def train_elastically(self):
        """Returns the summary, and by rank the process."""
        solver = self.make_solver("elastic")
        elastic = """
            recovery { mode: SHRINK }
            elastic { min_workers: 2 max_workers: 4 regroup_interval_seconds: 0 }"""
        run = self.start_run(
            self.job(
                solver,
                WORKERS[0],
                BATCH,
                ITERATIONS,
                elastic,
                f'weights: "{self.first_values(0)}"',
            )
        )
        run.await_output("iteration ")
        pids = {rank: self.pid_of("worker", rank) for rank in range(WORKERS[0])}
        for _ in range(WORKERS[1] - WORKERS[0]):
            joins = self.start("poseidon_worker", f"--config={self.path('out/job.prototxt')}")
            joined = run.await_output(
                rf"worker (\d) \([^)]*process {joins.pid}\)[^;]* joined; (\d) worker"
            )
            pids[int(joined.group(1))] = joins.pid
        os.kill(pids[1], signal.SIGTERM)
        run.await_output(r"worker 1 \(.*\) left; 3 worker\(s\)")
        self.write("ledger-elastic/fast", "")
        self.assertEqual(run.wait(), cluster.SUCCESS)
        return self.read_json("out/summary.json"), pids

    def tenures(self, summary):
        """First iteration, the one behind the last, workers, and samples before."""
        tenures, position = [], 0
        ends = [tenure["iteration"] for tenure in summary["tenures"][1:]] + [ITERATIONS]
        for tenure, end in zip(summary["tenures"], ends):
            tenures.append((tenure["iteration"], end, tenure["workers"], position))
            position += (end - tenure["iteration"]) * tenure["workers"] * BATCH
        return tenures

    def check_ledger(self, tenures, pids):
        """All that all have seen, in the order of iterations and places, is the records in theirs, one
        epoch after the other. Returns it."""
        ledgers = {rank: self.ledger("elastic", pid) for rank, pid in sorted(pids.items())}
        seen = []
        for begin, end, workers, position in tenures:
            self.assertEqual(len(seen), position)
            for iteration in range(begin, end):
                parts = [
                    ledger.pop(iteration) for ledger in ledgers.values() if iteration in ledger
                ]
                self.assertEqual(len(parts), workers, f"workers of iteration {iteration}")
                seen += [sample for part in parts for sample in part]
        self.assertEqual({rank: ledger for rank, ledger in ledgers.items() if ledger}, {})
        self.assertGreater(len(seen), 3 * RECORDS, "epochs")
        first_epoch = seen[:RECORDS]
        self.assertEqual(len(set(first_epoch)), RECORDS, "each sample once an epoch")
        for position, sample in enumerate(seen):
            self.assertEqual(sample, first_epoch[position % RECORDS], f"position {position}")
        return seen

    def train_serially(self, tenures, move=0):
        """One process, which goes on from a snapshot with another batch where a tenure begins. It reads as
        if it had always had that batch, so its records begin elsewhere. Returns the losses.
        """
        losses = []
        snapshot = ""
        for index, (begin, end, workers, position) in enumerate(tenures):
            batch = workers * BATCH
            name = f"serial-{move}-{index}-{len(self.processes)}"
            solver = self.make_solver(name, (position - begin * batch) % RECORDS)
            self.write(f"ledger-{name}/fast", "")
            with open(solver, "a", encoding="utf-8") as file:
                file.write("snapshot_after_train: true\n")
            before = f'weights: "{self.first_values(move)}"'
            if begin > 0:
                before = f'snapshot: "{snapshot}_iter_{begin}.solverstate"'
            summary = self.run_job(self.job(solver, 1, batch, end, training=before))
            losses += summary["loss"][-(end - begin) :]
            self.check_serial_ledger(name, position)
            snapshot = self.path(name)
        self.assertEqual(len(losses), ITERATIONS)
        return losses

    def check_serial_ledger(self, name, position):
        """The one process has seen what the others have, from this position on."""
        (pid,) = [entry for entry in os.listdir(self.path(f"ledger-{name}")) if entry != "fast"]
        samples = [s for _, seen in sorted(self.ledger(name, pid).items()) for s in seen]
        self.assertEqual(samples, self.seen[position : position + len(samples)])

    @cluster.slow
    def test_every_sample_once_an_epoch_and_the_losses_of_one_process(self):
        summary, pids = self.train_elastically()
        tenures = self.tenures(summary)
        self.assertEqual(tenures[0][2], WORKERS[0])
        self.assertEqual(max(tenure[2] for tenure in tenures), WORKERS[1])
        self.assertEqual(tenures[-1][2], WORKERS[2])
        self.seen = self.check_ledger(tenures, pids)
        self.assertLess(tenures[-1][0], COMPARED)
        reference = rounding.Rounding(lambda move: self.train_serially(tenures, move)[:COMPARED])
        reference.assert_same(self, summary["loss"][:COMPARED])
        # The bound is one: with the workers that it began with the training is another.
        begin, _, workers, position = tenures[0]
        reference.assert_differs(
            self, self.train_serially([(begin, ITERATIONS, workers, position)])[:COMPARED]
        )


class LeavingTest(cluster.ClusterTest):
    NODES = ("scheduler", "server-0", "server-1", "worker-0", "worker-1", "worker-2")

    def test_who_waits_to_join_ends_at_once(self):
        """The others do not pause to take it in, and again to let it go."""
        config = cluster.replay_config(
            workers=3,
            iterations=cluster.ENDLESS,
            cluster=f"scheduler_port: {cluster.free_port_pair()}",
        )
        # Longer than the test takes.
        config += (
            "recovery { mode: SHRINK } "
            "elastic { min_workers: 1 max_workers: 4 regroup_interval_seconds: 3600 }"
        )
        daemons = self.start_training(config, self.NODES)
        comes = self.start("poseidon_worker", f"--config={self.path('config.prototxt')}")
        daemons["scheduler"].await_output(rf"process {comes.pid}\) joined")
        comes.signal(signal.SIGTERM)
        self.assertEqual(comes.wait(), cluster.INTERRUPTED)
        self.assertNotIn("goes on from", daemons["scheduler"].output())
        daemons["scheduler"].signal(signal.SIGTERM)
        for name, daemon in daemons.items():
            self.assertEqual(daemon.wait(), cluster.INTERRUPTED, name)

    @cluster.slow
    def test_who_is_told_twice_is_lost(self):
        """It does not finish its iterations, and the others go on without it."""
        config = cluster.replay_config(
            workers=3,
            iterations=cluster.ENDLESS,
            cluster=f"scheduler_port: {cluster.free_port_pair()}",
        )
        config += "recovery { mode: SHRINK } elastic { min_workers: 1 }"
        # So that worker 0, for which the other one waits until it is told again, is not lost meanwhile.
        config = cluster.with_heartbeat_deadline(config, cluster.scaled(30))
        daemons = self.start_training(config, self.NODES)
        daemons["worker-0"].signal(signal.SIGSTOP)
        daemons["worker-1"].signal(signal.SIGTERM)
        daemons["scheduler"].await_output("worker 1 .* is about to leave")
        daemons["worker-1"].signal(signal.SIGTERM)
        self.assertEqual(daemons["worker-1"].wait(), cluster.INTERRUPTED)
        daemons["worker-0"].signal(signal.SIGCONT)
        daemons["scheduler"].await_output(
            "lost worker 1 .*: interrupted by a signal\n(.*\n)*.*goes on .*\n(.*\n)*iteration "
        )


if __name__ == "__main__":
    cluster.main()
