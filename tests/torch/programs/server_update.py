"""Servers that carry the optimizer out: ranks train as those do that carry it out themselves, and as one process.

    server_update.py OUT              in a few ways, which have each part once
    server_update.py OUT others       in these and the other ways, for longer
    server_update.py OUT disagree     rank 1 has another learning rate from iteration 5 on
"""

import dataclasses
import os
import pathlib
import sys
import tempfile
import warnings
from typing import Callable

import torch

import poseidon_torch as psd

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from models import (
    Perceptron,
    Transformer,
    bound_of,
    data_of,
    difference,
    loss_of,
    move_by_one_ulp,
)

ITERATIONS = 100 if sys.argv[2:] == ["others"] else 40
SAMPLES = 16  # of the whole batch


def transformer():
    model = Transformer()
    model.unused.requires_grad_(False)  # servers would update it all the same
    return model


def grouped(model):
    """Weights, and what has one axis: with another rate and without decay."""
    learns = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [one for one in learns if one.dim() > 1]},
        {"params": [one for one in learns if one.dim() <= 1], "weight_decay": 0.0, "lr": 2e-3},
    ]


def nesterov(model):
    return torch.optim.SGD(grouped(model), lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-3)


def dampened(model):
    """Only weights have momentum, and so a state."""
    weights, others = grouped(model)
    return torch.optim.SGD(
        [weights, {**others, "momentum": 0.0}], lr=0.05, momentum=0.9, dampening=0.5
    )


def plain_sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.3)


def adamw(model):
    return torch.optim.AdamW(grouped(model), lr=3e-3)


def steps(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, ITERATIONS * 3 // 10, 0.5)


def cycle(optimizer):
    """Changes the momentum, or the betas, too."""
    rates = [1 / ITERATIONS] * len(optimizer.param_groups)
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=ITERATIONS + 1)


@dataclasses.dataclass(frozen=True)
class Case:
    """A training. `same_bits`: PyTorch's own step gives them."""

    name: str
    model: Callable
    optimizer: Callable
    schedule: Callable
    overlap: str = "backward"
    accumulates: bool = False
    same_bits: bool = True

    @property
    def kind(self):
        return Transformer if self.model is transformer else self.model


DAMPENED = Case("SGD, dampened, accumulated", Perceptron, dampened, steps, accumulates=True)
FORWARD = Case("SGD, Nesterov, groups, forward overlap", Perceptron, nesterov, cycle, "forward")
# PyTorch's square root is not always the nearest.
ADAMW = Case("AdamW, groups", transformer, adamw, cycle, same_bits=False)
CASES = [
    FORWARD,
    DAMPENED,
    ADAMW,
]
OTHERS = [
    Case("SGD, Nesterov, groups", Perceptron, nesterov, steps),
    Case("SGD without momentum", Perceptron, plain_sgd, steps),
    Case("AdamW, forward overlap", transformer, adamw, steps, "forward", same_bits=False),
]


class Training:
    """A model that is trained as rank `rank` of `ranks`, from its checkpoint if there is one."""

    def __init__(self, case, prepared=lambda model: model, update=None, checkpoint=None):
        self.case = case
        torch.manual_seed(3)
        self.model = prepared(case.model())
        self.optimizer = case.optimizer(self.model)
        self.schedule = case.schedule(self.optimizer)
        if checkpoint is not None:
            self.model.load_state_dict(checkpoint["model"])
            self.optimizer.load_state_dict(checkpoint["optimizer"])
            self.schedule.load_state_dict(checkpoint["schedule"])
        self.rank, self.ranks = 0, 1
        self.update = update
        if update is not None:
            psd.init()
            self.rank, self.ranks = psd.rank(), psd.size()
            overlap = case.overlap if update == "server" else "backward"
            policy = None if update == "server" else "ALL_PS"
            psd.distribute(
                self.model,
                self.optimizer,
                update=update,
                overlap=overlap,
                policy=policy,
                deterministic=True,
                # The state is spread over servers, lanes and buckets.
                servers=2,
                lanes=2,
                bucket_bytes=4096,
            )

    def run(self, first, last):
        """The losses of the whole batch after each iteration."""
        inputs, targets = data_of(self.case.kind, 4 * SAMPLES)
        losses = []
        for iteration in range(first, last):
            begin = iteration % 4 * SAMPLES
            rows = torch.arange(begin + self.rank, begin + SAMPLES, self.ranks)
            self.optimizer.zero_grad()
            if self.case.accumulates:
                half = len(rows) // 2
                with psd.no_sync() if self.update else torch.enable_grad():
                    self.loss(inputs, targets, rows[:half], 0.5).backward()
                self.loss(inputs, targets, rows[half:], 0.5).backward()
            else:
                self.loss(inputs, targets, rows, 1).backward()
            self.optimizer.step()
            self.schedule.step()
            with torch.no_grad():
                outputs = self.model(inputs[:SAMPLES])
                losses.append(loss_of(outputs, targets[:SAMPLES]).item())
            if self.update == "server":
                assert not self.optimizer.state, "the worker keeps a state"
        return torch.tensor(losses)

    def loss(self, inputs, targets, rows, share):
        return loss_of(self.model(inputs[rows]), targets.view(len(inputs), -1)[rows]) * share

    def checkpoint(self):
        """Of rank 0."""
        return {
            "model": {name: value.clone() for name, value in self.model.state_dict().items()},
            "optimizer": self.optimizer.state_dict() if self.rank == 0 else None,
            "schedule": self.schedule.state_dict(),
        }

    def end(self, path=None):
        """What it has come to; in the file `path`, too, if one is given, when all ranks have ended."""
        psd.synchronize()
        end = self.checkpoint()
        if path is not None and self.rank == 0:
            torch.save(end, path)
        psd.shutdown()
        return end


def trained(case, update):
    training = Training(case, update=update)
    losses = training.run(0, ITERATIONS)
    return losses, training.end()


def resumed(case, out):
    """Half of the training, and a second job that goes on from the first one's checkpoint."""
    training = Training(case, update="server")
    losses = training.run(0, ITERATIONS // 2)
    path = out / f"{case.name}.pt"
    training.end(path)
    next_job()
    training = Training(case, update="server", checkpoint=torch.load(path))
    losses = torch.cat([losses, training.run(ITERATIONS // 2, ITERATIONS)])
    return losses, training.end()


def next_job():
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)


def flat(state):
    """Its tensors, in a row."""
    if isinstance(state, torch.Tensor):
        return [state]
    values = state.values() if isinstance(state, dict) else state
    return [
        one
        for value in values
        if isinstance(value, (dict, list, torch.Tensor))
        for one in flat(value)
    ]


def shape_of(state):
    """Its keys and sizes."""
    if isinstance(state, dict):
        return {key: shape_of(value) for key, value in state.items()}
    return tuple(state.shape) if isinstance(state, torch.Tensor) else type(state)


def same(one, other):
    return all(a.equal(b) for a, b in zip(flat(one), flat(other)))


def check(case):
    ours, end = trained(case, "server")
    next_job()
    theirs, their_end = trained(case, "worker")
    next_job()
    plain = Training(case).run(0, ITERATIONS)
    moved = Training(case, move_by_one_ulp).run(0, ITERATIONS)
    bound = bound_of(moved, plain)
    off, apart = difference(ours, plain), difference(ours, theirs)
    said = (
        f"{case.name}: off {off:.1e} from one process, {apart:.1e} from updates by workers (bound {bound:.1e}), "
        f"loss {ours[0]:.3f} -> {ours[-1]:.3f}"
    )
    print(said, flush=True)
    assert off <= bound and apart <= bound, said
    assert ours[-1] < 0.9 * ours[0], f"{said}: nothing was learned"
    if case.same_bits:
        assert torch.equal(ours, theirs) and same(end["model"], their_end["model"]), said
    if end["optimizer"] is not None:
        assert shape_of(end["optimizer"]) == shape_of(their_end["optimizer"]), (
            shape_of(end["optimizer"]),
            shape_of(their_end["optimizer"]),
        )
        if case.same_bits:
            assert same(end["optimizer"], their_end["optimizer"]), said
    return ours, end


def check_resumed(case, whole, out):
    losses, end = resumed(case, out)
    next_job()
    assert torch.equal(losses, whole[0]), f"{case.name}: {difference(losses, whole[0])} off"
    assert same(end["model"], whole[1]["model"])
    print(f"{case.name}: goes on as if it had not ended", flush=True)


def disagree(out):
    psd.init(out=out)
    model = Perceptron()
    optimizer = psd.distribute(model, plain_sgd(model), update="server")
    for iteration in range(10):
        if iteration == 5 and psd.rank() == 1:
            optimizer.param_groups[0]["lr"] = 0.125
        optimizer.zero_grad()
        model(torch.ones(2, 32)).square().sum().backward()
        optimizer.step()


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    if sys.argv[2:] == ["disagree"]:
        return disagree(sys.argv[1])
    out = pathlib.Path(sys.argv[1])
    tempfile.tempdir = str(out)  # for the jobs' logs
    for case in CASES + (OTHERS if sys.argv[2:] == ["others"] else []):
        whole = check(case)
        if case in (FORWARD, DAMPENED, ADAMW):
            check_resumed(case, whole, out)
    print("equal", flush=True)


main()
