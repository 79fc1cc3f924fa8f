#!/usr/bin/env python3
"""Recognizes handwritten digits of 8 x 8 pixels, by a perceptron or a small convolutional net.

    torchrun --nproc-per-node=4 python/examples/digits.py          # four processes, by poseidon_torch
    torchrun --nproc-per-node=4 python/examples/digits.py --ddp    # by DistributedDataParallel and gloo
    python3 python/examples/digits.py --plain                      # one process, the whole batch

All three are the same training, and come to the same accuracy. What makes a plain program one of many
processes are the three places marked "1.", "2." and "3."; the loop between them stays as it is.
"""

import argparse
import csv
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "python"))  # where the package is, unless it is installed

import poseidon_torch as psd

TRAINING_IMAGES = 1500  # of 1797; the others are for the test


def perceptron():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 128),
        nn.ReLU(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def convolutional_net():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


NETS = {"mlp": perceptron, "cnn": convolutional_net}


def digits(path):
    """Images, n x 1 x 8 x 8 from 0 to 1, and what they show."""
    with open(path, newline="", encoding="ascii") as file:
        rows = torch.tensor([[int(word) for word in line] for line in csv.reader(file)])
    return rows[:, :64].view(-1, 1, 8, 8) / 16, rows[:, 64]


def parse(words):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--plain", action="store_true", help="one process")
    way.add_argument("--ddp", action="store_true", help="DistributedDataParallel over gloo")
    parser.add_argument("--net", choices=NETS, default="mlp", help="the default is mlp")
    parser.add_argument("--epochs", type=int, default=10, help="the default is 10")
    parser.add_argument("--batch", type=int, default=60, help="images of all processes; 60")
    parser.add_argument("--rate", type=float, default=0.1, help="learning rate; 0.1")
    parser.add_argument("--data", default=ROOT / "configs/data/digits.csv", help="64 pixels, digit")
    options = parser.parse_args(words)
    processes = int(os.environ.get("WORLD_SIZE", "1"))  # as torchrun says
    if options.plain and processes > 1:
        parser.error("--plain is for one process; start it by python3, not by torchrun")
    if options.epochs < 1 or options.batch < 1:
        parser.error("--epochs and --batch must be at least 1")
    if options.batch % processes:
        parser.error(f"--batch={options.batch} can't be shared evenly by {processes} processes")
    return options


def main(words=None):
    """Returns process 0's losses in the tests after each epoch; the others' are empty."""
    options = parse(words)

    # 1. Which of how many processes this is.
    if options.plain:
        rank, size = 0, 1
    elif options.ddp:
        dist.init_process_group("gloo")
        rank, size = dist.get_rank(), dist.get_world_size()
    else:
        psd.init()
        rank, size = psd.rank(), psd.size()

    images, labels = digits(options.data)
    dataset = TensorDataset(images[:TRAINING_IMAGES], labels[:TRAINING_IMAGES])
    # Each process sees every size-th image of the same shuffled sequence, so that all of them together
    # see the batches that one alone would.
    sampler = DistributedSampler(dataset, size, rank, drop_last=True)
    loader = DataLoader(dataset, options.batch // size, sampler=sampler, drop_last=True)

    torch.manual_seed(1)
    model = NETS[options.net]()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=0.9)

    # 2. From here on backward() ends with the mean of all processes' gradients.
    train = model
    if options.ddp:
        train = DistributedDataParallel(model)
    elif not options.plain:
        optimizer = psd.distribute(model, optimizer, batch_size=options.batch // size)

    losses = []
    seconds, seen = 0.0, 0
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        begin = time.perf_counter()
        for batch, targets in loader:
            optimizer.zero_grad()
            F.cross_entropy(train(batch), targets).backward()
            optimizer.step()
            seen += len(batch) * size
        seconds += time.perf_counter() - begin
        if rank == 0:
            loss, accuracy = test(model, images[TRAINING_IMAGES:], labels[TRAINING_IMAGES:])
            losses.append(loss)
            print(
                f"epoch {epoch + 1}/{options.epochs}  test loss {loss:.4f}  "
                f"accuracy {accuracy:.4f}  {seen / seconds:.0f} images/s",
                flush=True,
            )

    # 3. All processes have finished.
    if options.ddp:
        dist.destroy_process_group()
    elif not options.plain:
        psd.shutdown()

    if rank == 0:
        print(
            f"{options.net}, processes: {size}, accuracy {accuracy:.4f}, test loss {loss:.4f}, "
            f"{seen / seconds:.0f} images/s"
        )
    return losses


@torch.no_grad()
def test(model, images, labels):
    """The mean loss, and the share that is recognized."""
    outputs = model(images)
    accuracy = (outputs.argmax(1) == labels).float().mean()
    return F.cross_entropy(outputs, labels).item(), accuracy.item()


if __name__ == "__main__":
    main()
