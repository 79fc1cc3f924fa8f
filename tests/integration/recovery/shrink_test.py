"""Daemons of a job with `recovery { mode: SHRINK }` die: the job goes on without them. Workers come to
one with `elastic` and leave it."""

import os
import re
import signal

import cluster
from recovery_test import (
    ITERATIONS,
    NODES,
    SERVERS,
    TEST_INTERVAL,
    WORKERS,
    RecoveryTest,
    tested_at,
)

SERVER_NAMES = [name for name in NODES if name.startswith("server")]


class ShrinkingTest(RecoveryTest):
    """`poseidon run` goes on without what is killed."""

    def check(self, *names):
        run = self.start_run(self.config().replace("mode: REPLACE", "mode: SHRINK"))
        run.await_output(tested_at(TEST_INTERVAL))
        for name in names:
            self.kill(name)
        self.assertEqual(run.wait(), cluster.SUCCESS)
        self.assert_nothing_left(cluster.ENDING)
        for name in names:
            killed = f"{name} was killed by signal 9 (SIGKILL); the job goes on without it, if "
            self.assertIn(killed + "others have the parameters\n", run.output())
        workers = WORKERS - sum(name.startswith("worker") for name in names)
        servers = SERVERS - sum(name.startswith("server") for name in names)
        # On a busy machine the second is found dead when the job has got over the first.
        left = (WORKERS, SERVERS)
        going_on = r"goes on with (\d+) of (\d+) workers and (\d+) of (\d+) servers"
        for steps in re.findall(going_on, run.output()):
            workers_now, workers_before, servers_now, servers_before = map(int, steps)
            self.assertEqual((workers_before, servers_before), left)
            left = (workers_now, servers_now)
        self.assertEqual(left, (workers, servers))
        # Whoever is the first now tests.
        run.await_output(tested_at(ITERATIONS))
        self.check_summary(workers, names)

    def check_summary(self, workers, names):
        summary = self.read_json("out/summary.json")
        ranks = [worker["rank"] for worker in summary["workers"]]
        left = [rank for rank in range(WORKERS) if f"worker-{rank}" not in names]
        self.assertEqual(ranks, left)
        self.assertEqual(len({worker["parameter_hash"] for worker in summary["workers"]}), 1)
        for sums in ("loss", "duration_ms", "exposed_ms"):
            self.assertEqual(len(summary[sums]), ITERATIONS, sums)
        lost = [re.sub(r" \(.*", "", n) for r in summary["recoveries"] for n in r["lost"]]
        self.assertEqual(sorted(lost), sorted(name.replace("-", " ") for name in names))
        for recovery in summary["recoveries"]:
            self.assert_makes_sense(recovery)
        first, *later = summary["tenures"]
        self.assertEqual(first, {"iteration": 0, "workers": WORKERS})
        starts = {recovery["iteration"] for recovery in summary["recoveries"]}
        self.assertLessEqual({tenure["iteration"] for tenure in later}, starts)
        self.assertEqual((later or [first])[-1]["workers"], workers)

    def test_worker_0_and_a_server(self):
        self.check("worker-0", "server-0")

    @cluster.slow
    def test_each_alone(self):
        for name in NODES[1:]:
            with self.subTest(name):
                self.check(name)

    @cluster.slow
    def test_all_servers(self):
        """A job can't go on without any, and waits for one, which `poseidon run` starts."""
        run = self.start_run(self.config().replace("mode: REPLACE", "mode: SHRINK"))
        run.await_output(tested_at(TEST_INTERVAL))
        for name in SERVER_NAMES:
            self.kill(name)
        self.check_one_server(run)

    @cluster.slow
    def test_one_server_after_the_other(self):
        """The rank of the first is given up, so the last one is started again."""
        run = self.start_run(self.config().replace("mode: REPLACE", "mode: SHRINK"))
        run.await_output(tested_at(TEST_INTERVAL))
        first, last = SERVER_NAMES
        self.kill(first)
        run.await_output(f"goes on with {WORKERS} of {WORKERS} workers and 1 of 2 servers")
        self.kill(last)
        self.check_one_server(run)
        self.assertIn(f"{last} was killed by signal 9 (SIGKILL); it is started again", run.output())

    def check_one_server(self, run):
        self.assertEqual(run.wait(), cluster.SUCCESS)
        self.assert_nothing_left(cluster.ENDING)
        again = r"server-(\d) was killed by signal 9 .*; it is started again"
        (left,) = map(int, re.findall(again, run.output()))
        summary = self.read_json("out/summary.json")
        self.assertEqual(len(summary["servers"]), left + 1)  # by rank
        self.assertEqual(len({worker["parameter_hash"] for worker in summary["workers"]}), 1)
        self.assertEqual(len(summary["workers"]), WORKERS)
        self.assertEqual(len(summary["loss"]), ITERATIONS)


class ElasticTest(RecoveryTest):
    """Workers join a job of `poseidon run`, and leave it."""

    # More than are done while a worker starts, which takes seconds on a busy machine; the others do not
    # wait for it. The test stops the job when it has seen all.
    iterations = 100 * ITERATIONS

    def config(self, policy="BYTES", *, recovery="", cluster_fields=""):
        elastic = (
            f"elastic {{ min_workers: 2 max_workers: {WORKERS + 1} regroup_interval_seconds: 0 }}"
        )
        plain = super().config(policy, recovery=recovery, cluster_fields=cluster_fields)
        return elastic + plain.replace("mode: REPLACE", "mode: SHRINK")

    def leave(self, *arguments):
        """What `poseidon leave` says, and its exit code."""
        asked = self.start("poseidon", "leave", *arguments)
        code = asked.wait()
        return asked.output(), code

    def assert_needs_the_other_config(self, port):
        """Whoever comes with the file that `poseidon run` was given hears of the one that it has written."""
        config = self.config(cluster_fields=f"scheduler_port: {port}")
        refused = self.start("poseidon_worker", f"--config={self.write('own.prototxt', config)}")
        self.assertEqual(refused.wait(), cluster.REFUSED)
        self.assertIn(
            "the job was started by `poseidon run` or submitted to Slurm; start this process with the "
            "job.prototxt in that job's output directory",
            refused.output(),
        )

    def test_one_joins_and_two_leave(self):
        run = self.start_run(self.config())
        run.await_output(tested_at(0))
        joined = self.start("poseidon_worker", f"--config={self.path('out/job.prototxt')}")
        run.await_output(rf"worker 3 \(.*\) joined; {WORKERS + 1} worker\(s\); goes on from")
        os.kill(self.pid_of("worker", "0"), signal.SIGTERM)
        run.await_output(rf"worker 0 \(.*\) left; {WORKERS} worker\(s\); goes on from iteration")
        said, code = self.leave(f"--config={self.path('out/job.prototxt')}", "--worker=3")
        self.assertRegex(
            said, r"(?m)^worker 3 \(.*\) is about to leave; its process ends with code 0$"
        )
        self.assertEqual(code, cluster.SUCCESS)
        self.assertEqual(joined.wait(), cluster.SUCCESS)
        self.assertRegex(joined.output(), r"left the job before iteration \d+, as it was asked to")
        with open(self.path("out/job.prototxt"), encoding="utf-8") as config:
            port = re.search(r"scheduler_port: (\d+)", config.read()).group(1)
        self.assert_needs_the_other_config(port)
        run.await_output(rf"worker 3 \(.*\) left; {WORKERS - 1} worker\(s\); goes on from")
        for rank, why in (
            (3, "the job has no worker 3; its workers are 1, 2"),
            (1, "can't leave: 2 worker(s) are left, and the job wants that many (elastic.min_work"),
        ):
            said, code = self.leave(f"--scheduler=localhost:{port}", f"--worker={rank}")
            self.assertIn(why, said)
            self.assertEqual(code, cluster.CONFIG_ERROR)
        # By whoever is the first now.
        run.await_output(r"worker 3 \(.*\) left; .*[\s\S]*\ntest at iteration \d+: ")
        run.signal(signal.SIGINT)
        self.assertEqual(run.wait(), cluster.INTERRUPTED)
        self.assert_nothing_left(cluster.ENDING)
        stopped = re.search(r"a signal stopped it before iteration (\d+)", run.output()).group(1)
        summary = self.read_json("out/summary.json")
        self.assertEqual([worker["rank"] for worker in summary["workers"]], [1, 2])
        self.assertEqual(len({worker["parameter_hash"] for worker in summary["workers"]}), 1)
        self.assertEqual(len(summary["loss"]), int(stopped))
        self.assertEqual(
            [tenure["workers"] for tenure in summary["tenures"]],
            [WORKERS, WORKERS + 1, WORKERS, WORKERS - 1],
        )
        for recovery in summary["recoveries"]:
            self.assertEqual((recovery["lost"], recovery["redone_iterations"]), ([], 0))
            self.assert_makes_sense(recovery)

    def test_what_can_not_be_asked(self):
        for arguments, why in (
            (["--worker=1"], "--config or --scheduler is missing"),
            (["--scheduler=localhost:1"], "--worker is missing; say which rank is to leave"),
            (["--worker=1", "--scheduler=localhost"], '"localhost"; write HOST:PORT, such as'),
            (["--worker=1", "--scheduler=localhost:1", "--key_file=/nowhere"], "/nowhere"),
        ):
            said, code = self.leave(*arguments)
            self.assertIn(why, said)
            self.assertNotEqual(code, cluster.SUCCESS)


if __name__ == "__main__":
    cluster.main()
