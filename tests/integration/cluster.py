"""Clusters of real processes, for the integration tests.

A test is a ClusterTest: it has a directory of its own, starts daemons with start_by_hand() or
`poseidon run` with run_job(), and finds every process that is left behind, whoever started it.
Every wait has a limit, and every process dies with the test, however that ends.

A test program is called as `python3 NAME_test.py --bin=DIR [--slowdown=X] [--sanitizer=NAMES] [--torch] [--slow]`, with
this folder in PYTHONPATH; what else is given goes to unittest. --slow runs the cases marked with slow() and no others, without it they
are left out.
"""

import argparse
import contextlib
import ctypes
import glob
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import slow_cases
import timed_result

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Exit codes of core/error.h.
SUCCESS, FAILURE, CONFIG_ERROR, PEER_LOST, DEADLINE_EXCEEDED, REFUSED, DATA_ERROR = range(7)
GIVEN_UP = 8
INTERRUPTED = 130

# Of the tests' jobs, in seconds: short, and yet beyond the hiccups of a busy machine.
HEARTBEAT_INTERVAL = 0.4
HEARTBEAT_DEADLINE = 3.0
# What processes need to end once they may: a heartbeat interval for the last messages, and the
# unloading of libtorch by several at once on a busy machine.
ENDING = 4.0
# From a death to the end of all others.
END_TIME = HEARTBEAT_DEADLINE + ENDING
# What a daemon whose program hangs has from the job's end to its own: core/end_deadline.h.
HANGING = 30.0
# A job of the size of these tests takes seconds; on a machine with many times more to do than cores, a
# minute. What has not ended after this hangs.
PATIENCE = 150.0
# Of each daemon's log, where a test has failed: a failed CHECK with its stack.
LOG_LINES_SHOWN = 20

# Marks a case.
slow = slow_cases.slow

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)

_options = argparse.Namespace(bin="build/bin", slowdown=1.0, sanitizer="", torch=False, slow=False)


def scaled(seconds):
    """Seconds as long as a build with sanitizers needs."""
    return seconds * _options.slowdown


def needs_no_sanitizer(test, reason, name=""):
    """Skips a test of a build with a sanitizer, or with that one; `reason`: why it can't pass there."""
    if _options.sanitizer and name in _options.sanitizer:
        test.skipTest(reason)


def needs_preloading(test):
    """Skips a test that loads a library of the build into programs that are not the build's."""
    needs_no_sanitizer(
        test, "a sanitizer's runtime must come before all libraries that are built with it"
    )


def programs():
    """The directory of this build's programs."""
    return _options.bin


def has_torch():
    """Whether workers can compute, and not only replay."""
    return _options.torch


def with_heartbeat_deadline(config, seconds):
    """A config of these tests with another deadline than theirs."""
    deadline = f"heartbeat_deadline_seconds: {scaled(HEARTBEAT_DEADLINE)}"
    assert deadline in config
    return config.replace(deadline, f"heartbeat_deadline_seconds: {seconds}")


def free_port_pair():
    """A port that is free together with the next one, below those of outgoing connections."""
    while True:
        port = random.randrange(20000, 32000)
        try:
            for candidate in (port, port + 1):
                with socket.socket() as probe:
                    probe.bind(("", candidate))
            return port
        except OSError:
            continue


def listening_ports(pid):
    """TCP ports on which a process listens."""
    inodes = set()
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    ports = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}", encoding="ascii") as file:
            for line in list(file)[1:]:
                columns = line.split()
                if columns[3] == "0A" and columns[9] in inodes:
                    ports.add(int(columns[1].rpartition(":")[2], 16))
    return sorted(ports)


def _die_with_parent():
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A program with its output, standard error included, in a file."""

    def __init__(self, name, command, directory):
        self.name = name
        self.path = os.path.join(directory, name + ".txt")
        with open(self.path, "wb") as output:
            # pylint: disable=subprocess-popen-preexec-fn  (the tests have no threads)
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=REPOSITORY,
                preexec_fn=_die_with_parent,
            )

    @property
    def pid(self):
        return self.popen.pid

    def output(self):
        with open(self.path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def signal(self, number):
        self.popen.send_signal(number)

    def wait(self, seconds=PATIENCE):
        """The exit code, negative for a signal's number."""
        try:
            return self.popen.wait(scaled(seconds))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} has not ended after {scaled(seconds)} s") from None

    def await_output(self, pattern, seconds=PATIENCE):
        """Waits until the output has the regular expression; returns the match."""
        deadline = time.monotonic() + scaled(seconds)
        while True:
            ended = self.popen.poll() is not None
            if match := re.search(pattern, self.output()):
                return match
            if ended or time.monotonic() > deadline:
                state = "ended" if ended else "still runs"
                raise AssertionError(f"{self.name} {state} and has not said /{pattern}/")
            time.sleep(0.02)


class ClusterTest(unittest.TestCase):
    """Base of the integration tests."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="poseidon-test-")
        self.processes = []
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.addCleanup(self._end_all)

    def run(self, result=None):
        """Shows what the processes said if the test fails."""
        before = len(result.failures) + len(result.errors)
        outcome = super().run(result)
        if len(result.failures) + len(result.errors) > before:
            sys.stderr.write(f"\n{self.id()} failed; its processes said\n{self._outputs}\n")
        return outcome

    def _end_all(self):
        for process in self.processes:
            if process.popen.poll() is None:
                process.popen.kill()
                process.popen.wait()
        self._outputs = "\n".join(
            f"--- {p.name}: exit code {p.popen.returncode}\n{p.output()}" for p in self.processes
        )
        for log in sorted(glob.glob(self.path("out/logs/*.log"))):
            with open(log, encoding="utf-8", errors="replace") as file:
                last = "".join(file.readlines()[-LOG_LINES_SHOWN:])
            self._outputs += f"\n--- the end of {os.path.basename(log)}\n{last}"
        self.kill_survivors()

    def kill_survivors(self):
        for pid in self.survivors():
            with contextlib.suppress(ProcessLookupError):  # it has ended with another one
                os.kill(pid, signal.SIGKILL)

    def survivors(self):
        """Processes on whose command line this test's directory is."""
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    if self.directory.encode() in file.read():
                        found.append(int(entry))
            except OSError:
                pass  # it has ended meanwhile
        return found

    def find_pid(self, role, rank=None):
        """Of a daemon that `poseidon run` has started; None if it does not run."""
        for pid in self.survivors():
            try:
                with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
                    arguments = file.read().split("\0")
            except OSError:
                continue  # it has ended meanwhile
            named = arguments[0].endswith(f"poseidon_{role}")
            if named and (rank is None or f"--rank={rank}" in arguments):
                return pid
        return None

    def pid_of(self, role, rank=None):
        """As find_pid, of one that does run."""
        pid = self.find_pid(role, rank)
        self.assertIsNotNone(pid, f"no poseidon_{role} runs")
        return pid

    def assert_nothing_left(self, seconds=0.0):
        deadline = time.monotonic() + scaled(seconds)
        while self.survivors():
            self.assertLess(time.monotonic(), deadline, f"left behind: {self.survivors()}")
            time.sleep(0.02)

    def path(self, name):
        return os.path.join(self.directory, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def start(self, program, *arguments, name=None, prefix=()):
        """Starts a program of this project. `prefix` goes before it: ("nsenter", ...)."""
        command = [*prefix, os.path.join(_options.bin, program), *arguments]
        return self.spawn(name or f"{program}-{len(self.processes)}", command)

    def spawn(self, name, command):
        self.processes.append(Process(name, command, self.directory))
        return self.processes[-1]

    def start_run(self, config, *arguments):
        """`poseidon run` of a config's text, to the directory out."""
        path = self.write("config.prototxt", config)
        return self.start(
            "poseidon",
            "run",
            f"--config={path}",
            f"--out={self.path('out')}",
            *arguments,
            name="run",
        )

    def run_job(self, config, *arguments, seconds=PATIENCE):
        """`poseidon run` to its good end; returns summary.json."""
        self.assertEqual(self.start_run(config, *arguments).wait(seconds), SUCCESS)
        self.assert_nothing_left()
        return self.read_json("out/summary.json")

    def read_json(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return json.load(file)

    def start_by_hand(self, config, order, *, ranks=True, prefix=(), flags=None):
        """Starts the daemons that `order` names ("scheduler", "server-0", "worker-1", ...) of one
        config; returns them by name. `flags`: further ones, by name."""
        path = self.write("config.prototxt", config)
        daemons = {}
        for name in order:
            role, _, rank = name.partition("-")
            arguments = [f"--config={path}", f"--out={self.path('out')}"]
            if rank and ranks:
                arguments.append(f"--rank={rank}")
            arguments += (flags or {}).get(name, [])
            daemons[name] = self.start(f"poseidon_{role}", *arguments, name=name, prefix=prefix)
        return daemons

    def assert_all_succeed(self, daemons, seconds=PATIENCE):
        for process in daemons.values():
            self.assertEqual(process.wait(seconds), SUCCESS, process.name)
        self.assert_nothing_left()

    def start_training(self, config, order):
        daemons = self.start_by_hand(config, order)
        daemons["scheduler"].await_output("iteration ")
        return daemons

    def describe(self, daemons, name):
        """What others call a node: "worker 1 (127.0.0.1, process 4711)"."""
        return f"{name.replace('-', ' ')} (127.0.0.1, process {daemons[name].pid})"

    def assert_others_end(self, daemons, *dead, text, code=PEER_LOST, seconds=END_TIME):
        """All but the `dead` end within `seconds` with the code and the text."""
        deadline = time.monotonic() + scaled(seconds)
        for name, daemon in daemons.items():
            if name in dead:
                continue
            left = max(0.1, deadline - time.monotonic())
            self.assertEqual(daemon.wait(left / scaled(1)), code, name)
            self.assertIn(text, daemon.output(), name)

    def assert_explained(self, cause, first, directory="out"):
        """`poseidon explain` names the cause of a job's end and who was first: "worker-1"."""
        explained = subprocess.run(
            [os.path.join(_options.bin, "poseidon"), "explain", self.path(directory), "--json"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        told = json.loads(explained)
        name = first.replace("-", " ").replace("scheduler", "the scheduler")
        self.assertEqual((told["cause"], told["first"]), (cause, name), explained)
        self.assertTrue(told["evidence"], explained)
        return told

    def assert_same_parameters(self, summary, workers):
        """All workers of a summary have one hash; returns it."""
        self.assertEqual([worker["rank"] for worker in summary["workers"]], list(range(workers)))
        hashes = {worker["parameter_hash"] for worker in summary["workers"]}
        self.assertEqual(len(hashes), 1, summary["workers"])
        return hashes.pop()


# Iterations that no test waits for.
ENDLESS = 100000000

# A small net in which both schemes occur: (name, parameters or (inputs, outputs), ms per pass).
LAYERS = (("conv1", 1000, 1), ("conv2", 60000, 1), ("fc", (512, 300), 1))
# The same for endless jobs that a test waits beside: their iterations are fewer, and so is what they compute.
LONG_LAYERS = tuple((name, size, 10 * milliseconds) for name, size, milliseconds in LAYERS)


def replay_layers(layers):
    """The layers field of a replay, each pass lasting `milliseconds`."""
    text = ""
    for name, size, milliseconds in layers:
        if isinstance(size, tuple):
            what = f'type: "InnerProduct" inputs: {size[0]} outputs: {size[1]}'
        else:
            what = f"parameters: {size}"
        text += (
            f'layers {{ name: "{name}" {what} '
            f"forward_ms: {milliseconds} backward_ms: {milliseconds} }}\n"
        )
    return text


def replay_config(
    *,
    workers=2,
    servers=2,
    cluster="",
    communication="",
    training="",
    iterations=30,
    batch=8,
    layers=LAYERS,
    security="",
):
    """A job config with the replay engine. `cluster`, `communication`, `training` and `security` are
    further fields of these messages."""
    return f"""name: "test"
{f"security {{ {security} }}" if security else ""}
cluster {{ workers: {workers} servers: {servers} {cluster} }}
communication {{
  heartbeat_interval_seconds: {scaled(HEARTBEAT_INTERVAL)}
  heartbeat_deadline_seconds: {scaled(HEARTBEAT_DEADLINE)}
  kv_pair_bytes: 65536
  {communication}
}}
training {{
  engine: REPLAY
  {training}
  replay {{
    iterations: {iterations} batch: {batch}
    {replay_layers(layers)}
  }}
}}
"""


def main():
    """Runs the tests of the calling program."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--bin", default=_options.bin)
    parser.add_argument("--slowdown", type=float, default=_options.slowdown)
    parser.add_argument("--sanitizer", default=_options.sanitizer)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--slow", action="store_true")
    _, rest = parser.parse_known_args(namespace=_options)
    _options.bin = os.path.abspath(_options.bin)
    timed_result.run(
        argv=[sys.argv[0], "--verbose", *rest],
        testLoader=slow_cases.Loader(slow_ones=_options.slow),
    )
