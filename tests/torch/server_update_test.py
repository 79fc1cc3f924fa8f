#!/usr/bin/env python3
"""With update="server" the servers' updates are PyTorch's, and a job whose ranks do not agree on them ends."""

import unittest

import timed_tests
from ranks import PATIENCE, Ranks

SECONDS = 250


class ServerUpdate(unittest.TestCase):
    def test_trained_as_by_workers_and_one_process(self):
        self.assert_equal()

    @timed_tests.slow
    def test_trained_in_other_ways_as_by_workers_and_one_process(self):
        self.assert_equal("others")

    def assert_equal(self, *arguments):
        with Ranks("server_update.py", 2, list(arguments)) as ranks:
            for rank, result in enumerate(ranks.wait(SECONDS)):
                self.assertEqual(result.code, 0, f"rank {rank}:\n{result.output}")
            self.assertIn("equal", ranks.output(0).splitlines())
            print(ranks.output(0))

    def test_ranks_that_do_not_agree_are_named(self):
        with Ranks("server_update.py", 2, ["disagree"]) as ranks:
            for rank, result in enumerate(ranks.wait(PATIENCE)):
                self.assertNotEqual(result.code, 0, result.output)
                self.assertIn("workers do not agree how to update layer", result.output, rank)
                self.assertIn("in iteration 5: parameter group 0 has lr 0.", result.output)
                for number in (0, 1):
                    self.assertIn(f"{('0.3', '0.125')[number]} on worker {number}", result.output)
            self.assertEqual(ranks.daemons(), [])


if __name__ == "__main__":
    timed_tests.main()
