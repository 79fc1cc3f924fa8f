"""Daemons that are started before the scheduler's name means any machine, and whose scheduler dies and is
started again on another one, to which its name moves. Each node is a network namespace with a hosts file
of its own. Needs root, ip and tc; skipped without them."""

import os
import shutil

import cluster
import network_recovery
import recovery_test
from network_recovery import testbed

NAME = "scheduler.of.the.job"


class MovedSchedulerTest(network_recovery.NetworkRecoveryTest):
    # Node by daemon; the scheduler moves from node 0 to node 3.
    PLACES = {"server-0": 0, "worker-0": 0, "worker-1": 1, "worker-2": 2, "server-1": 2}
    FIRST, SECOND = 0, 3

    def setUp(self):
        super().setUp()
        for node in range(4):
            directory = self.etc(node)
            os.makedirs(directory)
            self.addCleanup(shutil.rmtree, directory)
            # Nobody answers there, and so at once.
            with open(f"{directory}/resolv.conf", "w", encoding="utf-8") as file:
                file.write("nameserver 127.0.0.1\n")
        self.point_name_to(None)

    def etc(self, node):
        """What `ip netns exec` puts over files of /etc."""
        return f"/etc/netns/{self.bed.namespace(node)}"

    def point_name_to(self, address):
        """Writes to the files that programs have, rather than to new ones in their places."""
        for node in range(4):
            with open(f"{self.etc(node)}/hosts", "w", encoding="utf-8") as file:
                file.write("127.0.0.1 localhost\n" + (f"{address} {NAME}\n" if address else ""))

    @cluster.slow
    def test_name_that_comes_late_and_moves(self):
        self.write(
            "config.prototxt",
            self.config(cluster_fields=f'scheduler_host: "{NAME}"') + testbed.OPEN,
        )
        daemons = {name: self.start_on(name, node) for name, node in self.PLACES.items()}
        for daemon in daemons.values():
            daemon.await_output(f'can\'t resolve cluster.scheduler_host "{NAME}": .*trying for')
        self.point_name_to(self.bed.addresses[self.FIRST])
        first = self.start_on("scheduler", self.FIRST)
        first.await_output(recovery_test.tested_at(recovery_test.TEST_INTERVAL))
        first.signal(9)
        first.wait()
        self.point_name_to(self.bed.addresses[self.SECOND])
        daemons["scheduler"] = self.start_on("scheduler", self.SECOND, "-moved")
        daemons["worker-0"].await_output(
            f"{NAME}:.* has another address now, tcp://{self.bed.addresses[self.SECOND]}:"
        )
        self.assert_all_succeed(daemons)
        self.assertEqual(
            self.assert_same_parameters(self.read_json("out/summary.json"), 3),
            self.assert_same_parameters(self.reference("BYTES"), 3),
        )


if __name__ == "__main__":
    cluster.main()
