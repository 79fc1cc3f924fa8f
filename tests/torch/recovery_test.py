#!/usr/bin/env python3
"""A job with `recovery` whose PyTorch processes or servers are killed ends with the bits of one that nothing happened
to; the program does not notice that others were lost."""

import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import torch

import timed_tests
from ranks import HERE, PATIENCE, ROOT, Ranks

sys.path.insert(0, str(ROOT / "python"))

# pylint: disable=wrong-import-position
import poseidon_torch as psd
from poseidon_torch._buffers import buffers_and_frozen
from poseidon_torch._errors import Rewound
from poseidon_torch._layers import layers_of, view_of
from poseidon_torch._library import Floats, LayerMemory
from poseidon_torch._recovery import RecoveringSession
from poseidon_torch._shared_model import SharedModel

WORKERS, SERVERS = 2, 2
ITERATIONS = 90
KILL_AT = 40
RECOVERY = "recovery { mode: REPLACE }"


class SendingSession:
    """What a session does that hands this worker's statistics to another one; keeps them."""

    iteration = 0

    def __init__(self):
        self.sent = None

    def begin(self):
        pass

    def sends_statistics(self):
        return True

    def send_statistics(self, floats):
        self.sent = view_of(floats).clone()

    def awaits_statistics(self):
        return False


class AwaitingSession(SendingSession):
    """What a session does of a worker that takes a lost one's place: gets what another one has sent."""

    def __init__(self, sent):
        super().__init__()
        self.sent = sent

    def sends_statistics(self):
        return False

    def awaits_statistics(self):
        return True

    def await_statistics(self, floats):
        view_of(floats).view(torch.uint8).copy_(self.sent.view(torch.uint8))


class RewoundSession(SendingSession):
    """What a session does of a job of two layers that goes back once, in the call that `lose_in` names: the servers come
    to other bits of layer 0 then."""

    rank = 0

    def __init__(self, model):
        super().__init__()
        self._values = [torch.zeros_like(parameter).flatten() for parameter in model.parameters()]
        self._lose_in = None
        self.compared = None

    def declare(self, *_):
        pass

    def sends_statistics(self):
        return False

    def memory(self, layer):
        nothing = Floats(0, 0)
        values = Floats(self._values[layer].data_ptr(), self._values[layer].numel())
        return LayerMemory(values, nothing, nothing, nothing, nothing)

    def exchange(self, lose_in):
        """The last one; all layers' values are 1."""
        for values in self._values:
            values.fill_(1)
        self._lose_in = lose_in

    def wait_fresh(self, layer):
        self._call(f"wait_fresh({layer})")

    def go_back(self):
        self._values[0] = torch.full_like(self._values[0], 2)

    def finish(self):
        self._call("finish")
        self.compared = [values.tolist() for values in self._values]

    def close(self):
        pass

    def _call(self, name):
        if name == self._lose_in:
            self._lose_in = None
            raise Rewound()


class Job:
    """`poseidon run` of a program of PyTorch's; nothing of it is left when the context ends."""

    def __init__(self, program, *arguments, recovery=""):
        self._scratch = tempfile.TemporaryDirectory(prefix="poseidon_torch_test.")
        self.out = pathlib.Path(self._scratch.name)
        config = self.out / "config.prototxt"
        config.write_text(
            f"""name: "recovering" cluster {{ workers: {WORKERS} servers: {SERVERS} }}
            {recovery}
            communication {{ policy: ALL_PS update_at: SERVERS deterministic: true }}"""
        )
        command = [ROOT / "build/bin/poseidon", "run", f"--config={config}", f"--out={self.out}"]
        command += ["--", sys.executable, HERE / "programs" / program, "run", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
        with open(self.out / "said", "wb") as said:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()  # and all that it has started ends with it
        self.process.wait()
        self._scratch.cleanup()

    def said(self):
        """By the scheduler and the launcher, and by all processes."""
        logs = sorted((self.out / "logs").glob("*.log"))
        return "\n".join(path.read_text(errors="replace") for path in [self.out / "said", *logs])

    def log(self, name):
        """Empty while there is none."""
        path = self.out / f"logs/{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(self, name, line):
        end = time.monotonic() + PATIENCE
        while line not in self.log(name).splitlines():
            if time.monotonic() > end or self.process.poll() is not None:
                raise AssertionError(f"{name} did not print {line!r}:\n{self.said()}")
            time.sleep(0.02)

    def kill(self, name):
        os.kill(self.pid_of(name), signal.SIGKILL)

    def pid_of(self, name):
        role, _, rank = name.partition("-")
        if role == "worker":
            return int(re.search(r"is process (\d+)", self.log(name)).group(1))
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            mine = f"--out={self.out}".encode() in words and f"--rank={rank}".encode() in words
            if mine and words[0].endswith(b"poseidon_server"):
                return int(entry.name)
        raise AssertionError(f"there is no {name}")

    def summary(self):
        """Of a job that has ended well."""
        self.process.wait(PATIENCE)
        if self.process.returncode != 0:
            raise AssertionError(f"code {self.process.returncode}:\n{self.said()}")
        return json.loads((self.out / "summary.json").read_text())


def hash_of(summary):
    hashes = {worker["parameter_hash"] for worker in summary["workers"]}
    if len(hashes) != 1:
        raise AssertionError(f"workers ended with different parameters: {hashes}")
    return hashes.pop()


@functools.lru_cache(maxsize=None)
def undisturbed_hash():
    """Of ranks that share an interpreter, so that PyTorch is loaded once for them."""
    with Ranks("recovering.py", WORKERS, ["backward", ITERATIONS]) as ranks:
        for rank, result in enumerate(ranks.wait(PATIENCE)):
            if result.code != 0:
                raise AssertionError(f"rank {rank}:\n{result.output}")
        return hash_of(json.loads((ranks.out / "summary.json").read_text()))


class Recovery(unittest.TestCase):
    def check(self, overlap, *names):
        expected = undisturbed_hash()
        with Job("recovering.py", overlap, ITERATIONS, recovery=RECOVERY) as job:
            job.wait_for("worker-0", f"iteration {KILL_AT}")
            for name in names:
                job.kill(name)
            summary = job.summary()
            self.assertEqual(hash_of(summary), expected, job.said())
            self.assertEqual(len(summary["recoveries"]), 1, job.said())
            first = summary["recoveries"][0]["iteration"]
            self.assertGreaterEqual(first, KILL_AT - 1)
            for rank in range(WORKERS):
                name = f"worker-{rank}" + (".restart-1" if f"worker-{rank}" in names else "")
                if name.endswith("restart-1"):
                    self.assertIn(f"at iteration {first}\n", job.log(name))
                # Whoever takes a lost one's place has the others' BatchNorm statistics, with what these have counted, and
                # their frozen parameters.
                counted = re.search(r"batches \[(\d+), (\d+), (\d+)\]", job.log(name))
                self.assertIsNotNone(counted, job.said())
                for number in counted.groups():
                    self.assertAlmostEqual(int(number), ITERATIONS, delta=2)
            name = "worker-0.restart-1" if "worker-0" in names else "worker-0"
            self.assertIn(f"steps {{{ITERATIONS}}}", job.log(name))

    @timed_tests.slow
    def test_a_killed_worker(self):
        self.check("backward", "worker-1")

    def test_a_server_and_worker_0_with_overlap_forward(self):
        self.check("forward", "server-1", "worker-0")

    @timed_tests.slow
    def test_optimizers_of_the_workers_own_are_refused(self):
        with Job("recovering.py", "backward", ITERATIONS, "worker", recovery=RECOVERY) as job:
            self.assertNotEqual(job.process.wait(PATIENCE), 0, job.said())
            self.assertIn("recovery: with update='worker' each process has", job.said())


def with_buffers(**buffers):
    model = torch.nn.Module()
    for name, buffer in buffers.items():
        model.register_buffer(name, buffer)
    return model


def hand_over(sender, receiver, change=lambda: None):
    """What two models have beside their layers, from one to the other, as after a loss; `change` happens in training."""
    sending = SendingSession()
    session = RecoveringSession(sending, buffers_and_frozen(sender))
    change()
    session.begin()
    RecoveringSession(AwaitingSession(sending.sent), buffers_and_frozen(receiver)).begin()


class LastExchange(unittest.TestCase):
    def test_a_loss_in_it_leaves_no_values_of_before(self):
        for lose_in, first in (("wait_fresh(1)", 2), ("finish", 2), ("nothing", 1)):
            with self.subTest(lose_in):
                linear = functools.partial(torch.nn.Linear, 2, 1, bias=False)
                model = torch.nn.Sequential(linear(), linear())
                session = RewoundSession(model)
                layers = layers_of(model)
                shared = SharedModel("net", layers, RecoveringSession(session, lambda: ()), 0)
                session.exchange(lose_in)
                for index, layer in enumerate(layers):
                    layer.slots[0].parameter.detach().copy_(shared.wait_for_values(index)[0])
                shared.finish()
                expected = [[first] * 2, [1] * 2]
                self.assertEqual(session.compared, expected)
                self.assertEqual([one.flatten().tolist() for one in model.parameters()], expected)


class Statistics(unittest.TestCase):
    def test_a_buffer_that_is_another_tensor_meanwhile(self):
        sender, receiver = (with_buffers(center=torch.zeros(3)) for _ in range(2))

        def change():
            sender.center = sender.center + 2

        hand_over(sender, receiver, change)
        self.assertEqual(receiver.center.tolist(), [2, 2, 2])

    def test_what_was_frozen_at_the_start_arrives(self):
        sender, receiver = (with_buffers(center=torch.full((3,), value)) for value in (2.0, 0.0))
        for model, value in ((sender, 3.0), (receiver, 0.0)):
            for name, learns in (("frozen", False), ("trained", True)):
                values = torch.full((4,), value, dtype=torch.bfloat16)
                model.register_parameter(name, torch.nn.Parameter(values, requires_grad=learns))
        # Meanwhile another one is frozen for a while, which is the servers' all the same.
        hand_over(sender, receiver, lambda: sender.trained.requires_grad_(False))
        self.assertEqual(receiver.frozen.tolist(), [3] * 4)
        self.assertEqual(receiver.trained.tolist(), [0] * 4)
        self.assertEqual(receiver.center.tolist(), [2] * 3)

    def test_what_is_frozen_stays_each_process_own_where_a_message_does_not_take_it(self):
        model = with_buffers(center=torch.zeros(3))
        model.frozen = torch.nn.Parameter(torch.ones(4), requires_grad=False)
        whole = 4 + 3 * 4 + 4 * 4  # bytes, with the number in front
        for most, names in ((whole, ["center", "frozen"]), (whole - 1, ["center"])):
            self.assertEqual([name for name, _ in buffers_and_frozen(model, most)()], names)
        with self.assertWarnsRegex(UserWarning, "buffers are 12 bytes, and a message takes 15"):
            self.assertEqual(list(buffers_and_frozen(model, 4 + 3 * 4 - 1)()), [])

    def test_all_types_arrive_with_their_bits(self):
        not_a_number = torch.tensor([0x7FA12345, -0x3EDCBB], dtype=torch.int32).view(torch.float32)
        buffers = {
            "flag": torch.tensor(True),
            "seen": torch.tensor([2**24 + 1, -123456789012]),
            "time": torch.tensor([1764000000.123, 1 / 3], dtype=torch.float64),
            "rope": torch.polar(torch.ones(4), torch.arange(4.0)),
            "conjugate": torch.polar(torch.ones(4), torch.arange(4.0)).conj(),
            "transposed": torch.arange(6.0).view(2, 3).t(),
            "empty": torch.ones(0),
            "brief": torch.tensor([1.5, -0.0], dtype=torch.bfloat16),
            "not_a_number": not_a_number,
        }
        receiver = with_buffers(**{name: torch.zeros_like(one) for name, one in buffers.items()})
        hand_over(with_buffers(**buffers), receiver)
        for name, buffer in receiver.named_buffers():
            with self.subTest(name):
                expected = buffers[name].resolve_conj().contiguous().reshape(-1).view(torch.uint8)
                found = buffer.resolve_conj().contiguous().reshape(-1).view(torch.uint8)
                self.assertEqual(found.tolist(), expected.tolist())

    def test_the_default_type_and_device_do_not_matter(self):
        sender, receiver = (with_buffers(center=torch.full((3,), value)) for value in (2.0, 0.0))
        torch.set_default_dtype(torch.float64)
        self.addCleanup(torch.set_default_dtype, torch.float32)
        with torch.device("meta"):
            hand_over(sender, receiver)
        self.assertEqual(receiver.center.tolist(), [2, 2, 2])

    def test_a_buffer_that_has_grown_is_named(self):
        def make():
            return with_buffers(center=torch.zeros(3), cache=torch.ones(1))

        for change, said in (
            (
                lambda one: setattr(one, "cache", torch.ones(5)),
                "buffer 'cache', here torch.float32",
            ),
            (lambda one: setattr(one, "center", one.center.double()), "buffer 'center', here"),
            (
                lambda one: one.register_buffer("late", torch.ones(1)),
                "got a buffer after distribute",
            ),
        ):
            with self.subTest(said), self.assertRaisesRegex(psd.ConfigError, said):
                sender = make()
                hand_over(sender, make(), functools.partial(change, sender))


if __name__ == "__main__":
    timed_tests.main()
