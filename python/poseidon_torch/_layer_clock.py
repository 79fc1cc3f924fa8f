"""How long each layer computes, for the planner (policy TIME), which otherwise has to guess it from the layers' sizes."""

import contextlib
from typing import Iterator, List, NamedTuple, Optional, Tuple

import torch

from ._hooks import OwnHook
from ._moments import Moment, now, seconds

# In the first iterations memory is touched for the first time, connections are made, and libraries choose their kernels.
_SKIPPED = 2
# Evens out what else the machine does; few enough that a training gains from a better plan early.
_MEASURED = 10
# Of the forward pass only the whole is measured, whose parts are taken to be in proportion to the backward pass' parts.
# A forward pass that nobody saw is taken to be half as long as the backward pass, which has two products for each one.
_FORWARD_SHARE = 0.5


class LayerTimes(NamedTuple):
    """Milliseconds of one batch's passes through each layer."""

    forward: List[float]
    backward: List[float]


class LayerClock:
    """Measures a dozen iterations, for which it hooks the model. One thread at a time.

    A layer's backward pass is the time from the last layer's gradient to its own, what has no parameters included.
    What hooks spend on the exchange is left out. On a GPU all of this is the device's time, between events in the
    stream that computes; they have happened when the iteration's gradients have been sent. A host that waits while the
    device still has work costs it nothing.
    """

    def __init__(self, model: torch.nn.Module, layers: int, device: torch.device):
        """`device`: that all of the model is on, "cpu" or "cuda"."""
        self._device = device
        self._forward = 0.0
        self._backward = [0.0] * layers
        self._iterations = 0
        self._forward_began: Optional[Moment] = None
        self._left_out: List[Tuple[Moment, Moment]] = []  # of the forward pass under way
        # The last forward one, and what is left out of it.
        self._pass: Optional[Tuple[Moment, Moment, List[Tuple[Moment, Moment]]]] = None
        self._since: Optional[Moment] = None  # the backward pass under way goes on since then
        self._parts: List[Tuple[int, Moment, Moment]] = []  # of this backward pass, by layer
        self._handles = [
            model.register_forward_pre_hook(OwnHook(self._on_forward)),
            model.register_forward_hook(OwnHook(self._after_forward)),
        ]

    @contextlib.contextmanager
    def leave_out(self) -> Iterator[None]:
        """What is done inside is not the forward pass', if one is under way."""
        began = self._now()
        yield
        if self._forward_began is not None:
            self._left_out.append((began, self._now()))

    def layer_done(self, layer: int) -> None:
        """The backward pass has come by a layer, whose gradient is there."""
        if self._since is not None:
            self._parts.append((layer, self._since, self._now()))

    def go_on(self) -> None:
        """The backward pass goes on after what the exchange did in it."""
        if self._since is not None:
            self._since = self._now()

    def end_iteration(self) -> Optional[LayerTimes]:
        """The means, once, when enough is measured; then the model has no hooks of this any more."""
        self._since = None
        if self._pass is not None:
            began, ended, left_out = self._pass
            spent = sum(seconds(*waited) for waited in left_out)
            self._forward += max(0.0, seconds(began, ended) - spent)
        self._pass = None
        for layer, began, ended in self._parts:
            self._backward[layer] += seconds(began, ended)
        self._parts.clear()
        self._iterations += 1
        if self._iterations == _SKIPPED:
            self._forward = 0.0
            self._backward = [0.0] * len(self._backward)
        if self._iterations < _SKIPPED + _MEASURED:
            return None
        self.remove()
        whole = sum(self._backward)
        forward = self._forward or _FORWARD_SHARE * whole
        share = forward / whole if whole > 0 else 0.0
        milliseconds = [1e3 * seconds / _MEASURED for seconds in self._backward]
        return LayerTimes([share * one for one in milliseconds], milliseconds)

    def remove(self) -> None:
        """From the model."""
        for handle in self._handles:
            handle.remove()

    def _now(self) -> Moment:
        return now(self._device)

    def _on_forward(self, _module: torch.nn.Module, _arguments: tuple) -> None:
        if torch.is_grad_enabled():
            self._forward_began = self._now()
            self._left_out = []

    def _after_forward(self, _module: torch.nn.Module, _arguments: tuple, _result) -> None:
        if self._forward_began is not None:
            self._since = self._now()
            self._pass = self._forward_began, self._since, self._left_out
            self._forward_began = None
