"""A long training among many deaths: it ends with the bits of one in which nobody died, and those that
live through all of it need no more memory, descriptors and threads at its end than at its begin. And one of
many iterations in which nobody dies, of which no node may keep anything for each."""

import contextlib
import os
import random
import re
import statistics
import time

import cluster
import recovery_test
from told import untold_iterations

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

# Without deaths. As many iterations have a place of their own in the report's lists (kMostPlaces of
# scheduler/report/iteration_means.h); then iterations share places.
LISTED = 1 << 19
QUIET_ITERATIONS = LISTED + LISTED // 2
# Of bytes an iteration: less than the smallest block that malloc gives, which has 32, and more than two of the steps
# by 700 KB that its arenas grow by at any time, on a busy machine. The scheduler keeps a bit of each iteration, too.
LEAST_LEAK = 16
# Three lists with a sum and a count.
LISTS = 3 * 16
# A record of the journal: its length and check sum, the iteration, and the means that the report needs. A week of ten
# iterations a second is a quarter of a gigabyte.
RECORD = 48


def resident(pid):
    """Bytes of a process that are in memory."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Usage:
    """What one process has used, sample by sample."""

    def __init__(self):
        self.bytes, self.descriptors, self.threads = [], [], []

    def sample(self, pid):
        try:
            memory = resident(pid)
            descriptors = len(os.listdir(f"/proc/{pid}/fd"))
            threads = len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            return  # it has ended
        self.bytes.append(memory)
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
        untold = untold_iterations(summary, undisturbed)
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


class QuietTest(cluster.ClusterTest):
    """Small differences would be large after a week."""

    NODES = ("scheduler", "server-0", "worker-0", "worker-1")

    def samples(self, run):
        """By process, and of the journal: bytes by the iteration that the last progress line told of."""
        pids = {"run": run.pid}
        for name in self.NODES:
            role, _, rank = name.partition("-")
            pids[name] = self.pid_of(role, rank or None)
        found = {name: {} for name in (*pids, "journal")}
        while run.popen.poll() is None:
            iteration = int(re.findall(r"iteration (\d+)/", run.output())[-1])
            for name, pid in pids.items():
                with contextlib.suppress(OSError):  # it has ended
                    found[name].setdefault(iteration, resident(pid))
            journal = os.path.getsize(self.path("out/scheduler.journal"))
            found["journal"].setdefault(iteration, journal)
            time.sleep(SAMPLE_SECONDS)
        return found

    @cluster.slow
    def test_iterations_leave_nothing_but_the_journal(self):
        config = cluster.replay_config(
            servers=1, iterations=QUIET_ITERATIONS, layers=(("conv", 1000, 0), ("fc", (20, 10), 0))
        )
        run = self.start_run(config + "recovery { mode: REPLACE }")
        run.await_output("iteration ")
        found = self.samples(run)
        self.assertEqual(run.wait(), cluster.SUCCESS)
        # From when the lists have grown for the last time to when they are full, and when they no longer grow. In the
        # end `poseidon run` reads the whole summary.
        parts = ((LISTED * 5 // 8, LISTED), (LISTED * 9 // 8, QUIET_ITERATIONS * 31 // 32))
        for name, samples in found.items():
            growths = [growth(samples, *part) for part in parts]
            print(f"{name}: {growths[0]:.2f}, then {growths[1]:.2f} bytes an iteration")
            lists = LISTS if name == "scheduler" else 0
            most = (RECORD, RECORD) if name == "journal" else (lists + LEAST_LEAK, LEAST_LEAK)
            for found_growth, bound in zip(growths, most):
                self.assertLess(found_growth, bound, f"{name}: {samples}")


def growth(samples, begin, end):
    """Bytes an iteration, between the first and the last sample of these iterations."""
    inside = [iteration for iteration in sorted(samples) if begin <= iteration <= end]
    first, last = inside[0], inside[-1]
    return (samples[last] - samples[first]) / (last - first)


if __name__ == "__main__":
    cluster.main()
