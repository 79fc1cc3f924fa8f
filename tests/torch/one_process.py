"""A test case of which one process is the whole job."""

import os
import sys
import tempfile
import unittest

import torch

import ranks

os.environ.update(ranks.environment_of(0, 1, ranks.free_port()))
sys.path.insert(0, os.environ["PYTHONPATH"])

import poseidon_torch as psd  # pylint: disable=wrong-import-position


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def pass_of(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).square().sum().backward()
    optimizer.step()


class OneProcess(unittest.TestCase):
    def setUp(self):
        self._scratch = tempfile.TemporaryDirectory(prefix="poseidon_torch_test.")
        self.addCleanup(self._scratch.cleanup)

    def init(self):
        psd.init(out=self._scratch.name)
        self.addCleanup(psd.shutdown)

    def expect_refusal(self, said, *arguments, **options):
        with self.assertRaises(psd.ConfigError) as refused:
            psd.distribute(*arguments, **options)
        self.assertIn(said, str(refused.exception))
