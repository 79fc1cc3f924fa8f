"""Trains nets by poseidon_torch, by DistributedDataParallel over gloo and, where the mean over the
workers' batches is that of the whole batch, by plain PyTorch; rank 0 compares.

    equal_training.py OUT DEVICE [others]    on DEVICE, which all ranks share; a few nets, or others, too, for longer
"""

import contextlib
import dataclasses
import hashlib
import pathlib
import sys
import time
from typing import Callable, List
from unittest import mock

import torch
import torch.distributed as dist

import poseidon_torch as psd
from poseidon_torch._device_copies import DeviceCopies
from poseidon_torch._exchange import Exchange

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from models import (
    ConvolutionalNet,
    Perceptron,
    Transformer,
    WidePerceptron,
    bound_of,
    data_of,
    difference,
    loss_of,
    move_by_one_ulp,
)

ITERATIONS = 24
SHORT = 12  # where no layer times are awaited
# By when the layers' times have been measured, which the scheduler makes another plan by.
MEASURED = 20
PATIENCE = 60  # seconds
SAMPLES = 64  # of the whole batch
OTHER_CASES = sys.argv[3:] == ["others"]
DEVICE = torch.device(sys.argv[2])


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-4)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.1)


@dataclasses.dataclass(frozen=True)
class Case:
    """A training; `passes`: backward passes an iteration, of which all but the last are no_sync."""

    name: str
    model: Callable[[], torch.nn.Module]
    optimizer: Callable
    overlap: str = "backward"
    passes: int = 1
    clip: float = 0.0
    bfloat16: bool = False
    options: tuple = ()
    factors: bool = False
    as_device: bool = False  # gradients go the ways of a GPU's, to memory that the program makes

    @property
    def iterations(self) -> int:
        return SHORT if self.options and not OTHER_CASES else ITERATIONS


# With times that were measured factors may not pay.
BYTES = (("policy", "BYTES"),)

CASES = [
    Case("perceptron, AdamW, ring", Perceptron, adamw, options=(("policy", "ALL_RING"),)),
    Case("perceptron, SGD, forward overlap", Perceptron, sgd, overlap="forward"),
    Case("wide perceptron, SGD, factors", WidePerceptron, sgd, options=BYTES, factors=True),
    Case(
        "wide perceptron, AdamW, factors, forward overlap",
        WidePerceptron,
        adamw,
        "forward",
        options=BYTES,
        factors=True,
        as_device=True,
    ),
    Case("convolutions with BatchNorm, SGD", ConvolutionalNet, sgd),
    Case("transformer, SGD, passes, clipping", Transformer, sgd, passes=2, clip=0.1),
    Case("transformer, AdamW, bfloat16", Transformer, adamw, bfloat16=True),
]
OTHERS = [
    Case("perceptron, SGD", Perceptron, sgd, as_device=True),
    Case("convolutions with BatchNorm, AdamW, forward overlap", ConvolutionalNet, adamw, "forward"),
    Case("transformer, AdamW", Transformer, adamw, options=(("bucket_bytes", 0),)),
    Case("transformer, AdamW, forward overlap, passes", Transformer, adamw, "forward", passes=2),
]


def batches(case: Case, iteration: int, rank: int, ranks: int):
    """The rank's passes of the iteration."""
    inputs, targets = (data.to(DEVICE) for data in data_of(case.model, 4 * SAMPLES))
    first = iteration % 4 * SAMPLES
    rows = torch.arange(first + rank, first + SAMPLES, ranks)
    for part in rows.chunk(case.passes):
        yield inputs[part], targets[part]


def train(case, model, optimizer, rank, ranks, no_sync, midway=None) -> List[float]:
    """The losses of the whole batch, as rank `rank` of `ranks` sees its part of it; calls `midway` when the
    layers' times have been measured."""
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.7)
    losses = []
    for iteration in range(case.iterations):
        if midway and iteration == MEASURED:
            midway()
        optimizer.zero_grad()
        loss = 0.0
        parts = list(batches(case, iteration, rank, ranks))
        for number, (inputs, targets) in enumerate(parts):
            last = number + 1 == len(parts)
            with contextlib.nullcontext() if last else no_sync():
                with torch.autocast(DEVICE.type, torch.bfloat16, enabled=case.bfloat16):
                    outputs = model(inputs)
                part = loss_of(outputs, targets) / len(parts)
                part.backward()
            loss += part.item()
        if case.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), case.clip)
        optimizer.step()
        schedule.step()
        losses.append(loss)
    return losses


def mean_over_ranks(losses: List[float]) -> torch.Tensor:
    mean = torch.tensor(losses, dtype=torch.float64)
    dist.all_reduce(mean)
    return mean / dist.get_world_size()


def fresh(case: Case, seed: int = 3):
    torch.manual_seed(seed)
    model = case.model().to(DEVICE)
    return model, case.optimizer(model.parameters())


@contextlib.contextmanager
def as_device():
    """Parameters on the processor are exchanged as if they were on a GPU; yields the blocks of memory made."""
    made = []

    def block(size: int) -> torch.Tensor:
        made.append(torch.zeros(size, dtype=torch.uint8))
        return made[-1]

    with (
        mock.patch("poseidon_torch._device_copies.DeviceCopies.of", lambda _: DeviceCopies()),
        mock.patch.dict(Exchange.__init__.__globals__, {"pinned_block": block}),
    ):
        yield made


def by_poseidon(case: Case, out: pathlib.Path, number: int):
    psd.init(out=str(out / f"job-{number}"))
    # Other first values than rank 0's, which are to become everybody's.
    model, optimizer = fresh(case, seed=3 + psd.rank())
    names = list(model.state_dict())
    example = next(batches(case, 0, psd.rank(), psd.size()))[0] if case.factors else None
    with as_device() if case.as_device else contextlib.nullcontext([]) as made:
        optimizer = psd.distribute(
            model, optimizer, example=example, overlap=case.overlap, **dict(case.options)
        )
    expected = "SFB" if case.factors else "" if case.options else "with measured layer times"
    log = out / f"job-{number}/scheduler.log"

    def midway():
        """The training is not over before the scheduler has planned, which takes its time."""
        deadline = time.monotonic() + PATIENCE
        while expected not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.01)

    losses = train(
        case,
        model,
        optimizer,
        psd.rank(),
        psd.size(),
        psd.no_sync,
        midway if dist.get_rank() == 0 else None,
    )
    state = {name: value.clone() for name, value in model.state_dict().items()}
    assert list(state) == names, "the names in state_dict have changed"
    session = psd._process.session
    if case.as_device:
        assert set(session._blocks._kept) == {block.data_ptr() for block in made[-1:]}, "not there"
    psd.shutdown()
    assert not session._blocks._kept, "memory was not given back"
    if dist.get_rank() == 0:
        said = log.read_text()
        assert expected in said, f"{case.name}: {expected} is not what happened\n{said}"
    return mean_over_ranks(losses), state


def by_ddp(case: Case):
    model, optimizer = fresh(case)
    # Its batch norms' statistics are each rank's own here, as ours are.
    ddp = torch.nn.parallel.DistributedDataParallel(
        model,
        find_unused_parameters=case.model is Transformer,
        broadcast_buffers=False,
    )
    return mean_over_ranks(
        train(case, ddp, optimizer, dist.get_rank(), dist.get_world_size(), ddp.no_sync)
    )


def plainly(case: Case, ulp: bool = False) -> torch.Tensor:
    model, optimizer = fresh(case)
    if ulp:
        move_by_one_ulp(model)
    losses = train(case, model, optimizer, 0, 1, contextlib.nullcontext)
    return torch.tensor(losses, dtype=torch.float64)


def of_one_process(case: Case):
    """Losses, and those from values that are one unit in the last place away; on all ranks, of which two train."""
    losses = [None] * dist.get_world_size()
    rank = dist.get_rank()
    dist.all_gather_object(losses, plainly(case, ulp=rank == 1) if rank < 2 else None)
    return losses[:2]


def hash_of(state: dict, without: tuple) -> str:
    digest = hashlib.sha256()
    for name, value in state.items():
        if not name.endswith(without):
            digest.update(value.cpu().numpy().tobytes())
    return digest.hexdigest()


def check(case: Case, out: pathlib.Path, number: int) -> None:
    ours, state = by_poseidon(case, out, number)
    hashes = [None] * dist.get_world_size()
    # Statistics are each worker's own.
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    dist.all_gather_object(hashes, hash_of(state, statistics))
    assert len(set(hashes)) == 1, f"{case.name}: the ranks' parameters differ"
    ddp = by_ddp(case)
    plain, moved = of_one_process(case)
    bound = bound_of(moved, plain)
    found = {"DDP": difference(ours, ddp)}
    if case.model is not ConvolutionalNet:
        found["one process"] = difference(ours, plain)
    said = ", ".join(f"{name} {value:.1e}" for name, value in found.items())
    if dist.get_rank() == 0:
        fell = f"loss {plain[0]:.3f} -> {ours[-1]:.3f}"
        print(f"{case.name}: off {said} (bound {bound:.1e}), {fell}", flush=True)
    assert max(found.values()) <= bound, f"{case.name}: off {said}, bound {bound:.1e}"
    assert ours[-4:].mean() < 0.99 * ours[:4].mean(), f"{case.name}: nothing was learned"
    # Plain PyTorch goes on from what was saved.
    model, _ = fresh(case, seed=9)
    model.load_state_dict(state)


def main() -> None:
    torch.set_num_threads(1)
    # Convolutions in all bits of a float, which is what one unit in the last place is about.
    torch.backends.cudnn.allow_tf32 = False
    out = pathlib.Path(sys.argv[1])
    dist.init_process_group("gloo")
    for number, case in enumerate(CASES + OTHERS if OTHER_CASES else CASES):
        check(case, out, number)
    dist.destroy_process_group()
    print("equal", flush=True)


main()
