"""Updates layers just before the next forward pass reads them, so that the exchange of the gradients
of deep layers is hidden behind the forward pass of the shallow ones (as ByteScheduler does; Peng et al., SOSP 2019).

The update is the user's own optimizer's: its step is carried out for the parameters of the layers that came back
together, with the learning rate and the other settings that it had when step() was called. Or it is the servers' (_server_update.py), and
what waits is that its result takes its place; then step() may also wait for all layers at once.
"""

import functools
import itertools
import sys
import types
from typing import Callable, Dict, Iterable, List, Optional, Set, Tuple, Union

import torch
from torch.overrides import TorchFunctionMode

from ._hooks import OwnHook
from ._layers import Layer
from ._local_gradients import LocalGradients
from ._errors import ConfigError, called_within_an_update
from ._server_update import ServerUpdate
from ._shared_model import SharedModel

# Optimizers whose step of one parameter needs nothing of the others, so that layers can be updated on their own.
_BY_PARAMETER = (
    "SGD",
    "Adam",
    "AdamW",
    "NAdam",
    "RAdam",
    "Adamax",
    "Adagrad",
    "Adadelta",
    "RMSprop",
    "Rprop",
    "ASGD",
)


class _UseTrace(TorchFunctionMode):
    """Tells which module is computing when a parameter is used."""

    def __init__(self, tell: Callable[[torch.Tensor], None]):
        super().__init__()
        self._tell = tell

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self._look(args)
        self._look((kwargs or {}).values())
        return func(*args, **(kwargs or {}))

    def _look(self, values) -> None:
        for value in values:
            if isinstance(value, torch.nn.Parameter):
                self._tell(value)
            elif isinstance(value, (list, tuple)):
                self._look(value)


def check_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Raises ConfigError for one that can't be carried out layer by layer."""
    if type(optimizer).__name__ not in _BY_PARAMETER or not type(optimizer).__module__.startswith(
        "torch.optim"
    ):
        raise ConfigError(
            f"overlap='forward' updates layer by layer, which {type(optimizer).__qualname__} may not allow; use "
            f"overlap='backward', or one of torch.optim's {', '.join(_BY_PARAMETER)}"
        )


class NotAGradient(torch.Tensor):
    """What stands in p.grad while gradients are not to be had: whoever computes with it is told why."""

    reason = ""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in ("__get__", "__set__", "size", "dim", "__repr__"):
            return super().__torch_function__(func, types, args, kwargs or {})
        given = itertools.chain(args, (kwargs or {}).values())
        flat = itertools.chain.from_iterable(
            one if isinstance(one, (list, tuple)) else [one] for one in given
        )
        raise ConfigError(next(one.reason for one in flat if isinstance(one, NotAGradient)))

    def __repr__(self, **_):
        return f"NotAGradient({self.reason})"


class LayerSteps:
    """The optimizer's own step, of some layers at a time. One thread at a time."""

    option = "overlap='forward'"

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        layers: List[Layer],
        take_mean: Callable[[int, bool], None],
    ):
        """`take_mean(i, lent)` waits for layer i and puts its mean gradients into p.grad; `lent`: where they are, in
        memory that nobody may write to, instead of copies."""
        self._optimizer = optimizer
        self._take_mean = take_mean
        self._step = optimizer.step
        self._layer_of = _layer_of(layers)
        self._settings: List[dict] = []  # of the optimizer's groups
        # By layer and number of such a group: parameters.
        self._parts: Dict[int, Dict[int, List[torch.Tensor]]] = {}
        self._only_reads = True

    def step(self) -> None:
        """Takes note of the settings that the update is to have."""
        self._settings = []
        self._parts = {}
        # The "foreach" kinds of torch's optimizers use p.grad for what they compute meanwhile; the "fused" ones may.
        self._only_reads = not any(
            group.get("foreach") or group.get("fused") for group in self._optimizer.param_groups
        )
        for number, group in enumerate(self._optimizer.param_groups):
            self._settings.append(
                {key: _as_it_is(value) for key, value in group.items() if key != "params"}
            )
            for parameter in group["params"]:
                parts = self._parts.setdefault(self._layer_of.get(id(parameter), -1), {})
                parts.setdefault(number, []).append(parameter)

    def update(self, numbers: Iterable[int]) -> None:
        """Carries the noted step out in layers, whose p.grad are None: once, as each step costs time of its own."""
        parts: Dict[int, List[torch.Tensor]] = {}
        for number in numbers:
            self._take_mean(number, self._only_reads)
            for group, parameters in self._parts.get(number, {}).items():
                parts.setdefault(group, []).extend(parameters)
        if not parts:
            return
        whole = self._optimizer.param_groups
        self._optimizer.param_groups = [
            {**self._settings[group], "params": parameters}
            for group, parameters in sorted(parts.items())
        ]
        try:
            self._step()
        finally:
            self._optimizer.param_groups = whole

    def check_loading(self) -> None:
        """Parameters may be loaded when the step is carried out."""


def _layer_of(layers: List[Layer]) -> Dict[int, int]:
    """By id of a parameter: the number of its layer."""
    return {id(slot.parameter): i for i, layer in enumerate(layers) for slot in layer.slots}


def _as_it_is(setting):
    """Schedulers change tensors in place."""
    if isinstance(setting, (tuple, list)):
        return type(setting)(map(_as_it_is, setting))
    return setting.clone() if isinstance(setting, torch.Tensor) else setting


class _LastUpdates:
    """In which GPUs' streams layers were updated last, since a layer may compute in another one than that which began
    first of those that were updated with it. One thread at a time."""

    def __init__(self, layers: List[Layer]):
        self._layers = layers
        self._done: Dict[int, List[Tuple[torch.cuda.Stream, torch.cuda.Event]]] = {}  # by layer

    def note(self, numbers: Iterable[int]) -> None:
        """These layers are updated when the current streams come to it."""
        parameters = (slot.parameter for number in numbers for slot in self._layers[number].slots)
        devices = {parameter.device for parameter in parameters}
        streams = [torch.cuda.current_stream(one) for one in devices if one.type == "cuda"]
        done = [(stream, stream.record_event()) for stream in streams]
        self._done.update((number, done) for number in numbers if done)

    def let_wait(self, numbers: Iterable[int]) -> None:
        """What is put in the current streams from now on comes behind these layers' updates."""
        for number in numbers:
            for stream, event in self._done.get(number, ()):
                current = torch.cuda.current_stream(stream.device)
                if current != stream:
                    current.wait_event(event)


class ForwardOverlap:
    """Defers the optimizer's steps to the forward pass. One thread at a time.

    Which layers a module needs beside its own is found out in the first forward pass, before which all layers are
    updated: a parameter may be used by another module than the one that owns it, as tied weights are. PyTorch does not
    tell of parameters that go into an autograd.Function; a layer of which nobody has seen a use is needed where the
    innermost module begins that owns it and has a forward pass.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        layers: List[Layer],
        shared: SharedModel,
        local: LocalGradients,
        updates: Union[LayerSteps, ServerUpdate],
        at_once: bool,
    ):
        """`local`: gradients that a step must not have. `updates`: what a step is in layers. `at_once`: step() waits until
        it is carried out in all.
        """
        self._optimizer = optimizer
        self._layers = layers
        self._updates = updates
        self._at_once = at_once
        self._shared = shared
        self._local = local
        self._layer_of = _layer_of(layers)
        self._step = optimizer.step
        self._outstanding: Set[int] = set()  # layers without the last step()
        self.updating = False  # whether layers get the last step() now
        self._half_done: List[
            int
        ] = []  # layers of the update under way, or of one that an exception has left
        self._last_updates = _LastUpdates(layers)
        self._gradients_pending = False
        self._needs: Dict[int, Set[int]] = {}  # by id of a module: layers
        # Modules whose forward passes are under way, with PyTorch's frames that make them.
        self._stack: List[Tuple[torch.nn.Module, types.FrameType]] = []
        self._trace: Optional[_UseTrace] = None
        self._traced = False
        self._called: Set[int] = set()  # ids of modules, in the first forward pass
        self._owners = [_owners(model, layer.module) for layer in layers]
        self._at_start: Set[int] = set()  # layers that are used outside any module's forward
        self._not_there: Dict[tuple, torch.Tensor] = {}  # by id, device and type of a parameter
        self._handles: list = []
        try:
            self._install(model)
        except BaseException:
            self.remove()
            raise

    def gradients_left(self) -> None:
        """All of a backward pass' gradients are on their way; p.grad is of no use until the update."""
        self._gradients_pending = True
        for layer in self._layers:
            for slot in layer.slots:
                # Who clips or reads what is not there yet must not go unnoticed: a NaN without memory of its own, that
                # can't be written to.
                slot.parameter.grad = self._not_a_gradient(slot.parameter)

    def synchronize(self) -> None:
        """Carries the last step() out in all layers, before what the current streams do next."""
        self._update_all(self._outstanding)
        self._last_updates.let_wait(range(len(self._layers)))

    def check_stepped(self) -> None:
        """Where servers update, when training ends: they carry a step out as soon as gradients are there, and would
        write to the parameters while these are compared. Raises ConfigError if nobody has asked for that step.
        """
        if self._gradients_pending:
            raise ConfigError(
                "the training ends after a backward pass without optimizer.step(); with "
                f"{self._updates.option} the servers have carried it out, so call step() before shutdown()"
            )

    def remove(self) -> None:
        """The optimizer is as it was."""
        for handle in self._handles:
            handle.remove()
        self._optimizer.step = self._step
        vars(self._optimizer).pop("zero_grad", None)  # it may have failed before

    def _install(self, model: torch.nn.Module) -> None:
        optimizer = self._optimizer
        kind = type(optimizer)

        # Methods of the optimizer's, since torch's schedulers bind its step anew.
        @functools.wraps(getattr(optimizer.step, "__func__", optimizer.step))
        def step(_optimizer, closure=None):
            self._defer(closure)

        @functools.wraps(kind.zero_grad)
        def zero_grad(_optimizer, set_to_none=True):
            del set_to_none  # an update leaves None anyway
            self._zero_grad()

        optimizer.step = types.MethodType(step, optimizer)
        optimizer.zero_grad = types.MethodType(zero_grad, optimizer)
        handles = self._handles
        handles.append(optimizer.register_state_dict_pre_hook(lambda *_: self.synchronize()))
        handles.append(optimizer.register_load_state_dict_pre_hook(lambda *_: self.synchronize()))
        before_saving = OwnHook(lambda *_: self.synchronize())
        before_loading = OwnHook(self._before_loading)
        for module in model.modules():
            handles.append(module.register_state_dict_pre_hook(before_saving))
            handles.append(module._register_load_state_dict_pre_hook(before_loading))
        for layer in self._layers:
            for slot in layer.slots:
                handles.append(slot.parameter.register_hook(self._before_gradient))
        before, after = OwnHook(self._before_forward), OwnHook(self._after_forward)
        for module in [] if self._at_once else model.modules():
            handles.append(module.register_forward_pre_hook(before))
            handles.append(module.register_forward_hook(after, always_call=True))

    def _before_loading(self, *_) -> None:
        self._updates.check_loading()
        self.synchronize()

    def _before_gradient(self, _gradient: torch.Tensor) -> None:
        if self._gradients_pending:
            raise ConfigError(
                "two backward passes without optimizer.step() between them; with "
                f"{self._updates.option} the passes but the last belong into no_sync()"
            )
        # Layers that the forward pass has not asked for.
        self._update_all(self._outstanding)

    def _not_a_gradient(self, parameter: torch.Tensor) -> torch.Tensor:
        # Who moves or converts the model keeps its parameters, but not what they are.
        kind = id(parameter), parameter.device, parameter.dtype
        instead = self._not_there.get(kind)
        if instead is None:
            value = torch.full((), float("nan"), device=parameter.device, dtype=parameter.dtype)
            instead = value.expand(parameter.shape).as_subclass(NotAGradient)
            instead.reason = (
                f"with {self._updates.option} there are no gradients between backward() and step(), so that "
                "clipping, GradScaler and whatever else computes with p.grad can't be used; leave that option out"
            )
            self._not_there[kind] = instead
        return instead

    def _defer(self, closure) -> None:
        if closure is not None:
            raise ConfigError(
                f"step(closure) computes the loss anew, which {self._updates.option} can't; leave that option "
                "out"
            )
        self._leave_forward()
        self._local.check_step(self._optimizer)
        if not self._gradients_pending:
            self._check_nothing_set()
            return
        optimizer = self._optimizer
        if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
            raise ConfigError(
                f"the optimizer has hooks of its step, which with {self._updates.option} is not carried out in step(), "
                "nor once for the whole model; remove the hooks, or leave that option out"
            )
        self._updates.step()
        self._gradients_pending = False
        self._outstanding = set(range(len(self._layers)))
        # What torch's schedulers look at to see that a step came before theirs.
        optimizer._opt_called = True
        if self._at_once:
            self.synchronize()

    def _check_nothing_set(self) -> None:
        """Where no step is due, for what is in p.grad then would not be applied."""
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                if not isinstance(parameter.grad, (type(None), NotAGradient)):
                    raise ConfigError(
                        "step() with gradients in p.grad that no backward() has brought there since the last one; with "
                        f"{self._updates.option} they would not be applied, so let backward() compute them, or leave that "
                        "option out"
                    )

    def _zero_grad(self) -> None:
        if self._gradients_pending:
            return
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def _update_all(self, wanted: Set[int]) -> None:
        if self.updating:
            raise called_within_an_update()
        if self._half_done:
            self._refuse_half_done()
        self.updating = True
        try:
            for layer in sorted(wanted):
                if layer in self._outstanding:
                    self._update(layer)
        finally:
            self.updating = False

    def _update(self, number: int) -> None:
        """And what has come with it, which is needed next, mostly."""
        together = [layer for layer in self._shared.sent_with(number) if layer in self._outstanding]
        self._outstanding.difference_update(together)
        self._forget_gradients(together)
        self._half_done = together
        self._last_updates.let_wait(together)  # one may not have computed since
        # The optimizer's state would be of no use outside of inference_mode if it were made inside.
        try:
            with torch.inference_mode(False):
                self._updates.update(together)
        except ConfigError:
            self._half_done = []  # it was refused
            raise
        self._half_done = []
        self._last_updates.note(together)
        self._forget_gradients(together)

    def _refuse_half_done(self) -> None:
        self._shared.wait_fresh(
            self._half_done[0]
        )  # which raises what has ended the session, if anything has
        raise ConfigError(
            "an earlier update of layers was left by an exception, so that some parameters may have the last step and "
            "others not; let the exception end the program, and begin again from a checkpoint"
        )

    def _forget_gradients(self, layers: List[int]) -> None:
        for layer in layers:
            for slot in self._layers[layer].slots:
                slot.parameter.grad = None

    def _leave_forward(self) -> None:
        """A pass that has ended, also one that an interrupt has."""
        self._stack.clear()
        if self._trace is not None:
            self._trace.__exit__(None, None, None)
            self._trace = None

    def _before_forward(self, module: torch.nn.Module, _arguments) -> None:
        caller = sys._getframe(2)  # of the hook
        # After an interrupt PyTorch has called no hooks: these are for an Exception only.
        while self._stack and not _is_within(caller, self._stack[-1][1]):
            self._stack.pop()
        if not self._stack:
            self._leave_forward()
            # A test may go another way through the model than the first pass went.
            by_layer = self._traced and torch.is_grad_enabled()
            self._update_all(self._at_start if by_layer else self._outstanding)
            self._last_updates.let_wait(self._at_start)
            if not self._traced:
                self._trace = _UseTrace(self._used)
                self._trace.__enter__()
        self._stack.append((module, caller))
        if not self._traced:
            self._called.add(id(module))
        needed = self._needs.get(id(module), set())
        self._update_all(needed)
        self._last_updates.let_wait(needed)

    def _after_forward(self, _module: torch.nn.Module, _arguments, _result) -> None:
        if self._stack:
            self._stack.pop()
        if not self._stack and self._trace is not None:
            self._leave_forward()
            self._traced = True
            self._place_unseen()

    def _place_unseen(self) -> None:
        for layer in set(range(len(self._layers))).difference(*self._needs.values()):
            owner = next((one for one in self._owners[layer] if one in self._called), None)
            if owner is None:
                self._at_start.add(layer)
            else:
                self._needs.setdefault(owner, set()).add(layer)

    def _used(self, parameter: torch.Tensor) -> None:
        layer = self._layer_of.get(id(parameter))
        if layer is not None and self._stack:
            self._needs.setdefault(id(self._stack[-1][0]), set()).add(layer)


def _is_within(frame: Optional[types.FrameType], outer: types.FrameType) -> bool:
    """Whether `outer` has come to `frame` by calls."""
    while frame is not None and frame is not outer:
        frame = frame.f_back
    return frame is not None


def _owners(model: torch.nn.Module, module: torch.nn.Module) -> List[int]:
    """Ids of the module and of those that it is in, outwards."""
    modules = dict(model.named_modules())
    path = next(name for name, one in modules.items() if one is module).split(".")
    names = [".".join(path[:length]) for length in range(len(path), 0, -1)]
    return [id(modules[name]) for name in names if name] + [id(model)]
