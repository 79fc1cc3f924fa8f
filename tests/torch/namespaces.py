"""Two machines with a cable between them, which are network namespaces. Needs root."""

import os
import pathlib
import subprocess
import sys
import unittest
from typing import List, Sequence

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "integration"))

from leftovers import remove_leftovers  # noqa: E402  pylint: disable=wrong-import-position


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def two_machines(test: unittest.TestCase, addresses: Sequence[str]) -> List[str]:
    """The names of two namespaces, and of their interfaces, which are there until the test ends."""
    remove_leftovers(r"ptest(\d+)[ab]")
    names = [f"ptest{os.getpid()}{side}" for side in "ab"]
    for name in names:
        ip("netns", "add", name)
        test.addCleanup(ip, "netns", "del", name)
    ip("link", "add", names[0], "type", "veth", "peer", "name", names[1])
    for name, address in zip(names, addresses):
        ip("link", "set", name, "netns", name)
        ip("-n", name, "addr", "add", f"{address}/24", "dev", name)
        ip("-n", name, "link", "set", name, "up")
        ip("-n", name, "link", "set", "lo", "up")
    return names
