"""What is not exchanged should begin alike on all ranks: frozen parameters must, and an optimizer where each rank steps
its own; buffers are warned of."""

import ctypes
import json
import warnings
import zlib
from typing import Dict, Iterable, Iterator, List, Tuple

import torch

from ._buffers import bytes_of
from ._errors import ConfigError
from ._layers import frozen_parameters

NamedTensors = Iterable[Tuple[str, torch.Tensor]]
_Checksums = Dict[str, int]  # by name

# In a sentence.
_MOST_NAMES = 3


def values_of(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> NamedTensors:
    """For Untrained: the numbers of its groups and the state of its parameters. Switches may differ, as they say how to
    compute (foreach, fused); the state of what is not a parameter is left out."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for number, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            if key != "params":
                yield from _tensors_of(f"group {number}: {key}", value)
        for parameter in group["params"]:
            for key, value in optimizer.state.get(parameter, {}).items():
                yield from _tensors_of(f"{names[id(parameter)]}: {key}", value)


def _tensors_of(name: str, value) -> Iterator[Tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield name, torch.tensor(value, dtype=torch.float64)
    elif isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            yield from _tensors_of(f"{name}[{number}]", part)


class Untrained:
    """Checksums of a model's frozen parameters and buffers, and of an optimizer's values, as they are now.

    Those of tensors that are not plain memory, as sparse ones, are left out: such stay what each rank has.
    """

    def __init__(self, model: torch.nn.Module, optimizer: NamedTensors = ()):
        self._frozen = _checksums(frozen_parameters(model))
        self._buffers = _checksums(model.named_buffers())
        self._optimizer = _checksums(optimizer)

    def text(self) -> str:
        """For another rank's `compare`."""
        return json.dumps([self._frozen, self._buffers, self._optimizer])

    def compare(self, first: str) -> None:
        """With rank 0's text. Warns of buffers that are not the same; raises ConfigError if a frozen parameter or the
        optimizer is not."""
        frozen, buffers, optimizer = json.loads(first)
        different = _different(self._frozen, frozen)
        if different:
            raise ConfigError(
                f"frozen parameters are not as on rank 0: {_listed(different)}; they are not exchanged, so each rank would "
                "train the rest beside its own; load them, or seed them alike, on all ranks before distribute"
            )
        different = _different(self._optimizer, optimizer)
        if different:
            raise ConfigError(
                f"the optimizer is not as on rank 0: {_listed(different)}; it is not exchanged, so the ranks' parameters "
                "would part from the first step on; set its numbers, and load or give a checkpoint of it, on all ranks"
            )
        different = _different(self._buffers, buffers)
        if different:
            warnings.warn(
                f"buffers are not as on rank 0: {_listed(different)}; they are not exchanged, so load them, or seed them "
                "alike, on all ranks before distribute if they should be the same",
                stacklevel=4,
            )


def _checksums(tensors: NamedTensors) -> _Checksums:
    return {name: _checksum(tensor) for name, tensor in tensors if _is_plain(tensor)}


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and tensor.device.type != "meta"
        and not tensor.is_quantized
    )


def _checksum(tensor: torch.Tensor) -> int:
    data = bytes_of(tensor)
    # Numpy, by which it would be shorter, is not always there.
    memory = (ctypes.c_ubyte * data.numel()).from_address(data.data_ptr()) if data.numel() else b""
    return zlib.crc32(memory)


def _different(ours: _Checksums, theirs: _Checksums) -> List[str]:
    return [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]


def _listed(names: List[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
