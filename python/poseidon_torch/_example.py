"""What one forward pass tells of a model: in which order its layers are used, and with how many rows its linear layers
are multiplied."""

import contextlib
import itertools
from collections import abc
from typing import Any, ContextManager, Dict, Iterator, List, Mapping, Sequence, Tuple, Union

import torch

from ._errors import ConfigError
from ._layers import Layer, shared_parameters

Example = Union[torch.Tensor, Sequence, Mapping[str, Any]]


class Trace:
    """Of one forward pass of `model` with the arguments `example`, which changes nothing in the model.

    A tensor is the only argument, a sequence are the arguments in their order, a mapping is those by name. Raises
    ConfigError for anything else.
    """

    def __init__(self, model: torch.nn.Module, example: Example):
        self._uses: Dict[int, int] = {}  # by id of a module: calls
        self._rows: Dict[int, int] = {}  # by id of a linear module: of its input
        handles = [
            module.register_forward_pre_hook(self._note, with_kwargs=True)
            for module in model.modules()
        ]
        try:
            with torch.no_grad(), _own_random_numbers(model, example), unchanged(model):
                call(model, example)
        finally:
            for handle in handles:
                handle.remove()

    def apply(self, model: torch.nn.Module, layers: List[Layer]) -> List[Layer]:
        """The layers in the order of their first use, and those whose factors may be sent with their rows."""
        shared = shared_parameters(model)
        for layer in layers:
            own = {id(slot.parameter) for slot in layer.slots}
            if layer.may_send_factors() and not own & shared:
                layer.rows = self._rows_of(layer.module)
        return self._ordered(layers)

    def _ordered(self, layers: List[Layer]) -> List[Layer]:
        # Those that are not used keep their order, behind the others.
        order = {module: place for place, module in enumerate(self._uses)}
        return sorted(layers, key=lambda layer: order.get(id(layer.module), len(order)))

    def _rows_of(self, module: torch.nn.Module) -> int:
        # Of a module that is used twice the gradient is a sum of two products.
        return self._rows.get(id(module), 0) if self._uses.get(id(module)) == 1 else 0

    def _note(self, module: torch.nn.Module, arguments: tuple, named: dict) -> None:
        self._uses[id(module)] = self._uses.get(id(module), 0) + 1
        if type(module) is torch.nn.Linear:
            features = arguments[0] if arguments else named["input"]
            self._rows[id(module)] = features.numel() // features.shape[-1]


def call(model: torch.nn.Module, example: Example) -> Any:
    """The model's result."""
    arguments, named = arguments_of(example)
    return model(*arguments, **named)


def arguments_of(example: Example) -> Tuple[Sequence, Mapping[str, Any]]:
    """Those without names, and those with. Raises ConfigError."""
    if isinstance(example, torch.Tensor):
        return (example,), {}
    if isinstance(example, abc.Mapping):
        return (), example
    if isinstance(example, abc.Sequence):
        return example, {}
    raise ConfigError(
        f"example is a {type(example).__qualname__}; it can be a tensor, a sequence of the arguments of one forward pass, "
        "or a mapping of them by names"
    )


def _own_random_numbers(model: torch.nn.Module, example: Example) -> ContextManager[None]:
    """Random numbers are drawn anew later. Of GPUs only on those that compute: PyTorch would initialize all, each of
    which takes memory, and after which a forked process can use none."""
    arguments, named = arguments_of(example)
    used = itertools.chain(model.parameters(), model.buffers(), arguments, named.values())
    devices = {one.device for one in used if isinstance(one, torch.Tensor) and one.is_cuda}
    return torch.random.fork_rng(devices=devices, device_type="cuda")


@contextlib.contextmanager
def unchanged(model: torch.nn.Module) -> Iterator[None]:
    """Buffers, as BatchNorm's statistics, are what they were afterwards, also where passes put others in their place."""
    before = [
        (module._buffers, name, buffer, None if buffer is None else buffer.clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffers, name, buffer, value in before:
                buffers[name] = buffer
                if buffer is not None:
                    buffer.copy_(value)
