#!/usr/bin/env python3
"""Runs a test with the Python of the newest PyTorch that tools/setup --torch has made, or says that
it is skipped (exit code 77).

  tests/torch/in_environment.py TEST.py [ARGUMENT...]
"""

import os
import pathlib
import sys

SKIPPED = 77
ENVIRONMENTS = pathlib.Path(__file__).resolve().parent.parent.parent / "out/torch"


def version_of(environment: pathlib.Path) -> list:
    return [int(part) for part in environment.name.split(".") if part.isdigit()]


def main() -> int:
    whole = [path.parent for path in ENVIRONMENTS.glob("*/whole")]
    if not whole:
        print(f"skipped: no PyTorch in {ENVIRONMENTS}; tools/setup --torch makes one (540 MB)")
        return SKIPPED
    python = max(whole, key=version_of) / "bin/python"
    os.execv(python, [str(python), *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
