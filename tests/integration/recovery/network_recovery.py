"""What tests share whose jobs recover and have each node in a network namespace."""

import os
import sys

import cluster
import leftovers
import recovery_test

sys.path.append(os.path.join(cluster.REPOSITORY, "tests", "bench", "network"))
import testbed  # noqa: E402  pylint: disable=wrong-import-position


class NetworkRecoveryTest(recovery_test.RecoveryTest):
    def setUp(self):
        super().setUp()
        leftovers.remove_leftovers(r"poseidon-(\d+)-.*")
        self.bed = testbed.Testbed(4)
        try:
            self.enterContext(self.bed)
        except testbed.Unavailable as reason:
            self.skipTest(reason)

    def start_on(self, name, node, suffix=""):
        role, _, rank = name.partition("-")
        arguments = [f"--config={self.path('config.prototxt')}", f"--out={self.path('out')}"]
        if rank:
            arguments += [f"--rank={rank}", f"--host={self.bed.addresses[node]}"]
        prefix = ("ip", "netns", "exec", self.bed.namespace(node))
        return self.start(f"poseidon_{role}", *arguments, name=name + suffix, prefix=prefix)
