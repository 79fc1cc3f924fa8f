"""Starts programs in interpreters that have PyTorch loaded already.

Loading PyTorch and its optimizers takes an interpreter about three seconds of computing, and the tests
start a hundred of them. So one interpreter loads both, and forks a process for each program: it runs as
the main module, with arguments, environment and output of its own.

When a program ends, the interpreter takes apart what it has made and imported, and C's exit() calls what libraries have
registered since the fork. What was loaded before that stays: taking PyTorch apart costs each process a third of a
second, more than all else that most of the programs do. No library's DT_FINI functions are called.
"""

import atexit
import ctypes
import gc
import importlib
import json
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import time
from typing import Dict, List, Optional

POLL_SECONDS = 0.02
CLONE_NEWNET = 0x40000000  # of <sched.h>
PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>


class LoadedPython:
    """The interpreter that forks. Not thread-safe."""

    def __init__(self, environment: Dict[str, str]):
        """`environment`: of the interpreter while it loads; each program has its own afterwards."""
        self._popen = subprocess.Popen(
            [sys.executable, __file__],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self.close)

    def close(self) -> None:
        """Ends it, and with it what it has forked and still runs."""
        self._popen.stdin.close()
        self._popen.wait()
        self._popen.stdout.close()

    def ask(self, **request) -> dict:
        """Its answer to one request; see `_serve`."""
        print(json.dumps(request), file=self._popen.stdin, flush=True)
        return json.loads(self._popen.stdout.readline())

    def start(
        self,
        command: List[str],
        environment: Dict[str, str],
        log: pathlib.Path,
        namespace: Optional[str] = None,
        whole_end: bool = False,
    ) -> "LoadedProcess":
        """Runs the program `command[0]`, in a network namespace if one is given; `log` gets what it writes to stdout
        and stderr. `whole_end`: what was loaded before it is taken apart, too."""
        log.touch()  # there before the process has begun
        answer = self.ask(
            command=[str(word) for word in command],
            environment=environment,
            log=str(log),
            namespace=namespace,
            whole_end=whole_end,
        )
        return LoadedProcess(self, answer["pid"])


class LoadedProcess:
    """A program's process, with those parts of subprocess.Popen that tests use."""

    def __init__(self, python: LoadedPython, pid: int):
        self._python = python
        self.pid = pid
        self.returncode: Optional[int] = None

    def poll(self) -> Optional[int]:
        if self.returncode is None:
            self.returncode = self._python.ask(pid=self.pid)["code"]
        return self.returncode

    def wait(self, timeout: Optional[float] = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(POLL_SECONDS)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _code_of(pid: int) -> Optional[int]:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _serve() -> Optional[dict]:
    """Answers requests, a line of JSON each, until there are no more: then returns None. In a process
    that it has forked it returns the request: the program to become."""
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        if "command" in request:
            pid = os.fork()
            if pid == 0:
                return request
            answer = {"pid": pid}
        else:
            answer = {"code": _code_of(request["pid"])}
        print(json.dumps(answer), flush=True)
    return None


def _enter(namespace: str) -> None:
    """All that this process does from now on is in the network namespace, as `ip netns exec` does it."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}", "rb") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns", namespace)


def _die_with_parent() -> None:
    """Also where something ends the test itself, which then can't."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _become(request: dict) -> None:
    _die_with_parent()
    with open(os.devnull, "rb") as nothing, open(request["log"], "ab") as log:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
    sys.stdout.reconfigure(write_through=True)
    if request["namespace"] is not None:
        _enter(request["namespace"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["command"]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")


def _to_stay() -> List[str]:
    """The modules that a program's end leaves as they are. Not those that hold its process groups, which are to end."""
    others = ("__main__", "builtins", "sys")
    return [
        name
        for name in sys.modules
        if name not in others and not name.startswith("torch.distributed")
    ]


def _let_stay(names: List[str]) -> None:
    """Takes modules out of the interpreter's hands, which clears those that it finds."""
    modules = [sys.modules.pop(name) for name in names]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(modules))  # one reference more than ever go


def _leave_libraries() -> None:
    """exit() of the C library is at its end when it would come to what libraries have registered until now: it calls
    the last one first. What is still in C's buffers goes out before that, which exit() does last.
    """
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)
    libc.__cxa_atexit(libc.fflush, None, None)  # atexit() is none of the library's own symbols


if __name__ == "__main__":
    stays: List[str] = []
    atexit.register(_let_stay, stays)  # called last, as it is the first one
    importlib.import_module("torch._dynamo")  # the first optimizer loads it
    gc.freeze()  # else each program's end looks at all that is loaded, which takes most of a second
    stays += _to_stay()
    program = _serve()
    if program is not None and program["whole_end"]:
        stays.clear()
    elif program is not None:
        _leave_libraries()
    if program is not None:
        _become(program)
