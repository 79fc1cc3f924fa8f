"""A training that is started by `poseidon run`, and may be started again in the place of a process that was lost; or, with
the same options, as torchrun does.

    recovering.py run OVERLAP ITERATIONS [UPDATE]    by `poseidon run`
    recovering.py OUT OVERLAP ITERATIONS             as torchrun does
"""

import os
import sys
import time
import pathlib

import torch

import poseidon_torch as psd

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from models import ConvolutionalNet, loss_of

SHOWN = 10  # iterations from one line to the next
SAMPLES = 8


def data_of_iteration(rank: int, iteration: int):
    """What a sampler would read; only of these two."""
    generator = torch.Generator().manual_seed(1000 * iteration + rank)
    images = torch.randn(SAMPLES, 1, 8, 8, generator=generator)
    return images, images.flatten(1)[:, :10].argmax(1)


def main() -> None:
    out = sys.argv[1] if sys.argv[1] != "run" else None
    overlap, iterations = sys.argv[2], int(sys.argv[3])
    update = sys.argv[4] if len(sys.argv) > 4 else "server"
    torch.set_num_threads(1)
    torch.manual_seed(1)
    psd.init(out=out)
    model = ConvolutionalNet()
    # As an average of other parameters: no worker's optimizer learns it, and it changes all the same.
    model.counted = torch.nn.Parameter(torch.zeros(()), requires_grad=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.8)
    # As the job's config has them, where there is one.
    options = {"policy": "ALL_PS", "deterministic": True, "servers": 2} if out else {}
    psd.distribute(model, optimizer, overlap=overlap, update=update, **options)
    print(f"rank {psd.rank()} is process {os.getpid()} at iteration {psd.iteration()}", flush=True)
    for _ in range(psd.iteration()):
        scheduler.step()
    for iteration in range(psd.iteration(), iterations):
        if iteration % SHOWN == 0:
            print("iteration", iteration, flush=True)
        images, targets = data_of_iteration(psd.rank(), iteration)
        loss = loss_of(model(images), targets)
        model.counted.add_(1)
        psd.report(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        time.sleep(0.02)  # so that the others have not ended when another process is there
    steps = None
    if psd.rank() == 0:
        steps = {int(state["step"]) for state in optimizer.state_dict()["state"].values()}
    seen = [int(buffer) for name, buffer in model.named_buffers() if "num_batches" in name]
    seen.append(int(model.counted))
    psd.shutdown()
    print("steps", steps, "batches", seen, flush=True)


main()
