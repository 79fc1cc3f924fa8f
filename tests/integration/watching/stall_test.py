"""Processes that live and answer heartbeats but do not get on: the stall deadline ends the job."""

import signal
import time

import cluster
from frozen_thread import await_end, frozen_thread

NODES = ("scheduler", "server-0", "server-1", "worker-0", "worker-1", "worker-2")


class StallTest(cluster.ClusterTest):
    STALL_DEADLINE = 2

    def freeze(self, victim, thread, *, text, policy, layers=cluster.LAYERS, for_ever=False):
        daemons = self.start_training(
            cluster.replay_config(
                workers=3,
                servers=2,
                iterations=cluster.ENDLESS,
                layers=layers,
                cluster=f"scheduler_port: {cluster.free_port_pair()}",
                communication=f"policy: {policy} "
                f"stall_deadline_seconds: {cluster.scaled(self.STALL_DEADLINE)}",
            ),
            NODES,
        )
        with frozen_thread(self, daemons[victim].pid, thread) as frozen:
            # Twice the deadline: who waits for a server waits longer than the server itself.
            self.assert_others_end(
                daemons,
                victim,
                code=cluster.DEADLINE_EXCEEDED,
                text=f"from {self.describe(daemons, victim)}, whose heartbeat still arrives",
                seconds=2 * self.STALL_DEADLINE + cluster.ENDING,
            )
            if for_ever:
                if frozen != daemons[victim].pid:
                    await_end(self, frozen, cluster.HANGING + cluster.ENDING)
                code = daemons[victim].wait(cluster.HANGING + cluster.ENDING)
                self.assertEqual(code, cluster.DEADLINE_EXCEEDED)
                self.assertIn(
                    "; this process was told so 30s ago and hangs, so it is ended\n",
                    daemons[victim].output(),
                )
        self.assertRegex(daemons["scheduler"].output(), text)
        self.assertEqual(daemons[victim].wait(cluster.END_TIME), cluster.DEADLINE_EXCEEDED)
        self.assert_explained("slow worker", victim)

    def test_worker_with_parameter_servers(self):
        self.freeze(
            "worker-1",
            "poseidon_worker",
            policy="ALL_PS",
            text=r"server \d .* has waited \d+ s for the gradient of layer \w+, iteration",
        )

    def test_worker_with_factor_broadcast(self):
        self.freeze(
            "worker-1",
            "poseidon_worker",
            policy="ALL_SFB",
            layers=(("fc1", (64, 32), 1), ("fc2", (32, 10), 1)),
            text=r"worker [02] .* has waited \d+ s for the factors of layer fc\d, iteration",
        )

    def test_server(self):
        self.freeze(
            "server-1",
            "lane 2",
            policy="ALL_PS",
            text=r"worker \d .* has waited \d+ s for the values of layer \w+, iteration",
        )

    @cluster.slow
    def test_who_hangs_for_ever_ends_too(self):
        """Nobody kills a daemon that was started by hand, so each sees to its own end."""
        for victim, thread in (("worker-1", "poseidon_worker"), ("server-1", "lane 2")):
            with self.subTest(victim=victim):
                self.freeze(
                    victim,
                    thread,
                    policy="ALL_PS",
                    text="whose heartbeat still arrives",
                    for_ever=True,
                )


class SuspensionTest(cluster.ClusterTest):
    STALL_DEADLINE = 2

    @cluster.slow
    def test_a_job_that_is_suspended_as_a_whole_goes_on(self):
        """It stands still for longer than lanes wait for others, and than a worker's program waits for its
        lanes, which is three times as long."""
        stall = cluster.scaled(self.STALL_DEADLINE)
        config = cluster.replay_config(
            workers=3,
            servers=2,
            iterations=cluster.ENDLESS,
            cluster=f"scheduler_port: {cluster.free_port_pair()}",
            communication=f"policy: ALL_PS stall_deadline_seconds: {stall}",
        )
        *quick, slow = NODES
        daemons = self.start_by_hand(config, quick)
        # An iteration of it takes 0.6 s, in which the others wait.
        daemons[slow] = self.start(
            "poseidon_worker",
            f"--config={self.path('config.prototxt')}",
            "--rank=2",
            "--compute_factor=100",
            name=slow,
        )
        daemons["scheduler"].await_output("\niteration ")
        time.sleep(0.3)
        for daemon in daemons.values():
            daemon.signal(signal.SIGSTOP)
        time.sleep(5 * stall)
        line = "\niteration "
        lines = daemons["scheduler"].output().count(line)
        for daemon in daemons.values():
            daemon.signal(signal.SIGCONT)
        # A line a second: who waits too long is reported, and ends the job, in less than these take.
        daemons["scheduler"].await_output(rf"(?s)(?:{line}(?:(?!{line}).)*){{{lines + 3}}}")
        daemons["scheduler"].signal(signal.SIGTERM)
        for name, daemon in daemons.items():
            self.assertEqual(daemon.wait(cluster.END_TIME), cluster.INTERRUPTED, name)


if __name__ == "__main__":
    cluster.main()
