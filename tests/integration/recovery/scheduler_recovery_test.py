"""The scheduler of a job with `recovery { mode: REPLACE }` dies, also with others, is started again, and
finds its journal: as it left it, in use, another job's, torn, damaged, or on a full disk."""

import contextlib
import os
import random
import resource
import shutil
import signal
import time

import cluster
import lenet
from recovery_test import ITERATIONS, NODES, TEST_INTERVAL, RecoveryTest, tested_at


class JournalTest(cluster.ClusterTest):
    """A scheduler that waits for nodes, which do not come."""

    JOURNAL = "out/scheduler.journal"

    def start_scheduler(self, name, config, prefix=()):
        path = self.write(f"{name}.prototxt", config)
        out = f"--out={self.path('out')}"
        return self.start("poseidon_scheduler", f"--config={path}", out, name=name, prefix=prefix)

    def config(self, iterations=400, cluster_fields="", workers=1):
        config = cluster.replay_config(
            workers=workers,
            servers=1,
            iterations=iterations,
            cluster=f"scheduler_port: {cluster.free_port_pair()} {cluster_fields}",
        )
        return config + "recovery { mode: REPLACE }"

    def start_and_kill(self, config):
        """A scheduler that leaves a journal."""
        first = self.start_scheduler("first", config)
        first.await_output("waiting for 1 worker")
        first.signal(signal.SIGKILL)
        first.wait()

    def assert_refused(self, name, config, text, code=cluster.CONFIG_ERROR):
        scheduler = self.start_scheduler(name, config)
        self.assertEqual(scheduler.wait(), code)
        self.assertIn(text, scheduler.output())

    def test_in_use(self):
        config = self.config()
        first = self.start_scheduler("first", config)
        first.await_output("waiting for 1 worker")
        held = f'is in use by the scheduler of the job "test", process {first.pid};'
        self.assert_refused("second", config, held)
        first.signal(signal.SIGSTOP)
        self.assert_refused("third", config, held)
        first.signal(signal.SIGCONT)
        first.signal(signal.SIGTERM)
        self.assertEqual(first.wait(), cluster.INTERRUPTED)

    def test_of_another_job(self):
        self.start_and_kill(self.config())
        self.assert_refused(
            "other",
            self.config(iterations=401),
            "is of a job of this name with another config, which this config can't go on with",
        )

    def test_torn_and_damaged(self):
        config = self.config()
        self.start_and_kill(config)
        with open(self.path(self.JOURNAL), "ab") as journal:
            journal.write(b"torn")
        again = self.start_scheduler("again", config)
        again.await_output("cut 4 bytes off the end of .*scheduler.journal")
        again.await_output("waiting for 1 worker")
        again.signal(signal.SIGKILL)
        again.wait()
        size = os.path.getsize(self.path(self.JOURNAL))
        with open(self.path(self.JOURNAL), "r+b") as journal:
            journal.seek(size - 1)
            journal.write(b"\xff")
        self.assert_refused(
            "damaged", config, "scheduler.journal is damaged at byte", cluster.DATA_ERROR
        )

    def limit_files(self, process, size):
        """A file that must not grow stands for a disk without room, which takes root to make."""
        _, most = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, most))

    def test_the_monitor_stays_where_it_is(self):
        config = self.config() + "monitor { port: 0 }"
        first = self.start_scheduler("first", config)
        url = first.await_output(r"monitor: (http://\S+)\n").group(1)
        first.await_output("waiting for 1 worker")
        first.signal(signal.SIGKILL)
        first.wait()
        second = self.start_scheduler("second", config)
        self.assertEqual(second.await_output(r"monitor: (http://\S+)\n").group(1), url)

    def full_journal(self, config):
        """A scheduler that finds a directory in the journal's place, as if its disk were full."""
        os.makedirs(self.path(self.JOURNAL))
        scheduler = self.start_scheduler("scheduler", config)
        scheduler.await_output(
            "can't open .*/scheduler.journal: .*; this is tried again every second"
        )
        return scheduler

    def test_full_disk_at_the_start(self):
        scheduler = self.full_journal(self.config())
        os.rmdir(self.path(self.JOURNAL))
        scheduler.await_output("waiting for 1 worker")
        os.remove(self.path(self.JOURNAL))
        scheduler.signal(signal.SIGTERM)
        self.assertEqual(scheduler.wait(), cluster.INTERRUPTED)

        scheduler = self.full_journal(self.config())
        scheduler.signal(signal.SIGTERM)
        self.assertEqual(scheduler.wait(), cluster.INTERRUPTED)
        os.rmdir(self.path(self.JOURNAL))

        # It waits for three quarters of that.
        scheduler = self.full_journal(self.config(cluster_fields="join_deadline_seconds: 4"))
        self.assertEqual(scheduler.wait(), cluster.FAILURE)

    def stoppable(self):
        """A prefix of a daemon that hangs at points (stop_at.cc)."""
        library = os.path.join(cluster.programs(), "../tests/libstop_at.so")
        return ("env", f"LD_PRELOAD={library}", f"STOP_AT={self.path('points')}")

    def hang_at(self, point):
        os.makedirs(self.path("points"))
        self.write(f"points/{point}", "")

    def start_on_hanging_disk(self, point):
        """A job that trains, and whose scheduler's journal can't be written from now on, nor does it fail."""
        config = self.config(cluster.ENDLESS, "join_deadline_seconds: 16", workers=2)
        scheduler = self.start_scheduler("scheduler", config, self.stoppable())
        daemons = self.start_by_hand(config, ("server-0", "worker-0", "worker-1"))
        scheduler.await_output("iteration ")
        self.hang_at(point)
        return scheduler, daemons

    @cluster.slow
    def test_hanging_disk(self):
        scheduler, daemons = self.start_on_hanging_disk("hang")
        daemons["worker-1"].signal(signal.SIGKILL)
        why = "can't write scheduler.journal: the disk of the scheduler's --out has not answered for 14s"
        for name in ("server-0", "worker-0"):
            self.assertEqual(daemons[name].wait(), cluster.FAILURE)
            self.assertIn(why, daemons[name].output())
        self.assertEqual(scheduler.wait(150), cluster.FAILURE)
        self.assertRegex(
            scheduler.output(), f"the job has ended: {why}.* and hangs, so it is ended"
        )

    @cluster.slow
    def test_interrupted_on_hanging_disk(self):
        """By a signal that comes when the thread which looks for signals hangs with the disk."""
        scheduler, daemons = self.start_on_hanging_disk("hang_write")
        deadline = time.monotonic() + cluster.scaled(cluster.PATIENCE)
        while not os.path.exists(self.path("points/hang_write.hangs")):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        scheduler.signal(signal.SIGTERM)
        for daemon in daemons.values():
            self.assertEqual(daemon.wait(), cluster.INTERRUPTED)
        self.assertEqual(scheduler.wait(150), cluster.INTERRUPTED)
        self.assertIn("and hangs, so it is ended", scheduler.output())

    @cluster.slow
    def test_hanging_output(self):
        """A scheduler without --out, whose standard output goes to a disk that does not answer."""
        config = self.config(iterations=1000)
        path = self.write("scheduler.prototxt", config)
        scheduler = self.start(
            "poseidon_scheduler", f"--config={path}", name="scheduler", prefix=self.stoppable()
        )
        daemons = self.start_by_hand(config, ("server-0", "worker-0"))
        scheduler.await_output("iteration ")
        self.hang_at("hang_output")
        for daemon in daemons.values():
            self.assertEqual(daemon.wait(), cluster.SUCCESS)
        self.assertEqual(scheduler.wait(150), cluster.FAILURE)
        self.assertIn(
            "training has ended well, and its result is not shown: see whether the disk of standard output "
            "answers; this process was told so",
            scheduler.output(),
        )

    @cluster.slow
    def test_full_disk(self):
        config = self.config(iterations=cluster.ENDLESS)
        scheduler = self.start_scheduler("scheduler", config)
        daemons = self.start_by_hand(config, ("server-0", "worker-0"))
        scheduler.await_output("iteration ")
        full = 50000  # for what it says, to a file, there is room
        deadline = time.monotonic() + cluster.scaled(cluster.PATIENCE)
        while os.path.getsize(self.path(self.JOURNAL)) < full:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)
        self.limit_files(scheduler, full)
        scheduler.await_output("scheduler.journal: File too large; what is to be written waits")
        scheduler.await_output("waits in memory.*\n(.*\n)*iteration ")
        self.limit_files(scheduler, resource.RLIM_INFINITY)
        scheduler.await_output("the journal is written again, and lacks nothing")
        self.limit_files(scheduler, full)
        scheduler.await_output(
            "written again.*\n(.*\n)*.*File too large; what is to be written waits"
        )
        scheduler.signal(signal.SIGTERM)
        self.assertEqual(scheduler.wait(), cluster.INTERRUPTED)
        self.assertIn("it does not tell that the job has ended", scheduler.output())
        for daemon in daemons.values():
            self.assertEqual(daemon.wait(), cluster.INTERRUPTED, daemon.output())


class StartedAgainTest(RecoveryTest):
    """By `poseidon run`, or by hand."""

    @cluster.slow
    def test_with_others(self):
        for others in (("worker-1",), ("worker-0", "server-1"), ("server-0", "server-1")):
            with self.subTest(others):
                run = self.start_run(self.config("BYTES"))
                run.await_output(tested_at(TEST_INTERVAL))
                for name in ("scheduler", *others):
                    self.kill(name)
                self.assertEqual(run.wait(), cluster.SUCCESS)
                self.assert_same_as_undisturbed()

    def assert_same_as_undisturbed(self):
        """What a worker had not told of when it died is the mean of the others' in the summary."""
        summary, undisturbed = self.read_json("out/summary.json"), self.reference("BYTES")
        self.assertEqual(
            self.assert_same_parameters(summary, 3), self.assert_same_parameters(undisturbed, 3)
        )
        self.assertEqual(len(summary["loss"]), ITERATIONS)
        self.assertNotIn(None, summary["loss"])
        self.assert_nothing_left(cluster.ENDING)

    @cluster.slow
    def test_killed_at_any_moment(self):
        """Also while it starts, in a recovery, and when the job ends."""
        seed = random.randrange(1 << 30)
        draw = random.Random(seed)
        for attempt in range(12):
            others = draw.sample(NODES[1:], draw.randrange(2))
            delays = [draw.uniform(0, 3), draw.uniform(0, 1)]
            with self.subTest(seed=seed, attempt=attempt, others=others, delays=delays):
                run = self.start_run(self.config("BYTES"))
                time.sleep(delays[0])  # the moment is what is tried
                for name in ("scheduler", *others):
                    self.kill_if_there(name)
                time.sleep(delays[1])
                self.kill_if_there("scheduler")
                self.assertEqual(run.wait(), cluster.SUCCESS, run.output())
                self.assert_same_as_undisturbed()

    def kill_if_there(self, name):
        role, _, rank = name.partition("-")
        pid = self.find_pid(role, rank or None)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @cluster.slow
    def test_by_hand(self):
        """The same command again is enough, also when the nodes have noticed."""
        config = self.config(cluster_fields=f"scheduler_port: {cluster.free_port_pair()}")
        daemons = self.start_by_hand(config, NODES)
        first = daemons["scheduler"]
        first.await_output(tested_at(TEST_INTERVAL))
        first.signal(signal.SIGKILL)
        first.wait()
        time.sleep(cluster.scaled(2 * cluster.HEARTBEAT_DEADLINE))  # so that they have
        daemons["scheduler"] = self.start(
            "poseidon_scheduler",
            f"--config={self.path('config.prototxt')}",
            f"--out={self.path('out')}",
            name="scheduler-again",
        )
        self.assert_all_succeed(daemons)
        self.assert_as_undisturbed("BYTES")

    @cluster.slow
    def test_stopped_and_goes_on(self):
        """Whoever is silent to all, and is not dead, takes up where it was, also when the nodes have noticed."""
        config = self.config(cluster_fields=f"scheduler_port: {cluster.free_port_pair()}")
        daemons = self.start_by_hand(config, NODES)
        daemons["scheduler"].await_output(tested_at(TEST_INTERVAL))
        daemons["scheduler"].signal(signal.SIGSTOP)
        time.sleep(cluster.scaled(2 * cluster.HEARTBEAT_DEADLINE))
        daemons["scheduler"].signal(signal.SIGCONT)
        self.assert_all_succeed(daemons)
        self.assert_as_undisturbed("BYTES")

    @cluster.slow
    def test_without_the_journal(self):
        """Another job's scheduler tells the nodes, which whoever supervises them starts anew."""
        config = self.config(cluster_fields=f"scheduler_port: {cluster.free_port_pair()}")
        daemons = self.start_by_hand(config, NODES)
        daemons["scheduler"].await_output(tested_at(TEST_INTERVAL))
        daemons["scheduler"].signal(signal.SIGKILL)
        daemons["scheduler"].wait()
        shutil.rmtree(self.path("out"))
        daemons["scheduler-again"] = self.start(
            "poseidon_scheduler",
            f"--config={self.path('config.prototxt')}",
            f"--out={self.path('out')}",
            name="scheduler-again",
        )
        for name in NODES[1:]:
            self.assertEqual(daemons[name].wait(), cluster.GIVEN_UP)
            self.assertIn("whose journal this one does not have", daemons[name].output())

    @cluster.slow
    def test_nobody_starts_it_again(self):
        """The nodes look for it until the deadline."""
        config = self.config(
            recovery="scheduler_deadline_seconds: 2",
            cluster_fields=f"scheduler_port: {cluster.free_port_pair()}",
        )
        daemons = self.start_by_hand(config, NODES)
        daemons["scheduler"].await_output(tested_at(TEST_INTERVAL))
        daemons["scheduler"].signal(signal.SIGKILL)
        self.assert_others_end(
            daemons, "scheduler", text="lost the scheduler at tcp://127.0.0.1:", seconds=60
        )


class DemoTest(RecoveryTest):
    """The shipped job learns what it learns, and to the bit, though a node dies every 3 s."""

    small = False
    KILL_INTERVAL = 3

    def demo(self, name):
        """Starts it under recovery."""
        with open(f"{lenet.CONFIGS}/lenet_digits.prototxt", encoding="utf-8") as file:
            job = file.read()
        self.copy_solver()
        solver = "configs/models/lenet/solver.prototxt"
        job = job.replace(f'"{solver}"', f'"{self.path("solver.prototxt")}"')
        path = self.write(f"{name}.prototxt", job + "recovery { mode: REPLACE }")
        return self.start(
            "poseidon", "run", f"--config={path}", f"--out={self.path(name)}", name=name
        )

    @staticmethod
    def are_away(killed_at, ranks, output):
        """Whether none of these workers, once killed, is surely in training again."""
        for rank in ranks:
            lost = output.find(f"lost worker {rank} ", killed_at.get(rank, 0))
            if rank not in killed_at or (lost >= 0 and "goes on from iteration" in output[lost:]):
                return False
        return True

    @cluster.slow
    def test_random_kills(self):
        self.assertEqual(self.demo("calm").wait(), cluster.SUCCESS)
        seed = random.randrange(1 << 30)
        draw = random.Random(seed)
        nodes = [("worker", rank) for rank in range(4)] + [("server", rank) for rank in range(2)]
        nodes.append(("scheduler", None))
        run = self.demo("killed")
        run.await_output(tested_at(0))
        kills = 0
        killed_at = {}  # by a worker's rank: where the output ended then
        with self.subTest(seed=seed):
            while run.popen.poll() is None:
                role, rank = draw.choice(nodes)
                pid = self.find_pid(role, rank)
                # A busy machine may kill all of them before one recovery is over, and with them the parameters.
                last = role == "worker" and self.are_away(
                    killed_at, set(range(4)) - {rank}, run.output()
                )
                if pid is not None and not last and "iteration 400/400" not in run.output():
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        continue  # the job has come to its end
                    kills += 1
                    if role == "worker":
                        killed_at[rank] = len(run.output())
                time.sleep(cluster.scaled(self.KILL_INTERVAL))  # what is tried
            self.assertEqual(run.wait(), cluster.SUCCESS)
            self.assert_nothing_left(cluster.ENDING)
            calm, killed = (self.read_json(f"{name}/summary.json") for name in ("calm", "killed"))
            self.assertGreater(kills, 0)
            self.assertGreaterEqual(killed["test_accuracy"], 0.97)
            self.assertEqual(
                self.assert_same_parameters(killed, 4), self.assert_same_parameters(calm, 4)
            )
            self.assertGreater(len(killed["recoveries"]), 0)
            for recovery in killed["recoveries"]:
                self.assert_makes_sense(recovery, 400)


if __name__ == "__main__":
    cluster.main()
