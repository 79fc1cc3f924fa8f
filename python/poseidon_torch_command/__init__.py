"""The command `poseidon` of the wheel: plans, simulations and jobs.

It is a package of its own beside poseidon_torch, which imports PyTorch: that takes a second, and plans need none.
"""

import os
import pathlib
import sys

_PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "poseidon_torch" / "bin" / "poseidon"


def main() -> None:
    """Becomes the program that the wheel carries."""
    try:
        os.execv(_PROGRAM, [str(_PROGRAM), *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"poseidon: can't start {_PROGRAM}: {error.strerror}; install the wheel again")
