"""Starts a program as the ranks of a job on this machine, as torchrun does, without its agent."""

import dataclasses
import functools
import os
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
import time
from typing import Dict, List, Optional, Sequence

from loaded_python import LoadedProcess, LoadedPython

# Seconds within which what has no deadline of its own comes to its end. Four interpreters that load
# PyTorch on two busy cores need a minute of them; what hangs, hangs for longer.
PATIENCE = 200.0

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


@dataclasses.dataclass
class Result:
    """How a rank has ended."""

    code: int
    output: str  # stdout and stderr


# A program that trains several times takes the next port each time. Below Linux's range for outgoing connections
# (32768 up), so that none takes one meanwhile.
PORTS_IN_A_ROW = 16


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """The first of some free ports in a row."""
    while True:
        first = random.randrange(10000, 20000)  # the jobs' own are above
        if all(_is_free(first + number) for number in range(PORTS_IN_A_ROW)):
            return first


def environment_of(
    rank: int, ranks: int, port: int, machines: int = 1, master: str = "127.0.0.1"
) -> Dict[str, str]:
    """torchrun's variables; the ranks are spread evenly over the machines."""
    local_ranks = ranks // machines
    return {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % local_ranks),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(local_ranks),
        "MASTER_ADDR": master,
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT / "python"),
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
    }


@functools.lru_cache(maxsize=None)
def _loaded_python() -> LoadedPython:
    """The one that all of this process's programs come from."""
    return LoadedPython(environment_of(rank=0, ranks=1, port=0))


class Ranks:
    """A program's processes; none is left when the context ends.

    `machines`: network namespaces that the ranks are spread over; the first one's address is `master`. `unset`: which of
    torchrun's variables they have not. `agent_port`: of a store of torchrun's agent; else rank 0 has it. `whole_end`: as
    LoadedPython.start has it.
    """

    def __init__(
        self,
        program: str,
        ranks: int,
        arguments: Optional[List[str]] = None,
        machines: Sequence[str] = (),
        master: str = "127.0.0.1",
        unset: Sequence[str] = (),
        agent_port: Optional[int] = None,
        whole_end: bool = False,
    ):
        self._scratch = tempfile.TemporaryDirectory(prefix="poseidon_torch_test.")
        self.out = pathlib.Path(self._scratch.name)
        port = agent_port or free_port()
        command = [HERE / "programs" / program, self.out, *(arguments or [])]
        self.processes: List[LoadedProcess] = []
        for rank in range(ranks):
            environment = environment_of(rank, ranks, port, max(1, len(machines)), master)
            environment["TORCHELASTIC_USE_AGENT_STORE"] = str(agent_port is not None)
            # As with an agent that does not count: versions of PyTorch that ask for it keep attempts apart by it.
            environment["TORCHELASTIC_RESTART_COUNT"] = "0"
            for name in unset:
                del environment[name]
            log = self.out / f"rank-{rank}.log"
            namespace = machines[rank * len(machines) // ranks] if machines else None
            self.processes.append(
                _loaded_python().start(command, environment, log, namespace, whole_end)
            )

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *_) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        self._scratch.cleanup()

    def output(self, rank: int) -> str:
        return (self.out / f"rank-{rank}.log").read_text(errors="replace")

    def wait_for_line(self, rank: int, line: str, seconds: float = PATIENCE) -> None:
        """Until the rank has printed `line`."""
        end = time.monotonic() + seconds
        while line not in self.output(rank).splitlines():
            if time.monotonic() > end or self.processes[rank].poll() is not None:
                raise AssertionError(f"rank {rank} did not print {line!r}:\n{self.output(rank)}")
            time.sleep(0.02)

    def send(self, rank: int, number: signal.Signals) -> None:
        self.processes[rank].send_signal(number)

    def wait(self, seconds: float) -> List[Result]:
        """Of all ranks; fails, with what they have said, if one has not ended after `seconds`."""
        end = time.monotonic() + seconds
        for rank, process in enumerate(self.processes):
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._show_where_they_are()
                raise AssertionError(
                    f"rank {rank} has not ended after {seconds} s:\n{self._all_said()}"
                ) from None
        return [
            Result(process.returncode, self.output(rank))
            for rank, process in enumerate(self.processes)
        ]

    def _show_where_they_are(self) -> None:
        """Has those that still run print their Python stacks (PYTHONFAULTHANDLER) and end."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGABRT)
        time.sleep(1)

    def _all_said(self) -> str:
        """By the ranks, and at last by the scheduler and the servers of each of their jobs."""
        said = [self.output(rank) for rank in range(len(self.processes))]
        for log in sorted(self.out.glob("*/*.log")):
            said += [
                f"{log.relative_to(self.out)}:",
                *log.read_text(errors="replace").splitlines()[-5:],
            ]
        return "\n".join(said)

    def wait_for_daemons(self) -> None:
        """Until a job has some: daemons() sees those that it will not find when the program has ended."""
        end = time.monotonic() + PATIENCE
        while not self.daemons():
            if time.monotonic() > end or self.processes[0].poll() is not None:
                raise AssertionError(f"no daemons were seen:\n{self.output(0)}")
            time.sleep(0.02)

    def daemons(self) -> List[int]:
        """Process ids of the schedulers and the servers of this program's jobs, whose directories are its own or
        lie in it."""
        own = f"--out={self.out}".encode()
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(word == own or word.startswith(own + b"/") for word in words):
                found.append(int(entry.name))
        return found
