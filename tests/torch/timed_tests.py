#!/usr/bin/env python3
"""unittest's main, which says how long each case takes, as tests/integration/cluster.py does.

  timed_tests.py TEST.py...    runs the tests of some files, one after the other in one process
"""

import sys
import time
import unittest


class _TimedResult(unittest.TextTestResult):
    def startTest(self, test):
        self._begun = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        self.stream.writeln(f"    {time.monotonic() - self._begun:.2f} s {test.id()}")


def main(module="__main__", argv=None):
    """Runs the module's tests, or those that `argv` names."""
    runner = unittest.TextTestRunner(resultclass=_TimedResult, verbosity=2)
    unittest.main(module=module, argv=argv, testRunner=runner)


if __name__ == "__main__":
    main(module=None, argv=[sys.argv[0], *(path.removesuffix(".py") for path in sys.argv[1:])])
