#!/usr/bin/env python3
"""In which order GPUs' streams do what they are asked for, and what copies from GPUs cost the machine: contexts, a
core, pinned memory."""

import contextlib
import os
import subprocess
import sys
import time
import types
import unittest
from unittest import mock

import torch
from torch import nn

import ranks
import timed_tests

sys.path.insert(0, str(ranks.ROOT / "python"))

# pylint: disable=wrong-import-position
from poseidon_torch._device_copies import DeviceCopies
from poseidon_torch._exchange import Exchange
from poseidon_torch._forward_overlap import ForwardOverlap
from poseidon_torch._layers import layers_of
from poseidon_torch._local_gradients import LocalGradients

# A program that copies from GPU 1 and says whether there is a context on GPU 0 afterwards.
WITHOUT_GPU_0 = """
import torch
from poseidon_torch._device_copies import DeviceCopies

torch.cuda.set_device(1)
copies = DeviceCopies()
place = torch.zeros(4)
copies.send(range(1), [(torch.ones(4, device="cuda"), place)], lambda: None)
copies.wait()
print(torch._C._cuda_hasPrimaryContext(0))
"""


class Costs(unittest.TestCase):
    def test_the_thread_waits_on_each_events_device_without_keeping_a_core_busy(self):
        entered = []
        synchronized = []

        class Event:
            """As torch.cuda's."""

            def __init__(self, blocking=False):
                self.blocking = blocking
                self.device = None

            def record(self, stream):
                self.device = stream.device

            def synchronize(self):
                synchronized.append((self.device, self.blocking, entered[-1:]))

        class Stream(contextlib.nullcontext):
            """As torch.cuda's; one that nothing is put in."""

            def __init__(self, device):
                super().__init__()
                self.device = device

            def synchronize(self):
                """As nothing is put in."""

        @contextlib.contextmanager
        def device(which):
            entered.append(which)
            yield
            entered.pop()

        copies = DeviceCopies()
        devices = [torch.device("cuda", number) for number in range(2)]
        # Parameters of no floats, of which nothing is copied.
        pairs = [(mock.Mock(device=one, shape=(0,)), torch.zeros(0)) for one in devices]
        with (
            mock.patch.multiple(
                torch.cuda,
                Event=Event,
                Stream=Stream,
                device=device,
                stream=lambda stream: stream,
                current_stream=lambda device: mock.Mock(device="none"),
            ),
        ):
            copies.send(range(1), pairs, lambda: None)
            copies.wait()
            copies.forget()
        self.assertEqual(synchronized, [(one, True, [one]) for one in devices])

    @unittest.skipUnless(torch.cuda.is_available(), "PyTorch sees no GPU")
    def test_the_thread_keeps_no_core_busy_on_a_gpu(self):
        copies = DeviceCopies()
        spent = []
        gradient, place = torch.ones(4, device="cuda"), torch.zeros(4, pin_memory=True)
        copies.send(range(1), [(gradient, place)], lambda: spent.append(time.thread_time()))
        copies.wait()
        begin = time.monotonic()
        torch.cuda._sleep(1 << 30)  # half a second or more
        copies.send(range(1), [(gradient, place)], lambda: spent.append(time.thread_time()))
        copies.wait()
        waited = time.monotonic() - begin
        copies.forget()
        self.assertLess(spent[1] - spent[0], waited / 4)

    @unittest.skipUnless(torch.cuda.device_count() > 1, "PyTorch sees no two GPUs")
    def test_the_thread_makes_no_context_on_another_gpu(self):
        """In a process of its own, where nobody has made one before."""
        said = subprocess.run(
            [sys.executable, "-c", WITHOUT_GPU_0],
            env={**os.environ, "PYTHONPATH": str(ranks.ROOT / "python")},
            capture_output=True,
            text=True,
            timeout=ranks.PATIENCE,
            check=False,
        )
        self.assertEqual(said.stdout, "False\n", said.stderr)

    def test_pinned_memory_is_given_back_an_iteration_after_it_was_left(self):
        given_back = mock.Mock()
        copies = DeviceCopies()
        with (
            mock.patch.object(torch._C, "_host_emptyCache", given_back, create=True),
            mock.patch.object(torch.cuda, "is_initialized", lambda: True),
        ):
            copies.wait()
            copies.forget_memory()
            given_back.assert_not_called()
            copies.wait()
            copies.wait()
            given_back.assert_called_once_with()
        copies.forget()


class CopyOrder(unittest.TestCase):
    """Of a layer of two parameters and one of another, whose gradients are computed in streams of their own."""

    def setUp(self):
        self.device = torch.device("cuda", 0)
        self.streams = [
            mock.MagicMock(device=self.device, name=f"stream {one}") for one in range(3)
        ]

    def take_gradients(self, copies, place, before=lambda: None):
        """What is sent is copied to `place`; `before` is called before each gradient."""
        parameters = [mock.Mock(device=self.device, shape=(0,)) for _ in self.streams]
        exchange = mock.Mock(
            _computed_in=[set(), set()],
            _copies=copies,
            _layer_of={id(one): int(number == 2) for number, one in enumerate(parameters)},
            _layers=[None, None],
            _lock=contextlib.nullcontext(),
            _pushed=[False, False],
            _sends_factors=(),
            _waiting=[2, 1],  # of parameters
        )
        exchange._shared.sent_with.return_value = range(2)
        exchange._push = lambda index: Exchange._send(exchange, index, [(parameters[0], place)])
        with mock.patch.object(torch.cuda, "current_stream") as current:
            for parameter, stream in zip(parameters, self.streams):
                current.return_value = stream
                before()
                Exchange._on_gradient(exchange, parameter)

    def test_a_copy_waits_for_the_streams_of_all_gradients_of_its_layers(self):
        """Though a layer is sent by the hook of its last parameter, which has another stream."""
        of_copies = mock.MagicMock(device=self.device)
        copies = DeviceCopies()
        with mock.patch.multiple(
            torch.cuda,
            Event=mock.MagicMock(),
            Stream=lambda _: of_copies,
            current_stream=mock.Mock(),
            device=mock.MagicMock(),
            stream=mock.MagicMock(),
        ):
            # Of no floats, of which nothing is copied.
            self.take_gradients(copies, torch.zeros(0), of_copies.wait_stream.assert_not_called)
            copies.wait()
            copies.forget()
        waited_for = [call.args[0] for call in of_copies.wait_stream.call_args_list]
        self.assertCountEqual(waited_for, self.streams)

    def test_a_copy_in_the_hook_of_a_job_that_recovers_waits_for_them_too(self):
        done = []
        for number, stream in enumerate(self.streams):
            stream.wait_stream = lambda other, number=number: done.append((number, other))
        self.take_gradients(None, mock.Mock(copy_=lambda _: done.append("copied")))
        self.assertEqual(done, [(1, self.streams[0]), "copied", "copied"])


class _InStreams(nn.Sequential):
    """Each of its modules computes in a stream of its own, of which `current` has the number."""

    current = 0

    def forward(self, features):
        for self.current, module in enumerate(self):
            features = module(features)
        return features


class UpdateOrder(unittest.TestCase):
    def setUp(self):
        self.device = torch.device("cuda", 0)
        self.model = _InStreams(nn.Linear(4, 4), nn.Linear(4, 4))
        layers = layers_of(self.model)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        shared = types.SimpleNamespace(sent_with=lambda _: range(2))
        self.updates = mock.Mock()
        self.overlap = ForwardOverlap(
            self.model, optimizer, layers, shared, LocalGradients(), self.updates, False
        )
        self.model(torch.ones(4))  # finds out which layers modules need
        for layer in layers:  # whose parameters from now on are on a GPU
            layer.slots[:] = [
                slot._replace(parameter=mock.Mock(device=self.device)) for slot in layer.slots
            ]

    def forward(self, streams):
        """A step and the next pass; each module finds the stream of its number current."""
        self.overlap._outstanding = {0, 1}
        current = mock.Mock(side_effect=lambda device: streams[self.model.current])
        with mock.patch.object(torch.cuda, "current_stream", current):
            self.model(torch.ones(4))
        self.updates.update.assert_called_once_with([0, 1])
        self.updates.update.reset_mock()

    def test_a_layer_waits_for_its_update_in_another_ones_stream(self):
        first, second = (mock.Mock(device=self.device) for _ in range(2))
        self.forward([first, second])
        first.wait_event.assert_not_called()
        second.wait_event.assert_called_once_with(first.record_event.return_value)
        second.record_event.assert_not_called()
        # The next update comes behind the last one, though nothing else may have come to it.
        self.model.current = 1
        self.overlap._outstanding = {0, 1}
        with mock.patch.object(torch.cuda, "current_stream", lambda _: second):
            self.overlap.synchronize()
        self.assertEqual(second.wait_event.call_count, 3)  # of both layers

    def test_nothing_waits_where_all_is_in_one_stream(self):
        stream = mock.Mock(device=self.device)
        for _ in range(2):
            self.forward([stream, stream])
        stream.wait_event.assert_not_called()


if __name__ == "__main__":
    timed_tests.main()
