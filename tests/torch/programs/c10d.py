"""PyTorch's own ways to train on several ranks, with this project's backend and with gloo.

    c10d.py OUT [others]    with others for longer; says how long an all-reduce takes, too
"""

import contextlib
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from poseidon_torch import c10d
from poseidon_torch._communicator import Communicator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from ddp_tutorial import demo_basic, demo_checkpoint
from models import WidePerceptron, bound_of, data_of, difference, loss_of, move_by_one_ulp

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:  # before PyTorch 2.6
    fully_shard = None

OTHERS = sys.argv[2:] == ["others"]
ITERATIONS = 20 if OTHERS else 10
WIDE = 20_000  # outputs, so that a vector of them is more than 64 KiB


def train(model, rank: int, ranks: int):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs, targets = data_of(WidePerceptron, 64)
    losses = []
    for _ in range(ITERATIONS):
        optimizer.zero_grad()
        loss = loss_of(model(inputs[rank::ranks]), targets[rank::ranks])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def fresh():
    torch.manual_seed(3)
    return WidePerceptron()


def train_by_power_sgd(rank: int, ranks: int, change=lambda model: model):
    """Its hook waits for all-reduces in the callback of another one. The factors, too, go to the Communicator."""
    torch.manual_seed(3)
    model = DistributedDataParallel(change(torch.nn.Linear(4, WIDE)))
    state = powerSGD_hook.PowerSGDState(process_group=None, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=10.0)
    inputs = torch.randn(64, 4)
    targets = inputs @ torch.randn(4, WIDE)
    losses = []
    for _ in range(ITERATIONS):
        optimizer.zero_grad()
        loss = (model(inputs[rank::ranks]) - targets[rank::ranks]).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def trainings(rank: int, ranks: int) -> dict:
    """Losses, by what trains."""
    losses = {
        "DDP": train(DistributedDataParallel(fresh()), rank, ranks),
        "a tutorial's DDP": demo_basic(rank, ranks),
        "a checkpoint of DDP's": demo_checkpoint(rank, pathlib.Path(sys.argv[1])),
        "DDP with PowerSGD": train_by_power_sgd(rank, ranks),
    }
    if fully_shard is not None:
        losses["FSDP2"] = train(fully_shard(fresh()), rank, ranks)
    return losses


def moved_trainings(rank: int, ranks: int) -> dict:
    """The same from values that are one unit in the last place away."""
    ddp = train(DistributedDataParallel(move_by_one_ulp(fresh())), rank, ranks)
    folder = pathlib.Path(sys.argv[1])
    return {
        "DDP": ddp,
        "a tutorial's DDP": demo_basic(rank, ranks, move_by_one_ulp),
        "a checkpoint of DDP's": demo_checkpoint(rank, folder, move_by_one_ulp),
        "DDP with PowerSGD": train_by_power_sgd(rank, ranks, move_by_one_ulp),
        "FSDP2": ddp,
    }


@contextlib.contextmanager
def expect_own_all_reduces(count: int):
    """That the Communicator, not gloo, carries out so many."""
    sizes = []
    whole = Communicator.all_reduce

    def counted(self, address, size, *options):
        sizes.append(size)
        whole(self, address, size, *options)

    Communicator.all_reduce = counted
    yield
    Communicator.all_reduce = whole
    assert len(sizes) == count, f"the Communicator has carried out {len(sizes)}, of {sizes} floats"


def check_sums(rank: int, ranks: int) -> None:
    random = torch.Generator().manual_seed(1)
    for size in (1, 1000, 16384, 100_003, 1_000_000):
        blocks = torch.randint(0, 100, (ranks, size), generator=random).float()
        for operation, expected in (
            (dist.ReduceOp.SUM, blocks.sum(0)),
            (dist.ReduceOp.AVG, blocks.sum(0) / ranks),
        ):
            if operation == dist.ReduceOp.AVG and size < 16384:
                continue  # gloo's own affair, which refuses it
            mine = blocks[rank].clone()
            dist.all_reduce(mine, operation)
            assert mine.equal(expected), f"{size} floats, {operation}"  # whole numbers: exact
    largest = torch.full((100_000,), float(rank))
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    assert largest.eq(ranks - 1).all()
    columns = torch.full((400, 300), float(rank)).t()  # not contiguous
    dist.all_reduce(columns)
    assert columns.eq(ranks * (ranks - 1) / 2).all()
    several = [torch.full((50_000,), float(rank + i)) for i in range(5)]
    for work in [dist.all_reduce(one, async_op=True) for one in several]:
        work.wait()
    for i, one in enumerate(several):
        assert one.eq(ranks * (ranks - 1) / 2 + ranks * i).all()
    dist.barrier()


def check_numbers_apart(rank: int, ranks: int) -> None:
    """Of what gloo carries out: tensors that have others' numbers between their own."""

    def among(value: float):
        whole = torch.full((10, 2), -1.0)
        whole[:, 0] = value
        return whole, whole[:, 0]

    def expect(what: str, whole: torch.Tensor, value: float) -> None:
        assert whole[:, 0].eq(value).all() and whole[:, 1].eq(-1).all(), f"{what}: {whole}"

    total = ranks * (ranks - 1) / 2
    whole, column = among(rank)
    dist.all_reduce(column)
    expect("all_reduce", whole, total)
    whole, column = among(rank)
    later, other = among(rank + 1)
    works = [dist.all_reduce(one, dist.ReduceOp.MAX, async_op=True) for one in (column, other)]
    for work in works:
        work.wait()
    expect("all_reduce", whole, ranks - 1)
    expect("all_reduce", later, ranks)
    whole, column = among(4 if rank == 0 else -2)
    dist.broadcast(torch.full((10,), 4.0) if rank == 0 else column, 0)
    expect("broadcast", whole, 4)
    whole, column = among(rank)
    dist.reduce(column, 0)
    if rank == 0:
        expect("reduce", whole, total)
    whole, column = among(-2)
    dist.scatter(column, [among(to)[1] for to in range(ranks)] if rank == 0 else None, 0)
    expect("scatter", whole, rank)
    whole, column = among(-2)
    dist.all_to_all_single(column[:ranks], torch.full((ranks,), float(rank)))
    assert column[:ranks].tolist() == list(range(ranks)) and whole[:, 1].eq(-1).all(), whole


def check_calls_in_callbacks(rank: int, ranks: int) -> None:
    """Each waits for one more all-reduce, in a future's callback, behind which others are waiting."""

    def call(size: int):
        return dist.all_reduce(torch.full((size,), float(rank)), async_op=True).get_future()

    def call_and_wait(future):
        asynchronous = call(30_000).wait()[0]
        synchronous = torch.full((20_000,), float(rank))
        dist.all_reduce(synchronous)
        return [future.value()[0][0], asynchronous[0], synchronous[0]]

    first = call(4_000_000)  # so long that the callback is known before the next one begins
    nested = call(100_000).then(call_and_wait)
    last = call(50_000)
    sums = [*nested.wait(), first.wait()[0][0], last.wait()[0][0]]
    assert sums == [ranks * (ranks - 1) / 2] * 5, sums


def check_batch_of_neighbors(rank: int, ranks: int) -> None:
    mine, theirs = torch.full((100_000,), float(rank)), torch.empty(100_000)
    operations = [
        dist.P2POp(dist.isend, mine, (rank + 1) % ranks),
        dist.P2POp(dist.irecv, theirs, (rank - 1) % ranks),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert theirs.eq((rank - 1) % ranks).all()


def seconds_of(call, times: int = 9) -> float:
    taken = []
    for _ in range(times):
        dist.barrier()
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return sorted(taken)[times // 2]


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group(c10d.NAME)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    # Sums and means of three sizes, a transposed matrix, five tensors at once.
    with expect_own_all_reduces(2 * 3 + 1 + 5):
        check_sums(rank, ranks)
    with expect_own_all_reduces(5):
        check_calls_in_callbacks(rank, ranks)
    check_batch_of_neighbors(rank, ranks)
    with expect_own_all_reduces(0):
        check_numbers_apart(rank, ranks)
    ours = trainings(rank, ranks)
    floats = torch.ones(4_000_000)
    own = seconds_of(lambda: dist.all_reduce(floats)) if OTHERS else None
    dist.destroy_process_group()
    # A store of its own, since the one before may still be closing.
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    dist.init_process_group("gloo")
    theirs = trainings(rank, ranks)
    gloo = seconds_of(lambda: dist.all_reduce(floats)) if OTHERS else None
    moved = moved_trainings(rank, ranks)
    # The group of gloo's stays: PyTorch 2.1 sometimes waits for ever when it is destroyed.
    for what, losses in ours.items():
        off, bound = difference(losses, theirs[what]), bound_of(moved[what], theirs[what])
        print(f"{what}: off gloo {off:.1e} (bound {bound:.1e})")
        assert off <= bound, f"{what}: {losses}, by gloo {theirs[what]}"
        assert losses[-1] < losses[0], f"{what}: nothing was learned"
    if OTHERS:
        print(f"16 MB: {1000 * own:.1f} ms, gloo {1000 * gloo:.1f} ms")
    print("equal")


main()
