#!/usr/bin/env python3
"""Runs a test with the Python of the newest PyTorch that tools/setup --torch has made, with --oldest
that of the oldest one if there are several, or says that it is skipped (exit code 77).

  tests/torch/in_environment.py [--oldest] TEST.py [ARGUMENT...]
  tests/torch/in_environment.py [--oldest] [--slow] TEST.py TEST.py...    one after the other, in one process
"""

import os
import pathlib
import sys

SKIPPED = 77
ENVIRONMENTS = pathlib.Path(__file__).resolve().parent.parent.parent / "out/torch"


def version_of(environment: pathlib.Path) -> list:
    return [int(part) for part in environment.name.split(".") if part.isdigit()]


def main() -> int:
    words = sys.argv[1:]
    oldest = words[:1] == ["--oldest"]
    whole = sorted((path.parent for path in ENVIRONMENTS.glob("*/whole")), key=version_of)
    if not whole:
        print(f"skipped: no PyTorch in {ENVIRONMENTS}; tools/setup --torch makes one (540 MB)")
        return SKIPPED
    if oldest and len(whole) == 1:
        print(f"skipped: no second PyTorch in {ENVIRONMENTS}; tools/test --all makes an old one")
        return SKIPPED
    python = whole[0 if oldest else -1] / "bin/python"
    words = words[1:] if oldest else words
    if len(words) > 1 and all(word.endswith("_test.py") or word == "--slow" for word in words):
        words = ["timed_tests.py", *words]
    os.execv(python, [str(python), *words])


if __name__ == "__main__":
    sys.exit(main())
