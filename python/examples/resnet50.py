#!/usr/bin/env python3
"""Measures how many images a second ResNet-50 learns, with random ones.

    torchrun --nproc-per-node=2 python/examples/resnet50.py          # two processes, by poseidon_torch
    torchrun --nproc-per-node=2 python/examples/resnet50.py --ddp    # by DistributedDataParallel and gloo
    python3 python/examples/resnet50.py --plain                      # one process

What makes a plain program one of many processes are the three places marked "1.", "2." and "3."; the
loop between them stays as it is. Every process has --batch images of its own, so that more processes
learn more images an iteration. Divide the images a second by those of --plain and by the number of
processes, and you have the efficiency. The net is that of He et al., "Deep residual learning for image
recognition" (CVPR 2016), with the stride in the 3 x 3 convolutions: 25.6 million parameters.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "python"))  # where the package is, unless it is installed

import poseidon_torch as psd

CLASSES = 1000
STAGES = ((1, 3), (2, 4), (4, 6), (8, 3))  # width, in those of the first, and blocks


def convolution(inputs, outputs, kernel, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )


class Bottleneck(nn.Module):
    """Fewer channels, a 3 x 3 convolution, four times as many; added to what came in."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.reduce = convolution(inputs, width, 1)
        self.middle = convolution(width, width, 3, stride)
        self.expand = convolution(width, 4 * width, 1)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != 4 * width:
            self.shortcut = convolution(inputs, 4 * width, 1, stride)

    def forward(self, x):
        y = F.relu(self.reduce(x))
        y = F.relu(self.middle(y))
        return F.relu(self.expand(y) + self.shortcut(x))


class ResNet50(nn.Module):
    """Images of 3 x n x n; `width` is 64 in the published net."""

    def __init__(self, width):
        super().__init__()
        self.first = convolution(3, width, 7, stride=2)
        blocks, inputs = [], width
        for factor, count in STAGES:
            for number in range(count):
                stride = 2 if number == 0 and factor > 1 else 1
                blocks.append(Bottleneck(inputs, factor * width, stride))
                inputs = 4 * factor * width
        self.blocks = nn.Sequential(*blocks)
        self.classes = nn.Linear(inputs, CLASSES)

    def forward(self, images):
        x = F.max_pool2d(F.relu(self.first(images)), 3, stride=2, padding=1)
        return self.classes(self.blocks(x).mean((2, 3)))


def parse(words):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--plain", action="store_true", help="one process")
    way.add_argument("--ddp", action="store_true", help="DistributedDataParallel over gloo")
    parser.add_argument("--iterations", type=int, default=20, help="that are measured; 20")
    parser.add_argument("--warm-up", type=int, default=3, help="iterations before; 3")
    parser.add_argument("--batch", type=int, default=8, help="images of each process; 8")
    parser.add_argument("--image", type=int, default=224, help="an image's side in pixels; 224")
    parser.add_argument("--width", type=int, default=64, help="channels of the first layer; 64")
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cuda" if torch.cuda.is_available() else "cpu",
        help="with cuda each of a machine's processes has the next GPU, in turn",
    )
    options = parser.parse_args(words)
    if options.plain and int(os.environ.get("WORLD_SIZE", "1")) > 1:  # as torchrun says
        parser.error("--plain is for one process; start it by python3, not by torchrun")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device=cuda: PyTorch sees no GPU on this machine")
    if options.batch < 2:
        parser.error("--batch must be at least 2, which BatchNorm needs")
    if min(options.iterations, options.image, options.width) < 1 or options.warm_up < 0:
        parser.error("--iterations, --image and --width must be at least 1, --warm-up at least 0")
    return options


def device_of(kind):
    """This process' own, of those of its machine."""
    if kind == "cpu":
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())


def main(words=None):
    """Returns this process' losses."""
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

    torch.manual_seed(1)
    device = device_of(options.device)
    model = ResNet50(options.width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    torch.manual_seed(2 + rank)  # each process has its own images
    images = torch.randn(options.batch, 3, options.image, options.image).to(device)
    targets = torch.randint(0, CLASSES, (options.batch,)).to(device)

    # 2. From here on backward() ends with the mean of all processes' gradients.
    train = model
    if options.ddp:
        train = DistributedDataParallel(model)
    elif not options.plain:
        optimizer = psd.distribute(model, optimizer, batch_size=options.batch)

    losses, seconds = [], []
    for iteration in range(options.warm_up + options.iterations):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = F.cross_entropy(train(images), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if iteration < options.warm_up:
            continue
        seconds.append(time.perf_counter() - begin)
        if rank == 0:
            print(
                f"iteration {len(seconds)}/{options.iterations}  loss {losses[-1]:.4f}  "
                f"{options.batch * size / seconds[-1]:.1f} images/s",
                flush=True,
            )

    # 3. All processes have finished.
    if options.ddp:
        dist.destroy_process_group()
    elif not options.plain:
        psd.shutdown()

    if rank == 0:
        median = statistics.median(seconds)
        print(
            f"ResNet-50, processes: {size}, {options.batch * size / median:.1f} images/s, "
            f"{1000 * median:.0f} ms an iteration (median), loss {losses[-1]:.4f}"
        )
    return losses


if __name__ == "__main__":
    main()
