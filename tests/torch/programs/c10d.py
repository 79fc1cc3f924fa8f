"""PyTorch's own ways to train on several ranks, with this project's backend and with gloo."""

import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from poseidon_torch import c10d

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from models import WidePerceptron, data_of, loss_of

ITERATIONS = 20


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


def trainings(rank: int, ranks: int):
    """By DDP and by FSDP2: losses."""
    return [
        train(DistributedDataParallel(fresh()), rank, ranks),
        train(fully_shard(fresh()), rank, ranks),
    ]


def check_sums(rank: int, ranks: int) -> None:
    random = torch.Generator().manual_seed(1)
    for size in (1, 1000, 16384, 100_003, 1_000_000):
        blocks = torch.randint(0, 100, (ranks, size), generator=random).float()
        for operation, expected in (
            (dist.ReduceOp.SUM, blocks.sum(0)),
            (dist.ReduceOp.AVG, blocks.mean(0)),
        ):
            if operation == dist.ReduceOp.AVG and size < 16384:
                continue  # gloo's own affair, which refuses it
            mine = blocks[rank].clone()
            dist.all_reduce(mine, operation)
            torch.testing.assert_close(mine, expected)
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
    check_sums(rank, ranks)
    ours = trainings(rank, ranks)
    floats = torch.ones(4_000_000)
    own = seconds_of(lambda: dist.all_reduce(floats))
    dist.destroy_process_group()
    dist.init_process_group("gloo")
    theirs = trainings(rank, ranks)
    gloo = seconds_of(lambda: dist.all_reduce(floats))
    dist.destroy_process_group()
    for mine, other in zip(ours, theirs):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=0)
    print(f"16 MB: {1000 * own:.1f} ms, gloo {1000 * gloo:.1f} ms")
    print("equal")


main()
