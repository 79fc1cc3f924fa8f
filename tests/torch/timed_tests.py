#!/usr/bin/env python3
"""unittest's main, which says how long each case takes, and leaves out the slow ones.

  timed_tests.py [--slow] TEST.py...    runs the tests of some files, one after the other in one process

With --slow, which TEST.py alone takes, too, the cases marked with `slow` are run and no others.
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "integration"))

# pylint: disable=wrong-import-position
from slow_cases import Loader, slow
import timed_result

__all__ = ["main", "slow"]


def main(module="__main__", names=None):
    """Runs the module's tests, or those that `names` or else the command line names."""
    names = sys.argv[1:] if names is None else names
    timed_result.run(
        module=module,
        argv=[sys.argv[0], *(name for name in names if name != "--slow")],
        testLoader=Loader(slow_ones="--slow" in names),
    )


if __name__ == "__main__":
    main(module=None, names=[path.removesuffix(".py") for path in sys.argv[1:]])
