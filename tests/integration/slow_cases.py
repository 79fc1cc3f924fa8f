"""Cases of a test program that take minutes, which a quick run leaves out."""

import unittest


def slow(case):
    """Marks a test of minutes: what it tries beyond its quick neighbors."""
    case.is_slow = True
    return case


class Loader(unittest.TestLoader):
    """Finds the slow cases, or the others."""

    def __init__(self, *, slow_ones):
        super().__init__()
        self._slow_ones = slow_ones

    def getTestCaseNames(self, testCaseClass):
        return [
            name
            for name in super().getTestCaseNames(testCaseClass)
            if getattr(getattr(testCaseClass, name), "is_slow", False) == self._slow_ones
        ]
