"""What of PyTorch's a training may use: frozen layers, checkpoints of activations, GradScaler, schedulers that change more
than the rate, and with the argument "compile" torch.compile by block. Ranks train as one process does.

    features.py OUT [compile]
"""

import dataclasses
import functools
import os
import pathlib
import sys
import tempfile
from typing import Callable

import torch
from torch.utils.checkpoint import checkpoint

import poseidon_torch as psd

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from models import Transformer, bound_of, data_of, difference, loss_of, move_by_one_ulp

ITERATIONS = 12
SAMPLES = 32  # of the whole batch
DEADLINE = 120  # seconds; the job says who is waited for, before the test loses its patience
BROKEN = 5  # the iteration in which a sample of rank 1's is not a number, for GradScaler


def adamw(model):
    return torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=3e-3)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def half_frozen():
    model = Transformer()
    model.embedding.requires_grad_(False)  # and with it the last weights, which are tied
    model.blocks[0].requires_grad_(False)
    return model


class Checkpointed(torch.nn.Module):
    """A block whose activations are computed again in the backward pass."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, tokens):
        return checkpoint(self.block, tokens, use_reentrant=False)


def checkpointed():
    model = Transformer()
    for number, block in enumerate(model.blocks):
        model.blocks[number] = Checkpointed(block)
    return model


def compiled_by(backend):
    def compiled():
        model = Transformer()
        for number, block in enumerate(model.blocks):
            model.blocks[number] = torch.compile(block, backend=backend)
        return model

    return compiled


def cycle(optimizer):
    """Changes the momentum, too."""
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=ITERATIONS)


@dataclasses.dataclass(frozen=True)
class Case:
    """A training."""

    name: str
    model: Callable
    optimizer: Callable = adamw
    overlap: str = "backward"
    scaler: bool = False
    schedule: Callable = None


CASES = [
    Case("half of it frozen", half_frozen),
    Case("half of it frozen, forward overlap", half_frozen, overlap="forward"),
    Case("checkpoints of activations", checkpointed),
    Case("checkpoints of activations, forward overlap", checkpointed, overlap="forward"),
    Case("a cycle of rate and momentum", Transformer, sgd, schedule=cycle),
    Case("a cycle, forward overlap", Transformer, sgd, overlap="forward", schedule=cycle),
]
if hasattr(torch.amp, "GradScaler"):  # before PyTorch 2.3 it was for GPUs only
    CASES.append(Case("GradScaler, which skips a step", Transformer, scaler=True))
COMPILED = [
    Case(f"blocks compiled by {backend}", compiled_by(backend))
    for backend in ("aot_eager", "inductor")
]


def train(case, model, optimizer, rank, ranks):
    """As rank `rank` of `ranks`; the losses of the whole batch."""
    schedule = case.schedule(optimizer) if case.schedule else None
    # Powers of two: the gradients' bits stay.
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10) if case.scaler else None
    inputs, targets = data_of(Transformer, 4 * SAMPLES)
    losses = []
    for iteration in range(ITERATIONS):
        first = iteration % 4 * SAMPLES
        rows = torch.arange(first + rank, first + SAMPLES, ranks)
        optimizer.zero_grad()
        loss = loss_of(model(inputs[rows]), targets[rows])
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            broken = iteration == BROKEN and rank + 1 == ranks
            scaler.scale(loss * torch.inf if broken else loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
        if schedule is not None:
            schedule.step()
        with torch.no_grad():
            losses.append(loss_of(model(inputs[:SAMPLES]), targets[:SAMPLES]).item())
    assert scaler is None or scaler.get_scale() == 2.0**9, "no step was skipped"
    return torch.tensor(losses)


def fresh(case, make, seed=3):
    torch.manual_seed(seed)
    model = make()
    return model, case.optimizer(model)


def by_poseidon(case):
    psd.init()
    # Other first values than rank 0's, which are to become everybody's; what is frozen must be the same.
    seed = 3 if case.model is half_frozen else 3 + psd.rank()
    model, optimizer = fresh(case, case.model, seed)
    frozen = [(p, p.detach().clone()) for p in model.parameters() if not p.requires_grad]
    optimizer = psd.distribute(model, optimizer, overlap=case.overlap, deadline_seconds=DEADLINE)
    losses = train(case, model, optimizer, psd.rank(), psd.size())
    for parameter, before in frozen:
        assert parameter.equal(before) and parameter.grad is None, "a frozen parameter has learned"
    psd.shutdown()
    return losses


@functools.lru_cache(maxsize=None)
def plainly(case, prepared=lambda model: model):
    """One process that has the whole batch."""
    model, optimizer = fresh(case, case.model)
    return train(case, prepared(model), optimizer, 0, 1)


def check(case, number):
    """One of the two ranks compares, as both end with the same parameters, which their job says: the one that has trained
    plainly already where only the overlap is another."""
    ours = by_poseidon(case)
    if number // 2 % 2 != int(os.environ["RANK"]):
        return
    plain_case = dataclasses.replace(case, name="", overlap="")
    plain = plainly(plain_case)
    bound = bound_of(plainly(plain_case, move_by_one_ulp), plain)
    off = difference(ours, plain)
    said = f"{case.name}: off {off:.1e} (bound {bound:.1e}), loss {ours[0]:.3f} -> {ours[-1]:.3f}"
    print(said, flush=True)
    assert off <= bound, said
    assert ours[-1] < 0.9 * ours[0], f"{said}: nothing was learned"


def main() -> None:
    torch.set_num_threads(1)
    tempfile.tempdir = sys.argv[1]  # for the jobs' logs
    port = int(os.environ["MASTER_PORT"])
    cases = COMPILED if sys.argv[2:] == ["compile"] else CASES
    for number, case in enumerate(cases):
        os.environ["MASTER_PORT"] = str(port + number)
        check(case, number)
    print(f"{len(cases)} cases are equal", flush=True)


main()
