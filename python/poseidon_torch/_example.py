"""What one forward pass tells of a model: in which order its layers are used, and with how many rows its linear layers
are multiplied."""

import contextlib
import itertools
from typing import Any, ContextManager, Dict, Iterator, List, Sequence, Union

import torch

from ._layers import Layer, shared_parameters

Example = Union[torch.Tensor, Sequence, dict]


class Trace:
    """Of one forward pass of `model` with the arguments `example`, which changes nothing in the model.

    A tensor is the only argument, a sequence are the arguments in their order, a dict is those by name.
    """

    def __init__(self, model: torch.nn.Module, example: Example):
        self._uses: Dict[int, int] = {}  # by id of a module: calls
        self._rows: Dict[int, int] = {}  # by id of a linear module: of its input
        handles = [
            module.register_forward_pre_hook(self._note, with_kwargs=True)
            for module in model.modules()
        ]
        try:
            with torch.no_grad(), _own_random_numbers(model, example), _unchanged(model):
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
    if isinstance(example, dict):
        return model(**example)
    if isinstance(example, torch.Tensor):
        return model(example)
    return model(*example)


def _own_random_numbers(model: torch.nn.Module, example: Example) -> ContextManager[None]:
    """Random numbers are drawn anew later. Of GPUs only on those that compute: PyTorch would initialize all, each of
    which takes memory, and after which a forked process can use none."""
    given = (example,) if isinstance(example, torch.Tensor) else example
    given = given.values() if isinstance(given, dict) else given
    used = itertools.chain(model.parameters(), model.buffers(), given)
    devices = {one.device for one in used if isinstance(one, torch.Tensor) and one.is_cuda}
    return torch.random.fork_rng(devices=devices, device_type="cuda")


@contextlib.contextmanager
def _unchanged(model: torch.nn.Module) -> Iterator[None]:
    """Buffers, as BatchNorm's statistics, are what they were."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for buffer, value in before:
            buffer.copy_(value)
