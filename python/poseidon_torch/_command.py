"""The command `poseidon` of the wheel: plans and simulations."""

import os
import sys

from ._library import find_program


def main() -> None:
    """Becomes the program that the package carries."""
    program = find_program("poseidon")
    os.execv(program, [program, *sys.argv[1:]])
