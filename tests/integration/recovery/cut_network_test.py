"""A job that recovers, with each node in a network namespace: the cable of one is pulled out, and put back
in. Needs root, ip and tc; skipped without them."""

import subprocess
import time

import cluster
import network_recovery
import recovery_test
from network_recovery import testbed


class CutNetworkTest(network_recovery.NetworkRecoveryTest):
    """Each node is a network namespace; the cable of one is pulled out."""

    # Node by daemon. Node 3 has none at first.
    PLACES = {
        "scheduler": 0,
        "server-0": 0,
        "worker-0": 0,
        "worker-1": 1,
        "worker-2": 2,
        "server-1": 2,
    }
    CUT, SPARE = 1, 3

    def start_all(self):
        self.write(
            "config.prototxt",
            self.config(cluster_fields=f'scheduler_host: "{self.bed.addresses[0]}"') + testbed.OPEN,
        )
        daemons = {name: self.start_on(name, node) for name, node in self.PLACES.items()}
        daemons["scheduler"].await_output(recovery_test.tested_at(recovery_test.TEST_INTERVAL))
        return daemons

    def plug(self, state, node=CUT):
        """The switch's end of the cable: "down" or "up"."""
        subprocess.run(
            ["ip", "-n", self.bed.namespace("switch"), "link", "set", f"port{node}", state],
            check=True,
        )

    @cluster.slow
    def test_cut_that_heals_after_the_deadline(self):
        daemons = self.start_all()
        self.plug("down")
        daemons["scheduler"].await_output("lost worker 1 .*: no heartbeat for", cluster.END_TIME)
        cut_off = daemons["worker-1"]
        daemons["worker-1"] = self.start_on("worker-1", self.SPARE, "-in-its-place")
        daemons["scheduler"].await_output("goes on from iteration")
        self.plug("up")
        self.assert_all_end(daemons)
        # The scheduler may have ended before the network let it be asked.
        self.assertIn(cut_off.wait(), (cluster.GIVEN_UP, cluster.PEER_LOST))
        self.assert_as_undisturbed("BYTES", ["worker-1"])

    @cluster.slow
    def test_cut_that_heals_before_anybody_takes_the_place(self):
        """The one that was cut off is told, and has to be started again."""
        daemons = self.start_all()
        self.plug("down")
        daemons["scheduler"].await_output("lost worker 1 .*: no heartbeat for", cluster.END_TIME)
        self.plug("up")
        self.assertEqual(daemons["worker-1"].wait(), cluster.GIVEN_UP)
        daemons["worker-1"] = self.start_on("worker-1", self.CUT, "-again")
        self.assert_all_end(daemons)
        self.assert_as_undisturbed("BYTES", ["worker-1"])

    @cluster.slow
    def test_short_cut(self):
        """What heals within the deadline loses nobody."""
        daemons = self.start_all()
        self.plug("down")
        time.sleep(cluster.scaled(1))  # a third of the deadline
        self.plug("up")
        self.assert_all_end(daemons)
        self.assert_as_undisturbed("BYTES")

    def test_cut_of_the_schedulers_machine(self):
        """Much longer than the deadline. A worker and a server are on that machine, too."""
        daemons = self.start_all()
        self.plug("down", self.PLACES["scheduler"])
        daemons["scheduler"].await_output("no other machine has been heard for", cluster.END_TIME)
        time.sleep(cluster.scaled(3 * cluster.HEARTBEAT_DEADLINE))
        self.plug("up", self.PLACES["scheduler"])
        daemons["scheduler"].await_output("the scheduler was cut off from the other machines for")
        self.assert_all_end(daemons)
        self.assert_as_undisturbed("BYTES")

    @cluster.slow
    def test_restart_of_the_switch(self):
        """Nobody hears anybody on another machine, for longer than connections may be silent in a job that does
        not recover (ZmqOptions.silent_connection). None of them ends, as what is in it would be lost, and
        training would stand still until the stall deadline."""
        daemons = self.start_all()
        nodes = set(self.PLACES.values())
        for node in nodes:
            self.plug("down", node)
        daemons["scheduler"].await_output("no other machine has been heard for", cluster.END_TIME)
        time.sleep(40)
        for node in nodes:
            self.plug("up", node)
        self.assert_all_end(daemons)
        self.assert_as_undisturbed("BYTES")

    def assert_all_end(self, daemons):
        for name, daemon in daemons.items():
            self.assertEqual(daemon.wait(), cluster.SUCCESS, name)


class UnansweredTest(cluster.ClusterTest):
    """A worker that the scheduler knows and can't answer, as the worker has said an address that is
    nobody's; then its cable is pulled out."""

    @cluster.slow
    def test_cut_before_the_first_answer(self):
        bed = testbed.Testbed(2)
        try:
            self.enterContext(bed)
        except testbed.Unavailable as reason:
            self.skipTest(reason)
        path = self.write(
            "config.prototxt",
            cluster.replay_config(cluster=f'scheduler_host: "{bed.addresses[0]}"') + testbed.OPEN,
        )
        started = {}
        for node, name, extra in ((0, "scheduler", ()), (1, "worker", ("--host=10.99.0.99",))):
            prefix = ("ip", "netns", "exec", bed.namespace(node))
            started[name] = self.start(
                f"poseidon_{name}", f"--config={path}", *extra, name=name, prefix=prefix
            )
        started["scheduler"].await_output("worker .* joined")
        # The connection is to be older than the silence that ends it.
        time.sleep(cluster.scaled(cluster.HEARTBEAT_DEADLINE))
        self.assertIsNone(started["worker"].popen.poll())
        subprocess.run(
            ["ip", "-n", bed.namespace("switch"), "link", "set", "port1", "down"], check=True
        )
        self.assertEqual(started["worker"].wait(cluster.END_TIME), cluster.PEER_LOST)
        self.assertRegex(
            started["worker"].output(), f"lost the scheduler at tcp://{bed.addresses[0]}.*confirmed"
        )


if __name__ == "__main__":
    cluster.main()
