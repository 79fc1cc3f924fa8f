#!/usr/bin/env python3
"""Frozen layers, checkpoints of activations, GradScaler and schedulers train together as alone; with the
argument --compiled, blocks that torch.compile has compiled."""

import sys
import unittest

import timed_tests
from ranks import Ranks

SECONDS = 500  # compiling takes most of it


class Features(unittest.TestCase):
    arguments = []

    def test_trained_as_by_one_process(self):
        with Ranks("features.py", 2, self.arguments) as ranks:
            for rank, result in enumerate(ranks.wait(SECONDS)):
                self.assertEqual(result.code, 0, f"rank {rank}:\n{result.output}")
                print(result.output)
            logs = [path.read_text() for path in ranks.out.glob("*/scheduler.log")]
            for rank in range(2):  # a job each
                self.assertIn(f"{len(logs)} cases are equal", ranks.output(rank).splitlines())
            for log in logs:
                self.assertIn("all workers ended with the same parameters", log)


if __name__ == "__main__":
    if "--compiled" in sys.argv:
        sys.argv.remove("--compiled")
        Features.arguments = ["compile"]
    timed_tests.main()
