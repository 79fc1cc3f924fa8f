"""Nets with the layers of VGG19, ResNet-50 and GPT-2 small whose passes sleep, so that two cores carry
many ranks. Parameters and gradients are real.

Both sides of every weight are divided by the net's `side`: the layers' sizes keep their proportions, and
an iteration takes a fraction of a second at 1 Gb/s. Biases and norms shrink by `side`. The time of a
pass is shared out among layers in proportion to their multiply-adds in the original net; a forward pass
takes half as long as a backward pass."""

import dataclasses
import itertools
import time
from typing import Callable, Dict, List, Tuple

import torch
from torch import nn

# Shorter sleeps are inexact; what is left out there is added to the next one.
_LEAST_SLEEP = 1e-4


@dataclasses.dataclass(frozen=True)
class Part:
    """A module with parameters, in the order of the forward pass."""

    name: str
    shapes: Tuple[Tuple[int, ...], ...]
    work: float  # multiply-adds a sample
    linear: bool = False  # a torch.nn.Linear that computes, which may send factors


@dataclasses.dataclass(frozen=True)
class Net:
    """`side`: what the sides of weights are divided by. `batch`: a worker's rows of linear parts, divided
    likewise, so that factors and gradients keep their proportion."""

    parts: Tuple[Part, ...]
    side: float
    batch: int

    def scaled(self, side: float) -> List[Part]:
        """The parts with sides divided by `side`."""

        def small(shape):
            return tuple(max(1, round(extent / side)) for extent in shape)

        return [
            dataclasses.replace(part, shapes=tuple(small(shape) for shape in part.shapes))
            for part in self.parts
        ]


def _convolution(name, inputs, outputs, kernel, positions, bias) -> Part:
    weight = (outputs, inputs * kernel * kernel)
    shapes = (weight, (outputs,)) if bias else (weight,)
    return Part(name, shapes, weight[0] * weight[1] * positions)


def vgg19() -> Net:
    """143.7 million parameters, nine tenths of them in three linear layers."""
    parts = []
    inputs = 3
    for block, (outputs, count, size) in enumerate(
        ((64, 2, 224), (128, 2, 112), (256, 4, 56), (512, 4, 28), (512, 4, 14)), start=1
    ):
        for number in range(1, count + 1):
            name = f"conv{block}_{number}"
            parts.append(_convolution(name, inputs, outputs, 3, size * size, True))
            inputs = outputs
    for name, (inputs, outputs) in (
        ("fc6", (25088, 4096)),
        ("fc7", (4096, 4096)),
        ("fc8", (4096, 1000)),
    ):
        parts.append(Part(name, ((outputs, inputs), (outputs,)), inputs * outputs, True))
    return Net(tuple(parts), side=6, batch=5)


def resnet50() -> Net:
    """25.6 million parameters in 107 modules, half of them norms."""
    parts = []

    def add(name, inputs, outputs, kernel, size):
        parts.append(_convolution(name, inputs, outputs, kernel, size * size, False))
        parts.append(Part(f"{name}_norm", ((outputs,), (outputs,)), 0))

    add("conv1", 3, 64, 7, 112)
    inputs = 64
    for stage, (width, blocks, size) in enumerate(
        ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7)), start=1
    ):
        for block in range(blocks):
            name = f"stage{stage}_{block}"
            add(f"{name}_reduce", inputs, width, 1, size)
            add(f"{name}_middle", width, width, 3, size)
            add(f"{name}_expand", width, 4 * width, 1, size)
            if block == 0:
                add(f"{name}_shortcut", inputs, 4 * width, 1, size)
            inputs = 4 * width
    parts.append(Part("classes", ((1000, 2048), (1000,)), 2048 * 1000))
    return Net(tuple(parts), side=2.5, batch=13)


def gpt2_small() -> Net:
    """124.4 million parameters. The embedding, a third of them, is tied with the output's weight, so that
    its gradient is complete only at the end of the backward pass."""
    width, length, tokens = 768, 1024, 50257
    parts = [
        Part("tokens", ((tokens, width),), 0),
        Part("positions", ((length, width),), 0),
    ]

    def norm(name):
        return Part(name, ((width,), (width,)), 0)

    def product(name, inputs, outputs):
        return Part(name, ((outputs, inputs), (outputs,)), inputs * outputs * length)

    for block in range(12):
        parts += [
            norm(f"norm{block}_1"),
            product(f"attention{block}", width, 3 * width),
            product(f"out{block}", width, width),
            norm(f"norm{block}_2"),
            product(f"up{block}", width, 4 * width),
            product(f"down{block}", 4 * width, width),
        ]
    parts += [norm("norm"), Part("logits", (), tokens * width * length)]
    return Net(tuple(parts), side=6, batch=1)


def many() -> Net:
    """200 layers of 64 floats: what is left is the cost of a layer as such."""
    return Net(tuple(Part(f"layer{i}", ((8, 8),), 1) for i in range(200)), side=1, batch=1)


NETS: Dict[str, Callable[[], Net]] = {
    "vgg19": vgg19,
    "resnet50": resnet50,
    "gpt2_small": gpt2_small,
    "many": many,
}


def floats_of(parts: List[Part]) -> int:
    """Of all parameters together."""
    total = 0
    for shape in itertools.chain.from_iterable(part.shapes for part in parts):
        size = 1
        for extent in shape:
            size *= extent
        total += size
    return total


class Clock:
    """Sleeps for passes, and makes up for sleeps that are too short to be exact."""

    def __init__(self):
        self._owed = 0.0

    def sleep(self, seconds: float) -> None:
        """About so long; exactly, over many calls."""
        self._owed += seconds
        if self._owed < _LEAST_SLEEP:
            return
        begin = time.perf_counter()
        time.sleep(self._owed)
        # An oversleep of up to as long again is taken off the next; a longer one is the machine's fault.
        self._owed = max(-self._owed, self._owed - (time.perf_counter() - begin))


class _Pass(torch.autograd.Function):
    """Sleeps in both passes; its parameters' gradients are what it was given."""

    @staticmethod
    def forward(ctx, features, paced, *_parameters):
        paced.clock.sleep(paced.seconds)
        ctx.paced = paced
        return features.view_as(features)

    @staticmethod
    def backward(ctx, top):
        ctx.paced.clock.sleep(2 * ctx.paced.seconds)
        return (top, None, *ctx.paced.gradients)


class Paced(nn.Module):
    """`seconds`: of its forward pass. Every float of its gradients is `gradient`."""

    def __init__(self, shapes, seconds: float, clock: Clock, gradient: float):
        super().__init__()
        self.seconds = seconds
        self.clock = clock
        self.own = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in shapes)
        # Autograd makes each p.grad a copy of these, which stands for the kernel that would write it.
        self.gradients = [torch.full(shape, gradient) for shape in shapes]

    def forward(self, features):
        """The same features, later."""
        return _Pass.apply(features, self, *self.own)


class PacedNet(nn.Module):
    """`parts` whose forward and backward passes together take `seconds`."""

    def __init__(self, parts: List[Part], seconds: float, gradient: float):
        super().__init__()
        clock = Clock()
        work = sum(part.work for part in parts)
        modules = []
        for part in parts:
            share = seconds / 3 * part.work / work
            if part.linear:
                modules.append(nn.Linear(part.shapes[0][1], part.shapes[0][0]))
                modules.append(Paced((), share, clock, gradient))
            else:
                modules.append(Paced(part.shapes, share, clock, gradient))
        self.modules_in_order = nn.Sequential(*modules)
        linear = [part for part in parts if part.linear]
        self.inputs = linear[0].shapes[0][1] if linear else 1

    def forward(self, features):
        """Rows x `inputs`."""
        return self.modules_in_order(features)
