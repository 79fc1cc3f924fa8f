#!/usr/bin/env python3
"""A job on two machines, which are network namespaces here: who finds whom by which address, and what
a cut cable does. Needs root."""

import os
import sys
import time
import unittest

import timed_tests
from namespaces import ip, two_machines
from ranks import PATIENCE, Ranks

SKIPPED = 77
ADDRESSES = ["10.213.0.1", "10.213.0.2"]
# The heartbeat deadline, and an interpreter's end.
AT_DEADLINE = 80


class TwoMachines(unittest.TestCase):
    def setUp(self):
        self.machines = two_machines(self, ADDRESSES)

    def start(self, fault: str) -> Ranks:
        return Ranks("faulty.py", 4, [fault], self.machines, ADDRESSES[0])

    def test_four_ranks_train_with_a_server_on_each(self):
        with self.start("some") as ranks:
            for result in ranks.wait(PATIENCE):
                self.assertEqual(result.code, 0, result.output)
            said = (ranks.out / "scheduler.log").read_text()
            self.assertIn("all workers ended with the same parameters", said)
            for node, address in enumerate(ADDRESSES):
                self.assertIn(f"server {node} ({address},", said)
            self.assertEqual(ranks.daemons(), [])

    def test_ranks_that_do_not_know_of_two_machines_are_told_at_once(self):
        unset = ["LOCAL_RANK", "LOCAL_WORLD_SIZE"]
        with Ranks("faulty.py", 2, ["some"], self.machines, ADDRESSES[0], unset) as ranks:
            for result in ranks.wait(PATIENCE):
                self.assertNotEqual(result.code, 0, result.output)
            self.assertIn("rank 1 has LOCAL_RANK 1 at 10.213.0.2; where LOCAL_W", ranks.output(0))
            self.assertEqual(ranks.daemons(), [])

    def test_a_cut_cable_ends_both_sides(self):
        with self.start("none") as ranks:
            ranks.wait_for_line(3, "trains")
            ip("-n", self.machines[0], "link", "set", self.machines[0], "down")
            for rank, result in enumerate(ranks.wait(AT_DEADLINE)):
                self.assertNotEqual(result.code, 0, f"rank {rank}")
            self.assertRegex(ranks.output(0), "lost (worker [23]|server 1)")
            self.assertIn("lost the scheduler", ranks.output(3))
            end = time.monotonic() + 20
            while ranks.daemons() and time.monotonic() < end:
                time.sleep(0.05)
            self.assertEqual(ranks.daemons(), [])


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: network namespaces need root")
        sys.exit(SKIPPED)
    timed_tests.main()
