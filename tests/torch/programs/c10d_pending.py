"""Rank 0 fails while an all-reduce that the other rank has not begun is under way."""

import time

import torch
import torch.distributed as dist

from poseidon_torch import c10d

dist.init_process_group(c10d.NAME)
if dist.get_rank() == 0:
    pending = dist.all_reduce(torch.ones(100_000), async_op=True)
    raise ValueError("record 4711 is broken")
time.sleep(600)
