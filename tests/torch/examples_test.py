#!/usr/bin/env python3
"""The programs of python/examples train by poseidon_torch as by DDP and as one process, go on from a
checkpoint in whichever way, and name what a user mistypes."""

import unittest

import timed_tests
from ranks import PATIENCE, Ranks


class Examples(unittest.TestCase):
    def test_all_ways_come_to_the_same(self):
        self.assert_equal()

    @timed_tests.slow
    def test_all_ways_come_to_the_same_in_more_epochs(self):
        self.assert_equal("others")

    def assert_equal(self, *arguments):
        with Ranks("examples.py", 2, list(arguments)) as ranks:
            ranks.wait_for_daemons()
            for rank, result in enumerate(ranks.wait(PATIENCE)):
                self.assertEqual(result.code, 0, f"rank {rank}:\n{result.output}")
            self.assertIn("equal", ranks.output(0).splitlines())
            self.assertEqual(ranks.daemons(), [])
            print("\n".join(line for line in ranks.output(0).splitlines() if "off " in line))


if __name__ == "__main__":
    timed_tests.main()
