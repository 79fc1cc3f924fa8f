"""A process one thread of which hangs."""

import contextlib
import ctypes
import os

_PTRACE_SEIZE, _PTRACE_INTERRUPT, _PTRACE_DETACH = 0x4206, 0x4207, 17
_WALL = 0x40000000


@contextlib.contextmanager
def frozen_thread(test, pid, name):
    """Stops one thread of a process; the others, the heartbeat's among them, go on. If the process ends meanwhile,
    its parent does not hear of that before the block ends, or gone() has been asked."""
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


def gone(thread):
    """Whether a frozen thread has ended with its process."""
    return os.waitpid(thread, _WALL | os.WNOHANG)[0] != 0
