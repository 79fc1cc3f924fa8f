"""What unittest says of a test program's cases."""

import time
import unittest


class TimedResult(unittest.TextTestResult):
    """Says how long each case took."""

    def startTest(self, test):
        self._begun = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        self.stream.writeln(f"    {time.monotonic() - self._begun:.2f} s {test.id()}")
