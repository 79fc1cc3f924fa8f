#!/usr/bin/env python3
"""unittest's main, which says how long each case takes.

  timed_tests.py TEST.py...    runs the tests of some files, one after the other in one process
"""

import pathlib
import sys
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "integration"))

from timed_result import TimedResult  # pylint: disable=wrong-import-position


def main(module="__main__", argv=None):
    """Runs the module's tests, or those that `argv` names."""
    runner = unittest.TextTestRunner(resultclass=TimedResult, verbosity=2)
    unittest.main(module=module, argv=argv, testRunner=runner)


if __name__ == "__main__":
    main(module=None, argv=[sys.argv[0], *(path.removesuffix(".py") for path in sys.argv[1:])])
