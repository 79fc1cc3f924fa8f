#!/usr/bin/env python3
"""What a program tells of its iterations is what its job tells. One process is the whole job."""

import json
import pathlib
import tempfile
import unittest

import torch

import timed_tests
from one_process import OneProcess, pass_of, psd, sgd


class Rates(unittest.TestCase):
    def told(self, distribute, **options):
        """The summary and the scheduler's log of a job of four steps."""
        with tempfile.TemporaryDirectory(prefix="poseidon_torch_test.") as scratch:
            psd.init(out=scratch)
            self.addCleanup(psd.shutdown)
            model = torch.nn.Linear(4, 4)
            optimizer = distribute(model, sgd(model), **options)
            for _ in range(4):
                pass_of(model, optimizer)
            psd.shutdown()
            summary = json.loads((pathlib.Path(scratch) / "summary.json").read_text())
            return summary, (pathlib.Path(scratch) / "scheduler.log").read_text()

    def test_there_are_none_where_the_program_does_not_say_its_batch(self):
        for distribute, options in ((psd.distribute, {}), (psd.DiLoCo, {"every": 2})):
            summary, log = self.told(distribute, **options)
            self.assertIsNone(summary["images_per_second"])
            self.assertIn("communication not hidden", log)
            self.assertNotIn("images/s", log)

    def test_they_are_those_of_the_batch(self):
        for distribute, options in ((psd.distribute, {}), (psd.DiLoCo, {"every": 2})):
            summary, log = self.told(distribute, batch_size=8, **options)
            self.assertEqual([worker["images"] for worker in summary["workers"]], [4 * 8])
            self.assertGreater(summary["images_per_second"], 0)
            self.assertIn("images/s", log)


class Mistakes(OneProcess):
    def test_a_batch_of_no_samples(self):
        for distribute in (psd.distribute, psd.DiLoCo):
            self.init()
            model = torch.nn.Linear(4, 4)
            with self.assertRaisesRegex(psd.ConfigError, "batch_size is 0; it must be at least 1"):
                distribute(model, sgd(model), batch_size=0)


if __name__ == "__main__":
    timed_tests.main()
