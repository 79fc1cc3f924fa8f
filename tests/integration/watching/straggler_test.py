"""A worker that computes at half speed is named, with its slow part and by how much, and nobody else is."""

import json
import re
import signal
import statistics

import cluster
import monitor_test

WORKERS, SLOW, FACTOR = 3, 1, 2
LAYERS = (("conv", 1000, 10), ("fc", (512, 300), 10))
# Milliseconds that an iteration's passes take at full speed. A replay sleeps them, and no sleep ends early.
PASSES = sum(2 * milliseconds for _, _, milliseconds in LAYERS)
# What docs/running.md says: somebody is slow if two comparisons over so many iterations each say so.
COMPARED, IN_A_ROW = 20, 2

SENTENCE = (
    rf"worker {SLOW} is slow: computing and waiting for data take it (\d+\.\d) times as long as the others "
    r"\((\d+\.\d) ms an iteration, theirs (\d+\.\d) ms\), most of it in computing; "
    r"see what else runs on its machine\n"
)


class StragglerTest(cluster.ClusterTest):
    def start_job(self, factors, iterations):
        """The daemons of a replay whose workers compute so many times as long as the config says."""
        config = cluster.replay_config(
            workers=len(factors),
            servers=1,
            iterations=iterations,
            layers=LAYERS,
            cluster=f"scheduler_port: {cluster.free_port_pair()}",
        )
        path = self.write("config.prototxt", config + "monitor { port: 0 }\n")
        # SIGINT stops training after an iteration, and the workers report as after a whole one.
        flags = {"scheduler": ("--sigint_effect=stop",), "server": ()}
        for rank, factor in enumerate(factors):
            flags[f"worker-{rank}"] = (f"--rank={rank}", f"--compute_factor={factor}")
        return {
            name: self.start(
                f"poseidon_{name.partition('-')[0]}",
                f"--config={path}",
                f"--out={self.path('out')}",
                *own,
                name=name,
            )
            for name, own in flags.items()
        }

    def slow_nodes(self, url):
        """By role and rank, what /api/job says of those that are slow."""
        nodes = json.loads(monitor_test.ask(url, "api/job"))["nodes"]
        return {(node["role"], node["rank"]): node["slow"] for node in nodes if node.get("slow")}

    def bounds(self, workers):
        """Of the ratio: that of the medians over all iterations, which the workers report, give or take
        three of the standard deviations that they report, as the watch's median is over some of these.
        """
        computing = [worker["computing"] for worker in workers]
        others = computing[:SLOW] + computing[SLOW + 1 :]
        ratio = computing[SLOW]["iteration_ms"] / statistics.median(
            other["iteration_ms"] for other in others
        )
        margin = 3 * sum(one["spread"] for one in computing)
        return ratio * (1 - margin), ratio * (1 + margin)

    def test_a_worker_at_half_speed_is_named(self):
        factors = [FACTOR if rank == SLOW else 1 for rank in range(WORKERS)]
        daemons = self.start_job(factors, cluster.ENDLESS)
        scheduler = daemons.pop("scheduler")
        url = scheduler.await_output(r"monitor: (http://127\.0\.0\.1:\d+/)")[1]
        times, own, theirs = map(float, scheduler.await_output("(?m)^" + SENTENCE).groups())
        shown = monitor_test.wait_for(lambda: self.slow_nodes(url), "slow worker on the monitor")
        scheduler.signal(signal.SIGINT)
        self.assertEqual(scheduler.wait(), cluster.INTERRUPTED)
        self.assert_all_succeed(daemons)

        # Once on the terminal and once in the log, which the test has in one file.
        self.assertEqual(len(re.findall(SENTENCE, scheduler.output())), 2)
        self.assertEqual(scheduler.output().count(" is slow: "), 2)
        self.assertGreaterEqual(own, FACTOR * PASSES)
        self.assertGreaterEqual(theirs, PASSES)

        summary = self.read_json("out/summary.json")
        (straggler,) = summary["stragglers"]
        self.assertEqual((straggler["worker"], straggler["part"]), (SLOW, "compute"))
        self.assertIsNone(straggler["until"])
        self.assertIn(straggler["from"], range(IN_A_ROW * COMPARED - 1, summary["iterations"]))
        self.assertEqual(list(shown), [("worker", SLOW)])
        self.assertEqual(shown["worker", SLOW]["part"], "compute")
        least, most = self.bounds(summary["workers"])
        for ratio in (straggler["ratio"], shown["worker", SLOW]["ratio"], own / theirs):
            self.assertGreater(ratio, least)
            self.assertLess(ratio, most)
        self.assertAlmostEqual(times, own / theirs, delta=0.1)  # each was rounded

    def test_workers_that_are_alike_are_not(self):
        # Four seconds: a worker that was slow from the start would be named after three.
        daemons = self.start_job([1] * WORKERS, iterations=4000 // PASSES)
        self.assert_all_succeed(daemons)
        self.assertNotIn(" is slow: ", daemons["scheduler"].output())
        self.assertEqual(self.read_json("out/summary.json")["stragglers"], [])


if __name__ == "__main__":
    cluster.main()
