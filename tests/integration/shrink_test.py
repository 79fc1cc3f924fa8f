"""Daemons of a job with `recovery { mode: SHRINK }` die: the job goes on without them."""

import re

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
            killed = f"{name} was killed by signal 9 (SIGKILL); the job goes on without it\n"
            self.assertIn(killed, run.output())
        workers = WORKERS - sum(name.startswith("worker") for name in names)
        servers = SERVERS - sum(name.startswith("server") for name in names)
        self.assertIn(
            f"goes on with {workers} of {WORKERS} workers and {servers} of {SERVERS} servers",
            run.output(),
        )
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


if __name__ == "__main__":
    cluster.main()
