"""A model's buffers and frozen parameters on the way to the process that takes a lost one's place: their bytes, of
whatever type they are.

The session carries float32 and computes nothing with them, so the bytes of all buffers, one behind the other, are taken
for floats. In front of them is a whole number: 0, or which buffer is not as it was when training began. Whoever takes a
lost one's place has them as they were then, so what has grown meanwhile can't be given to it.
"""

import itertools
import warnings
from typing import Callable, Iterable, List, Tuple

import torch

from ._layers import frozen_parameters
from ._errors import ConfigError

NamedBuffers = Iterable[Tuple[str, torch.Tensor]]

_WORD = 4  # bytes of a float32, and of the number in front
_MOST_BYTES = 1 << 30  # that a message takes (core/message_limit.h)


def buffers_and_frozen(
    model: torch.nn.Module, most_bytes: int = _MOST_BYTES
) -> Callable[[], NamedBuffers]:
    """Tells the model's buffers as they are then, and the parameters that are frozen now, as what is frozen for a while
    later is the servers'. Without the latter where all would be more than a message takes: they stay what each process
    has loaded. Without both, and with a warning, where the buffers alone are."""
    frozen = frozen_parameters(model)
    buffers = list(map(_size_of, model.buffers()))
    if _WORD * _words(buffers) > most_bytes:
        warnings.warn(
            f"the model's buffers are {sum(buffers)} bytes, and a message takes {most_bytes}; a process that takes a lost "
            "one's place begins with those that it has itself",
            stacklevel=6,  # whoever has called distribute
        )
        return lambda: ()
    if _WORD * _words(buffers + [_size_of(one) for _, one in frozen]) > most_bytes:
        return model.named_buffers
    return lambda: itertools.chain(model.named_buffers(), frozen)


class SentBuffers:
    """Packs and unpacks a model's buffers, whose types and shapes are those at the start. One thread at a time."""

    def __init__(self, buffers: Callable[[], NamedBuffers]):
        """`buffers` tells them, as Module.named_buffers does; the tensors may be others each time."""
        self._buffers = buffers
        self._kinds = self._present_kinds()
        self._sizes = [_size_of(buffer) for _, buffer in buffers()]

    def room(self) -> torch.Tensor:
        """Zeros of the size of what `pack` returns."""
        return torch.zeros(_words(self._sizes), dtype=torch.float32, device="cpu")

    def pack(self) -> torch.Tensor:
        """The buffers as they are now."""
        packed = self.room()
        changed = self._first_changed()
        packed[:1].view(torch.int32).fill_(changed)
        if changed == 0:
            for (_, buffer), part in zip(self._buffers(), self._parts(packed)):
                part.copy_(bytes_of(buffer))
        return packed

    @torch.no_grad()
    def unpack(self, packed: torch.Tensor) -> None:
        """Sets the buffers to what another process has packed. Raises ConfigError if one was not as at the start."""
        changed = int(packed[:1].view(torch.int32))
        if changed != 0:
            raise ConfigError(self._refusal(changed))
        for (_, buffer), part in zip(self._buffers(), self._parts(packed)):
            plain = _plain(buffer)
            _bytes_of(plain).copy_(part)
            buffer.copy_(plain)

    def _parts(self, packed: torch.Tensor) -> Iterable[torch.Tensor]:
        data = packed.view(torch.uint8)[_WORD : _WORD + sum(self._sizes)]
        return data.split(self._sizes) if self._sizes else ()

    def _present_kinds(self) -> List[tuple]:
        return [
            (_described(name, buffer), buffer.dtype, tuple(buffer.shape))
            for name, buffer in self._buffers()
        ]

    def _first_changed(self) -> int:
        """The number, from 1, of the first buffer that is another kind than at the start; 0 if there is none."""
        pairs = itertools.zip_longest(self._kinds, self._present_kinds())
        return next((number for number, (was, is_now) in enumerate(pairs, 1) if was != is_now), 0)

    def _refusal(self, changed: int) -> str:
        advice = (
            "so that this process, which takes a lost one's place, can't have it; give all buffers their type and "
            "shape before distribute, or keep what grows in an attribute that is no buffer"
        )
        if changed > len(self._kinds):
            return f"the other workers' model got a buffer after distribute, {advice}"
        what, kind, shape = self._kinds[changed - 1]
        return (
            f"{what}, here {kind} of shape {shape}, has another type or shape on the other workers by now, "
            f"or is not there any more, {advice}"
        )


def bytes_of(buffer: torch.Tensor) -> torch.Tensor:
    """A copy on the processor, one behind the other."""
    return _bytes_of(_plain(buffer).copy_(buffer.detach()))


def _described(name: str, buffer: torch.Tensor) -> str:
    kind = "frozen parameter" if isinstance(buffer, torch.nn.Parameter) else "buffer"
    return f"{kind} {name!r}"


def _size_of(buffer: torch.Tensor) -> int:
    return buffer.numel() * buffer.element_size()


def _words(sizes: Iterable[int]) -> int:
    """Of all buffers with the number in front."""
    return 1 + -(-sum(sizes) // _WORD)


def _plain(buffer: torch.Tensor) -> torch.Tensor:
    """Memory for its values on the processor, one behind the other."""
    return torch.empty(buffer.shape, dtype=buffer.dtype, device="cpu")


def _bytes_of(plain: torch.Tensor) -> torch.Tensor:
    return plain.reshape(-1).view(torch.uint8)
