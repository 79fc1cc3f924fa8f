#!/usr/bin/env python3
"""poseidon_torch trains as DistributedDataParallel and as one process with the whole batch do."""

import unittest

import torch

import timed_tests
from ranks import PATIENCE, Ranks


class EqualTraining(unittest.TestCase):
    def test_as_ddp_and_one_process(self):
        self.assert_equal("cpu")

    @unittest.skipUnless(torch.cuda.is_available(), "PyTorch sees no GPU")
    def test_as_ddp_and_one_process_on_a_gpu(self):
        self.assert_equal("cuda")

    @timed_tests.slow
    def test_others_as_ddp_and_one_process(self):
        self.assert_equal("cpu", "others")

    @timed_tests.slow
    @unittest.skipUnless(torch.cuda.is_available(), "PyTorch sees no GPU")
    def test_others_as_ddp_and_one_process_on_a_gpu(self):
        self.assert_equal("cuda", "others")

    def assert_equal(self, device, *arguments):
        with Ranks("equal_training.py", 4, [device, *arguments]) as ranks:
            ranks.wait_for_daemons()
            results = ranks.wait(PATIENCE)
            for rank, result in enumerate(results):
                self.assertEqual(result.code, 0, f"rank {rank}:\n{result.output}")
            self.assertIn("equal", results[0].output.splitlines())
            self.assertEqual(ranks.daemons(), [])
            print(results[0].output)

    def test_second_derivatives_as_one_process(self):
        # A crash or a hang while PyTorch is taken apart would be seen, too.
        with Ranks("second_derivatives.py", 2, whole_end=True) as ranks:
            for rank, result in enumerate(ranks.wait(PATIENCE)):
                self.assertEqual(result.code, 0, f"rank {rank}:\n{result.output}")
                self.assertIn("equal", result.output.splitlines())

    def test_diloco_as_its_formulas(self):
        with Ranks("diloco.py", 3) as ranks:
            for rank, result in enumerate(ranks.wait(PATIENCE)):
                self.assertEqual(result.code, 0, f"rank {rank}:\n{result.output}")
            said = {
                path.parent.name: path.read_text() for path in ranks.out.glob("*/scheduler.log")
            }
            self.assertEqual(len(said), 5)
            # Seven whole rounds, and what was left.
            self.assertIn("8 iterations", said["job0"])
            for log in said.values():
                self.assertIn("all workers ended with the same parameters", log)


if __name__ == "__main__":
    timed_tests.main()
