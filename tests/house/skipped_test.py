"""What is skipped is said, and is not taken for passed."""

import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for folder in ("tools", "tests/integration", "tests/bench/network"):
    sys.path.append(os.path.join(ROOT, folder))

# pylint: disable=wrong-import-position
import skipped_tests
import testbed

LOG = """1/3 Testing: unit.core_test
1/3 Test: unit.core_test
Command: "core_test"
[ RUN      ] BlasCore.IsTaken
/there/blas_core_test.cc:33: Skipped
OpenBLAS knows this processor
[  SKIPPED ] BlasCore.IsTaken (0 ms)
[ RUN      ] Nets/BlasCore.IsTaken/0
/there/blas_core_test.cc:33: Skipped
OpenBLAS knows this processor

[  SKIPPED ] Nets/BlasCore.IsTaken/0, where GetParam() = 4 (0 ms)
[  PASSED  ] 0 tests.
[  SKIPPED ] 2 tests, listed below:
[  SKIPPED ] BlasCore.IsTaken
2/3 Test: integration.sshd
test_trains (__main__.SshdTest.test_trains) ... skipped "there's no sshd"
test_ends (__main__.SshdTest.test_ends) ... ok
OK (skipped=1)
3/3 Test: torch.c10d
skipped: no PyTorch
"""


class SummaryTest(unittest.TestCase):
    def test_every_way_of_skipping_is_read(self):
        self.assertEqual(
            skipped_tests.read(LOG.splitlines(keepends=True)),
            [
                ("OpenBLAS knows this processor", "unit.core_test"),
                ("OpenBLAS knows this processor", "unit.core_test"),
                ("there's no sshd", "integration.sshd"),
                ("no PyTorch", "torch.c10d"),
            ],
        )

    def test_reasons_are_counted(self):
        skipped = [("no sshd", "b"), ("no GPU", "a"), ("no sshd", "a"), ("no sshd", "b")]
        self.assertEqual(
            skipped_tests.summary(skipped),
            [
                "skipped, and so not tested here: 4 case(s)",
                "     3  no sshd (a, b)",
                "     1  no GPU (a)",
            ],
        )
        self.assertEqual(skipped_tests.summary([]), [])


class ExitCodeTest(unittest.TestCase):
    """Of test programs by tests/integration/cluster.py."""

    def code_of(self, *cases):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "some_test.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(
                    "import unittest\nimport cluster\n\nclass SomeTest(unittest.TestCase):\n"
                )
                for number, body in enumerate(cases):
                    file.write(f"    def test_{number}(self):\n        {body}\n")
                file.write("\ncluster.main()\n")
            environment = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "tests/integration")}
            done = subprocess.run(
                [sys.executable, path], env=environment, capture_output=True, check=False
            )
        return done.returncode

    def test_77_where_all_cases_are_skipped(self):
        self.assertEqual(self.code_of("self.skipTest('x')", "self.skipTest('y')"), 77)
        self.assertEqual(self.code_of("self.skipTest('x')", "pass"), 0)
        self.assertEqual(self.code_of("self.skipTest('x')", "self.fail('y')"), 1)


class TestbedTest(unittest.TestCase):
    """tests/bench/network/testbed.py, without which tests are skipped."""

    def fail_with(self, message):
        testbed._call("sh", "-c", f"echo '{message}'; exit 2")

    def test_is_unavailable_only_where_the_kernel_refuses(self):
        with self.assertRaisesRegex(testbed.Unavailable, "not permitted"):
            self.fail_with("RTNETLINK answers: Operation not permitted")
        with self.assertRaisesRegex(RuntimeError, "File exists"):
            self.fail_with("RTNETLINK answers: File exists")


if __name__ == "__main__":
    unittest.main()
