"""A model as layers that are exchanged: each module with parameters of its own is one."""

import ctypes
import math
from typing import Dict, Iterable, List, NamedTuple, Sequence, Set, Tuple

import torch

from ._errors import ConfigError
from ._library import Floats, LayerSpec


class Slot(NamedTuple):
    """A parameter's place in its layer's memory."""

    parameter: torch.nn.Parameter
    offset: int  # in floats
    size: int


class Layer:
    """A module's own parameters that learn, one behind the other in the layer's memory.

    A parameter that several modules share is the first one's. The layer's views of memory are made once for each
    address, as some plans let it alternate.
    """

    def __init__(
        self, name: str, module: torch.nn.Module, parameters: Sequence[torch.nn.Parameter]
    ):
        self.name = name
        self.module = module
        self.rows = 0  # of a linear layer whose factors may be sent instead of its gradient
        self.slots: List[Slot] = []
        self.size = 0
        for parameter in parameters:
            self.slots.append(Slot(parameter, self.size, parameter.numel()))
            self.size += parameter.numel()
        self._views: Dict[int, List[torch.Tensor]] = {}

    def spec(self) -> LayerSpec:
        """As the scheduler sees it."""
        # A scalar has no axes; a blob has at least one.
        shapes = [list(slot.parameter.shape) or [1] for slot in self.slots]
        product = (*shapes[0], self.rows) if self.rows > 0 else None
        return LayerSpec(self.name, type(self.module).__name__, shapes, product)

    def on_cpu(self) -> bool:
        """Whether all its parameters are."""
        return all(slot.parameter.device.type == "cpu" for slot in self.slots)

    def may_send_factors(self) -> bool:
        """A linear layer, all of which learns; whether its weight is another module's, too, is not looked at."""
        # What derives from it, or has a forward pass of its own, may compute something else.
        if type(self.module) is not torch.nn.Linear or "forward" in vars(self.module):
            return False
        own = (
            [self.module.weight]
            if self.module.bias is None
            else [self.module.weight, self.module.bias]
        )
        return [id(slot.parameter) for slot in self.slots] == [id(parameter) for parameter in own]

    def views(self, floats: Floats) -> List[torch.Tensor]:
        """The parameters' parts of the memory, in their shapes; float32, on the CPU."""
        known = self._views.get(floats.address)
        if known is not None:
            return known
        flat = view_of(floats)
        views = [
            flat[slot.offset : slot.offset + slot.size].view(slot.parameter.shape)
            for slot in self.slots
        ]
        self._views[floats.address] = views
        return views

    def forget_views(self) -> None:
        """The plan has changed: the memory that views were of is not there any more."""
        self._views.clear()


def view_of(floats: Floats) -> torch.Tensor:
    """The library's memory as a flat float32 tensor; it must not be used after the memory is gone."""
    memory = (ctypes.c_float * floats.size).from_address(floats.address)
    return torch.frombuffer(memory, dtype=torch.float32)


def check_digits(layer: Layer, gradients: Iterable[torch.Tensor]) -> None:
    """Raises ConfigError for gradients, or factors, that float32 does not hold."""
    if any(gradient.dtype is torch.float64 for gradient in gradients):
        raise ConfigError(
            f"layer {layer.name!r} has become float64; gradients are exchanged as float32, which would lose some of it, so "
            "leave the model float32"
        )


def alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether one can be in the other's place: of its type, on its device, with its strides."""
    return (
        one.dtype == other.dtype and one.device == other.device and one.stride() == other.stride()
    )


def layers_of(model: torch.nn.Module) -> List[Layer]:
    """The layers of a model in the order in which its modules were registered.

    Parameters with requires_grad False are left out. Raises ConfigError for what can't be exchanged.
    """
    layers: List[Layer] = []
    seen: Set[int] = set()
    for name, module in model.named_modules():
        own = []
        for parameter_name, parameter in module.named_parameters(recurse=False):
            if not parameter.requires_grad or id(parameter) in seen:
                continue
            _check(f"{name}.{parameter_name}" if name else parameter_name, parameter)
            seen.add(id(parameter))
            own.append(parameter)
        if own:
            layers.append(Layer(name or _name_of_root(model), module, own))
    if not layers:
        raise ConfigError("the model has no parameters that require gradients")
    return layers


def frozen_parameters(model: torch.nn.Module) -> List[Tuple[str, torch.nn.Parameter]]:
    """Those that layers_of leaves out, with their names."""
    return [one for one in model.named_parameters() if not one[1].requires_grad]


def _name_of_root(model: torch.nn.Module) -> str:
    """That of the layer of its own parameters; no other one's."""
    name = type(model).__name__
    # No part's name ends with a point.
    return name + "." if name in dict(model.named_modules()) else name


def shared_parameters(model: torch.nn.Module) -> Set[int]:
    """Ids of the parameters that several modules have, or one by several names."""
    seen: Set[int] = set()
    shared: Set[int] = set()
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                (shared if id(parameter) in seen else seen).add(id(parameter))
    return shared


def _check(name: str, parameter: torch.nn.Parameter) -> None:
    if parameter.device.type == "meta":
        raise ConfigError(f"parameter {name} is on device meta: it has no values to train")
    if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
        raise ConfigError(f"parameter {name} has no shape yet; run the lazy module once first")
    if parameter.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ConfigError(
            f"parameter {name} is {parameter.dtype}; gradients are exchanged as float32, which would lose some of it"
        )
    if parameter.layout is not torch.strided:
        raise ConfigError(f"parameter {name} is {parameter.layout}, not a dense tensor")
    if math.prod(parameter.shape) == 0:
        raise ConfigError(
            f"parameter {name} has no elements: its shape is {tuple(parameter.shape)}"
        )
