"""A network of this machine's own: a namespace a node, joined by a bridge in one more namespace,
and programs that run in them. Nothing outside these namespaces is touched; they are removed when
the testbed is closed, whatever happens, with all that runs in them."""

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time

# A job's `security`: whoever is on the testbed may take part, and nothing is encrypted.
OPEN = 'security { mode: NONE allow: "10.99.0.0/24" }'

CONGESTION_CONTROL = "cubic"
# 96 KiB, above the largest packet that TCP hands to a link in one piece (64 KiB and headers), which
# tbf would otherwise cut up first, and what passes during a timer's delay; 0.8 ms of 1 Gb/s, so
# that in any 10 ms at most 8% more than the rate passes.
BURST_BYTES = 98304
# What waits before a shaped link is dropped beyond so much: about a switch port's memory, 1.25 MB.
QUEUE_SECONDS = 0.01

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


# How a kernel refuses the root of a container, or says that it lacks a module.
_REFUSALS = (
    "Operation not permitted",
    "Operation not supported",
    "Specified qdisc kind is unknown",
)


class Unavailable(Exception):
    """Why there can be no testbed here: no root, no program, or a kernel that refuses."""


def _die_with_parent():
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _call(*command):
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20, check=False
    )
    if done.returncode != 0:
        said = f"{' '.join(command)}: {done.stdout.decode().strip()}"
        # Whatever else fails is a defect, for which no test is skipped.
        refused = any(refusal in said for refusal in _REFUSALS)
        raise Unavailable(said) if refused else RuntimeError(said)
    return done.stdout.decode()


class Testbed:
    """`nodes` namespaces with one address each, as a context manager. `bits_per_second`: what every
    link lets through, each way; None does not shape."""

    def __init__(self, nodes, bits_per_second=None):
        self.addresses = [f"10.99.0.{node + 1}" for node in range(nodes)]
        self.bits_per_second = bits_per_second
        self.directory = None
        self._prefix = f"poseidon-{os.getpid()}-"
        self._made = []
        self._running = []

    def __enter__(self):
        if os.geteuid() != 0:
            raise Unavailable("namespaces need root")
        for program in ("ip", "tc"):
            if shutil.which(program) is None:
                raise Unavailable(f"there is no program {program}")
        self.directory = tempfile.mkdtemp(prefix="poseidon-network-")
        try:
            switch = self._make_namespace("switch")
            _call("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
            _call("ip", "-n", switch, "link", "set", "bridge", "up")
            for node, address in enumerate(self.addresses):
                self._join(switch, node, address)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self._running:
            if process.poll() is None:
                process.kill()
                process.wait()
        self._running = []
        for name in reversed(self._made):
            # What the programs have started in turn.
            for pid in subprocess.run(
                ["ip", "netns", "pids", name], stdout=subprocess.PIPE, check=False
            ).stdout.split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass  # it has ended meanwhile
            subprocess.run(["ip", "netns", "del", name], check=False)
        self._made = []
        shutil.rmtree(self.directory, ignore_errors=True)

    def namespace(self, node):
        return f"{self._prefix}{node}"

    def _make_namespace(self, suffix):
        name = f"{self._prefix}{suffix}"
        _call("ip", "netns", "add", name)
        self._made.append(name)
        _call("ip", "-n", name, "link", "set", "lo", "up")
        return name

    def _join(self, switch, node, address):
        name = self._make_namespace(node)
        port = f"port{node}"
        _call(
            "ip",
            "-n",
            switch,
            "link",
            "add",
            port,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            name,
        )
        _call("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
        _call("ip", "-n", name, "address", "add", f"{address}/24", "dev", "eth0")
        _call("ip", "-n", name, "link", "set", "eth0", "up")
        # By routes, not by sysctl: a namespace's default must be one of those that the machine
        # allows to everybody, which cubic need not be.
        _call(
            "ip",
            "-n",
            name,
            "route",
            "change",
            "10.99.0.0/24",
            "dev",
            "eth0",
            "proto",
            "kernel",
            "scope",
            "link",
            "src",
            address,
            "congctl",
            CONGESTION_CONTROL,
        )
        _call(
            "ip",
            "-n",
            name,
            "route",
            "change",
            "table",
            "local",
            "local",
            address,
            "dev",
            "eth0",
            "proto",
            "kernel",
            "scope",
            "host",
            "src",
            address,
            "congctl",
            CONGESTION_CONTROL,
        )
        if self.bits_per_second:
            self._shape_own(name, address)
            _call(
                "tc",
                "-n",
                switch,
                "qdisc",
                "add",
                "dev",
                port,
                "root",
                "tbf",
                "rate",
                f"{self.bits_per_second}bit",
                "burst",
                str(BURST_BYTES),
                "latency",
                f"{QUEUE_SECONDS * 1000:g}ms",
            )

    def _shape_own(self, name, own):
        """A machine's own link serves those that it sends to in turns, as launch/
        network_testbed.h says, where it says why."""

        def tc(*command):
            _call("tc", "-n", name, *command[:2], "dev", "eth0", *command[2:])

        rate = f"{self.bits_per_second}bit"
        turns = ("cburst", str(BURST_BYTES), "quantum", str(BURST_BYTES))
        limit = str(int(self.bits_per_second / 8 * QUEUE_SECONDS) + BURST_BYTES)
        tc("qdisc", "add", "root", "handle", "1:", "htb", "default", "2")
        tc(
            "class",
            "add",
            "parent",
            "1:",
            "classid",
            "1:1",
            "htb",
            "rate",
            rate,
            "burst",
            str(BURST_BYTES),
            *turns,
        )
        # Class 2 is for what goes to nobody in particular.
        for number, peer in enumerate([None] + [a for a in self.addresses if a != own], 2):
            tc(
                "class",
                "add",
                "parent",
                "1:1",
                "classid",
                f"1:{number:x}",
                "htb",
                "rate",
                "8bit",
                "ceil",
                rate,
                *turns,
            )
            tc("qdisc", "add", "parent", f"1:{number:x}", "bfifo", "limit", limit)
            if peer is not None:
                tc(
                    "filter",
                    "add",
                    "parent",
                    "1:",
                    "protocol",
                    "ip",
                    "prio",
                    "1",
                    "u32",
                    "match",
                    "ip",
                    "dst",
                    f"{peer}/32",
                    "flowid",
                    f"1:{number:x}",
                )

    def path(self, name):
        return os.path.join(self.directory, name)

    def start(self, node, command, log):
        """Runs a command in the node's namespace (None: in that of the caller); its output goes to
        the file `log` of the testbed's directory."""
        prefix = [] if node is None else ["ip", "netns", "exec", self.namespace(node)]
        with open(self.path(log), "wb") as output:
            # pylint: disable=subprocess-popen-preexec-fn  (the driver has no threads)
            process = subprocess.Popen(
                [*prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_parent,
            )
        process.log = self.path(log)
        self._running.append(process)
        return process

    def wait(self, processes, seconds):
        """Until all have ended well; returns the processor seconds of all. A failure or the
        deadline ends all and is a RuntimeError with what they said."""
        deadline = time.monotonic() + seconds
        cpu = 0.0
        left = list(processes)
        while left:
            for process in list(left):
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid == 0:
                    continue
                process.returncode = os.waitstatus_to_exitcode(status)
                left.remove(process)
                cpu += usage.ru_utime + usage.ru_stime
                if process.returncode != 0:
                    self._fail(processes, f"ended with {process.returncode}", process)
            if left and time.monotonic() > deadline:
                self._fail(processes, f"has not ended after {seconds:.0f} s", left[0])
            time.sleep(0.005)
        self._running = [process for process in self._running if process not in processes]
        return cpu

    def _fail(self, processes, what, culprit):
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        with open(culprit.log, encoding="utf-8", errors="replace") as file:
            said = file.read()[-2000:]
        raise RuntimeError(f"{' '.join(culprit.args)} {what}; it said:\n{said}")


def busy_seconds():
    """Processor seconds that this machine has spent, whoever with, since it started."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
