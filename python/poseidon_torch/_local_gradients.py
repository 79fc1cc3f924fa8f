"""Gradients are a worker's own until a backward pass outside of no_sync() that has exchanged them returns."""

import functools
import weakref
from typing import Callable, Container, Optional, Set

import torch

from ._errors import ConfigError


class BackwardPass:
    """One outside of no_sync(), from its first gradient to its end. One thread at a time."""

    def __init__(self):
        # What ends it; autograd alone has it, and drops it when an exception ends the pass.
        self._end: Optional[weakref.ReferenceType] = None

    def begin(self, on_end: Callable[[], None]) -> None:
        """In a hook of the pass, at the end of which `on_end` is called."""
        end = functools.partial(on_end)
        self._end = weakref.ref(end)
        torch.autograd.Variable._execution_engine.queue_callback(end)

    def forget(self) -> None:
        """It has ended."""
        self._end = None

    def is_under_way(self) -> bool:
        """Also in `on_end`."""
        return self._end is not None and self._end() is not None

    def was_left(self) -> bool:
        """By an exception."""
        return self._end is not None and self._end() is None


def left_backward(sent: bool) -> ConfigError:
    """Of what comes after a pass that was left; `sent`: whether the others have gradients of it, and wait for more."""
    what = "can neither go on nor end its training" if sent else "can't go on"
    return ConfigError(
        f"an earlier backward() was left by an exception, so that this worker {what}; let the exception end the program, "
        "and begin again from a checkpoint"
    )


class LocalGradients:
    """Parameters whose p.grad has what nobody else has. One thread at a time."""

    def __init__(
        self, exchanged: Container[int] = (), is_in_pass: Callable[[], bool] = lambda: False
    ):
        """`exchanged`: ids of the parameters whose gradients are. `is_in_pass`: whether a pass outside is under way."""
        self._exchanged, self._is_in_pass = exchanged, is_in_pass
        self._parameters: Set[int] = set()  # ids

    def note(self, parameter: torch.Tensor) -> None:
        """A pass in no_sync() has added to its gradient."""
        self._parameters.add(id(parameter))

    def exchanged(self) -> None:
        """A pass outside has ended."""
        self._parameters.clear()

    def check_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Before a step. Raises ConfigError if it would apply such gradients; without them, as after zero_grad(), none."""
        if not self._parameters:
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) in self._parameters and parameter.grad is not None:
                    raise ConfigError(
                        "step() after a pass in no_sync() that none outside has followed: its gradients are this worker's "
                        "own, so the others would not learn from them; let the last pass before step() be outside of "
                        "no_sync()"
                    )

    def _refuse_in_pass(self, optimizer: torch.optim.Optimizer) -> None:
        parameters = (one for group in optimizer.param_groups for one in group["params"])
        if any(id(one) in self._exchanged for one in parameters):
            raise ConfigError(
                "step() in the midst of a backward pass, as by a hook of a parameter: its gradient is this worker's own "
                "until backward() returns, so the others would not learn from it; call step() after backward()"
            )

    def before_step(self, optimizer: torch.optim.Optimizer, arguments: tuple, named: dict) -> None:
        """The hook of all optimizers, of which any may have such parameters."""
        if self._is_in_pass():
            self._refuse_in_pass(optimizer)
        closure = named.get("closure", arguments[1] if len(arguments) > 1 else None)
        if closure is None:  # which makes passes of its own, mostly after zero_grad()
            self.check_step(optimizer)
