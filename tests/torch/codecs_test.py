#!/usr/bin/env python3
"""What a codec has not sent of a parameter's gradients reaches it later, also in passes that do not use it."""

import unittest

import timed_tests
from ranks import Ranks

SECONDS = 120


class ErrorFeedback(unittest.TestCase):
    def largest_debt(self, turns):
        with Ranks("codecs.py", 2, [turns]) as ranks:
            for rank, result in enumerate(ranks.wait(SECONDS)):
                self.assertEqual(result.code, 0, f"rank {rank}:\n{result.output}")
            debt = float(ranks.output(0).splitlines()[-1])
            self.assertEqual(debt, float(ranks.output(1).splitlines()[-1]), "the ranks differ")
            return debt

    def test_what_is_owed_reaches_a_parameter_that_not_all_passes_use(self):
        # Where every pass uses the layer, what is owed is the codec's own.
        always = self.largest_debt("always")
        self.assertLess(0, always, "the codec loses nothing, so nothing is tested")
        for turns in ("alternating", "turns", "frozen_turns"):
            with self.subTest(turns):
                debt = self.largest_debt(turns)
                print("largest debt", always, "and, with turns that are", turns + ",", debt)
                self.assertLessEqual(debt, always)

    def test_what_is_owed_does_not_reach_what_is_frozen(self):
        self.largest_debt("frozen")


if __name__ == "__main__":
    timed_tests.main()
