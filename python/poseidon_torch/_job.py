"""The job that this process is a worker of: its config, and the daemons that torchrun's jobs start by themselves."""

import concurrent.futures
import contextlib
import dataclasses
import datetime
import functools
import json
import numbers
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import threading
from typing import Iterator, List, Optional, Sequence, Tuple

import torch.distributed as dist

from . import _library
from ._errors import ConfigError, PeerLost, PoseidonError, error_of
from ._fresh_part import fresh_part, say_missing
from ._program_end import exit_code_of

# Below Linux's range for outgoing connections (32768 up), so that none takes the port meanwhile.
_PORTS = range(20000, 32000)
# The daemons end when their job has; what takes longer hangs.
_END_SECONDS = 15
_SUMMARY_SECONDS = (
    60  # for so long the scheduler waits for room for summary.json (cli/scheduler_main.cc)
)
_FAILURE_SECONDS = 2
# What a daemon's log is quoted with.
_LAST_LINES = 3
_LAST_BYTES = 1 << 16  # in which these lines are

# Ends the daemon when the thread that started it ends, however it ends (prctl(PR_SET_PDEATHSIG, SIGKILL)). A process
# of its own does it, since nothing but exec is safe between fork and exec of a process with threads.
_END_WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); "
    "os.getppid() == int(sys.argv[1]) or os._exit(1); os.execv(sys.argv[2], sys.argv[2:])"
)


class Daemon:
    """A program of the project's that runs beside this process, and ends with it. One thread at a time."""

    def __init__(self, name: str, command: List[str], log: pathlib.Path):
        """Starts `command`, whose output goes to the file `log`."""
        self.name = name
        self.log = log
        started: concurrent.futures.Future[subprocess.Popen] = concurrent.futures.Future()
        # The caller's thread may be one that ends before the process does.
        threading.Thread(target=self._run, args=(command, started), daemon=True).start()
        self._process = started.result()

    def _run(
        self, command: List[str], started: "concurrent.futures.Future[subprocess.Popen]"
    ) -> None:
        """Starts the daemon; returns when it has ended, which others see for themselves."""
        try:
            self.log.write_bytes(b"")
            # Who empties it while the daemon writes finds the next line at its beginning.
            with open(self.log, "ab") as output:
                process = subprocess.Popen(
                    [
                        sys.executable,
                        "-I",
                        "-S",
                        "-c",
                        _END_WITH_PARENT,
                        str(os.getpid()),
                        *command,
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C is for the workers, which end the job.
                    start_new_session=True,
                )
        except BaseException as error:  # pylint: disable=broad-except
            started.set_exception(error)
            return
        started.set_result(process)
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    def check(self) -> None:
        """Raises PoseidonError, of the class of its exit code and with the end of its log, if it has failed."""
        code = self._process.poll()
        if code:
            raise error_of(f"the {self.name} {_ended(code)}:\n{self.last_words()}", max(code, 1))

    def last_words(self) -> str:
        """The end of its log."""
        try:
            with open(self.log, "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - _LAST_BYTES))
                text = log.read().decode(errors="replace")
        except OSError as error:
            return f"  its log can't be read: {error}"
        lines = text.splitlines()[-_LAST_LINES:]
        return "\n".join("  " + line for line in lines) or "  its log says nothing"

    def wait(self, seconds: float) -> None:
        """Waits for its end, and brings it about after `seconds`."""
        for end in (lambda: None, self._process.terminate, self._process.kill):
            end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
                return
            seconds = 2


def _ended(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"


@dataclasses.dataclass(frozen=True)
class Place:
    """Where torchrun has put this process."""

    rank: int
    workers: int
    local_rank: int
    local_workers: int
    master: str

    @property
    def nodes(self) -> int:
        return self.workers // self.local_workers

    @property
    def node(self) -> int:
        return self.rank // self.local_workers

    @staticmethod
    def from_environment() -> "Place":
        """Raises ConfigError if torchrun's variables are not there, or make no sense."""
        try:
            rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            # Who sets the variables by hand, on one machine, mostly leaves out these.
            local_rank = int(os.environ.get("LOCAL_RANK", rank))
            local_workers = int(os.environ.get("LOCAL_WORLD_SIZE", workers))
            place = Place(rank, workers, local_rank, local_workers, os.environ["MASTER_ADDR"])
            os.environ["MASTER_PORT"]  # pylint: disable=pointless-statement
        except KeyError as missing:
            raise ConfigError(
                f"the environment has no {missing.args[0]}; start this program by torchrun, or by "
                "`poseidon run --config=FILE -- python PROGRAM`, or give init a job config"
            ) from None
        except ValueError as error:
            raise ConfigError(f"torchrun's variables are no numbers: {error}") from None
        if not 0 <= place.rank < place.workers or not 0 <= place.local_rank < place.local_workers:
            raise ConfigError(f"torchrun's variables contradict each other: {place}")
        if place.workers % place.local_workers != 0:
            raise ConfigError(
                f"every machine must run as many processes: {place.workers} are no multiple of the "
                f"{place.local_workers} on this one"
            )
        return place


@dataclasses.dataclass(frozen=True)
class JobOptions:
    """What the job config of a torchrun job is made of (docs/configuration.md)."""

    # Servers and a ring move as many bytes, and without a plan for this model and network the ring was the faster one
    # on all nets that were tried (docs/measurements/pytorch.md).
    policy: str = "ALL_RING"
    codec: str = "FP32"
    servers: Optional[int] = None  # one a machine
    bandwidth: Optional[str] = None
    bucket_bytes: int = 1 << 20
    # The program goes on when all gradients are there, so that nothing is hidden behind the next forward pass.
    wait_for_all: bool = True
    deterministic: bool = False
    lanes: Optional[int] = None  # not given: planned where the network is known
    deadline_seconds: float = 600.0
    # Of DiLoCo.
    local_steps: int = 1
    fragments: int = 1
    overlap_steps: int = 0
    step_deadline_seconds: Optional[float] = None

    def __post_init__(self):
        # As in the job config (docs/configuration.md).
        for name, kind, least, said in (
            ("servers", numbers.Integral, 1, "a whole number from 1"),
            ("deadline_seconds", numbers.Real, 0.1, "a number from 0.1"),
            ("step_deadline_seconds", numbers.Real, 0.1, "a number from 0.1"),
        ):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= 1e6:
                raise ConfigError(f"{name} is {value!r}; it must be {said} to 1,000,000")

    def text(self, place: Place, host: str, port: int, run: int, security: str) -> str:
        """The config; the same on all ranks, or the scheduler refuses them. `security` is a field of its own."""
        network = f' network {{ bandwidth: "{self.bandwidth}" }}' if self.bandwidth else ""
        lanes = f"lanes: {self.lanes} " if self.lanes is not None else ""
        stall = self.step_deadline_seconds or self.deadline_seconds
        return (
            'name: "torch"\n'
            f"cluster {{ workers: {place.workers} servers: {self.servers or place.nodes} "
            f'scheduler_host: "{host}" scheduler_port: {port} '
            f"join_deadline_seconds: {self.deadline_seconds}{network} }}\n"
            f"communication {{ policy: {self.policy} codec: {self.codec} {lanes}"
            f"bucket_bytes: {self.bucket_bytes} stall_deadline_seconds: {stall} "
            f"deterministic: {_bool(self.deterministic)} wait_for_all: {_bool(self.wait_for_all)} "
            f"local_steps: {self.local_steps} fragments: {self.fragments} overlap_steps: {self.overlap_steps} }}\n"
            f"run: {run}\n"
            f"{security}"
        )


def needs_servers(codec: Optional[str]) -> bool:
    """Whether only servers can use it: what it leaves out is kept for the next time, which all-reduces can't."""
    return codec in ("INT8", "ONE_BIT", "TOP_K")


def default_policy(timed: bool, has_example: bool, codec: Optional[str]) -> str:
    """Where the program names none: `timed`, whether the passes of its layers will be."""
    # TIME plans by what is measured. That is not the same in two runs; and layers that nobody has timed, as those on
    # several devices, would be planned by their sizes, which makes plans that are worse than a plain ring.
    if timed:
        return "TIME"
    if needs_servers(codec):
        return "ALL_PS"
    return "BYTES" if has_example else JobOptions.policy


def _bool(value: bool) -> str:
    return str(value).lower()


@dataclasses.dataclass(frozen=True)
class Admission:
    """Who may take part in a job on several machines (docs/security.md)."""

    key_file: Optional[str] = None  # the job's key, on each machine
    allow: Optional[List[str]] = None  # networks; not given: the addresses of the job's machines

    def text(self, machines: List[str]) -> str:
        """The job config's `security`; `machines` are the addresses of the job's."""
        networks = self.allow if self.allow is not None else [] if self.key_file else machines
        allow = " ".join(f"allow: {json.dumps(network)}" for network in networks)
        if self.key_file:
            path = json.dumps(str(pathlib.Path(self.key_file).absolute()))
            return f"security {{ mode: CURVE key_file: {path} {allow} }}\n"
        return f"security {{ mode: NONE {allow} }}\n"


@functools.lru_cache(maxsize=None)
def _store_of(_process: int, _master: str, _port: str, rank: int, workers: int) -> dist.Store:
    """Where ranks find each other: the store of torchrun's agent, or rank 0's at MASTER_ADDR. Kept for the process' later
    jobs, as the other ranks may come to the next one before rank 0, whose store would have ended with the last one; not
    for those of a process that is forked from it."""
    store, _, _ = next(iter(dist.rendezvous("env://", rank, workers)))
    return store


class Job:
    """A job that torchrun has started the workers of, among whom this process is."""

    def __init__(self, place: Place, out: Optional[str], number: int, admission: Admission):
        """`number`: the process' jobs before this one, the same on all ranks."""
        self.place = place
        self._out = out
        self._admission = admission
        port = os.environ["MASTER_PORT"]
        store = _store_of(os.getpid(), place.master, port, place.rank, place.workers)
        self._store = dist.PrefixStore(f"poseidon_torch/{number}", store)
        self._daemons: List[Daemon] = []

    def start(self, options: JobOptions) -> _library.Session:
        """Starts this machine's daemons and joins. Raises PoseidonError."""
        text = self._agree_on_text(options)
        self._start_daemons(text, options)
        try:
            return _library.Session(job_text=text, rank=self.place.rank, watch=self.check)
        except PoseidonError:
            self._wait(_END_SECONDS)
            self.check()  # which may say more
            raise

    def share(self, name: str, text: str) -> None:
        """Before start: rank 0's is what `shared` returns to all then."""
        if self.place.rank == 0:
            self._store.set(name, text)

    def shared(self, name: str) -> str:
        """After start."""
        return self._store.get(name).decode()

    def check(self) -> None:
        """Raises PoseidonError if a daemon of this process has failed."""
        for daemon in self._daemons:
            daemon.check()

    def end(self) -> None:
        """Training is finished: waits for the daemons' ends. Raises PoseidonError if one has failed."""
        self._wait(_END_SECONDS, _SUMMARY_SECONDS)
        self.check()

    def abandon(self, reason: str, has_joined: bool) -> None:
        """Training has failed: gives the daemons a moment to tell the others why, if this process `has_joined`. Else the
        store tells them, unless it is that of torchrun's agent, which ends them, and keeps it for the next attempt.
        """
        if not has_joined and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True):
            with contextlib.suppress(RuntimeError):  # rank 0 has ended, and the store with it
                say_missing(self._store, self.place.rank, reason)
        self._wait(_FAILURE_SECONDS)

    def _wait(self, seconds: float, scheduler_seconds: float = 0) -> None:
        for daemon in self._daemons:
            daemon.wait(seconds + (scheduler_seconds if daemon.name == "scheduler" else 0))

    def _agree_on_text(self, options: JobOptions) -> str:
        place, seconds = self.place, options.deadline_seconds
        self._store.set_timeout(datetime.timedelta(seconds=seconds))
        with self._naming_the_store():
            store = fresh_part(self._store, place.rank, place.workers, seconds)
        if place.rank == place.workers - 1:
            # The last rank is where MASTER_ADDR does not mean the machine itself, if any is; there a name does not
            # lead to a loopback address.
            store.set("host", resolve(place.master))
        if place.rank == 0:
            store.set("port", str(free_ports(2)))
            store.set("run", str(random.SystemRandom().getrandbits(32)))
        with self._naming_the_store():
            host, port, run = (store.get(key).decode() for key in ("host", "port", "run"))
            store.set(f"place-{place.rank}", f"{place.local_rank} {own_address(host)}")
            if place.rank == 0:
                # All by one: where each asked for every place, the store would answer millions of times.
                told = [store.get(f"place-{rank}").decode() for rank in range(place.workers)]
                store.set("places", json.dumps(told))
            told = json.loads(store.get("places"))
        places = [(int(local_rank), address) for local_rank, address in map(str.split, told)]
        security = self._admission.text(machines_of(places, place.local_workers))
        return options.text(place, host, int(port), int(run), security)

    @contextlib.contextmanager
    def _naming_the_store(self) -> Iterator[None]:
        """Raises PoseidonError, which tells where the others were waited for, instead of any error but PeerLost."""
        try:
            yield
        except PeerLost:
            raise
        except Exception as error:
            kind = type(error) if isinstance(error, PoseidonError) else PoseidonError
            raise kind(
                f"rank {self.place.rank} of {self.place.workers} got no word of the others through torchrun's store at "
                f"{self.place.master}: {error}",
                exit_code_of(error),
            ) from error

    def _start_daemons(self, text: str, options: JobOptions) -> None:
        here = [
            rank
            for rank in range(options.servers or self.place.nodes)
            if rank % self.place.nodes == self.place.node
        ]
        if self.place.local_rank != 0:
            return
        directory = pathlib.Path(self._out or tempfile.mkdtemp(prefix="poseidon_torch."))
        directory.mkdir(parents=True, exist_ok=True)
        config = directory / f"job-{self.place.node}.prototxt"
        config.write_text(text)
        if self.place.rank == 0:
            self._start("scheduler", directory, [f"--config={config}", f"--out={directory}"])
        for rank in here:
            self._start(
                "server",
                directory,
                [f"--config={config}", f"--out={directory}", f"--rank={rank}"],
                f"-{rank}",
            )

    def _start(
        self, role: str, directory: pathlib.Path, arguments: List[str], suffix: str = ""
    ) -> None:
        program = _library.find_program(f"poseidon_{role}")
        self._daemons.append(
            Daemon(role + suffix, [program, *arguments], directory / f"{role}{suffix}.log")
        )


def machines_of(places: Sequence[Tuple[int, str]], local_workers: int) -> List[str]:
    """The addresses of a job's machines. `places`: by rank, its number on its machine, and that one's address. Raises
    ConfigError if so many ranks in a row are not one machine's, as where nothing has said how many each has.
    """
    for rank, (local_rank, address) in enumerate(places):
        number = rank % local_workers
        _, first_address = places[rank - number]
        if (local_rank, address) != (number, first_address):
            raise ConfigError(
                f"rank {rank} has LOCAL_RANK {local_rank} at {address}; where LOCAL_WORLD_SIZE is {local_workers}, as it "
                f"is or is taken to be, it would have LOCAL_RANK {number} at {first_address}, beside rank {rank - number}; "
                "set LOCAL_RANK and LOCAL_WORLD_SIZE as torchrun does: a process' number on its machine, and how many "
                "run there, machine after machine"
            )
    return [address for _, address in places[::local_workers]]


def resolve(host: str) -> str:
    """The first IPv4 address of a name, else its first IPv6 one."""
    try:
        found = [address for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)]
    except OSError as error:
        raise ConfigError(f"MASTER_ADDR {host!r} can't be resolved: {error}") from None
    return min((address[0] for address in found), key=lambda address: ":" in address)


def own_address(other: str) -> str:
    """This machine's, on the way to `other`, an address."""
    family = socket.AF_INET6 if ":" in other else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((other, 9))  # any port: connecting a UDP socket sends nothing
        return probe.getsockname()[0]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def free_ports(count: int, rank: int = 0, size: int = 1) -> int:
    """The first of so many free ports in a row. Of `size` processes that look for one at the same time, each finds
    another, if it says by its rank which of them it is. Raises PoseidonError if there are none."""
    draw = random.SystemRandom()
    for _ in range(1000):
        port = draw.choice(_PORTS[rank::size])
        if all(_is_free(port + i) for i in range(count)):
            return port
    raise PoseidonError(f"found no {count} free ports in a row")
