"""Sufficient factors of linear layers (Xie et al., "Lighter-communication distributed machine learning via sufficient
factor broadcasting", UAI 2016): the gradient of a weight, over a batch, is the product of the gradient at the layer's
top and the data at its bottom. Where the plan sends these two instead, the product is not computed here at all.
"""

from typing import Callable

import torch
from torch.nn import functional as F

from ._library import ConfigError


class _LinearByFactors(torch.autograd.Function):
    """F.linear whose backward pass hands over factors, and computes no gradient of weight and bias."""

    @staticmethod
    def forward(ctx, features, weight, bias, give):
        ctx.save_for_backward(features, weight)
        ctx.give = give
        return F.linear(features, weight, bias)

    @staticmethod
    def backward(ctx, top):
        features, weight = ctx.saved_tensors
        ctx.give(top.reshape(-1, top.shape[-1]), features.reshape(-1, features.shape[-1]))
        bottom = top @ weight.to(top.dtype) if ctx.needs_input_grad[0] else None
        return bottom, None, None, None


def install(
    module: torch.nn.Linear,
    wanted: Callable[[], bool],
    give: Callable[[torch.Tensor, torch.Tensor], None],
) -> None:
    """While `wanted` says so, the module's backward pass calls `give` with the gradient at its top, rows x outputs, and
    the data at its bottom, rows x inputs, instead of computing its parameters' gradients."""

    def forward(features: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled() and wanted():
            return _LinearByFactors.apply(features, module.weight, module.bias, give)
        return F.linear(features, module.weight, module.bias)

    module.forward = forward


def remove(module: torch.nn.Linear) -> None:
    """The module computes its parameters' gradients again."""
    if "forward" in vars(module):
        del module.forward


def fill(memory: torch.Tensor, rows: torch.Tensor, name: str) -> None:
    """Copies a factor's rows to the front of its memory, rows x columns; a smaller batch leaves zeros behind them."""
    if rows.shape[0] > memory.shape[0]:
        raise ConfigError(
            f"layer {name!r} was multiplied with {rows.shape[0]} rows, distribute's example with {memory.shape[0]}; "
            "give the largest batch as the example"
        )
    memory[: rows.shape[0]].copy_(rows)
    memory[rows.shape[0] :].zero_()
