"""Nodes that die, hang or are interrupted: the others end in time, say who it was, and nothing is
left behind."""

import contextlib
import ctypes
import os
import re
import signal
import time

import cluster

NODES = ("scheduler", "server-0", "server-1", "worker-0", "worker-1", "worker-2")

END_TIME = cluster.HEARTBEAT_DEADLINE + cluster.ENDING


def endless(**fields):
    return cluster.replay_config(workers=3, servers=2, iterations=cluster.ENDLESS, **fields)


def by_hand():
    return f"scheduler_port: {cluster.free_port_pair()}"


class FailureTest(cluster.ClusterTest):

    def start_training(self, config, order=NODES):
        daemons = self.start_by_hand(config, order)
        daemons["scheduler"].await_output("iteration ")
        return daemons

    def describe(self, daemons, name):
        """What others call a node: "worker 1 (127.0.0.1:4711)"."""
        return f"{name.replace('-', ' ')} (127.0.0.1:{daemons[name].pid})"

    def assert_others_end(self, daemons, *dead, text, code=cluster.PEER_LOST, seconds=END_TIME):
        """All but the `dead` end within `seconds` with the code and the text."""
        deadline = time.monotonic() + cluster.scaled(seconds)
        for name, daemon in daemons.items():
            if name in dead:
                continue
            left = max(0.1, deadline - time.monotonic())
            self.assertEqual(daemon.wait(left / cluster.scaled(1)), code, name)
            self.assertIn(text, daemon.output(), name)


class KilledDaemonTest(FailureTest):
    """kill -9 during training, each twice."""

    def kill_twice(self, victim):
        for _ in range(2):
            daemons = self.start_training(endless(cluster=by_hand()))
            daemons[victim].signal(signal.SIGKILL)
            text = "lost " + self.describe(daemons, victim) + ", last heard"
            if victim == "scheduler":
                text = "lost the scheduler at tcp://127.0.0.1:"
            self.assert_others_end(daemons, victim, text=text)
            self.assertEqual(daemons[victim].wait(), -signal.SIGKILL)
            self.assert_nothing_left()

    def test_worker(self):
        self.kill_twice("worker-1")

    def test_server(self):
        self.kill_twice("server-1")

    def test_scheduler(self):
        self.kill_twice("scheduler")

    def test_two_at_once(self):
        daemons = self.start_training(endless(cluster=by_hand()))
        for victim in ("worker-0", "server-0"):
            daemons[victim].signal(signal.SIGKILL)
        self.assert_others_end(daemons, "worker-0", "server-0", text="lost ")

    def test_stopped_worker(self):
        """A process that hangs is as good as dead; when it goes on it learns that it is over."""
        daemons = self.start_training(endless(cluster=by_hand()))
        daemons["worker-1"].signal(signal.SIGSTOP)
        self.assert_others_end(daemons, "worker-1",
                               text="lost " + self.describe(daemons, "worker-1"))
        daemons["worker-1"].signal(signal.SIGCONT)
        self.assertEqual(daemons["worker-1"].wait(2 * END_TIME), cluster.PEER_LOST)

    def test_interrupted_worker(self):
        """It says good-bye, so that the others need not wait for the deadline."""
        daemons = self.start_training(endless(cluster=by_hand()))
        daemons["worker-2"].signal(signal.SIGTERM)
        self.assert_others_end(
            daemons, "worker-2", seconds=cluster.ENDING,
            text=self.describe(daemons, "worker-2") + " failed: interrupted by a signal")
        self.assertEqual(daemons["worker-2"].wait(), cluster.INTERRUPTED)


class KilledBeforeTrainingTest(FailureTest):

    def test_while_joining(self):
        """A node that dies before all are there is forgotten; another one can take its place."""
        config = cluster.replay_config(workers=3, servers=2, cluster=by_hand())
        daemons = self.start_by_hand(config, NODES[:-1])
        for name in ("server-1", "worker-1"):
            daemons["scheduler"].await_output(re.escape(self.describe(daemons, name)) + " joined")
            daemons[name].signal(signal.SIGKILL)
        for name in ("server-1", "worker-1"):
            daemons["scheduler"].await_output(
                re.escape(self.describe(daemons, name)) + " joined but is silent")
        daemons.update(self.start_by_hand(config, ("server-1", "worker-1", "worker-2")))
        self.assert_all_succeed(daemons)

    def test_scheduler_while_joining(self):
        config = endless(cluster=by_hand())
        daemons = self.start_by_hand(config, NODES[:-1])
        for name in NODES[1:-1]:
            daemons["scheduler"].await_output(re.escape(self.describe(daemons, name)) + " joined")
        daemons["scheduler"].signal(signal.SIGKILL)
        # A node looks for the answer to its registration once a second.
        self.assert_others_end(daemons, "scheduler", seconds=END_TIME + 1,
                               text="while the job was gathering its nodes")

    def test_server_that_never_got_ready(self):
        """It joined, but was dead when the plan came."""
        config = endless(cluster=by_hand())
        early = [name for name in NODES if name != "server-1"]
        daemons = self.start_by_hand(config, early)
        for name in early[1:]:
            daemons["scheduler"].await_output(re.escape(self.describe(daemons, name)) + " joined")
        daemons["server-0"].signal(signal.SIGSTOP)
        daemons.update(self.start_by_hand(config, ["server-1"]))
        daemons["scheduler"].await_output("all 5 nodes have joined")
        daemons["server-0"].signal(signal.SIGKILL)
        self.assert_others_end(daemons, "server-0",
                               text="lost " + self.describe(daemons, "server-0"))


class RunTest(FailureTest):
    """`poseidon run` cleans up, however the job or it itself ends."""

    def start_training_run(self):
        run = self.start_run(endless())
        run.await_output("iteration ")
        return run

    def pid_of(self, daemon, rank=None):
        """Of a daemon that run has started."""
        program = f"poseidon_{daemon}"
        for pid in self.survivors():
            with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
                arguments = file.read().split("\0")
            if arguments[0].endswith(program) and (
                    rank is None or f"--rank={rank}" in arguments):
                return pid
        raise AssertionError(f"no {program} runs")

    def kill(self, daemon, rank, text):
        run = self.start_training_run()
        pid = self.pid_of(daemon, rank)
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(run.wait(END_TIME), cluster.PEER_LOST)
        self.assert_nothing_left()
        self.assertIn(text.format(pid=pid), run.output())

    def test_killed_worker(self):
        self.kill("worker", 1, "lost worker 1 (127.0.0.1:{pid}), last heard")

    def test_killed_server(self):
        self.kill("server", 0, "lost server 0 (127.0.0.1:{pid}), last heard")

    def test_killed_scheduler(self):
        self.kill("scheduler", None, "lost the scheduler at tcp://127.0.0.1:")

    def test_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                run = self.start_training_run()
                run.signal(number)
                self.assertEqual(run.wait(cluster.ENDING), cluster.INTERRUPTED)
                self.assert_nothing_left()
                self.assertIn("interrupted", run.output())

    def test_signal_before_all_have_joined(self):
        run = self.start_run(endless())
        run.await_output("starting")
        run.signal(signal.SIGINT)
        self.assertEqual(run.wait(cluster.ENDING + 10), cluster.INTERRUPTED)
        self.assert_nothing_left()

    def test_killed_run(self):
        run = self.start_training_run()
        self.assertEqual(len(self.survivors()), 1 + len(NODES))
        run.signal(signal.SIGKILL)
        run.wait()
        self.assert_nothing_left(seconds=2)

    def test_stopped_worker(self):
        """It can't end by itself; run ends it."""
        run = self.start_training_run()
        pid = self.pid_of("worker", 1)
        os.kill(pid, signal.SIGSTOP)
        # 10 s: run waits for the others to notice, then asks those that are left to end.
        self.assertEqual(run.wait(END_TIME + 2 * 10), cluster.PEER_LOST)
        self.assert_nothing_left()
        self.assertIn(f"lost worker 1 (127.0.0.1:{pid})", run.output())


_PTRACE_SEIZE, _PTRACE_INTERRUPT, _PTRACE_DETACH = 0x4206, 0x4207, 17
_WALL = 0x40000000


@contextlib.contextmanager
def frozen_thread(test, process, name):
    """Stops one thread of a process; the others, the heartbeat's among them, go on."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long] + [ctypes.c_void_p] * 3
    libc.ptrace.restype = ctypes.c_long
    threads = {}
    for thread in os.listdir(f"/proc/{process.pid}/task"):
        with open(f"/proc/{process.pid}/task/{thread}/comm", encoding="utf-8") as file:
            threads.setdefault(file.read().strip(), int(thread))
    thread = threads[name]
    if libc.ptrace(_PTRACE_SEIZE, thread, None, None) != 0:
        test.skipTest(f"may not ptrace: {os.strerror(ctypes.get_errno())}")
    libc.ptrace(_PTRACE_INTERRUPT, thread, None, None)
    os.waitpid(thread, _WALL)
    try:
        yield
    finally:
        libc.ptrace(_PTRACE_DETACH, thread, None, None)


class StallTest(FailureTest):
    """A process that lives and answers heartbeats but does not get on."""

    STALL_DEADLINE = 2

    def freeze(self, victim, thread, *, text, policy, layers=cluster.LAYERS):
        daemons = self.start_training(endless(
            cluster=by_hand(), layers=layers,
            communication=f"policy: {policy} "
                          f"stall_deadline_seconds: {cluster.scaled(self.STALL_DEADLINE)}"))
        with frozen_thread(self, daemons[victim], thread):
            # Twice the deadline: who waits for a server waits longer than the server itself.
            self.assert_others_end(
                daemons, victim, code=cluster.DEADLINE_EXCEEDED,
                text=f"from {self.describe(daemons, victim)}, whose heartbeat still arrives",
                seconds=2 * self.STALL_DEADLINE + cluster.ENDING)
        self.assertRegex(daemons["scheduler"].output(), text)
        self.assertEqual(daemons[victim].wait(END_TIME), cluster.DEADLINE_EXCEEDED)

    def test_worker_with_parameter_servers(self):
        self.freeze("worker-1", "poseidon_worker", policy="ALL_PS",
                    text=r"server \d .* has waited 2 s for the gradient of layer \w+, iteration")

    def test_worker_with_factor_broadcast(self):
        self.freeze("worker-1", "poseidon_worker", policy="ALL_SFB",
                    layers=(("fc1", (64, 32), 1), ("fc2", (32, 10), 1)),
                    text=r"worker [02] .* has waited 2 s for the factors of layer fc\d, iteration")

    def test_server(self):
        self.freeze("server-1", "lane 2", policy="ALL_PS",
                    text=r"worker \d .* has waited \d s for the values of layer \w+, iteration")


if __name__ == "__main__":
    cluster.main()
