"""Groups that are destroyed leave no threads, descriptors or tensors, and who has none any more is missed at once."""

import gc
import os
import time
import weakref

import torch
import torch.distributed as dist

from poseidon_torch import PoseidonError, c10d

GROUPS = 6
FLOATS = 100_000


def held() -> tuple:
    """Descriptors and threads."""
    return tuple(len(os.listdir(f"/proc/self/{kind}")) for kind in ("fd", "task"))


def use_a_group() -> None:
    group = dist.new_group(backend=c10d.NAME)
    ones = torch.ones(FLOATS)
    dist.all_reduce(ones, group=group, async_op=True).wait()
    assert ones.eq(dist.get_world_size()).all()
    dist.all_reduce(ones, group=group)
    dist.destroy_process_group(group)


def check_nothing_is_left() -> None:
    use_a_group()  # what only the first one opens
    before = held()
    for _ in range(GROUPS):
        use_a_group()
    end = time.monotonic() + 60
    # Less than one for each group; gloo's threads end when they like.
    while any(now >= old + GROUPS for now, old in zip(held(), before)):
        assert time.monotonic() < end, f"descriptors and threads: {before}, then {held()}"
        time.sleep(0.05)
    print(f"descriptors and threads: {before}, then {held()}")


def check_tensor_goes() -> None:
    ones = torch.ones(FLOATS)
    gone = weakref.ref(ones)
    dist.all_reduce(ones, async_op=True).wait()
    del ones
    end = time.monotonic() + 60
    while gone() is not None:
        assert time.monotonic() < end, gc.get_referrers(gone())
        time.sleep(0.01)


def miss_rank_1() -> None:
    dist.barrier()
    if dist.get_rank() == 1:
        dist.destroy_process_group()
        time.sleep(600)
    begin = time.monotonic()
    try:
        dist.all_reduce(torch.ones(FLOATS))
    except PoseidonError as error:
        print(f"missed after {time.monotonic() - begin:.1f} s: {error}")


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group(c10d.NAME)
    check_nothing_is_left()
    check_tensor_goes()
    miss_rank_1()


main()
