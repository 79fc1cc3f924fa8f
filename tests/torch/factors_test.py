#!/usr/bin/env python3
"""A model whose linear layers send factors has the gradients that it has in plain PyTorch, or a sentence says why it
can't have them. One process is the whole job."""

import contextlib
import copy
import io
import os
import sys
import tempfile
import unittest

import torch
from torch.optim.swa_utils import AveragedModel

import ranks
import timed_tests

os.environ.update(ranks.environment_of(0, 1, ranks.free_port()))
sys.path.insert(0, os.environ["PYTHONPATH"])

import poseidon_torch as psd  # pylint: disable=wrong-import-position

ROWS = 4


def net():
    torch.manual_seed(5)
    return torch.nn.Sequential(
        torch.nn.Linear(32, 48, bias=False),
        torch.nn.Tanh(),
        torch.nn.Linear(48, 8),
        torch.nn.Tanh(),
    )


def inputs_of(number):
    return torch.randn(ROWS, 32, generator=torch.Generator().manual_seed(number))


def loss_of(model, number):
    return model(inputs_of(number)).square().sum()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


class Factors(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="poseidon_torch_test.")
        self.addCleanup(self.scratch.cleanup)
        psd.init(out=self.scratch.name)
        self.addCleanup(self.shut_down)
        self.refused = False
        self.model = net()
        self.plain = copy.deepcopy(self.model)
        # What one rounding more does to the same net.
        self.rounded = copy.deepcopy(self.plain)
        with torch.no_grad():
            for parameter in self.rounded.parameters():
                parameter.mul_(1 + torch.finfo(parameter.dtype).eps)
        self.models = (self.model, self.plain, self.rounded)
        self.optimizer = psd.distribute(
            self.model, sgd(self.model), example=inputs_of(0), policy="ALL_SFB"
        )
        loss_of(self.model, 0).backward()
        self.assertEqual(self.sent_by_factors(), {0, 1})
        self.optimizer.zero_grad()

    def sent_by_factors(self):
        return psd._process.exchange._sends_factors  # pylint: disable=protected-access

    def shut_down(self):
        # A refusal may have left an iteration half done.
        with contextlib.suppress(psd.PoseidonError) if self.refused else contextlib.nullcontext():
            psd.shutdown()

    def expect_close(self, ours, plain, rounded):
        """Within several times what one rounding more does."""
        self.assertLessEqual((ours - plain).abs().max(), 8 * (rounded - plain).abs().max())

    def expect_same_gradients(self):
        for parameters in zip(*(model.parameters() for model in self.models)):
            self.expect_close(*(parameter.grad for parameter in parameters))

    def expect_refusal(self, said, do):
        self.refused = True
        with self.assertRaises(psd.ConfigError) as refused:
            do()
        self.assertIn(said, str(refused.exception))

    @staticmethod
    def enter_no_sync():
        with psd.no_sync():
            pass

    def test_a_penalty_of_the_weights_is_refused(self):
        def backward():
            penalty = sum(parameter.abs().sum() for parameter in self.model.parameters())
            (loss_of(self.model, 1) + penalty).backward()

        self.expect_refusal("the loss reaches its weight or bias otherwise, too", backward)

    def test_a_penalty_of_a_gradient_is_refused(self):
        def backward():
            inputs = inputs_of(1).requires_grad_()
            loss = self.model(inputs).square().sum()
            (slope,) = torch.autograd.grad(loss, inputs, create_graph=True)
            (loss + slope.square().sum()).backward()

        self.expect_refusal("the loss reaches its weight or bias otherwise, too", backward)

    def test_a_graph_of_the_gradients_is_refused(self):
        self.expect_refusal(
            "create_graph", lambda: loss_of(self.model, 1).backward(create_graph=True)
        )

    def test_a_frozen_bias_is_refused(self):
        self.model[2].bias.requires_grad_(False)
        self.expect_refusal("layer '2' sends factors", loss_of(self.model, 1).backward)

    def test_a_layer_that_is_used_twice_is_refused(self):
        def backward():
            hidden = self.model[:2](inputs_of(1))
            (self.model[2](hidden) + self.model[2](hidden.square())).sum().backward()

        self.expect_refusal("layer '2' got a second gradient in one backward pass", backward)

    def test_passes_without_an_exchange_are_refused_at_once(self):
        self.expect_refusal("layer '0' sends factors, which can't add up", self.enter_no_sync)

    def test_passes_without_an_exchange_are_refused_whatever_the_plan_will_be(self):
        for policy, refused in (("TIME", True), ("ALL_RING", False)):
            psd.shutdown()
            psd.init(out=self.scratch.name)
            model = net()
            psd.distribute(model, sgd(model), example=inputs_of(0), policy=policy)
            self.sent_by_factors().clear()  # by the first plan; what the next one is, nobody knows
            if refused:
                self.expect_refusal("layer '0' may come to send factors", self.enter_no_sync)
            else:
                self.enter_no_sync()

    def test_another_use_of_a_weight_under_autocast_is_refused(self):
        """Autocast casts a weight once, and must not have done so without a graph in the layer."""

        def backward():
            with torch.autocast("cpu", torch.bfloat16):
                loss = self.model(inputs_of(1)).sum()
                others = torch.nn.functional.linear(torch.ones(1, 48), self.model[2].weight)
            (loss + others.sum()).backward()

        self.expect_refusal("the loss reaches its weight or bias otherwise, too", backward)

    def test_another_use_of_inputs_under_autocast_has_its_gradient(self):
        found = []
        for model in (self.model, self.plain):
            inputs = inputs_of(1).requires_grad_()
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(inputs).sum() + (inputs @ torch.ones(32, 1)).sum()
            found += torch.autograd.grad(loss, inputs)
        ours, plain = found
        # Plain PyTorch rounds the sum of both uses' gradients once more.
        rounding = torch.finfo(torch.bfloat16).eps * plain.abs().max()
        self.assertLessEqual((ours - plain).abs().max(), rounding)

    def test_passes_add_up(self):
        for model in self.models:
            for number in (1, 2):
                loss_of(model, number).backward()
        self.expect_same_gradients()
        for model in self.models:
            model.zero_grad(set_to_none=False)
            loss_of(model, 3).backward()
        self.expect_same_gradients()

    def test_gradients_of_something_else_exchange_nothing(self):
        before = psd.iteration()
        found = []
        for model in self.models:
            inputs = inputs_of(1).requires_grad_()
            found += torch.autograd.grad(model(inputs).square().sum(), inputs)
            model(inputs).square().sum().backward(inputs=[inputs])
        self.assertEqual(psd.iteration(), before)
        for model in self.models:
            loss_of(model, 1).backward()
        self.expect_close(*found)
        self.assertEqual(psd.iteration(), before + 1)
        self.expect_same_gradients()

    def test_gradients_of_parameters_that_are_asked_for_are_had(self):
        before = psd.iteration()
        for loss in (lambda model: loss_of(model, 1), lambda model: model[2].weight.sum()):
            found = [
                torch.autograd.grad(loss(model), [model[2].weight])[0] for model in self.models
            ]
            self.expect_close(*found)
        self.assertEqual(psd.iteration(), before)
        for model in self.models:
            loss_of(model, 1).backward()
        self.expect_same_gradients()

    def test_gradients_of_functions_of_parameters_exchange_nothing(self):
        before = psd.iteration()
        found = []
        for model in self.models:

            def loss(parameters, inputs):
                outputs = torch.func.functional_call(model, parameters, (inputs,))
                return outputs.square().sum()

            of_each_row = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))
            gradients = of_each_row(dict(model.named_parameters()), inputs_of(1))
            found.append(gradients["2.weight"].sum(0))
        self.expect_close(*found)
        self.assertEqual(psd.iteration(), before)

    def test_a_function_of_its_parameters_as_weights_is_refused(self):
        halves = {
            name: parameter * torch.tensor(0.5) for name, parameter in self.model.named_parameters()
        }
        outputs = torch.func.functional_call(self.model, halves, (inputs_of(1),))
        self.expect_refusal(
            "the loss reaches its weight or bias otherwise, too", outputs.square().sum().backward
        )

    def test_other_weights_in_its_parameters_place_have_their_own_gradients(self):
        before = psd.iteration()
        found = []
        for model in self.models:
            others = {
                name: parameter.detach().clone().requires_grad_()
                for name, parameter in model.named_parameters()
            }
            outputs = torch.func.functional_call(model, others, (inputs_of(1),))
            outputs.square().sum().backward()
            found.append([other.grad for other in others.values()])
        for gradients in zip(*found):
            self.expect_close(*gradients)
        self.assertEqual(psd.iteration(), before)

    def test_a_graph_from_before_a_plan_by_which_layers_send_factors(self):
        exchange = psd._process.exchange  # pylint: disable=protected-access
        sent = set(self.sent_by_factors())
        self.sent_by_factors().clear()
        with psd.no_sync():
            exchange._plan_may_change = True  # pylint: disable=protected-access
            losses = [loss_of(model, 1) for model in self.models]
            losses[0].backward(retain_graph=True)
        for model, loss in zip(self.models[1:], losses[1:]):
            loss.backward(retain_graph=True)
        self.expect_same_gradients()
        self.sent_by_factors().update(sent)
        for model, loss in zip(self.models, losses):
            model.zero_grad()
            loss.backward()
        self.expect_same_gradients()

    def test_a_layer_that_is_frozen_for_a_while_learns_nothing(self):
        optimizers = (self.optimizer, sgd(self.plain), sgd(self.rounded))
        for learns in (False, True):
            for model, optimizer in zip(self.models, optimizers):
                model[2].requires_grad_(learns)
                before = model[2].weight.detach().clone()
                optimizer.zero_grad()
                loss_of(model, 1).backward()
                optimizer.step()
                self.assertEqual(model[2].weight.equal(before), not learns)
        self.expect_same_gradients()

    def test_copies_are_models_of_their_own(self):
        file = io.BytesIO()
        torch.save(self.model, file)
        file.seek(0)
        copies = [copy.deepcopy(self.model), AveragedModel(self.model).module]
        copies.append(torch.load(file, weights_only=False))
        before = psd.iteration()
        for number, model in enumerate(copies, 1):
            with self.subTest(number):
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.mul_(2)
                plain = net()
                plain.load_state_dict(model.state_dict())
                self.assertTrue(model(inputs_of(1)).equal(plain(inputs_of(1))))
                loss_of(model, 1).backward()
                loss_of(plain, 1).backward()
                for ours, theirs in zip(model.parameters(), plain.parameters()):
                    self.assertTrue(ours.grad.equal(theirs.grad))  # computed in the same way
        self.assertEqual(psd.iteration(), before)

    def test_a_layer_with_a_forward_pass_of_its_own_sends_none(self):
        psd.shutdown()
        psd.init(out=self.scratch.name)
        model = net()
        model[0].forward = lambda features: torch.nn.functional.linear(features, -model[0].weight)
        expected = model(inputs_of(1))
        psd.distribute(model, sgd(model), example=inputs_of(0), policy="ALL_SFB")
        self.assertEqual(self.sent_by_factors(), {1})
        self.assertTrue(model(inputs_of(1)).equal(expected))


if __name__ == "__main__":
    timed_tests.main()
