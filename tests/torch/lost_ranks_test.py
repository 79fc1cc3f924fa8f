#!/usr/bin/env python3
"""DistributedDataParallel with the backend "poseidon": a rank that dies is named long before the group's timeout of
half an hour."""

import unittest

import timed_tests
from ranks import PATIENCE, Ranks


class LostRanks(unittest.TestCase):
    def test_a_killed_rank_is_named(self):
        with Ranks("c10d_killed.py", 2) as processes:
            self.assertEqual(processes.processes[0].wait(PATIENCE), 1, processes.output(0))
            self.assertRegex(processes.output(0), r"PeerLost: rank 1 \(.*\) said nothing for 30s:")


if __name__ == "__main__":
    timed_tests.main()
