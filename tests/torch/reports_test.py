#!/usr/bin/env python3
"""What a program tells of its iterations is what its job tells. One process is the whole job."""

import json
import pathlib
import tempfile
import unittest
from unittest import mock

import torch

import timed_tests
from one_process import OneProcess, pass_of, psd, sgd
from poseidon_torch._library import Session


class OnDevice(torch.Tensor):
    """A tensor that says it is not on the processor, as those on GPUs do."""

    is_cpu = False


class Losses(OneProcess):
    def test_a_devices_loss_is_asked_for_after_the_backward_pass_and_is_that_of_the_report(self):
        self.init()
        model = torch.nn.Linear(4, 4)
        psd.distribute(model, sgd(model))
        result = model(torch.ones(2, 4)).sum()
        loss = torch.tensor(0.375).as_subclass(OnDevice)
        with mock.patch.object(torch.Tensor, "__float__", side_effect=AssertionError("waited for")):
            psd.report(loss)
        loss.fill_(7)
        with mock.patch.object(
            Session, "end_iteration", autospec=True, side_effect=Session.end_iteration
        ) as end_iteration:
            result.backward()
        end_iteration.assert_called_once_with(mock.ANY, 0.375)

    def test_what_is_no_loss_is_refused_where_it_is_reported(self):
        self.init()
        model = torch.nn.Linear(4, 4)
        psd.distribute(model, sgd(model))
        for losses in (torch.ones(2), torch.ones(2).as_subclass(OnDevice)):
            with self.assertRaises((RuntimeError, ValueError)):
                psd.report(losses)

    @unittest.skipUnless(torch.cuda.is_available(), "PyTorch sees no GPU")
    def test_a_report_waits_for_no_gpu(self):
        self.init()
        model = torch.nn.Linear(4, 4).cuda()
        psd.distribute(model, sgd(model))
        loss = model(torch.ones(2, 4, device="cuda")).sum()
        torch.cuda.set_sync_debug_mode("error")
        self.addCleanup(torch.cuda.set_sync_debug_mode, "default")
        psd.report(loss)


class Rates(unittest.TestCase):
    def told(self, distribute, **options):
        """The summary and the scheduler's log of a job of four steps."""
        with tempfile.TemporaryDirectory(prefix="poseidon_torch_test.") as scratch:
            psd.init(out=scratch)
            self.addCleanup(psd.shutdown)
            model = torch.nn.Linear(4, 4)
            optimizer = distribute(model, sgd(model), **options)
            for _ in range(4):
                pass_of(model, optimizer)
            psd.shutdown()
            summary = json.loads((pathlib.Path(scratch) / "summary.json").read_text())
            return summary, (pathlib.Path(scratch) / "scheduler.log").read_text()

    def test_there_are_none_where_the_program_does_not_say_its_batch(self):
        for distribute, options in ((psd.distribute, {}), (psd.DiLoCo, {"every": 2})):
            summary, log = self.told(distribute, **options)
            self.assertIsNone(summary["images_per_second"])
            self.assertIn("communication not hidden", log)
            self.assertNotIn("images/s", log)

    def test_they_are_those_of_the_batch(self):
        for distribute, options in ((psd.distribute, {}), (psd.DiLoCo, {"every": 2})):
            summary, log = self.told(distribute, batch_size=8, **options)
            self.assertEqual([worker["images"] for worker in summary["workers"]], [4 * 8])
            self.assertGreater(summary["images_per_second"], 0)
            self.assertIn("images/s", log)


class Mistakes(OneProcess):
    def test_a_batch_of_no_samples(self):
        for distribute in (psd.distribute, psd.DiLoCo):
            self.init()
            model = torch.nn.Linear(4, 4)
            with self.assertRaisesRegex(psd.ConfigError, "batch_size is 0; it must be at least 1"):
                distribute(model, sgd(model), batch_size=0)


if __name__ == "__main__":
    timed_tests.main()
