"""Rank 1 fails before its model is distributed."""

import torch

import poseidon_torch as psd

psd.init()
if psd.rank() == 1:
    raise ValueError("record 4711 is broken")
layer = torch.nn.Linear(4, 4)
psd.distribute(layer, torch.optim.SGD(layer.parameters(), lr=0.1))
