"""Shows the slowest tests of a ctest run, and the slowest cases within them:

  slow_tests.py LastTest.log    the log that ctest leaves in Testing/Temporary of a build
  slow_tests.py --self-test     checks the reading of such a log
"""

import re
import sys
import unittest

SHOWN = 20

TEST = re.compile(r"^\d+/\d+ Test: (\S+)$")
TEST_TIME = re.compile(r"^Test time = +([\d.]+) sec$")
# As GoogleTest says it, and as tests/integration/cluster.py does.
CASE = re.compile(r"^\[ +(?:OK|FAILED) +\] (\S+?)(?:, where .*)? \((\d+) ms\)$")
PYTHON_CASE = re.compile(r"^ +([\d.]+) s (?:__main__\.)?(\S+)$")


def read(lines):
    """[(seconds, test)] and [(seconds, case, its test)] of a log."""
    tests, cases = [], []
    test = None
    for line in lines:
        line = line.rstrip("\n")
        if match := TEST.match(line):
            test = match[1]
        elif match := TEST_TIME.match(line):
            tests.append((float(match[1]), test))
        elif match := CASE.match(line):
            cases.append((int(match[2]) / 1000, match[1], test))
        elif match := PYTHON_CASE.match(line):
            cases.append((float(match[1]), match[2], test))
    return tests, cases


def slowest(rows):
    return sorted(rows, reverse=True)[:SHOWN]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        unittest.main(argv=sys.argv[:1])
    try:
        with open(sys.argv[1], encoding="utf-8", errors="replace") as file:
            tests, cases = read(file)
    except FileNotFoundError:
        sys.exit(f"{sys.argv[1]} is not there: no tests have been run; run tools/test first")
    print(
        f"{len(tests)} tests, {sum(seconds for seconds, _ in tests):.0f} s one after another; the slowest:"
    )
    for seconds, test in slowest(tests):
        print(f"{seconds:8.1f} s  {test}")
    print("\nthe slowest of their cases:")
    for seconds, case, test in slowest(cases):
        print(f"{seconds:8.1f} s  {case}  ({test})")


class SlowTestsTest(unittest.TestCase):
    LOG = """1/2 Testing: unit.core_test
1/2 Test: unit.core_test
Command: "core_test"
Output:
----------------------------------------------------------
[       OK ] SumTest.Adds (1250 ms)
[  FAILED  ] Codecs/CodecTest.Packs/1, where GetParam() = 8-byte object <01> (30 ms)
[----------] 1 test from SumTest (1250 ms total)
<end of output>
Test time =   1.31 sec
2/2 Test: integration.run
test_signals (__main__.RunTest.test_signals) ... ok
    12.50 s __main__.RunTest.test_signals
Test time =  12.90 sec
"""

    def test_reads_tests_and_cases(self):
        tests, cases = read(self.LOG.splitlines(keepends=True))
        self.assertEqual(tests, [(1.31, "unit.core_test"), (12.9, "integration.run")])
        self.assertEqual(
            cases,
            [
                (1.25, "SumTest.Adds", "unit.core_test"),
                (0.03, "Codecs/CodecTest.Packs/1", "unit.core_test"),
                (12.5, "RunTest.test_signals", "integration.run"),
            ],
        )

    def test_slowest_first_and_no_more_than_asked_for(self):
        rows = slowest([(float(seconds), "test") for seconds in range(50)])
        self.assertEqual([seconds for seconds, _ in rows], list(range(49, 29, -1)))


if __name__ == "__main__":
    main()
