"""A long training among many deaths: it ends with the bits of one in which nobody died, and those that
live through all of it need no more memory, descriptors and threads at its end than at its begin."""

import os
import random
import statistics
import time

import cluster
import recovery_test

# Never killed, so that each recovery leaves its traces in them.
SURVIVORS = ("server-1", "worker-2")
VICTIMS = ("worker-0", "worker-1", "server-0")
# One death in so many is the scheduler's.
SCHEDULERS_TURN = 6
# Seconds between two deaths: some come while the one before is being recovered.
PAUSES = (0.5, 15)
# What allocators keep for themselves grows in the first minutes; after that a leak of a buffer of
# the model a recovery (LeNet has 1.7 MB) is over this within twenty recoveries.
MOST_GROWTH = 24 << 20
SAMPLE_SECONDS = 1


class Usage:
    """What one process has used, sample by sample."""

    def __init__(self):
        self.bytes, self.descriptors, self.threads = [], [], []

    def sample(self, pid):
        try:
            with open(f"/proc/{pid}/statm", encoding="ascii") as file:
                pages = int(file.read().split()[1])
            descriptors = len(os.listdir(f"/proc/{pid}/fd"))
            threads = len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            return  # it has ended
        self.bytes.append(pages * os.sysconf("SC_PAGE_SIZE"))
        self.descriptors.append(descriptors)
        self.threads.append(threads)

    def __str__(self):
        return (
            f"{self.bytes[0] >> 20} to {self.bytes[-1] >> 20} MiB, {self.descriptors[0]} to "
            f"{self.descriptors[-1]} descriptors, {self.threads[0]} to {self.threads[-1]} threads"
        )


def quarters(samples):
    """The medians of the second and of the last quarter: the first is for getting warm."""
    quarter = max(1, len(samples) // 4)
    return statistics.median(samples[quarter : 2 * quarter]), statistics.median(samples[-quarter:])


class SoakTest(recovery_test.RecoveryTest):
    """`poseidon run` starts what is killed again, again and again."""

    small = False  # what leaks is seen sooner

    def setUp(self):
        super().setUp()
        # Results of tests are lines; these would be many.
        self.copy_solver(
            ("test_interval: .*", "test_interval: 1000"), ("test_iter: .*", "test_iter: 1")
        )

    def train(self, iterations):
        """Undisturbed; the seconds that it took, and its summary."""
        self.iterations = iterations
        summary = self.run_job(self.config(), seconds=4 * 3600)
        return sum(summary["duration_ms"]) / 1e3, summary

    def soak(self, seconds, goodput):
        """`goodput`: of the iterations that would be done in the time if nobody died. Where that is more
        than are done among the deaths, the job does the rest undisturbed."""
        seconds_of_some, _ = self.train(2000)
        self.iterations = int(2000 * goodput * seconds / seconds_of_some)
        seed = random.randrange(1 << 30)
        begun = time.monotonic()
        run = self.start_run(self.config())
        run.await_output("iteration ")
        with self.subTest(seed=seed, iterations=self.iterations):
            usage, deaths = self.watch_until_the_end(run, random.Random(seed), begun + seconds)
            self.assertEqual(run.wait(), cluster.SUCCESS)
            took = time.monotonic() - begun
            self.check(run, usage, deaths, took)

    def watch_until_the_end(self, run, draw, peace):
        """What the survivors have used, and how many processes were killed until `peace`."""
        usage = {name: Usage() for name in (*SURVIVORS, "run")}
        deaths = 0
        due = time.monotonic() + draw.uniform(*PAUSES)
        while run.popen.poll() is None:
            for name in SURVIVORS:
                role, _, rank = name.partition("-")
                if (pid := self.find_pid(role, rank)) is not None:
                    usage[name].sample(pid)
            usage["run"].sample(run.pid)
            if peace > time.monotonic() >= due:
                deaths += self.kill_one(draw)
                due = time.monotonic() + draw.uniform(*PAUSES)
            time.sleep(SAMPLE_SECONDS)
        return usage, deaths

    def kill_one(self, draw):
        name = "scheduler" if draw.randrange(SCHEDULERS_TURN) == 0 else draw.choice(VICTIMS)
        role, _, rank = name.partition("-")
        if self.find_pid(role, rank or None) is None:
            return 0  # it is being started again
        self.kill(name)
        return 1

    def check(self, run, usage, deaths, took):
        summary = self.read_json("out/summary.json")
        recoveries = summary["recoveries"]
        print(
            f"{took:.0f} s, {self.iterations} iterations, {deaths} deaths, {len(recoveries)} "
            f"recoveries, {summary['scheduler_restarts']} of the scheduler; "
            + "; ".join(f"{name}: {used}" for name, used in usage.items())
        )
        # Of several deaths one recovery may come, but not of a dozen.
        self.assertGreater(12 * (len(recoveries) + summary["scheduler_restarts"]), deaths)
        for recovery in recoveries:
            self.assert_makes_sense(recovery)
        for name, used in usage.items():
            warm, last = quarters(used.bytes)
            self.assertLess(last - warm, MOST_GROWTH, f"{name}: bytes {used.bytes}")
            # They go up and down with the connections to who is there, and there are more while one
            # is made anew; at the end, as in the first minute, everybody is there.
            for what in ("descriptors", "threads"):
                samples = getattr(used, what)
                begun, last = samples[: len(samples) // 2], samples[-(len(samples) // 4) :]
                self.assertLessEqual(samples[-1], max(samples[:60]), f"{name}: {what} {samples}")
                self.assertLessEqual(max(last), max(begun), f"{name}: {what} {samples}")
        self.assert_nothing_left(cluster.ENDING)
        self.check_against_undisturbed(summary)
        self.assertNotIn("differ", run.output())

    def check_against_undisturbed(self, summary):
        _, undisturbed = self.train(self.iterations)
        self.assertEqual(
            self.assert_same_parameters(summary, recovery_test.WORKERS),
            self.assert_same_parameters(undisturbed, recovery_test.WORKERS),
        )
        untold = {
            recovery["iteration"] - 1
            for recovery in summary["recoveries"]
            if any(name.startswith("worker ") for name in recovery["lost"])
        }
        self.assertEqual(len(summary["loss"]), self.iterations)
        for iteration, expected in enumerate(undisturbed["loss"]):
            loss = summary["loss"][iteration]
            if iteration in untold or loss is None:
                continue
            delta = recovery_test.WORKERS * 2.0**-52 * abs(expected)
            self.assertAlmostEqual(loss, expected, delta=delta, msg=f"iteration {iteration}")

    @cluster.slow
    def test_ten_minutes(self):
        self.soak(600, goodput=0.4)

    @cluster.slow
    def test_an_hour(self):
        # Who is killed so often is started again after half a minute only, when it has been for a while.
        self.soak(3600, goodput=0.3)


if __name__ == "__main__":
    cluster.main()
