"""DiLoCo on some ranks, and the same computed by one process from the paper's formulas (Algorithm 1)."""

import copy
import pathlib
import sys

import torch

import poseidon_torch as psd

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from models import ULPS, Perceptron, data_of, loss_of, move_by_one_ulp

STEPS = 37  # not a multiple of the round
EVERY = 5
OUTER_LR = 0.7
OUTER_MOMENTUM = 0.9


def fresh(seed: int):
    torch.manual_seed(seed)
    model = Perceptron()
    return model, torch.optim.AdamW(model.parameters(), lr=3e-3)


def step(model, optimizer, number: int, rank: int, ranks: int) -> None:
    inputs, targets = data_of(Perceptron, 128)
    rows = slice((number * ranks + rank) % 8 * 16, (number * ranks + rank) % 8 * 16 + 16)
    optimizer.zero_grad()
    loss_of(model(inputs[rows]), targets[rows]).backward()
    optimizer.step()


def serially(ranks: int, prepared=lambda model: model) -> list:
    """The parameters at the end."""
    workers = [fresh(3) for _ in range(ranks)]
    for model, _ in workers:
        prepared(model)
    starts = [parameter.detach().clone() for parameter in workers[0][0].parameters()]
    momenta = [torch.zeros_like(start) for start in starts]
    for number in range(STEPS):
        for rank, (model, optimizer) in enumerate(workers):
            step(model, optimizer, number, rank, ranks)
        if (number + 1) % EVERY and number + 1 != STEPS:
            continue
        locals_ = [[p.detach() for p in model.parameters()] for model, _ in workers]
        for index, start in enumerate(starts):
            outer = sum(start - mine[index] for mine in locals_) / ranks
            momenta[index] = OUTER_MOMENTUM * momenta[index] + outer
            start -= OUTER_LR * (outer + OUTER_MOMENTUM * momenta[index])
        for model, _ in workers:
            for parameter, start in zip(model.parameters(), starts):
                parameter.detach().copy_(start)
    return starts


def main() -> None:
    torch.set_num_threads(1)
    psd.init(out=sys.argv[1])
    rank, ranks = psd.rank(), psd.size()
    model, optimizer = fresh(3 + rank)
    before = copy.deepcopy(model)
    optimizer = psd.DiLoCo(
        model, optimizer, every=EVERY, outer_lr=OUTER_LR, outer_momentum=OUTER_MOMENTUM
    )
    for number in range(STEPS):
        step(model, optimizer, number, rank, ranks)
    psd.shutdown()
    for parameter, expected, one_ulp in zip(
        model.parameters(), serially(ranks), serially(ranks, move_by_one_ulp)
    ):
        off = (parameter.detach() - expected).abs().max()
        bound = ULPS * max(
            (one_ulp - expected).abs().max(),
            expected.abs().max() * torch.finfo(torch.float32).eps,
        )
        print(f"{tuple(parameter.shape)}: off {off:.1e} (bound {bound:.1e})")
        assert off <= bound, f"{tuple(parameter.shape)}: off {off}, bound {bound}"
    moved = sum((a - b).abs().sum() for a, b in zip(model.parameters(), before.parameters()))
    assert moved > 1, "nothing was learned"
    print("equal")


main()
