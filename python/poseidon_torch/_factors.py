"""Sufficient factors of linear layers (Xie et al., "Lighter-communication distributed machine learning via sufficient
factor broadcasting", UAI 2016): the gradient of a weight, over a batch, is the product of the gradient at the layer's
top and the data at its bottom. Where the plan sends these two instead, the product is not computed here at all.
"""

import types
from typing import Callable, Optional

import torch
from torch.nn import functional as F

from ._errors import ConfigError


class _LinearByFactors(torch.autograd.Function):
    """F.linear whose backward pass hands over factors instead of adding to the .grad of weight and bias.

    Passes that add to neither hand nothing over: they are torch.autograd.grad's, and get the gradients they ask for.
    """

    @staticmethod
    def forward(ctx, features, weight, bias, wanted, give):
        ctx.save_for_backward(features, weight)
        ctx.wanted, ctx.give = wanted, give
        # Autocast keeps what it casts of a leaf that learns, here without a graph, for all that use the leaf later.
        tensors = (features, weight, bias)
        return F.linear(*(tensor if tensor is None else tensor.detach() for tensor in tensors))

    @staticmethod
    def backward(ctx, top):
        features, weight = ctx.saved_tensors
        bottom = top @ weight.to(top.dtype) if ctx.needs_input_grad[0] else None
        top, features = top.reshape(-1, top.shape[-1]), features.reshape(-1, features.shape[-1])
        weight_adds_up, bias_adds_up = (
            _adds_up(node) for node, _ in (*ctx.next_functions[1:], (None, 0))[:2]
        )
        if (weight_adds_up or bias_adds_up) and ctx.wanted():
            ctx.give(top, features)
            return bottom, None, None, None, None
        of_weight = None if weight_adds_up is False else top.t() @ features.to(top.dtype)
        of_bias = None if bias_adds_up is False else top.sum(0)
        return bottom, of_weight, of_bias, None, None


def _adds_up(node) -> Optional[bool]:
    """Whether the pass under way adds to the .grad of the parameter whose node in the graph this is. None: it does not,
    and returns the gradient, as torch.autograd.grad does."""
    if node is None:
        return False
    try:
        return torch._C._will_engine_execute_node(node)
    except RuntimeError:  # PyTorch's answer for a parameter whose gradient is returned
        return None


def install(
    module: torch.nn.Linear,
    may_want: Callable[[], bool],
    wanted: Callable[[], bool],
    give: Callable[[torch.Tensor, torch.Tensor], None],
) -> None:
    """While `wanted` says so, and all of the module learns, its backward pass calls `give` with the gradient at its
    top, rows x outputs, and the data at its bottom, rows x inputs, instead of computing its parameters' gradients.
    Copies of the module compute as any other, and so does the module while others stand in its parameters' place.
    `may_want`: whether `wanted` may say so when the backward pass of a forward pass comes; else the latter is F.linear
    alone, which takes less time."""
    weight, bias = module.weight, module.bias

    def forward(self: torch.nn.Linear, input: torch.Tensor) -> torch.Tensor:
        if (
            self is module
            # Else the gradient is another tensor's, as where functional_call puts functions of the parameters there.
            and self.weight is weight
            and self.bias is bias
            and not torch._C._are_functorch_transforms_active()  # whose gradients are returned
            and torch.is_grad_enabled()
            and may_want()
            and weight.requires_grad
            and (bias is None or bias.requires_grad)
        ):
            return _LinearByFactors.apply(input, self.weight, self.bias, wanted, give)
        return F.linear(input, self.weight, self.bias)

    module.forward = types.MethodType(forward, module)


def remove(module: torch.nn.Linear) -> None:
    """The module computes its parameters' gradients again."""
    if "forward" in vars(module):
        del module.forward


def place(memory: torch.Tensor, rows: torch.Tensor, name: str) -> torch.Tensor:
    """Of a factor's memory, rows x columns, the front, where these rows are to be written; behind them are zeros."""
    if rows.shape[0] > memory.shape[0]:
        raise ConfigError(
            f"layer {name!r} was multiplied with {rows.shape[0]} rows, distribute's example with {memory.shape[0]}; "
            "give the largest batch as the example"
        )
    memory[rows.shape[0] :].zero_()
    return memory[: rows.shape[0]]
