#!/usr/bin/env python3
"""What an all-reduce by torch.distributed's backend "poseidon" takes beside the Communicator that carries it out, and
beside gloo, in turns.

    torchrun --nproc-per-node=4 tests/bench/torch/c10d.py

An all-reduce takes as long as its slowest rank. Aim: the backend within 5 % of the Communicator (of the medians)."""

import argparse
import datetime
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "python"))

from poseidon_torch import c10d
from poseidon_torch._communicator import Communicator

AIM = 1.05
DEADLINE_SECONDS = 60


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=41, help="of each way; the default is 41")
    parser.add_argument(
        "--kilobytes", type=int, nargs="+", default=[64, 1024, 4096, 16384], help="of a tensor"
    )
    options = parser.parse_args()
    if options.rounds < 1 or min(options.kilobytes) < 64:
        parser.error("--rounds must be at least 1, --kilobytes at least 64: less goes to gloo")
    return options


def communicator_of(rank: int, ranks: int) -> Communicator:
    """One beside that of the backend."""
    endpoints = c10d._endpoints(
        dist.PrefixStore("bench", dist.distributed_c10d._get_default_store()), rank, ranks
    )
    return Communicator(rank, endpoints, deadline_seconds=DEADLINE_SECONDS)


def milliseconds(call, tensor: torch.Tensor, expected: float, gloo: dist.ProcessGroup) -> float:
    """Of one call, on the slowest rank; checks what it computes."""
    tensor.fill_(1.0)
    dist.barrier(gloo)
    begin = time.perf_counter()
    call(tensor)
    taken = torch.tensor([1e3 * (time.perf_counter() - begin)], dtype=torch.float64)
    dist.all_reduce(taken, dist.ReduceOp.MAX, gloo)
    assert tensor[0] == expected and tensor[-1] == expected, f"{tensor} should be {expected}"
    return taken.item()


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    dist.init_process_group(c10d.NAME, timeout=datetime.timedelta(seconds=DEADLINE_SECONDS))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    gloo = dist.new_group(backend="gloo")
    communicator = communicator_of(rank, ranks)
    ways = {
        "Communicator": lambda tensor: communicator.all_reduce(tensor.data_ptr(), tensor.numel()),
        "backend": dist.all_reduce,
        "gloo": lambda tensor: dist.all_reduce(tensor, group=gloo),
    }
    if rank == 0:
        print(f"{ranks} ranks, medians of {options.rounds} (least to most), ms")
        print("    KiB  " + "  ".join(f"{way:24}" for way in ways) + "backend / Communicator")
    for kilobytes in options.kilobytes:
        tensor = torch.empty(kilobytes * 256)
        times = {way: [] for way in ways}
        for _ in range(options.rounds + 2):
            for way, call in ways.items():
                times[way].append(milliseconds(call, tensor, float(ranks), gloo))
        if rank == 0:
            kept = {way: one[2:] for way, one in times.items()}  # the first ones connect
            medians = {way: statistics.median(one) for way, one in kept.items()}
            cells = [
                f"{medians[way]:.2f} ({min(one):.2f} to {max(one):.2f})"
                for way, one in kept.items()
            ]
            ratio = medians["backend"] / medians["Communicator"]
            met = "met" if ratio <= AIM else f"aim {AIM} missed"
            print(
                f"{kilobytes:7}  "
                + "  ".join(f"{cell:24}" for cell in cells)
                + f"{ratio:.2f}, {met}"
            )
    communicator.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
