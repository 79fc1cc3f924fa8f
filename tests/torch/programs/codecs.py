"""What a codec has not sent of a parameter's gradients reaches it later, also in passes that do not use it. Each rank
prints how far a layer's weights have ever been from the sum of its gradients.

    codecs.py OUT alternating|always|frozen
"""

import sys

import torch

import poseidon_torch as psd

# Of which a bit each and two means send no more than their signs: what is owed never becomes zero.
GRADIENT = torch.tensor([[1.0, 2.0, 4.0, 32.0, -1.0, -3.0, -8.0, -16.0]])
USES = 32  # of each layer that is used
DEADLINE = 120  # seconds; the job says who is waited for, before the test loses its patience


class Layers(torch.nn.Module):
    """Two, of which each pass uses one."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 1, bias=False) for _ in range(2))
        for layer in self.layers:
            torch.nn.init.zeros_(layer.weight)

    def forward(self, number):
        return self.layers[number](GRADIENT)


def largest_debt(turns, frozen_from):
    """From that turn on the second layer is frozen, and until it has had a gradient nothing may move it."""
    model = Layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    psd.distribute(model, optimizer, codec="ONE_BIT", policy="ALL_PS", deadline_seconds=DEADLINE)
    uses, debt = [0, 0], 0.0
    for turn, number in enumerate(turns):
        second = model.layers[1].weight
        second.requires_grad_(turn < frozen_from)
        before = second.detach().clone()
        optimizer.zero_grad()
        model(number).sum().backward()
        optimizer.step()
        uses[number] += 1
        if turn >= frozen_from or uses[1] == 0:
            assert second.equal(before), f"in turn {turn} it moves from {before} to {second}"
        for used, layer in zip(uses, model.layers):
            debt = max(debt, (layer.weight.detach() + used * GRADIENT).abs().max().item())
    return debt


def main():
    _, out, turns = sys.argv
    psd.init(out=out)
    if turns == "alternating":
        print(largest_debt([0, 1] * USES, 2 * USES))
    elif turns == "always":
        print(largest_debt([0] * USES, USES))
    else:
        print(largest_debt([0, 1] * 4 + [0] * USES, 8))
    psd.shutdown()


main()
