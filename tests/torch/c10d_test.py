#!/usr/bin/env python3
"""DistributedDataParallel and FSDP2 train by the backend "poseidon" as they do by gloo."""

import unittest

from ranks import PATIENCE, Ranks


class C10d(unittest.TestCase):
    def test_ddp_and_fsdp_by_another_name(self):
        for ranks in (2, 3):
            with self.subTest(ranks=ranks), Ranks("c10d.py", ranks) as processes:
                for result in processes.wait(PATIENCE):
                    self.assertEqual(result.code, 0, result.output)
                    self.assertIn("equal", result.output.splitlines())
                print(processes.output(0))


if __name__ == "__main__":
    unittest.main()
