"""Rank 1 has ended its process group, and rank 0 makes one more call, as its last argument says, which is to fail.

    c10d_ended.py OUT [work | ddp | handler]    handler: while rank 1 waits in that call, and rank 0 for OUT/ended
"""

import datetime
import os
import pathlib
import signal
import sys
import time
import types

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from poseidon_torch import DeadlineExceeded, PoseidonError, c10d

FLOATS = 100_000


def pending() -> dist.Work:
    return dist.all_reduce(torch.ones(FLOATS), async_op=True)


def check_timeout() -> None:
    """A call that rank 1 makes only when rank 0 has lost its patience."""
    if dist.get_rank() == 1:
        dist.barrier()
    work = pending()
    if dist.get_rank() == 0:
        try:
            work.wait(datetime.timedelta(seconds=0.1))
        except DeadlineExceeded as error:
            assert "all-reduce" in str(error), error
            assert not work.is_completed()
        else:
            raise AssertionError("rank 0 has waited for longer than it was to")
        dist.barrier()
    assert work.wait() and work.is_completed() and work.is_success()
    (sums,) = work.get_future().wait()
    assert sums.eq(2).all() and work.result()[0].eq(2).all()


def fail_to_wait() -> None:
    check_timeout()
    end_rank_1()
    work = pending()
    try:
        work.wait()
    except PoseidonError:
        assert work.is_completed() and not work.is_success()
        try:
            work.get_future().then(lambda future: future.value()).wait()
        except RuntimeError as error:
            assert "rank 1" in str(error), error
        else:
            raise AssertionError("the future has no error") from None
        raise


def fail_in_ddp() -> None:
    model = DistributedDataParallel(torch.nn.Linear(FLOATS, 1))
    for _ in range(2):  # between these DDP makes calls of its own
        model(torch.ones(1, FLOATS)).sum().backward()
    end_rank_1()
    model(torch.ones(1, FLOATS)).sum().backward()


def end(*_) -> None:
    dist.destroy_process_group()
    sys.exit()


def fail_by_a_handler() -> None:
    if dist.get_rank() == 1:
        signal.signal(signal.SIGTERM, end)
        # As soon as the call waits, which Python runs the handler in the midst of.
        calls = dist.GroupMember.WORLD._communicator._call
        calls._watch = lambda: os.kill(os.getpid(), signal.SIGTERM)
    while dist.get_rank() == 0 and not (pathlib.Path(sys.argv[1]) / "ended").exists():
        time.sleep(0.02)
    # As dist.all_reduce calls it where nobody asks for async_op, which older versions of PyTorch do not say.
    synchronous = types.SimpleNamespace(asyncOp=False, reduceOp=dist.ReduceOp.SUM)
    dist.GroupMember.WORLD.allreduce([torch.ones(FLOATS)], synchronous)


def end_rank_1() -> None:
    if dist.get_rank() == 1:
        end()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group(c10d.NAME)
    {"work": fail_to_wait, "ddp": fail_in_ddp, "handler": fail_by_a_handler}[sys.argv[2]]()


main()
