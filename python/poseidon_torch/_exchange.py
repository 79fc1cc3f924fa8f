"""Brings gradients together: hooks on an ordinary model, which keep DistributedDataParallel's promise.

When backward() returns every p.grad is the mean over all workers. A layer's gradient leaves as soon
as it is complete and travels while the layers below compute; a call-back at the end of backward
waits for what is still under way. Clipping, GradScaler, learning rate schedules and the optimizer
see what they see on one machine with the whole batch.

With overlap "forward" nothing is waited for there: each layer's part of the optimizer's step waits
in front of the next forward pass (_forward_overlap.py).
"""

import contextlib
import functools
import itertools
import threading
from typing import Dict, Iterator, List, Optional, Set

import torch
from torch.nn.modules import module as module_hooks

from . import _factors, _library
from ._forward_overlap import ForwardOverlap
from ._layers import Layer, view_of
from ._library import ConfigError, LayerSpec, PoseidonError

# Declared in front of the model's layers: a float a parameter, 1 where this worker has a gradient of it. The mean says
# whether anybody had one; a parameter that nobody used must keep its None, or weight decay would shrink it.
_USED = "parameters with gradients"


class Exchange:
    """A distributed model's hooks and its session. Threads: those that autograd calls hooks in, one at a time."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        layers: List[Layer],
        session: _library.Session,
        overlap: str,
        batch_size: int,
    ):
        """Declares the model, which has these layers; worker 0's parameters become everybody's.

        Raises PoseidonError.
        """
        self._session = session
        self._layers = layers
        self._lock = threading.RLock()
        self._synchronizing = True
        self._in_backward = False
        self._loss = float("nan")
        # By id: layer and slot of a parameter.
        self._places = {
            id(slot.parameter): (number, layer)
            for number, layer in enumerate(self._layers, start=1)
            for slot in layer.slots
        }
        # By layer: its first parameter's place among all.
        self._first = list(itertools.accumulate((len(layer.slots) for layer in layers), initial=0))
        # By parameter: the share of workers that had a gradient of it in the last iteration.
        self._used: Optional[List[float]] = None
        self._waiting: List[int] = []  # by layer: parameters whose gradients are not there yet
        self._pushed: List[bool] = []
        self._sends_factors: Set[int] = set()  # layers, by the plan
        self._unused: List[int] = []  # parameters without a gradient in the pass under way
        self._begin(type(model).__name__, batch_size)
        self._forget_backward()
        self._handles = [
            slot.parameter.register_post_accumulate_grad_hook(self._on_gradient)
            for layer in self._layers
            for slot in layer.slots
        ]
        self._handles += _refuse_changes(model)
        self._install_factors()
        self._forward: Optional[ForwardOverlap] = None
        if overlap == "forward":
            self._forward = ForwardOverlap(model, optimizer, self._layers, self._take_mean)

    @property
    def session(self) -> _library.Session:
        """For rank and size."""
        return self._session

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside only add up; the next one outside exchanges the sum."""
        before, self._synchronizing = self._synchronizing, False
        try:
            yield
        finally:
            self._synchronizing = before

    def report(self, loss: float) -> None:
        """For the job's progress and its summary: this worker's loss of the iteration under way."""
        self._loss = float(loss)

    def synchronize(self) -> None:
        """Overlap "forward": carries the last step() out in all layers."""
        if self._forward is not None:
            self._forward.synchronize()

    def finish(self) -> None:
        """After the last iteration: waits for the others, whose parameters the scheduler compares."""
        self.synchronize()
        self._remove_hooks()
        for number, layer in enumerate(self._layers, start=1):
            for view, slot in zip(layer.views(self._session.memory(number).values), layer.slots):
                view.copy_(slot.parameter.detach())
        self._session.finish()
        self._forget_memory()
        self._session.close()

    def give_up(self, reason: str) -> None:
        """The others hear why."""
        self._remove_hooks()
        with contextlib.suppress(PoseidonError):
            self._session.fail(reason)
        self._forget_memory()
        self._session.close()

    def _begin(self, name: str, batch_size: int) -> None:
        session = self._session
        parameters = sum(len(layer.slots) for layer in self._layers)
        used = LayerSpec(_USED, "Used", [[parameters]])
        session.declare(name, [used, *(layer.spec() for layer in self._layers)], batch_size, 0)
        if session.rank == 0:
            for number, layer in enumerate(self._layers, start=1):
                for view, slot in zip(layer.views(session.memory(number).values), layer.slots):
                    view.copy_(slot.parameter.detach())
        session.begin()
        session.wait_fresh(0)
        for number, layer in enumerate(self._layers, start=1):
            session.wait_fresh(number)
            if session.rank == 0:
                continue
            for view, slot in zip(layer.views(session.memory(number).values), layer.slots):
                slot.parameter.detach().copy_(view)

    def _install_factors(self) -> None:
        for number, layer in enumerate(self._layers, start=1):
            if layer.rows > 0:
                _factors.install(
                    layer.module,
                    functools.partial(self._sends_factors.__contains__, number),
                    functools.partial(self._on_factors, number),
                )
        self._look_at_plan()

    def _look_at_plan(self) -> None:
        self._sends_factors.clear()
        for number, layer in enumerate(self._layers, start=1):
            if layer.rows > 0 and self._session.memory(number).u.size > 0:
                self._sends_factors.add(number)

    def _forget_backward(self) -> None:
        self._unused.clear()
        self._waiting = [0] + [len(layer.slots) for layer in self._layers]
        self._pushed = [False] * len(self._waiting)
        self._in_backward = False

    def _begin_backward(self) -> None:
        if not self._in_backward:
            self._in_backward = True
            torch.autograd.Variable._execution_engine.queue_callback(self._on_backward_done)

    def _on_factors(self, number: int, top: torch.Tensor, bottom: torch.Tensor) -> None:
        layer = self._layers[number - 1]
        with self._lock:
            if not self._synchronizing:
                raise ConfigError(
                    f"layer {layer.name!r} sends factors, which can't add up over passes as no_sync wants it; "
                    "call distribute without an example, or with another policy"
                )
            self._begin_backward()
            self._push_factors(number, layer, top, bottom)

    def _push_factors(self, number, layer, top: torch.Tensor, bottom: torch.Tensor) -> None:
        memory = self._session.memory(number)
        outputs, inputs = layer.slots[0].parameter.shape
        _factors.fill(view_of(memory.u).view(-1, outputs), top, layer.name)
        _factors.fill(view_of(memory.v).view(-1, inputs), bottom, layer.name)
        self._session.gradient_ready(number)
        self._pushed[number] = True

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        with self._lock:
            if not self._synchronizing:
                return
            self._begin_backward()
            number, layer = self._places[id(parameter)]
            if number in self._sends_factors:  # autograd calls with no gradient, too
                return
            self._waiting[number] -= 1
            if self._waiting[number] == 0:
                self._push(number, layer)

    def _push(self, number: int, layer: Layer) -> None:
        if number in self._sends_factors:  # that the backward pass did not come by
            outputs, inputs = layer.slots[0].parameter.shape
            self._unused += range(self._first[number - 1], self._first[number])
            return self._push_factors(
                number, layer, torch.empty(0, outputs), torch.empty(0, inputs)
            )
        views = layer.views(self._session.gradient_memory(number))
        for index, (view, slot) in enumerate(zip(views, layer.slots), self._first[number - 1]):
            gradient = slot.parameter.grad
            if gradient is None:
                view.zero_()
                self._unused.append(index)
            elif gradient.is_sparse:
                raise ConfigError(
                    f"layer {layer.name!r} has a sparse gradient; use a dense one (Embedding: sparse=False)"
                )
            else:
                view.copy_(gradient)
        self._session.gradient_ready(number)
        self._pushed[number] = True

    def _push_used(self) -> None:
        used = view_of(self._session.gradient_memory(0))
        used.fill_(1)
        used[self._unused] = 0
        self._session.gradient_ready(0)

    def _on_backward_done(self) -> None:
        with self._lock:
            for number in range(len(self._layers), 0, -1):
                if not self._pushed[number]:
                    self._push(number, self._layers[number - 1])
            self._push_used()
            if self._session.end_iteration(self._loss):
                self._forget_memory()
                self._look_at_plan()
            self._loss = float("nan")
            self._used = None
            self._forget_backward()
            if self._forward is not None:
                self._forward.gradients_left()
                return
            for number in range(len(self._layers)):
                self._take_mean(number)

    def _take_mean(self, index: int) -> None:
        session, layer = self._session, self._layers[index]
        if self._used is None:
            session.wait_fresh(0)
            self._used = view_of(session.mean_gradient_memory(0)).tolist()
        session.wait_fresh(index + 1)
        views = layer.views(session.mean_gradient_memory(index + 1))
        for place, (view, slot) in enumerate(zip(views, layer.slots), self._first[index]):
            if self._used[place] == 0:
                continue
            parameter = slot.parameter
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(view)

    def _forget_memory(self) -> None:
        for layer in self._layers:
            layer.forget_views()

    def _remove_hooks(self) -> None:
        if self._forward is not None:
            self._forward.remove()
        for layer in self._layers:
            if layer.rows > 0:
                _factors.remove(layer.module)
        for handle in self._handles:
            handle.remove()
        self._handles = []


def _refuse_changes(model: torch.nn.Module) -> list:
    """A parameter that comes later would silently learn on its own."""
    ours: Dict[int, str] = {id(module): name for name, module in model.named_modules()}

    def refuse(module: torch.nn.Module, name: str, what) -> None:
        if id(module) not in ours or what is None:
            return
        if isinstance(what, torch.nn.Module) and not any(True for _ in what.parameters()):
            return
        where = f"{ours[id(module)]}.{name}".strip(".")
        raise ConfigError(
            f"{where} was set after distribute; change the model before it is distributed"
        )

    return [
        module_hooks.register_module_parameter_registration_hook(refuse),
        module_hooks.register_module_module_registration_hook(refuse),
    ]
