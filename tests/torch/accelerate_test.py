#!/usr/bin/env python3
"""Hugging Face's accelerate trains by the backend "poseidon" to the bits that it comes to by gloo."""

import importlib.util
import os
import sys
import unittest

import timed_tests
from ranks import PATIENCE, Ranks

SKIPPED = 77
NEEDED = "accelerate huggingface_hub safetensors packaging psutil pyyaml tqdm requests"


class Accelerate(unittest.TestCase):
    def losses_by(self, backend):
        os.environ["BACKEND"] = backend
        with Ranks("accelerated.py", 2) as ranks:
            for result in ranks.wait(PATIENCE):
                self.assertEqual(result.code, 0, result.output)
            (said,) = (line for line in ranks.output(0).splitlines() if " losses [" in line)
        return said

    def test_as_by_gloo(self):
        ours = self.losses_by("poseidon")
        self.assertIn("MULTI_CPU losses [", ours)
        # Two ranks' sums have one order.
        self.assertEqual(ours, self.losses_by("gloo"))


if __name__ == "__main__":
    if importlib.util.find_spec("accelerate") is None:
        print(f"skipped: no accelerate; {sys.executable} -m pip install --no-deps {NEEDED}")
        sys.exit(SKIPPED)
    timed_tests.main()
