#!/usr/bin/env python3
"""poseidon_torch trains as DistributedDataParallel and as one process with the whole batch do."""

import unittest

from ranks import Ranks


class EqualTraining(unittest.TestCase):
    def test_as_ddp_and_one_process(self):
        with Ranks("equal_training.py", 4) as ranks:
            results = ranks.wait(150)
            for rank, result in enumerate(results):
                self.assertEqual(result.code, 0, f"rank {rank}:\n{result.output}")
            self.assertIn("equal", results[0].output.splitlines())
            self.assertEqual(ranks.daemons(), [])
            print(results[0].output)


if __name__ == "__main__":
    unittest.main()
