"""DiLoCo (Douillard et al., arXiv 2311.08105): workers train on their own for many steps, and then exchange how far
each has come, so that the network moves a hundredth of the bytes.

The difference between the parameters at the start of a round and those at its end is taken for a gradient; its mean over
all workers is what the outer optimizer, Nesterov's momentum, is given. All workers carry it out alike.
"""

from typing import List

import torch

from ._layers import Layer
from ._library import ConfigError, Session
from ._shared_model import SharedModel


class Rounds:
    """Counts the steps of the inner optimizer, and exchanges after each `every` of them."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        layers: List[Layer],
        session: Session,
        every: int,
        outer_lr: float,
        outer_momentum: float,
    ):
        """Worker 0's parameters become everybody's. Raises PoseidonError."""
        self._shared = SharedModel(type(model).__name__, layers, session, batch_size=1)
        self._layers = layers
        self._every = every
        self._steps = 0
        self._loss = float("nan")
        # Where the round began; what the outer optimizer changes.
        self._starts = [
            [
                torch.nn.Parameter(slot.parameter.detach().float().cpu().clone())
                for slot in layer.slots
            ]
            for layer in layers
        ]
        self._outer = torch.optim.SGD(
            [start for starts in self._starts for start in starts],
            lr=outer_lr,
            momentum=outer_momentum,
            nesterov=outer_momentum > 0,
        )
        self._handle = optimizer.register_step_post_hook(self._after_step)

    @property
    def iteration(self) -> int:
        """The round that is done next."""
        return self._shared.session.iteration

    def report(self, loss: float) -> None:
        """For the job's progress: this worker's loss, the last of a round counts."""
        self._loss = float(loss)

    def finish(self) -> None:
        """After the last step: a round that has begun ends here, then the others are waited for."""
        self._handle.remove()
        if self._steps > 0:
            self._exchange()
        self._shared.finish()

    def give_up(self, reason: str) -> None:
        """The others hear why."""
        self._handle.remove()
        self._shared.give_up(reason)

    def no_sync(self):
        """Every step is a worker's own here."""
        raise ConfigError(
            "DiLoCo exchanges parameters, not gradients; add gradients up without no_sync"
        )

    def synchronize(self) -> None:
        """Parameters are always up to date."""

    def _after_step(self, *_) -> None:
        self._steps += 1
        if self._steps == self._every:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        self._steps = 0
        for index in reversed(range(len(self._layers))):
            slots = self._layers[index].slots
            for view, slot, start in zip(self._shared.gradient(index), slots, self._starts[index]):
                torch.sub(start, slot.parameter.to(start), out=view)
            self._shared.ready(index)
        self._shared.end_iteration(self._loss)
        self._loss = float("nan")
        for index, starts in enumerate(self._starts):
            for view, start in zip(self._shared.wait_for_mean(index), starts):
                start.grad = view
        self._outer.step()
        for layer, starts in zip(self._layers, self._starts):
            for slot, start in zip(layer.slots, starts):
                start.grad = None
                slot.parameter.copy_(start)
