"""Hooks on the modules of one model, and not on those of its copies."""

from typing import Callable


class OwnHook:
    """A hook that calls `call`. In a copy of the model, by deepcopy or torch.save, it is one that does nothing."""

    def __init__(self, call: Callable):
        self._call = call

    def __call__(self, *arguments):
        return self._call(*arguments)

    def __reduce__(self):
        return OwnHook, (_nothing,)


def _nothing(*_) -> None:
    """What a copy's hook calls."""
