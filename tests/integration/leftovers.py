"""What tests with network namespaces leave that were killed before they could remove it."""

import contextlib
import os
import re
import shutil
import signal
import subprocess

# Where `ip netns` has namespaces, and the files that it puts over those of /etc.
_FOLDERS = ("/run/netns", "/etc/netns")


def remove_leftovers(pattern):
    """Removes the namespaces of processes that are gone, with all that runs in them. `pattern`: of their names; its
    group is the process that made them."""
    names = {name for folder in _FOLDERS if os.path.isdir(folder) for name in os.listdir(folder)}
    for name in sorted(names):
        match = re.fullmatch(pattern, name)
        if match and not os.path.exists(f"/proc/{match[1]}"):
            _remove(name)


def _remove(name):
    inside = subprocess.run(
        ["ip", "netns", "pids", name], check=False, capture_output=True, text=True
    )
    for pid in inside.stdout.split():
        with contextlib.suppress(ProcessLookupError):  # it has ended with another one
            os.kill(int(pid), signal.SIGKILL)
    # There may be files only, or somebody else removes it, too.
    subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
    shutil.rmtree(f"/etc/netns/{name}", ignore_errors=True)
