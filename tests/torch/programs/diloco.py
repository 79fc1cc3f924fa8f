"""DiLoCo on some ranks, and the same computed by one process from the papers' formulas: Algorithm 1 of arXiv 2311.08105
and Algorithm 2 of arXiv 2501.18512, whose difference is to the outer parameters, which are all workers' alike."""

import copy
import dataclasses
import functools
import os
import pathlib
import sys
import time

import torch

import poseidon_torch as psd

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from models import ULPS, Perceptron, data_of, loss_of, move_by_one_ulp

STEPS = 37  # not a multiple of the round
OUTER_LR = 0.7
OUTER_MOMENTUM = 0.9


@dataclasses.dataclass(frozen=True)
class Variant:
    every: int
    fragments: int = 1
    overlap_steps: int = 0
    mixing: float = 0.0

    def sent_after(self, fragment: int) -> int:
        return (fragment + 1) * self.every // self.fragments


VARIANTS = (
    Variant(5),
    Variant(6, fragments=3),
    Variant(7, fragments=2, overlap_steps=2, mixing=0.5),
    Variant(4, overlap_steps=3, mixing=0.25),
)


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


class Outer:
    """The outer parameters of one fragment, and what has been sent of it."""

    def __init__(self, names, model):
        self.values = {name: model.get_parameter(name).detach().clone() for name in names}
        self.momenta = {name: torch.zeros_like(value) for name, value in self.values.items()}
        self.mean = None  # of the differences on their way
        self.sent = 0  # the step

    def send(self, models, number: int) -> None:
        self.sent = number
        self.mean = {
            name: sum(value - model.get_parameter(name).detach() for model in models) / len(models)
            for name, value in self.values.items()
        }

    def receive(self, models, mixing: float) -> None:
        for name, mean in self.mean.items():
            self.momenta[name] = OUTER_MOMENTUM * self.momenta[name] + mean
            self.values[name] = self.values[name] - OUTER_LR * (
                mean + OUTER_MOMENTUM * self.momenta[name]
            )
        self.mean = None
        self.mix(models, mixing)

    def mix(self, models, mixing: float) -> None:
        for model in models:
            for name, value in self.values.items():
                own = model.get_parameter(name).detach()
                own.copy_(mixing * own + (1 - mixing) * value)


def fragments_of(model, count: int) -> list:
    """Names of parameters. Perceptron's layers from the largest on are 2, 0 and 4."""
    parts = {1: [[2, 0, 4]], 2: [[2], [0, 4]], 3: [[2], [0], [4]]}[count]
    return [[f"layers.{n}.{kind}" for n in part for kind in ("weight", "bias")] for part in parts]


@functools.lru_cache(maxsize=None)
def serially(variant: Variant, ranks: int, prepared=lambda model: model) -> list:
    """The parameters at the end."""
    workers = [fresh(3) for _ in range(ranks)]
    models = [prepared(model) for model, _ in workers]
    outers = [Outer(names, models[0]) for names in fragments_of(models[0], variant.fragments)]
    for number in range(1, STEPS + 1):
        for rank, (model, optimizer) in enumerate(workers):
            step(model, optimizer, number - 1, rank, ranks)
        for fragment, outer in enumerate(outers):
            if (number - variant.sent_after(fragment)) % variant.every == 0:
                outer.send(models, number)
        for outer in outers:
            if outer.mean is not None and number == outer.sent + variant.overlap_steps:
                outer.receive(models, variant.mixing)
    # The end: what is on its way arrives, then what was learned since is exchanged and nothing of anybody's own remains;
    # first in those parts whose turn in the round has not come.
    for outer in outers:
        if outer.mean is not None:
            outer.receive(models, variant.mixing)
    for outer in outers:
        if outer.sent < STEPS:
            outer.send(models, STEPS)
            outer.receive(models, 0)
        else:
            outer.mix(models, 0)
    return [parameter.detach() for parameter in models[0].parameters()]


def train(variant: Variant, out: str, **options):
    """The model that the ranks come to, and how far it has come."""
    # A store of its own, since the one before may still be closing.
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    psd.init(out=out)
    rank, ranks = psd.rank(), psd.size()
    model, optimizer = fresh(3 + rank)
    optimizer = psd.DiLoCo(
        model,
        optimizer,
        outer_lr=OUTER_LR,
        outer_momentum=OUTER_MOMENTUM,
        **dataclasses.asdict(variant),
        **options,
    )
    before = copy.deepcopy(model)
    for number in range(STEPS):
        if number == 12 and rank == 1 and "step_deadline_seconds" in options:
            time.sleep(3)  # more than a step's deadline, less than a round's
        step(model, optimizer, number, rank, ranks)
    psd.shutdown()
    moved = torch.cat([(a - b).flatten() for a, b in zip(model.parameters(), before.parameters())])
    assert moved.abs().sum() > 1, "nothing was learned"
    return model, moved.norm()


def expect_formulas(variant: Variant, model, ranks: int) -> None:
    for parameter, expected, one_ulp in zip(
        model.parameters(),
        serially(variant, ranks),
        serially(variant, ranks, move_by_one_ulp),
    ):
        off = (parameter.detach() - expected).abs().max()
        bound = ULPS * max(
            (one_ulp - expected).abs().max(),
            expected.abs().max() * torch.finfo(torch.float32).eps,
        )
        print(f"{variant} {tuple(parameter.shape)}: off {off:.1e} (bound {bound:.1e})")
        assert off <= bound, f"{variant} {tuple(parameter.shape)}: off {off}, bound {bound}"


def expect_nearby(variant: Variant, model, ranks: int, moved: torch.Tensor) -> None:
    off = torch.cat(
        [
            (parameter.detach() - expected).flatten()
            for parameter, expected in zip(model.parameters(), serially(variant, ranks))
        ]
    ).norm()
    print(f"INT8: off {off:.1e} of {moved:.1e}")
    assert 0 < off < 0.05 * moved, f"INT8: off {off} of {moved}"


def main() -> None:
    torch.set_num_threads(1)
    out = pathlib.Path(sys.argv[1])
    rank, ranks = int(os.environ["RANK"]), 3
    for number, variant in enumerate(VARIANTS):
        options = {"step_deadline_seconds": 2.0} if number == 0 else {}
        if number == len(VARIANTS) - 1:
            options["policy"] = "TIME"  # of the planner's choice
        model, _ = train(variant, str(out / f"job{number}"), **options)
        # All ranks end with the same parameters, as their job says: one of them computes what these are to be.
        if number % ranks == rank:
            expect_formulas(variant, model, ranks)
    # A byte a float is another training, but not far from it: what a step of INT8 rounds is at most a 254th of a
    # block's largest difference, and is made up for.
    variant = VARIANTS[1]
    model, moved = train(variant, str(out / "int8"), codec="INT8")
    if rank == 1:  # which knows already
        expect_nearby(variant, model, ranks, moved)
    print("equal")


main()
