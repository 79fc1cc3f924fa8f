#!/usr/bin/env python3
"""What the exchange hooks of one worker do, without any other: when layers are updated with overlap
"forward", how long layers are found to compute, and what is copied together."""

import copy
import inspect
import random
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
sys.path.append(str(ranks.ROOT / "tests/bench/torch"))

# pylint: disable=wrong-import-position
import rank
from models import Perceptron, Transformer, data_of, loss_of
from one_process import OneProcess, psd
from poseidon_torch._device_copies import DeviceCopies, _adjacent
from poseidon_torch._exchange import Exchange
from poseidon_torch._forward_overlap import _BY_PARAMETER, ForwardOverlap, LayerSteps
from poseidon_torch._layer_clock import LayerClock
from poseidon_torch._layers import layers_of
from poseidon_torch._local_gradients import LocalGradients
from poseidon_torch._errors import PeerLost


# Seconds of each layer's exchange in its hook.
EXCHANGE = 0.02


class _Scale(torch.autograd.Function):
    """An autograd.Function with parameters, of whose use PyTorch tells nobody."""

    @staticmethod
    def forward(ctx, features, weight):
        ctx.save_for_backward(features, weight)
        return features * weight

    @staticmethod
    def backward(ctx, top):
        features, weight = ctx.saved_tensors
        return top * weight, (top * features).sum(0)


class _Scaled(nn.Module):
    """Its parameters are in a module that has no forward pass of its own."""

    def __init__(self):
        super().__init__()
        self.own = nn.ParameterList([nn.Parameter(torch.ones(4))])

    def forward(self, features):
        return _Scale.apply(features, self.own[0])


class _Slow(nn.Module):
    """Sleeps in both passes, `seconds` and twice that."""

    def __init__(self, seconds):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.seconds = seconds

    def forward(self, features):
        time.sleep(self.seconds)
        result = features * self.weight
        result.register_hook(lambda _: time.sleep(2 * self.seconds))
        return result


def settings_of(kind, randoms):
    """Of an optimizer of this kind, those that change how it uses its gradients."""
    known = inspect.signature(getattr(torch.optim, kind).__init__).parameters
    drawn = {
        "lr": 0.1,
        "foreach": randoms.choice([False, True]),
        "maximize": randoms.choice([False, True]),
        "weight_decay": randoms.choice([0.0, 0.1]),
        "amsgrad": randoms.choice([False, True]),
        "centered": randoms.choice([False, True]),
        "decoupled_weight_decay": randoms.choice([False, True]),
    }
    if kind in ("SGD", "RMSprop"):
        drawn["momentum"] = randoms.choice([0.0, 0.9])
    if drawn.get("momentum"):
        drawn["nesterov"] = randoms.choice([False, True])
    return {name: value for name, value in drawn.items() if name in known}


class CountedSgd(torch.optim.SGD):
    """How often its step is carried out."""

    steps = 0

    def step(self, closure=None):
        self.steps += 1
        return super().step(closure)


class Overlap(unittest.TestCase):
    def order_of_updates(self, model, inputs, loss, buckets=()):
        """By module that computes, the layers whose gradients were asked for in its forward pass or just
        before it, in the second iteration. `buckets`: of layers that are sent together; each is updated by one step.
        """
        layers = layers_of(model)
        asked = []
        computing = []

        def take_mean(index, _lent):
            asked.append((index, computing[-1] if computing else None))
            for slot in layers[index].slots:
                slot.parameter.grad = torch.zeros_like(slot.parameter)

        def sent_with(index):
            return next((bucket for bucket in buckets if index in bucket), [index])

        optimizer = CountedSgd(model.parameters(), lr=0.1)
        for name, module in model.named_modules():
            module.register_forward_pre_hook(lambda *_, name=name: computing.append(name))
        steps = LayerSteps(optimizer, layers, take_mean)
        local = LocalGradients()
        shared = types.SimpleNamespace(sent_with=sent_with)
        overlap = ForwardOverlap(model, optimizer, layers, shared, local, steps, False)
        for _ in range(2):
            asked.clear()
            optimizer.zero_grad()
            loss(model(inputs)).backward()
            overlap.gradients_left()
            optimizer.step()
        asked.clear()
        computing.clear()
        before = optimizer.steps
        model(inputs)
        together = {tuple(sent_with(index)) for index in range(len(layers))}
        self.assertEqual(optimizer.steps - before, len(together))
        self.assertEqual(sorted(index for index, _ in asked), list(range(len(layers))))
        overlap.remove()
        return {layers[index].name: where for index, where in asked}

    def test_no_optimizer_writes_to_or_keeps_what_it_is_lent(self):
        """Every kind that overlap "forward" takes, with settings drawn at random: the means stay as they are, and the
        parameters learn as by the optimizer's own step of all at once."""
        randoms = random.Random(20261126)
        for kind in _BY_PARAMETER:
            for _ in range(6):
                settings = settings_of(kind, randoms)
                with self.subTest(kind=kind, **settings):
                    self.check_lent(getattr(torch.optim, kind), settings, randoms)

    def check_lent(self, kind, settings, randoms):
        models = [nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3, bias=False)) for _ in range(2)]
        models[1].load_state_dict(models[0].state_dict())
        optimizers = [kind(model.parameters(), **settings) for model in models]
        layers = layers_of(models[0])
        # The same memory each time, so that who keeps what it was lent finds another mean there.
        means = {id(one): torch.empty_like(one) for one in models[0].parameters()}
        lent = []

        def take_mean(index, may_lend):
            lent.append(may_lend)
            for slot in layers[index].slots:
                mean = means[id(slot.parameter)]
                slot.parameter.grad = mean if may_lend else mean.clone()

        steps = LayerSteps(optimizers[0], layers, take_mean)
        for _ in range(4):
            for one, other in zip(*(model.parameters() for model in models)):
                other.grad = means[id(one)].normal_().clone()
            before = {key: mean.clone() for key, mean in means.items()}
            steps.step()
            order = list(range(len(layers)))
            randoms.shuffle(order)
            first = randoms.randint(1, len(order))
            steps.update(order[:first])
            if order[first:]:
                steps.update(order[first:])
            optimizers[1].step()
            for key, mean in means.items():
                self.assertTrue(torch.equal(mean, before[key]))
            for one, other in zip(*(model.parameters() for model in models)):
                self.assertTrue(torch.equal(one, other))
        self.assertEqual(set(lent), {not settings["foreach"]})

    def test_a_layer_is_waited_for_where_it_is_used(self):
        inputs, targets = data_of(Perceptron, 4)
        found = self.order_of_updates(Perceptron(), inputs, lambda out: loss_of(out, targets))
        self.assertEqual(found, {name: name for name in ("layers.0", "layers.2", "layers.4")})

    def test_layers_that_are_sent_together_are_updated_by_one_step(self):
        model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(7)))
        found = self.order_of_updates(
            model, torch.ones(2, 4), torch.sum, buckets=(range(0, 2), range(2, 3), range(3, 7))
        )
        first = ("0", "0", "2", "3", "3", "3", "3")  # of each one's bucket
        self.assertEqual(found, {str(layer): where for layer, where in enumerate(first)})

    def test_a_use_that_nobody_sees_is_in_the_module_around(self):
        model = nn.Sequential(_Scaled(), nn.Linear(4, 4), _Scaled())
        found = self.order_of_updates(model, torch.ones(2, 4), torch.sum)
        self.assertEqual(found, {"0.own": "0", "1": "1", "2.own": "2"})

    def test_tied_weights_are_waited_for_at_their_first_use(self):
        inputs, targets = data_of(Transformer, 4)
        model = Transformer()
        found = self.order_of_updates(model, inputs, lambda out: loss_of(out, targets))
        self.assertEqual(found["embedding"], "embedding")
        self.assertEqual(found["blocks.1.up"], "blocks.1.up")
        self.assertEqual(found["unused"], "")  # the model itself


class Clock(unittest.TestCase):
    def test_times_are_those_of_the_layers(self):
        seconds = [0.002, 0.006, 0.004]
        model = nn.Sequential(*map(_Slow, seconds))
        layers = layers_of(model)
        clock = LayerClock(model, len(layers), torch.device("cpu"))
        for index, layer in enumerate(layers):
            for slot in layer.slots:
                slot.parameter.register_post_accumulate_grad_hook(
                    lambda _, index=index: self.exchange(clock, index)
                )
        times = None
        ends = []
        while times is None:
            with clock.leave_out():  # outside of any forward pass this is nobody's
                time.sleep(EXCHANGE)
            model(torch.ones(2, 4)).sum().backward()
            times = clock.end_iteration()
            ends.append(time.perf_counter())
        self.assertLess(len(ends), 20)
        # A sleep is never too short; how much too long it is depends on what else the machine does.
        for measured, least in zip(times.backward, seconds):
            self.assertGreaterEqual(measured, 2e3 * least)
        self.assertGreaterEqual(sum(times.forward), 1e3 * sum(seconds))
        # The first two iterations are not measured, and the exchange's time is not the layers': that of three in the
        # backward pass, and one outside.
        whole = 1e3 * (ends[-1] - ends[1]) / (len(ends) - 2)
        self.assertLessEqual(sum(times.forward + times.backward), whole - 1e3 * 4 * EXCHANGE)
        self.assertFalse(model._forward_hooks or model._forward_pre_hooks)

    def test_on_a_gpu_it_is_not_the_hosts_waiting_that_is_left_out(self):
        """But what the device stands still meanwhile; it may have work left."""
        for stood_still in (0.0, 0.003):
            with self.subTest(stood_still=stood_still):
                times = self.times_of_a_device(stood_still)
                self.assertAlmostEqual(times.forward[0], 10.0)
                self.assertAlmostEqual(times.backward[0], 20.0)

    @staticmethod
    def times_of_a_device(stood_still):
        """That computes 10 ms forward and 20 ms backward, while the host waits in the forward pass."""
        done = [0.0]  # when the device has done what it was asked for
        model = nn.Linear(4, 4)
        clock = LayerClock(model, 1, torch.device("cuda", 0))

        def wait(*_):
            time.sleep(0.001)
            done[0] += stood_still

        exchange = mock.Mock(_clock=clock, _take_mean=wait)

        def compute(*_):
            Exchange._take_mean_late(exchange, 0, True)
            done[0] += 0.010

        model.register_forward_pre_hook(compute)
        times = None
        with mock.patch.dict(LayerClock.__init__.__globals__, {"now": lambda _: done[0]}):
            while times is None:
                model(torch.ones(4))
                done[0] += 0.020
                clock.layer_done(0)
                times = clock.end_iteration()
        return times

    @staticmethod
    def exchange(clock, index):
        clock.layer_done(index)
        time.sleep(EXCHANGE)
        clock.go_on()


class Copies(unittest.TestCase):
    def test_layers_leave_together_and_all_that_fails_is_told(self):
        random = torch.Generator().manual_seed(3)
        copies = DeviceCopies()
        for _ in range(50):
            layers = int(torch.randint(1, 6, (1,), generator=random))
            memory = torch.zeros(layers, 7)
            tensors = torch.randn(layers, 7, generator=random)
            sent = []
            broken = int(torch.randint(0, 12, (1,), generator=random))

            def ready(layer, memory=memory, sent=sent, broken=broken):
                self.assertFalse((memory == 0).any())  # those that come after it have arrived, too
                sent.append(layer)
                if layer == broken:
                    raise PeerLost(f"layer {layer} is not sent")

            for layer in torch.randperm(layers, generator=random).tolist():
                self.assertEqual(sent, [])
                pair = tensors[layer], memory[layer]
                copies.send(range(layers), [pair], lambda layer=layer, ready=ready: ready(layer))
            if broken < layers:
                with self.assertRaisesRegex(PeerLost, f"layer {broken} is not sent"):
                    copies.wait()
            copies.wait()  # tells what it has to tell once
            self.assertTrue(torch.equal(memory, tensors))
            if broken >= layers:
                self.assertEqual(sorted(sent), list(range(layers)))
        copies.forget()

    def test_what_is_on_the_processor_stays_nobody_elses(self):
        """Of a layer that has other parameters on a device; one without values takes a GPU's place."""
        layer = nn.Linear(4, 4)
        (shared,) = layers_of(layer)
        layer.weight = nn.Parameter(layer.weight.to("meta"))
        shared.slots[0] = shared.slots[0]._replace(parameter=layer.weight)
        means = [torch.ones_like(one) for one in layer.parameters()]
        exchange = mock.Mock(_first=[0], _layers=[shared], _sent_factors=(), _held_back={})
        exchange._mean.return_value = means
        Exchange._take_mean(exchange, 0)
        self.assertIs(layer.weight.grad, means[0])
        self.assertTrue(layer.bias.grad.equal(means[1]))
        self.assertNotEqual(layer.bias.grad.data_ptr(), means[1].data_ptr())

    def test_what_is_empty_is_not_copied(self):
        memory = torch.zeros(4, 3)
        tensors = torch.ones(0, 3), torch.ones(2, 3), torch.ones(1, 3)
        places = memory[:0], memory[:2], memory[2:3]
        runs = list(_adjacent(list(zip(tensors, places))))
        self.assertEqual([[len(tensor) for tensor, _ in run] for run in runs], [[2, 1]])
        self.assertEqual(list(_adjacent([(tensors[0], places[0])])), [])


class LateCopies:
    """For DeviceCopies: does what it is asked for when somebody waits, in that order, as a GPU that is behind."""

    def __init__(self):
        self._asked = []
        self.fetched = {}  # by layer, for the last time

    def send(self, _together, pairs, ready, _computed_in):
        self._asked += [*(lambda pair=pair: pair[1].copy_(pair[0]) for pair in pairs), ready]

    def fetch(self, index, _layers, _together, views_of):
        views = views_of(index)
        self.fetched[index] = [torch.full_like(view, torch.nan) for view in views]
        for copied, view in zip(self.fetched[index], views):
            self._asked.append(lambda copied=copied, view=view: copied.copy_(view))
        return self.fetched[index]

    def wait(self):
        while self._asked:
            self._asked.pop(0)()

    def forget(self):
        pass


class Shortened(nn.Module):
    """Uses as many of its layers as it is told to. Its values and gradients are sums of few powers of two, which are
    exact."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.used = 2
        with torch.no_grad():
            for number, parameter in enumerate(self.parameters()):
                parameter.fill_(0.5**number)

    def forward(self, features):
        for layer in self.layers[: self.used]:
            features = layer(features)
        return features


class UnusedNext(OneProcess):
    """A layer has a gradient in one pass and none in the next, while the GPU is behind."""

    def test_its_mean_is_copied_before_anything_takes_its_place(self):
        self.init()
        model = Shortened()
        plain = copy.deepcopy(model)
        copies = LateCopies()
        with (
            mock.patch.object(DeviceCopies, "of", lambda _: copies),
            mock.patch.dict(Exchange.__init__.__globals__, {"pinned_block": torch.zeros}),
        ):
            optimizer = psd.distribute(
                model, torch.optim.SGD(model.parameters(), lr=0.5), policy="ALL_PS"
            )
        features = torch.ones(2, 4)
        plain(features).sum().backward()
        model(features).sum().backward()
        first = copies.fetched[1]
        model.used = 1
        optimizer.zero_grad()
        model(features).sum().backward()
        for mean, parameter in zip(first, plain.layers[1].parameters()):
            self.assertTrue(mean.equal(parameter.grad), mean)
        copies.wait()
        for mean in copies.fetched[1]:
            self.assertFalse(mean.any(), mean)
        # What PyTorch gives back is what is in use no more.
        blocks = psd._process.session._blocks
        used = []
        give_back = {"give_back_pinned": lambda: used.append(len(blocks._kept))}
        with mock.patch.dict(Exchange.finish.__globals__, give_back):
            psd.shutdown()
        self.assertEqual(used, [0])

    @unittest.skipUnless(torch.cuda.is_available(), "PyTorch sees no GPU")
    def test_its_mean_is_copied_before_anything_takes_its_place_on_a_gpu(self):
        features = torch.ones(2, 4, device="cuda")
        for options in ({"policy": "ALL_PS"}, {"policy": "ALL_SFB", "example": features}):
            with self.subTest(policy=options["policy"]):
                self.init()
                models = Shortened().cuda(), Shortened().cuda()
                optimizers = [torch.optim.SGD(model.parameters(), lr=0.5) for model in models]
                psd.distribute(models[0], optimizers[0], overlap="forward", **options)
                for model, optimizer in zip(models, optimizers):
                    for used in (2, 1):
                        model.used = used
                        optimizer.zero_grad()
                        torch.cuda._sleep(1 << 30)  # half a second or more
                        model(features).sum().backward()
                        optimizer.step()
                psd.synchronize()
                for ours, theirs in zip(*(model.parameters() for model in models)):
                    self.assertTrue(ours.equal(theirs))
                psd.shutdown()


class Benchmark(unittest.TestCase):
    """tests/bench/torch/rank.py."""

    def test_every_timed_iteration_waits_for_an_exchange(self):
        """After all have met, the first forward pass finds nothing to wait for."""
        pending = []

        def forward(_inputs):
            while pending:
                time.sleep(pending.pop())
            return mock.Mock(**{"sum.return_value.backward": lambda: pending.append(EXCHANGE)})

        training = rank.Training(forward, mock.Mock(), mock.Mock(), pending.clear)
        rank.iterate(training, 1)
        training.synchronize()
        self.assertGreaterEqual(min(rank.timed(training, 3)), EXCHANGE)


if __name__ == "__main__":
    timed_tests.main()
