#!/usr/bin/env python3
"""A model's profile is what the planner and the simulator take; nothing in the model is changed."""

import collections
import contextlib
import copy
import io
import re
import sys
import unittest
import warnings
from unittest import mock

import torch

import ranks
import timed_tests

sys.path.insert(0, str(ranks.ROOT / "python"))

import poseidon_torch as psd  # pylint: disable=wrong-import-position
from poseidon_torch._example import Trace, _own_random_numbers
from poseidon_torch._job import JobOptions, Place
from models import ConvolutionalNet, Transformer, WidePerceptron, data_of, loss_of


class ProfileTest(unittest.TestCase):
    def profile_of(self, kind, samples=8):
        torch.set_num_threads(1)
        model = kind()
        before = copy.deepcopy(model.state_dict())
        inputs, targets = data_of(kind, samples)
        profile = psd.profile(model, inputs, lambda outputs: loss_of(outputs, targets))
        for name, value in model.state_dict().items():
            torch.testing.assert_close(value, before[name], rtol=0, atol=0)
        self.assertTrue(all(parameter.grad is None for parameter in model.parameters()))
        floats = sum(parameter.numel() for parameter in model.parameters())
        self.assertEqual(sum(layer.size for layer in profile.layers), floats)
        return profile

    def test_times_are_those_of_the_passes(self):
        profile = self.profile_of(WidePerceptron)
        self.assertEqual(
            [layer.name for layer in profile.layers], ["layers.0", "layers.2", "classes"]
        )
        self.assertTrue(all(ms > 0 for ms in profile.forward_ms + profile.backward_ms))
        self.assertIn("layers.2", str(profile))

    def test_sequences_have_more_rows_than_samples(self):
        profile = self.profile_of(Transformer)
        self.assertIn("rows_per_sample: 8 bias: true", profile.text())
        # The tied embedding is no linear layer, and what is never used has no rows.
        self.assertIn('name: "embedding" type: "Embedding"', profile.text())
        self.assertIn('name: "unused" type: "Linear"', profile.text())

    def test_buffers_that_a_forward_pass_puts_others_in_the_place_of_stay(self):
        class Averaged(torch.nn.Linear):
            """Keeps a mean of its inputs, and how many passes there were, in new tensors each time."""

            def __init__(self):
                super().__init__(4, 4)
                self.register_buffer("mean", torch.zeros(4))
                self.register_buffer("passes", torch.zeros(()))
                self.register_buffer("first", None)

            def forward(self, input):
                self.mean = 0.9 * self.mean + 0.1 * input.mean(0)
                self.passes = self.passes + 1
                self.first = input if self.first is None else self.first
                return super().forward(input)

        model, inputs = torch.nn.Sequential(Averaged()), torch.ones(8, 4)
        buffers = list(model.buffers())
        for passes in (lambda: Trace(model, inputs), lambda: psd.profile(model, inputs)):
            passes()
            self.assertIsNone(model[0].first)
            for buffer, before in zip(model.buffers(), buffers):
                self.assertIs(buffer, before)
                self.assertFalse(buffer.any())

    def test_arguments_by_names_may_be_any_mapping(self):
        named = collections.UserDict(input=torch.ones(8, 4))
        profile = psd.profile(torch.nn.Linear(4, 4), named)
        self.assertIn("rows_per_sample: 1 bias: true", profile.text())
        for example in (7, (one for one in [torch.ones(8, 4)])):
            with self.assertRaisesRegex(psd.ConfigError, "example is a .*; it can be a tensor, a"):
                psd.profile(torch.nn.Linear(4, 4), example, batch=8)

    def test_plan_and_simulation(self):
        profile = self.profile_of(ConvolutionalNet)
        plan = profile.plan(workers=4, bandwidth="1Gbps")
        self.assertGreater(len(str(plan)), 0)
        results = profile.simulate([1, 4], "1Gbps", ["bytes", "ring"])
        self.assertEqual([result["workers"] for result in results], [1, 1, 4, 4])
        compute = sum(profile.forward_ms) + sum(profile.backward_ms)
        for result in results:
            self.assertAlmostEqual(result["compute_ms"], compute, delta=0.01 * compute)
            self.assertGreaterEqual(result["iteration_ms"], 0.99 * compute)

    def test_one_policy_needs_no_list(self):
        layers = [mock.Mock(size=1)]
        profile = psd.Profile(layers, [1.0], [1.0], 8)
        asked = []

        def ask(verb, workers, bandwidth, policy, overlap, options):
            asked.append((workers, policy))
            return collections.defaultdict(int, bytes_per_node={"sent": 0})

        with mock.patch.object(profile, "_ask", ask):
            profile.simulate(4, policies="TIME")
            profile.simulate([4, 8], policies=psd.LocalSteps())
            self.assertEqual(asked, [(4, "TIME"), (4, psd.LocalSteps()), (8, psd.LocalSteps())])
            with self.assertRaisesRegex(psd.ConfigError, "policies has 7; a policy is a name"):
                profile.simulate(4, policies=["TIME", 7])
        self.assertEqual(len(asked), 3)

    def test_what_is_refused_has_no_table(self):
        profile = psd.Profile([], [], [], 8)
        with (
            contextlib.redirect_stdout(io.StringIO()) as printed,
            self.assertRaisesRegex(psd.ConfigError, "overlap is 'sideways'"),
        ):
            profile.simulate(4, overlap="sideways")
        self.assertEqual(printed.getvalue(), "")

    def test_local_steps_beside_policies(self):
        profile = self.profile_of(WidePerceptron)
        local = psd.LocalSteps(every=50, fragments=2, overlap_steps=3, codec="INT8")
        floats = psd.LocalSteps(every=50, fragments=2, overlap_steps=3, policy="ALL_PS")
        policies = ["ALL_RING", psd.LocalSteps(every=50), local, floats]
        ring, plain, streamed, unpacked = profile.simulate(4, "1Gbps", policies)
        self.assertEqual(streamed["policy"], local)

        def sent(result):
            return result["bytes_per_node"]["sent"]

        # A ring's bytes once in fifty steps; over servers a quarter of theirs, and steps of blocks, with a byte a float.
        self.assertAlmostEqual(sent(ring) / sent(plain), 50, delta=0.5)
        self.assertAlmostEqual(sent(unpacked) / sent(streamed), 4 / (1 + 4 / 256), delta=0.1)
        self.assertLess(plain["waiting"], ring["waiting"])
        self.assertLessEqual(streamed["waiting"], plain["waiting"])
        for result in (plain, streamed):
            self.assertAlmostEqual(
                result["waiting"], 1 - result["compute_ms"] / result["iteration_ms"], delta=1e-3
            )
        planned = profile.plan(4, "1Gbps", local)
        self.assertEqual(planned["local_steps"], 50)
        self.assertEqual({bucket["codec"] for bucket in planned["buckets"]}, {"int8"})

    def test_who_waits_for_all_gradients_hides_less(self):
        layers = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 65536))
        profile = psd.profile(layers, torch.ones(8, 32))
        # While the first layer computes the second one's weights can still be on their way.
        profile.forward_ms, profile.backward_ms = [50.0, 50.0], [1.0, 1.0]
        for ask in (
            lambda overlap: profile.plan(4, "1Gbps", overlap=overlap),
            lambda overlap: profile.simulate(4, "1Gbps", overlap=overlap)[0],
        ):
            self.assertGreater(ask("backward")["iteration_ms"], ask("forward")["iteration_ms"])

    def test_a_plan_is_that_of_the_job(self):
        profile = self.profile_of(Transformer)
        job = JobOptions().text(Place(0, 4, 0, 1, "localhost"), "localhost", 1, 1, "")
        said = {
            name: re.search(rf"{name}: (\S+)", job)[1]
            for name in ("policy", "bucket_bytes", "wait_for_all")
        }
        as_said = profile.plan(4, "1Gbps", lanes=1, overlap="forward", **said)
        self.assertEqual(profile.plan(4, "1Gbps", JobOptions.policy), as_said)
        self.assertLess(len(as_said["buckets"]), len(as_said["layers"]))
        self.assertEqual(as_said["lanes"]["planned"], False)
        self.assertTrue(profile.plan(4, "1Gbps", "ALL_RING", lanes=None)["lanes"]["planned"])
        self.assertTrue(profile.plan(4, "1Gbps")["lanes"]["planned"])

    def test_a_model_on_the_processor_touches_no_gpu(self):
        with (
            mock.patch.object(torch.cuda, "device_count", lambda: 2),
            mock.patch.object(torch.cuda, "get_rng_state", side_effect=AssertionError("a GPU's")),
            mock.patch.object(torch.cuda, "set_rng_state"),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("error")
            model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout())
            before = torch.get_rng_state()
            for example in (torch.ones(2, 4), (torch.ones(2, 4),), {"input": torch.ones(2, 4)}):
                Trace(model, example)
        self.assertTrue(torch.equal(torch.get_rng_state(), before))

    def test_random_numbers_of_the_gpus_that_compute_are_drawn_anew(self):
        asked = []
        with (
            mock.patch.object(torch.cuda, "get_rng_state", asked.append),
            mock.patch.object(torch.cuda, "set_rng_state"),
        ):
            on_gpu = mock.Mock(spec=torch.Tensor, is_cuda=True, device=torch.device("cuda", 1))
            model = mock.Mock(parameters=lambda: [], buffers=lambda: [on_gpu])
            with _own_random_numbers(model, {"input": torch.ones(2)}):
                pass
        self.assertEqual(asked, [torch.device("cuda", 1)])

    def test_mistakes(self):
        profile = self.profile_of(ConvolutionalNet)
        with self.assertRaisesRegex(psd.ConfigError, "bandwidth"):
            profile.simulate(4, "fast")
        with self.assertRaisesRegex(psd.ConfigError, "overlap is 'sideways'"):
            profile.plan(4, overlap="sideways")
        with self.assertRaisesRegex(psd.ConfigError, "no flag --wings"):
            profile.plan(4, wings=2)
        for name in ("batch", "iterations"):
            with self.assertRaisesRegex(psd.ConfigError, f"{name} is 0; it must be at least 1"):
                psd.profile(torch.nn.Linear(4, 4), torch.ones(2, 4), **{name: 0})
        with self.assertRaisesRegex(psd.ConfigError, "loss_of"):
            psd.profile(_Pair(), torch.ones(2, 4))


class _Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, features):
        return self.linear(features), features


if __name__ == "__main__":
    timed_tests.main()
