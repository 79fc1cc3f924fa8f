"""What a codec has not sent of a parameter's gradients reaches it later, also in passes that do not use it. Each rank
prints how far a layer's weights have ever been from the sum of its gradients.

    codecs.py OUT alternating|always|frozen|turns|frozen_turns
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


def distributed(model, parts):
    """An optimizer of each of the parts, the first of which is distribute's."""
    optimizers = [torch.optim.SGD(part.parameters(), lr=1.0) for part in parts]
    options = {"codec": "ONE_BIT", "policy": "ALL_PS", "deadline_seconds": DEADLINE}
    psd.distribute(model, optimizers[0], **options)
    return optimizers


def debt_of(model, uses):
    """The largest one after so many uses of each layer."""
    return max(
        (layer.weight.detach() + used * GRADIENT).abs().max().item()
        for used, layer in zip(uses, model.layers)
    )


def largest_debt(turns, frozen_from):
    """From that turn on the second layer is frozen, and until it has had a gradient nothing may move it."""
    model = Layers()
    (optimizer,) = distributed(model, [model])
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
        debt = max(debt, debt_of(model, uses))
    return debt


def largest_debt_of_turns(freezing):
    """Two optimizers in turns, as of a GAN, each with a pass of its own that begins without gradients; `freezing`: which
    goes by the other layer, too, that is frozen meanwhile."""
    model = Layers()
    optimizers = distributed(model, model.layers)
    uses, debt = [0, 0], 0.0
    for _ in range(USES):
        for number, optimizer in enumerate(optimizers):
            model.zero_grad()
            model.layers[1 - number].requires_grad_(not freezing)
            model.layers[number].requires_grad_(True)
            (model(number) + (model(1 - number) if freezing else 0)).sum().backward()
            optimizer.step()
            uses[number] += 1
            debt = max(debt, debt_of(model, uses))
    return debt


def main():
    _, out, turns = sys.argv
    psd.init(out=out)
    if turns == "alternating":
        print(largest_debt([0, 1] * USES, 2 * USES))
    elif turns == "always":
        print(largest_debt([0] * USES, USES))
    elif turns == "frozen":
        print(largest_debt([0, 1] * 4 + [0] * USES, 8))
    else:
        print(largest_debt_of_turns(freezing=turns == "frozen_turns"))
    psd.shutdown()


main()
