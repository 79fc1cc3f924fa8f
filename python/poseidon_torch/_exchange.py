"""Brings gradients together: hooks on an ordinary model, which keep DistributedDataParallel's promise.

When backward() returns every p.grad is the mean over all workers. A layer's gradient leaves as soon as it is complete
and travels while the layers below compute; a call-back at the end of backward waits for what is still under way.
Clipping, GradScaler, learning rate schedules and the optimizer see what they see on one machine with the whole batch.
With overlap "forward" nothing is waited for there: each layer's part of the optimizer's step waits in front of the next
forward pass (_forward_overlap.py).
"""

import contextlib
import functools
import itertools
import threading
from typing import Dict, Iterator, List, Optional, Set, Union

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from . import _factors
from ._buffers import buffers_and_frozen
from ._changes import ChangeGuard
from ._device_copies import DeviceCopies, Pair, current_streams, wait_for_streams
from ._device_copies import give_back_pinned, pinned_block
from ._forward_overlap import ForwardOverlap, LayerSteps
from ._layer_clock import LayerClock
from ._layers import Layer, alike, check_digits, view_of
from ._local_gradients import BackwardPass, LocalGradients, left_backward
from ._errors import ConfigError, called_within_a_call
from ._library import LayerSpec, Session
from ._moments import timed_device
from ._recovery import RecoveringSession
from ._server_update import ServerUpdate
from ._shared_model import SharedModel, samples_of

# Declared in front of the model's layers: a float a parameter, 1 where this worker has a gradient of it. The mean says
# whether anybody had one; a parameter that nobody used must keep its None, or weight decay would shrink it.
_USED = 0
_USED_NAME = "parameters with gradients"


class Exchange:
    """A distributed model's hooks. Threads: those that autograd calls hooks in, one at a time."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        layers: List[Layer],
        session: Session,
        overlap: str,
        batch_size: Optional[int],
        servers: Optional[ServerUpdate],
    ):
        """Declares the model, which has these layers; worker 0's parameters become everybody's. `servers`: these
        update the parameters, which come back instead of mean gradients.

        Raises PoseidonError.
        """
        # Where a job goes back all memory may be elsewhere when a copy arrives, so that each one is waited for.
        self._copies = None if session.recovers else DeviceCopies.of(layers)
        if self._copies is not None:
            session.make_memory_by(pinned_block)
        if session.recovers:
            session = RecoveringSession(session, buffers_and_frozen(model))
        # By layer, and of their number: its first parameter's place among all.
        self._first = list(itertools.accumulate((len(layer.slots) for layer in layers), initial=0))
        used = [LayerSpec(_USED_NAME, "Used", [[self._first[-1]]])] if servers is None else []
        samples = samples_of(batch_size)
        self._shared = SharedModel(type(model).__name__, layers, session, samples, used, servers)
        self._servers = servers
        self._session = session
        self._layers = layers
        self._lock = threading.RLock()
        self._synchronizing = True
        self._pass = BackwardPass()
        self._loss: Union[float, torch.Tensor] = float("nan")
        self._layer_of = {
            id(slot.parameter): index for index, layer in enumerate(layers) for slot in layer.slots
        }
        self._local = LocalGradients(self._layer_of, self._is_in_pass)
        # By parameter: the share of workers that had a gradient of it in the last iteration.
        self._used: Optional[List[float]] = None
        self._has_learned: Set[int] = set()  # places of which any worker has ever had a gradient
        # By place: what a codec has sent of earlier gradients in passes in which nobody had one.
        self._held_back: Dict[int, torch.Tensor] = {}
        self._sends_factors: Set[int] = set()  # layers, by the plan
        self._sent_factors: Set[int] = set()  # those of the last pass
        # Ids of parameters of which the pass under way has a gradient besides what their layers send as factors.
        self._besides_factors: Set[int] = set()
        # Of the pass under way: by layer, parameters whose gradients are not there yet, whether it has been sent, and in
        # which streams gradients were computed; parameters that have none.
        self._waiting: List[int] = []
        self._pushed: List[bool] = []
        self._computed_in: List[Set[torch.cuda.Stream]] = []
        self._unused: List[int] = []
        self._unused_before: Set[int] = set()  # in the last pass
        self._forget_backward()
        self._handles = [
            slot.parameter.register_post_accumulate_grad_hook(self._on_gradient)
            for layer in layers
            for slot in layer.slots
        ]
        self._clock: Optional[LayerClock] = None
        self._plan_may_change = False
        self._forward: Optional[ForwardOverlap] = None
        self._changes: Optional[ChangeGuard] = None
        try:
            self._install(model, optimizer, overlap)
        except BaseException:
            self._remove_hooks()
            raise

    @property
    def iteration(self) -> int:
        """That which is done next."""
        return self._session.iteration

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside only add up; the next one outside exchanges the sum."""
        # Also where only a later plan may send factors: else the measured network would decide whether a training ends.
        for index, layer in enumerate(self._layers):
            if layer.rows > 0 and self._may_send_factors(index):
                self._refuse_adding_up(index)
        before, self._synchronizing = self._synchronizing, False
        try:
            yield
        finally:
            self._synchronizing = before

    def report(self, loss: Union[float, torch.Tensor]) -> None:
        """For the job's progress and its summary: this worker's loss of the iteration under way."""
        self._loss = loss

    def synchronize(self) -> None:
        """Overlap "forward": carries the last step() out in all layers."""
        if self._forward is not None:
            self._forward.synchronize()

    def expect_no_call(self) -> None:
        """Raises PoseidonError to a signal's handler that runs in the midst of a pass or an update."""
        if self._pass.is_under_way() or self._is_updating():
            raise called_within_a_call()

    def finish(self) -> None:
        """After the last iteration: waits for the others, whose parameters the scheduler compares."""
        if any(self._pushed):
            self._check_not_left()
        if self._servers is not None:
            self._forward.check_stepped()
        self.synchronize()
        self._remove_hooks()
        self._forget_copies()
        self._shared.finish()
        if self._copies is not None:
            give_back_pinned()

    def give_up(self, reason: str) -> None:
        """The others hear why."""
        self._remove_hooks()
        self._shared.give_up(reason, self._forget_copies)
        if self._copies is not None:
            give_back_pinned()

    def _forget_copies(self) -> None:
        if self._copies is not None:
            self._copies.forget()

    def _install(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, overlap: str
    ) -> None:
        self._install_factors()
        device = timed_device(model, self._layers)
        if self._session.wants_layer_times() and device is not None:
            self._clock = LayerClock(model, len(self._layers), device)
        # By the times that the clock measures, and once.
        self._plan_may_change = self._clock is not None
        overlap_by = functools.partial(
            ForwardOverlap, model, optimizer, self._layers, self._shared, self._local
        )
        if self._servers is not None:
            self._servers.begin(self._session, self._take_values_late)
            self._forward = overlap_by(self._servers, overlap == "backward")
        elif overlap == "forward":
            steps = LayerSteps(optimizer, self._layers, self._take_mean_late)
            self._forward = overlap_by(steps, False)
        self._handles.append(register_optimizer_step_pre_hook(self._local.before_step))
        # Servers are told of the optimizer's groups, and refuse others themselves.
        self._changes = ChangeGuard(model, optimizer if self._servers is None else None)

    def _install_factors(self) -> None:
        for index, layer in enumerate(self._layers):
            if layer.rows > 0:
                _factors.install(
                    layer.module,
                    functools.partial(self._may_send_factors, index),
                    functools.partial(self._sends_factors.__contains__, index),
                    functools.partial(self._on_factors, index),
                )
                self._handles += [
                    slot.parameter.register_hook(
                        functools.partial(self._note_gradient, id(slot.parameter))
                    )
                    for slot in layer.slots
                ]
        self._look_at_plan()

    def _may_send_factors(self, index: int) -> bool:
        """When the backward pass of a forward pass under way comes, which may be iterations later."""
        return self._plan_may_change or index in self._sends_factors

    def _look_at_plan(self) -> None:
        self._sends_factors.clear()
        for index, layer in enumerate(self._layers):
            if layer.rows > 0 and self._shared.memory(index).u.size > 0:
                self._sends_factors.add(index)

    def _forget_backward(self) -> None:
        self._waiting = [len(layer.slots) for layer in self._layers]
        self._pushed = [False] * len(self._layers)
        self._computed_in = [set() for _ in self._layers]
        self._unused.clear()

    def _begin_backward(self) -> None:
        if self._pass.is_under_way():
            return
        self._check_not_left()
        self._changes.check()
        if self._servers is not None:
            self._servers.send_settings()
        self._pass.begin(self._on_backward_done)

    def _is_in_pass(self) -> bool:
        """Whether a backward pass is under way; not while layers are updated, though it be in one."""
        return self._pass.is_under_way() and not self._is_updating()

    def _is_updating(self) -> bool:
        return self._forward is not None and self._forward.updating

    def _check_not_left(self) -> None:
        """The others wait for what an earlier pass has not sent, and would take this one's for it."""
        if not self._pass.was_left():
            return
        # The session first, if it has ended. Else it says nothing: what has not left is fresh, or on its way.
        self._shared.wait_fresh(self._pushed.index(False) if False in self._pushed else 0)
        raise left_backward(any(self._pushed))

    def _on_factors(self, index: int, top: torch.Tensor, bottom: torch.Tensor) -> None:
        with self._lock:
            if not self._synchronizing:
                self._refuse_adding_up(index)
            if torch.is_grad_enabled():
                raise ConfigError(
                    f"layer {self._layers[index].name!r} sends factors, of which create_graph=True has no graph; call "
                    "distribute without an example, or with another policy"
                )
            self._begin_backward()
            self._check_first(
                index, "apply it once, as for distribute's example, or leave the example out"
            )
            self._layer_done(index)
            self._push_factors(index, top, bottom)
            self._go_on()

    def _refuse_adding_up(self, index: int) -> None:
        sends = "sends" if index in self._sends_factors else "may come to send"
        raise ConfigError(
            f"layer {self._layers[index].name!r} {sends} factors, which can't add up over passes as no_sync wants it; "
            "call distribute without an example, or with another policy"
        )

    def _check_first(self, index: int, instead: str) -> None:
        if self._pushed[index]:
            raise ConfigError(
                f"layer {self._layers[index].name!r} got a second gradient in one backward pass, when its first one "
                f"had left; {instead}"
            )

    def _layer_done(self, index: int) -> None:
        if self._clock is not None:
            self._clock.layer_done(index)

    def _go_on(self) -> None:
        if self._clock is not None:
            self._clock.go_on()

    def _push_factors(self, index: int, top: torch.Tensor, bottom: torch.Tensor) -> None:
        memory = self._shared.memory(index)
        layer = self._layers[index]
        outputs, inputs = layer.slots[0].parameter.shape
        u = _factors.place(view_of(memory.u).view(-1, outputs), top, layer.name)
        v = _factors.place(view_of(memory.v).view(-1, inputs), bottom, layer.name)
        self._send(index, [(top, u), (bottom, v)])

    def _send(self, index: int, pairs: List[Pair]) -> None:
        """What is to be sent of a layer, with its places."""
        check_digits(self._layers[index], (tensor for tensor, _ in pairs))
        self._pushed[index] = True
        ready, computed_in = functools.partial(self._shared.ready, index), self._computed_in[index]
        if self._copies is not None:
            self._copies.send(self._shared.sent_with(index), pairs, ready, computed_in)
            return
        wait_for_streams(computed_in)
        for tensor, place in pairs:
            place.copy_(tensor)
        ready()

    def _note_gradient(self, parameter: int, gradient: Optional[torch.Tensor]) -> None:
        noted = self._besides_factors
        (noted.discard if gradient is None else noted.add)(parameter)

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        with self._lock:
            index = self._layer_of[id(parameter)]
            if index in self._sends_factors:  # autograd calls with no gradient, too
                self._refuse_gradient(index, parameter)
                return
            if not self._synchronizing:
                self._local.note(parameter)
                return
            self._begin_backward()
            self._check_first(
                index,
                "where checkpoints of activations compute it again, use checkpoint(..., use_reentrant=False)",
            )
            self._computed_in[index] |= current_streams([parameter])
            self._waiting[index] -= 1
            if self._waiting[index] == 0:
                self._layer_done(index)
                self._push(index)
                self._go_on()

    def _refuse_gradient(self, index: int, parameter: torch.Tensor) -> None:
        """Of what sends factors it would be each worker's own."""
        if id(parameter) in self._besides_factors:
            raise ConfigError(
                f"layer {self._layers[index].name!r} sends factors, which are not the whole gradient: the loss reaches "
                "its weight or bias otherwise, too, as by a penalty or a second derivative, or only one of them is "
                "frozen; call distribute without an example, or with another policy"
            )

    def _push(self, index: int) -> None:
        layer = self._layers[index]
        pairs: List[Pair] = []
        for view, slot, place in zip(
            self._shared.gradient(index), layer.slots, itertools.count(self._first[index])
        ):
            gradient = slot.parameter.grad
            if gradient is None and self._servers is not None:
                raise ConfigError(
                    f"a parameter of layer {layer.name!r} has no gradient in this pass, and with update='server' the "
                    "servers would update it all the same; freeze it before distribute, or use update='worker'"
                )
            if gradient is None:
                # By way of the GPU as any gradient, since it may not have read the last mean yet, which is where this
                # goes with some plans.
                pairs.append((slot.parameter.new_zeros(()).expand(slot.parameter.shape), view))
                self._unused.append(place)
            elif gradient.is_sparse:
                raise ConfigError(
                    f"layer {layer.name!r} has a sparse gradient; use a dense one (Embedding: sparse=False)"
                )
            else:
                # With create_graph=True it has a graph, of which its place must not become a part.
                pairs.append((gradient.detach(), view))
        self._send(index, pairs)

    def _push_nothing(self, index: int) -> None:
        """For a layer that the backward pass did not come by, or only by a part of it."""
        if index not in self._sends_factors:
            return self._push(index)
        weight = self._layers[index].slots[0].parameter
        self._unused += range(self._first[index], self._first[index + 1])
        # On the weight's device, so that they leave when a GPU has read the last mean.
        top, bottom = (weight.new_empty(0, columns) for columns in weight.shape)
        return self._push_factors(index, top, bottom)

    def _push_used(self) -> None:
        if self._servers is not None:
            return
        # Nobody may have asked for the last pass' yet.
        self._session.wait_fresh(_USED)
        used = view_of(self._session.gradient_memory(_USED))
        used.fill_(1)
        used[self._unused] = 0
        self._session.gradient_ready(_USED)

    def _on_backward_done(self) -> None:
        with self._lock:
            for index in reversed(range(len(self._layers))):
                if not self._pushed[index]:
                    self._push_nothing(index)
            self._push_used()
            self._local.exchanged()
            if self._copies is not None:
                self._copies.wait()
            self._report_layer_times()
            self._sent_factors = set(self._sends_factors)
            if self._shared.end_iteration(self._loss):
                self._plan_may_change = False
                self._look_at_plan()
                if self._copies is not None:
                    self._copies.forget_memory()
            self._loss = float("nan")
            self._used = None
            self._unused_before = set(self._unused)
            self._forget_backward()
            if self._forward is not None:
                self._forward.gradients_left()
            else:
                # Those that have left first, so that the last ones are under way while the others' means are copied.
                for index in reversed(range(len(self._layers))):
                    self._take_mean(index)
            self._pass.forget()

    def _report_layer_times(self) -> None:
        times = self._clock.end_iteration() if self._clock is not None else None
        if times is not None:
            self._shared.report_layer_times(times.forward, times.backward)
            self._clock = None

    def _take_values_late(self, index: int) -> None:
        with torch.no_grad():
            for view, slot in zip(self._shared.wait_for_values(index), self._layers[index].slots):
                slot.parameter.copy_(view, non_blocking=True)

    def _take_mean_late(self, index: int, lent: bool) -> None:
        """In the forward pass, whose own time this is not."""
        with self._clock.leave_out() if self._clock is not None else contextlib.nullcontext():
            self._take_mean(index, lent)

    def _is_used(self, place: int) -> bool:
        """Whether any worker had a gradient of a parameter in the last pass. All know only when all passes have ended,
        and who had one need not wait for that."""
        if place not in self._unused_before:
            return True
        if self._used is None:
            self._session.wait_fresh(_USED)
            self._used = view_of(self._session.mean_gradient_memory(_USED)).tolist()
        return self._used[place] > 0

    def _hold_back(self, index: int, number: int, sent: torch.Tensor) -> None:
        """What a codec has sent of a parameter's earlier gradients, now that no worker has one, is for its next one: the
        program may have frozen it, or throw away what it finds in p.grad after a pass that was not for that parameter.
        What all of this depends on is the same for all workers."""
        place = self._first[index] + number
        # What one bit stands for in a block is the mean of others' where there never was a gradient.
        if place in self._has_learned and self._shared.wait_for_mean(index)[number].any():
            self._held_back[place] = sent + self._held_back.get(place, 0)

    def _take_mean(self, index: int, lent: bool = False) -> None:
        first = self._first[index]
        for number, (view, slot) in enumerate(zip(self._mean(index), self._layers[index].slots)):
            if not self._is_used(first + number):
                self._hold_back(index, number, view)
                continue
            self._has_learned.add(first + number)
            if first + number in self._held_back:
                view = view + self._held_back.pop(first + number)
            parameter, gradient = slot.parameter, slot.parameter.grad
            # With create_graph=True it keeps its graph, this worker's own, as in DDP.
            has_graph = gradient is not None and gradient.requires_grad
            own = self._copies is not None and not view.is_cpu
            if gradient is not None and index in self._sent_factors:
                # A gradient that is sent has in it what was there before; factors have not.
                gradient.detach().add_(view.to(gradient))
            elif (own and not has_graph or lent and gradient is None) and alike(view, parameter):
                parameter.grad = view
            elif gradient is None:
                parameter.grad = torch.empty_like(parameter).copy_(view)
            else:
                gradient.detach().copy_(view)

    def _mean(self, index: int) -> List[torch.Tensor]:
        """Where the parameters are; on a GPU, in memory that is nobody else's."""
        if self._copies is None:
            return self._shared.wait_for_mean(index)
        # A GPU copies when it comes to it: before the next gradient of the same stream, or the zeros in its place, are
        # there to be sent, and so before the host's memory has another.
        return self._copies.fetch(
            index, self._layers, self._shared.sent_with(index), self._shared.wait_for_mean
        )

    def _remove_hooks(self) -> None:
        if self._servers is not None:
            self._servers.end()
        if self._clock is not None:
            self._clock.remove()
        if self._forward is not None:
            self._forward.remove()
            self._forward = None
        for layer in self._layers:
            if layer.rows > 0:
                _factors.remove(layer.module)
        self._sends_factors.clear()
        if self._changes is not None:
            self._changes.remove()
        for handle in self._handles:
            handle.remove()
        self._handles = []
