#!/usr/bin/env python3
"""With overlap "forward" whatever reads or writes parameters finds them as in plain PyTorch. One process is the whole
job."""

import copy
import io
import os
import sys
import tempfile
import unittest
from unittest import mock

import torch
from torch.nn import functional as F

import ranks
import timed_tests

os.environ.update(ranks.environment_of(0, 1, ranks.free_port()))
sys.path.insert(0, os.environ["PYTHONPATH"])

import poseidon_torch as psd  # pylint: disable=wrong-import-position

INPUTS = torch.ones(2, 4)


class Net(torch.nn.Module):
    """Its parts are used in two ways."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.Linear(4, 4)

    def forward(self, features, tied=False):
        if tied:
            return F.linear(features, self.second.weight)
        return self.second(self.first(features))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


class Deferred(unittest.TestCase):
    def train(self, optimizer_of=sgd, passes=2, schedule=None, model_of=Net, **options):
        """Two models after the same passes: ours, and the plain one."""
        scratch = tempfile.TemporaryDirectory(prefix="poseidon_torch_test.")
        self.addCleanup(scratch.cleanup)
        psd.init(out=scratch.name)
        self.addCleanup(psd.shutdown)
        models = model_of(), model_of()
        optimizers = [optimizer_of(model) for model in models]
        psd.distribute(models[0], optimizers[0], **{"overlap": "forward", **options})
        for model, optimizer in zip(models, optimizers):
            scheduler = schedule(optimizer) if schedule else None
            for _ in range(passes):
                optimizer.zero_grad()
                model(INPUTS).square().sum().backward()
                optimizer.step()
                if scheduler is not None:
                    scheduler.step()
        return models

    def test_the_state_of_a_part(self):
        ours, plain = self.train()
        for part in ("second", "first"):
            found, expected = (getattr(net, part).state_dict() for net in (ours, plain))
            for name, value in expected.items():
                self.assertTrue(value.equal(found[name]), name)

    def test_the_state_and_shutdown_are_refused_while_a_layer_is_updated(self):
        ours, plain = self.train()
        updates = psd._process.exchange._forward._updates  # pylint: disable=protected-access
        update, interrupted = updates.update, []

        def update_and_handle(layers):
            with self.assertRaisesRegex(
                psd.PoseidonError, "called while layers are updated, as by"
            ):
                ours.state_dict()
            with self.assertRaisesRegex(psd.PoseidonError, "called by a signal's handler while"):
                psd.shutdown()
            interrupted.append(layers)
            update(layers)

        with mock.patch.object(updates, "update", update_and_handle):
            self.assertTrue(ours(INPUTS).equal(plain(INPUTS)))
        self.assertNotEqual(interrupted, [])

    def test_an_update_that_an_interrupt_has_left_is_not_taken_for_done(self):
        for lost in (False, True):
            ours, _ = self.train()
            exchange = psd._process.exchange  # pylint: disable=protected-access
            updates = exchange._forward._updates
            with mock.patch.object(updates, "_step", side_effect=KeyboardInterrupt):
                with self.assertRaises(KeyboardInterrupt):
                    ours(INPUTS)
            refused = psd.ConfigError, "an earlier update of layers was left by an exception"
            if lost:
                refused = psd.PeerLost, "worker 1 is silent"
                error = psd.PeerLost(refused[1], 3)
                exchange._session.wait_fresh = mock.Mock(side_effect=error)
            for call in (lambda: ours(INPUTS), ours.state_dict, psd.synchronize, psd.shutdown):
                with self.assertRaisesRegex(*refused):
                    call()

    def test_values_that_are_loaded_stay(self):
        ours, plain = self.train()
        for net in (ours, plain):
            net.second.load_state_dict({"weight": torch.ones(4, 4), "bias": torch.ones(4)})
        self.assertTrue(ours(INPUTS).equal(plain(INPUTS)))

    def test_a_state_that_is_loaded_into_the_optimizer_stays(self):
        optimizers = []

        def adamw(model):
            optimizers.append(torch.optim.AdamW(model.parameters(), lr=0.1))
            return optimizers[-1]

        ours, plain = self.train(adamw)
        for net, optimizer in zip((ours, plain), optimizers):
            before = copy.deepcopy(optimizer.state_dict())
            for _ in range(2):
                optimizer.zero_grad()
                net(INPUTS).square().sum().backward()
                optimizer.step()
            optimizer.load_state_dict(before)
            optimizer.zero_grad()
            net(INPUTS).square().sum().backward()
            optimizer.step()
        self.assertTrue(ours(INPUTS).equal(plain(INPUTS)))
        steps = [int(one.state_dict()["state"][0]["step"]) for one in optimizers]
        self.assertEqual(steps, [3, 3])

    def test_another_forward_pass_without_gradients(self):
        for mode in (torch.no_grad, torch.inference_mode):
            ours, plain = self.train()
            with self.subTest(mode.__name__), mode():
                self.assertTrue(ours(INPUTS, tied=True).equal(plain(INPUTS, tied=True)))
            psd.shutdown()

    def test_a_forward_pass_that_an_interrupt_has_left(self):
        for passes in (0, 2):  # the first one is looked at
            ours, plain = self.train(passes=passes)
            optimizers = [psd._process.exchange._forward._optimizer, sgd(plain)]
            with self.subTest(passes):
                for ends_in_a_step in (False, True):
                    with mock.patch.object(ours.first, "forward", side_effect=KeyboardInterrupt):
                        with self.assertRaises(KeyboardInterrupt):
                            ours(INPUTS)
                    if ends_in_a_step:
                        optimizers[0].step()  # of nothing
                        self.assertEqual(torch._C._len_torch_function_stack(), 0)
                    with torch.no_grad():
                        self.assertTrue(ours(INPUTS, tied=True).equal(plain(INPUTS, tied=True)))
                    for net, optimizer in zip((ours, plain), optimizers):
                        optimizer.zero_grad()
                        net(INPUTS).square().sum().backward()
                        optimizer.step()
                    self.assertEqual(torch._C._len_torch_function_stack(), 0)
                psd.synchronize()
                self.assertTrue(ours(INPUTS).equal(plain(INPUTS)))
            psd.shutdown()

    def test_another_module_after_a_forward_pass_that_an_interrupt_has_left(self):
        # Each layer by itself, so that not all have come with the first one.
        options = {"policy": "ALL_PS", "bucket_bytes": 0}
        ours, plain = self.train(model_of=lambda: torch.nn.Sequential(Net()), **options)
        with mock.patch.object(ours[0].first, "forward", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                ours(INPUTS)
        with torch.no_grad():
            self.assertTrue(ours[0](INPUTS, tied=True).equal(plain[0](INPUTS, tied=True)))

    def test_a_model_that_calls_itself(self):
        class Again(Net):
            """Uses a part for a second time behind the pass within."""

            def forward(self, features, tied=True):
                return (
                    self(features, tied=False) @ self.second.weight
                    if tied
                    else super().forward(features)
                )

        ours, plain = self.train(model_of=Again, passes=4)
        psd.synchronize()
        self.assertTrue(ours(INPUTS).equal(plain(INPUTS)))
        needs = psd._process.exchange._forward._needs  # pylint: disable=protected-access
        self.assertIn(1, needs[id(ours)])

    def test_hooks_that_could_not_all_be_set_do_not_stay(self):
        scratch = tempfile.TemporaryDirectory(prefix="poseidon_torch_test.")
        self.addCleanup(scratch.cleanup)
        model = Net()
        optimizer = sgd(model)
        for name in ("register_forward_hook", "register_state_dict_pre_hook"):
            psd.init(out=scratch.name)
            with mock.patch.object(torch.nn.Module, name, side_effect=ValueError("none")):
                with self.assertRaisesRegex(ValueError, "none"):
                    psd.distribute(model, optimizer, overlap="forward", policy="ALL_RING")
            before = model.first.weight.detach().clone()
            model(INPUTS).square().sum().backward()
            optimizer.step()
            self.assertFalse(model.first.weight.equal(before))
            optimizer.zero_grad(set_to_none=False)
            self.assertFalse(model.first.weight.grad.any())

    def test_a_rate_in_a_tensor(self):
        ours, plain = self.train(
            lambda model: torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.1)),
            schedule=lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5),
        )
        self.assertTrue(ours(INPUTS).equal(plain(INPUTS)))

    def test_training_goes_on_after_inference(self):
        def momentum(model):
            return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        ours, _ = self.train(momentum, passes=1)
        optimizer = psd._process.exchange._forward._optimizer  # pylint: disable=protected-access
        with torch.inference_mode():
            ours(INPUTS)
        ours(INPUTS).sum().backward()
        optimizer.step()
        ours(INPUTS)

    def test_copies_are_models_of_their_own(self):
        for options in ({}, {"update": "server"}, {"overlap": "backward"}):
            ours, _ = self.train(**options)
            psd.synchronize()
            file = io.BytesIO()
            torch.save(ours, file)
            file.seek(0)
            for net in (copy.deepcopy(ours), torch.load(file, weights_only=False)):
                with self.subTest(options):
                    self.assertTrue(net(INPUTS).equal(ours(INPUTS)))
                    net.load_state_dict(net.state_dict())
                    net(INPUTS).sum().backward()
                    self.assertEqual(net.first.weight.grad.shape, (4, 4))
                    self.assertEqual(psd.iteration(), 2)
            psd.shutdown()


if __name__ == "__main__":
    timed_tests.main()
