"""Daemons that die, hang or are interrupted: the others end in time and say who it was."""

import re
import signal
import time

import cluster

NODES = ("scheduler", "server-0", "server-1", "worker-0", "worker-1", "worker-2")


def endless(**fields):
    return cluster.replay_config(
        workers=3,
        servers=2,
        iterations=cluster.ENDLESS,
        cluster=f"scheduler_port: {cluster.free_port_pair()}",
        layers=cluster.LONG_LAYERS,
        **fields,
    )


class KilledDaemonTest(cluster.ClusterTest):
    """kill -9 during training, each twice."""

    def kill_twice(self, victim):
        for _ in range(2):
            daemons = self.start_training(endless(), NODES)
            daemons[victim].signal(signal.SIGKILL)
            text = "lost " + self.describe(daemons, victim) + ", last heard"
            if victim == "scheduler":
                text = "lost the scheduler at tcp://127.0.0.1:"
            self.assert_others_end(daemons, victim, text=text)
            self.assertEqual(daemons[victim].wait(), -signal.SIGKILL)
            self.assert_nothing_left()
            self.assert_explained("killed", victim)

    def test_worker(self):
        self.kill_twice("worker-1")

    def test_server(self):
        self.kill_twice("server-1")

    def test_scheduler(self):
        self.kill_twice("scheduler")

    def test_two_at_once(self):
        daemons = self.start_training(endless(), NODES)
        for victim in ("worker-0", "server-0"):
            daemons[victim].signal(signal.SIGKILL)
        self.assert_others_end(daemons, "worker-0", "server-0", text="lost ")

    def test_stopped_worker(self):
        """A process that hangs is as good as dead; when it goes on it learns that it is over."""
        daemons = self.start_training(endless(), NODES)
        daemons["worker-1"].signal(signal.SIGSTOP)
        self.assert_others_end(
            daemons, "worker-1", text="lost " + self.describe(daemons, "worker-1")
        )
        self.assert_explained("stopped process", "worker-1")
        daemons["worker-1"].signal(signal.SIGCONT)
        self.assertEqual(daemons["worker-1"].wait(2 * cluster.END_TIME), cluster.PEER_LOST)
        # Now by what it has kept itself, too.
        self.assert_explained("stopped process", "worker-1")

    def test_interrupted_worker(self):
        """It says good-bye, so that the others need not wait for the deadline."""
        daemons = self.start_training(endless(), NODES)
        daemons["worker-2"].signal(signal.SIGTERM)
        self.assert_others_end(
            daemons,
            "worker-2",
            seconds=cluster.ENDING,
            text=self.describe(daemons, "worker-2") + " failed: interrupted by a signal",
        )
        self.assertEqual(daemons["worker-2"].wait(), cluster.INTERRUPTED)
        # The others' code is that of a lost peer; the job's is its own.
        self.assertEqual(self.read_json("out/summary.json")["exit_code"], cluster.INTERRUPTED)
        self.assert_explained("interrupted", "worker-2")


class KilledBeforeTrainingTest(cluster.ClusterTest):
    def test_while_joining(self):
        """A node that dies before all are there is forgotten; another one can take its place."""
        config = cluster.replay_config(
            workers=3, servers=2, cluster=f"scheduler_port: {cluster.free_port_pair()}"
        )
        daemons = self.start_by_hand(config, NODES[:-1])
        for name in ("server-1", "worker-1"):
            daemons["scheduler"].await_output(re.escape(self.describe(daemons, name)) + " joined")
            daemons[name].signal(signal.SIGKILL)
        for name in ("server-1", "worker-1"):
            daemons["scheduler"].await_output(
                re.escape(self.describe(daemons, name)) + " joined but is silent"
            )
        daemons.update(self.start_by_hand(config, ("server-1", "worker-1", "worker-2")))
        self.assert_all_succeed(daemons)

    def test_scheduler_while_joining(self):
        config = endless()
        daemons = self.start_by_hand(config, NODES[:-1])
        for name in NODES[1:-1]:
            daemons["scheduler"].await_output(re.escape(self.describe(daemons, name)) + " joined")
        # The scheduler says so before it answers; one that has no answer asks for longer.
        time.sleep(0.5)
        daemons["scheduler"].signal(signal.SIGKILL)
        # A node looks for the answer to its registration once a second.
        self.assert_others_end(
            daemons,
            "scheduler",
            seconds=cluster.END_TIME + 1,
            text="while the job was gathering its nodes",
        )

    def test_server_that_never_got_ready(self):
        """It joined, but was dead when the plan came."""
        # Within the deadline the last one comes: else who is silent is no longer counted.
        silence = 8
        config = cluster.with_heartbeat_deadline(endless(), cluster.scaled(silence))
        early = [name for name in NODES if name != "server-1"]
        daemons = self.start_by_hand(config, early)
        for name in early[1:]:
            daemons["scheduler"].await_output(re.escape(self.describe(daemons, name)) + " joined")
        daemons["server-0"].signal(signal.SIGSTOP)
        daemons.update(self.start_by_hand(config, ["server-1"]))
        daemons["scheduler"].await_output("all 5 nodes have joined")
        daemons["server-0"].signal(signal.SIGKILL)
        self.assert_others_end(
            daemons,
            "server-0",
            seconds=silence + cluster.ENDING,
            text="lost " + self.describe(daemons, "server-0"),
        )


if __name__ == "__main__":
    cluster.main()
