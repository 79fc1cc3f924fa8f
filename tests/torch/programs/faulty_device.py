"""A training that copies as with GPUs, in which rank 1 raises an exception in iteration 3.

    faulty_device.py OUT heard    rank 0's thread of copies hears of it, in the middle of a backward pass
    faulty_device.py OUT slow     rank 1's device has ended its copies when there is a file OUT/ended
"""

import pathlib
import sys
import time
from typing import Callable
from unittest import mock

import torch

import poseidon_torch as psd
from poseidon_torch._device_copies import DeviceCopies
from poseidon_torch._exchange import Exchange

OUT = pathlib.Path(sys.argv[1])
PATIENCE = 60.0  # seconds
SAID = "record 4711 is broken"


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done() and time.monotonic() < deadline:
        time.sleep(0.02)


class SlowCopies(DeviceCopies):
    def forget(self) -> None:
        wait_until((OUT / "ended").exists)
        super().forget()


def main() -> None:
    torch.set_num_threads(1)
    psd.init(out=str(OUT))
    fault = sys.argv[2]
    copies = SlowCopies() if fault == "slow" and psd.rank() == 1 else DeviceCopies()
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with (
        mock.patch.object(DeviceCopies, "of", lambda _: copies),
        mock.patch.dict(
            Exchange.__init__.__globals__,
            {"pinned_block": lambda size: torch.zeros(size, dtype=torch.uint8)},
        ),
    ):
        # A bucket a layer, the last of which leaves first.
        psd.distribute(model, optimizer, policy="ALL_PS", bucket_bytes=0, deadline_seconds=8)
    for iteration in range(4):
        middle = model[0](torch.randn(8, 16))
        if iteration == 3:
            if psd.rank() == 1:
                raise ValueError(SAID)
            if fault == "heard":
                wait_until(lambda: SAID in (OUT / "scheduler.log").read_text())
                time.sleep(1)  # for the message to come here; without it this would see less
                middle.register_hook(lambda _: wait_until(lambda: copies._failure is not None))
        optimizer.zero_grad()
        model[1](middle).square().mean().backward()
        optimizer.step()


main()
