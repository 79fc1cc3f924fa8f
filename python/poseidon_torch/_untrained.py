"""What of a model is not exchanged should begin alike on all ranks: frozen parameters must, and buffers are warned of."""

import ctypes
import json
import warnings
import zlib
from typing import Dict, Iterable, List, Tuple

import torch

from ._buffers import bytes_of
from ._errors import ConfigError
from ._layers import frozen_parameters

_Checksums = Dict[str, int]  # by name

# In a sentence.
_MOST_NAMES = 3


class Untrained:
    """Checksums of a model's frozen parameters and buffers, as they are now.

    Those of tensors that are not plain memory, as sparse ones, are left out: such stay what each rank has.
    """

    def __init__(self, model: torch.nn.Module):
        self._frozen = _checksums(frozen_parameters(model))
        self._buffers = _checksums(model.named_buffers())

    def text(self) -> str:
        """For another rank's `compare`."""
        return json.dumps([self._frozen, self._buffers])

    def compare(self, first: str) -> None:
        """With rank 0's text. Warns of buffers that are not the same; raises ConfigError if a frozen parameter is not."""
        frozen, buffers = json.loads(first)
        different = _different(self._frozen, frozen)
        if different:
            raise ConfigError(
                f"frozen parameters are not as on rank 0: {_listed(different)}; they are not exchanged, so each rank would "
                "train the rest beside its own; load them, or seed them alike, on all ranks before distribute"
            )
        different = _different(self._buffers, buffers)
        if different:
            warnings.warn(
                f"buffers are not as on rank 0: {_listed(different)}; they are not exchanged, so load them, or seed them "
                "alike, on all ranks before distribute if they should be the same",
                stacklevel=4,
            )


def _checksums(tensors: Iterable[Tuple[str, torch.Tensor]]) -> _Checksums:
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
