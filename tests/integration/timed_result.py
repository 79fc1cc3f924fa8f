"""What unittest says of a test program's cases."""

import time
import unittest

# The exit code of a program that has tried nothing: SKIP_RETURN_CODE of its entry in ctest.
SKIPPED = 77


class TimedResult(unittest.TextTestResult):
    """Says how long each case took, and counts those that passed."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.passed = 0

    def startTest(self, test):
        self._begun = time.monotonic()
        super().startTest(test)

    def addSuccess(self, test):
        self.passed += 1
        super().addSuccess(test)

    def stopTest(self, test):
        super().stopTest(test)
        self.stream.writeln(f"    {time.monotonic() - self._begun:.2f} s {test.id()}")


def run(**options):
    """unittest.main with these options; ends the program. One whose cases were all skipped has not passed."""
    runner = unittest.TextTestRunner(resultclass=TimedResult, verbosity=2)
    result = unittest.main(testRunner=runner, exit=False, **options).result
    if not result.wasSuccessful():
        raise SystemExit(1)
    raise SystemExit(SKIPPED if result.skipped and not result.passed else 0)
