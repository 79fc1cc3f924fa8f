"""A process one thread of which hangs."""

import contextlib
import ctypes
import os
import time

import cluster

_PTRACE_SEIZE, _PTRACE_INTERRUPT, _PTRACE_DETACH = 0x4206, 0x4207, 17
_WALL = 0x40000000


@contextlib.contextmanager
def frozen_thread(test, pid, name):
    """Stops one thread of a process; the others, the heartbeat's among them, go on. Where the process ends
    meanwhile, its parent does not hear of that before await_end() has; unless that is this program.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long] + [ctypes.c_void_p] * 3
    libc.ptrace.restype = ctypes.c_long
    threads = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/comm", encoding="utf-8") as file:
            threads.setdefault(file.read().strip(), int(thread))
    thread = threads[name]
    if libc.ptrace(_PTRACE_SEIZE, thread, None, None) != 0:
        test.skipTest(f"may not ptrace: {os.strerror(ctypes.get_errno())}")
    libc.ptrace(_PTRACE_INTERRUPT, thread, None, None)
    os.waitpid(thread, _WALL)
    try:
        yield thread
    finally:
        libc.ptrace(_PTRACE_DETACH, thread, None, None)


def await_end(test, thread, seconds):
    """Waits for the end of a frozen thread, which is its process's."""
    end = time.monotonic() + cluster.scaled(seconds)
    while os.waitpid(thread, _WALL | os.WNOHANG)[0] == 0:
        if time.monotonic() > end:
            test.fail(f"a process whose thread {thread} hangs has not ended after {seconds} s")
        time.sleep(0.1)
