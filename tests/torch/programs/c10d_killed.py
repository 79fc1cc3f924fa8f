"""Rank 1 is killed between two all-reduces, and rank 0 waits in the second."""

import os
import signal

import torch
import torch.distributed as dist

from poseidon_torch import c10d

dist.init_process_group(c10d.NAME)
dist.all_reduce(torch.ones(100_000))
if dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.all_reduce(torch.ones(100_000))
