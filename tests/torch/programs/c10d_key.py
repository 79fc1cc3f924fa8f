"""The backend "poseidon" with a key: who has it is a rank, in groups of some of the ranks, too; who has not is none."""

import datetime
import os
import sys

import torch
import torch.distributed as dist

from poseidon_torch import PoseidonError, c10d

FLOATS = 100_000


def expect_sum(group, ranks: list) -> None:
    floats = torch.full((FLOATS,), float(dist.get_rank()))
    dist.all_reduce(floats, group=group)
    assert floats.eq(sum(ranks)).all(), floats


def join(options: c10d.Options, seconds: int) -> None:
    # A store of its own, since the one before may still be closing.
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    timeout = datetime.timedelta(seconds=seconds)
    dist.init_process_group(c10d.NAME, timeout=timeout, pg_options=options)


def main() -> None:
    torch.set_num_threads(1)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    key = c10d.Options(key_file=sys.argv[2])
    join(key, seconds=100)
    expect_sum(dist.group.WORLD, list(range(ranks)))
    some = dist.new_group([0, 1])
    if rank < 2:
        assert some.poseidon_options == key, "a group of some ranks is more open than all"
        expect_sum(some, [0, 1])
    dist.destroy_process_group()
    try:
        join(key if rank > 0 else c10d.Options(), seconds=10)
        expect_sum(dist.group.WORLD, list(range(ranks)))
    except PoseidonError as error:
        print(error)
    else:
        raise AssertionError("a rank without the key has taken part")
    print("kept out", flush=True)
    os._exit(0)  # half a process group is left, whose end would wait for the others


main()
