"""Gradients of passes in no_sync() are a worker's own, until a pass outside has exchanged them."""

from typing import Set

import torch

from ._errors import ConfigError


class LocalGradients:
    """Parameters whose p.grad has what nobody else has. One thread at a time."""

    def __init__(self):
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

    def before_step(self, optimizer: torch.optim.Optimizer, arguments: tuple, named: dict) -> None:
        """The hook of all optimizers, of which any may have such parameters."""
        closure = named.get("closure", arguments[1] if len(arguments) > 1 else None)
        if closure is None:  # which makes passes of its own, mostly after zero_grad()
            self.check_step(optimizer)
