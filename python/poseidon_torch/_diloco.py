"""DiLoCo (Douillard et al., arXiv 2311.08105): workers train on their own for many steps, and then exchange how far
each has come, so that the network moves a hundredth of the bytes. Streamed by fragments of layers as in Streaming DiLoCo
(Douillard et al., arXiv 2501.18512), so that it moves less at a time, and while training goes on.

The difference between the outer parameters, which all workers have alike, and a worker's own is taken for a gradient; its
mean over all workers is what the outer optimizer, Nesterov's momentum, is given. All workers carry it out alike.
"""

import dataclasses
from typing import Dict, Iterator, List, Optional, Set, Tuple, Union

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from ._changes import ChangeGuard
from ._hooks import OwnHook
from ._layers import Layer
from ._errors import ConfigError
from ._library import Session
from ._shared_model import SharedModel, samples_of


# By name of a parameter: its outer value, "value", and with a momentum "momentum_buffer"; float32, on the processor.
OuterState = Dict[str, Dict[str, torch.Tensor]]


def check_outer_state(state: OuterState, model: torch.nn.Module) -> None:
    """Raises ConfigError if it is of another model, or something else."""
    for name, values in state.items():
        tensors = values.values() if isinstance(values, dict) and "value" in values else [None]
        if not all(torch.is_tensor(one) and one.shape == values["value"].shape for one in tensors):
            raise ConfigError(
                f"outer_state[{name!r}] is no outer value with its momentum; give what psd.outer_state() has returned"
            )
    of_state = {name: values["value"].shape for name, values in state.items()}
    of_model = {name: one.shape for name, one in model.named_parameters() if one.requires_grad}
    for name in {**of_model, **of_state}:
        if of_state.get(name) != of_model.get(name):
            raise ConfigError(
                f"outer_state is of another model: {name} has shape {_shape(of_state.get(name))} there, and "
                f"{_shape(of_model.get(name))} in this one; give what psd.outer_state() has returned for the same model"
            )


def values_of_outer(state: OuterState) -> Iterator[Tuple[str, torch.Tensor]]:
    """With names."""
    for name, values in state.items():
        for key, value in values.items():
            yield f"outer_state[{name!r}][{key!r}]", value


def _shape(shape: Optional[torch.Size]) -> str:
    return "none" if shape is None else str(tuple(shape))


def refuse_local_steps(session: Optional[Session]) -> None:
    """For what exchanges gradients in every step."""
    said = 1 if session is None else session.local_steps["local_steps"]
    if said != 1:
        raise ConfigError(
            f"communication.local_steps is {said} in the job config, and distribute exchanges gradients in every step; "
            "leave it out there, or use DiLoCo"
        )


def expect_local_steps(
    session: Optional[Session], every: int, fragments: int, overlap_steps: int
) -> None:
    """That a job config, where there is one, says so, too: by that the scheduler plans, and waits for exchanges."""
    wanted = {"local_steps": every, "fragments": fragments, "overlap_steps": overlap_steps}
    said = wanted if session is None else session.local_steps
    if said != wanted:
        raise ConfigError(
            f"the job config's communication says {_fields(said)}, and DiLoCo was called with every, which is "
            f"local_steps there, fragments and overlap_steps as in {_fields(wanted)}; make them alike"
        )


def _fields(values: Dict[str, int]) -> str:
    return " ".join(f"{name}: {value}" for name, value in values.items())


@dataclasses.dataclass(frozen=True)
class Outer:
    """What DiLoCo is given beside the model and its optimizer; see there. Raises ConfigError."""

    every: int
    fragments: int
    overlap_steps: int
    mixing: float
    lr: float
    momentum: float

    def __post_init__(self):
        if self.every < 1:
            raise ConfigError(f"every is {self.every}; it must be at least 1")
        if not 1 <= self.fragments <= self.every:
            raise ConfigError(
                f"fragments is {self.fragments}; it must be at least 1, and at most every, {self.every}, as each is "
                "exchanged after a step of its own"
            )
        if not 0 <= self.overlap_steps < self.every // self.fragments:
            raise ConfigError(
                f"overlap_steps is {self.overlap_steps}; it must be at least 0 and below every / fragments, "
                f"{self.every // self.fragments}, as one fragment at a time is exchanged"
            )
        if not 0 <= self.mixing <= 1:
            raise ConfigError(f"mixing is {self.mixing}; it must be from 0 to 1")
        for name, value in (("outer_lr", self.lr), ("outer_momentum", self.momentum)):
            if not 0 <= value < float("inf"):
                raise ConfigError(f"{name} is {value}; it must be a number from 0 on")

    def sent_after(self, fragment: int) -> int:
        """The step of a round, from 1 to every, after which the fragment is sent."""
        return (fragment + 1) * self.every // self.fragments


class _Fragment:
    """Layers that are exchanged together; what of them all workers have alike."""

    def __init__(self, layers: List[int], all_layers: List[Layer], outer: Outer):
        self.layers = layers
        self.parameters = [slot.parameter for index in layers for slot in all_layers[index].slots]
        self.outer = [
            torch.nn.Parameter(parameter.detach().float().cpu().clone())
            for parameter in self.parameters
        ]
        self._optimizer = torch.optim.SGD(
            self.outer, lr=outer.lr, momentum=outer.momentum, nesterov=outer.momentum > 0
        )
        self.steps = 0  # since it was sent last
        self.due = -1  # steps until what was sent is awaited; below 0: nothing is on its way

    def step(self, means: List[torch.Tensor]) -> None:
        """The outer optimizer's."""
        for outer, mean in zip(self.outer, means):
            outer.grad = mean
        self._optimizer.step()
        for outer in self.outer:
            outer.grad = None

    def states(self) -> Iterator[Tuple[torch.nn.Parameter, Dict[str, torch.Tensor]]]:
        """By parameter, what OuterState has of it."""
        for parameter, outer in zip(self.parameters, self.outer):
            momentum = self._optimizer.state[outer].get("momentum_buffer")
            state = {} if momentum is None else {"momentum_buffer": momentum.clone()}
            yield parameter, {"value": outer.detach().clone(), **state}

    def load(self, states: List[Dict[str, torch.Tensor]]) -> None:
        """What `states` has told; the parameters become the outer ones."""
        for outer, state in zip(self.outer, states):
            outer.copy_(state["value"])
            if "momentum_buffer" in state:
                momentum = state["momentum_buffer"].to(outer, copy=True)
                self._optimizer.state[outer]["momentum_buffer"] = momentum
        self.mix(0)

    def mix(self, own: float) -> None:
        """So much of a worker's own parameters remains; the rest becomes the outer ones."""
        for parameter, outer in zip(self.parameters, self.outer):
            parameter.copy_(outer if own == 0 else torch.lerp(outer, parameter.to(outer), own))


def _parameters_of(optimizer: torch.optim.Optimizer) -> Set[int]:
    """Their ids."""
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def fragments_of(sizes: List[int], fragments: int) -> List[List[int]]:
    """The layers of each fragment, ascending. As the planner deals them out (proto/local_steps.h): largest first to
    the fragment with fewest floats so far, of equals to the first.
    """
    loads = [0] * fragments
    parts: List[List[int]] = [[] for _ in loads]
    for layer in sorted(range(len(sizes)), key=lambda layer: -sizes[layer]):
        least = loads.index(min(loads))
        loads[least] += sizes[layer]
        parts[least].append(layer)
    return [sorted(part) for part in parts if part]


class Rounds:
    """Counts the steps of the inner optimizer, and exchanges each fragment once a round, which is an iteration of the
    session's."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        layers: List[Layer],
        session: Session,
        outer: Outer,
        batch_size: Optional[int] = None,
        state: Optional[OuterState] = None,
    ):
        """Worker 0's parameters, or `state`'s, become everybody's. `batch_size` is of a step. Raises PoseidonError."""
        samples = samples_of(batch_size, outer.every)
        self._shared = SharedModel(type(model).__name__, layers, session, samples)
        self._options = outer
        self._step = 0  # of the round
        self._loss: Union[float, torch.Tensor] = float("nan")
        sizes = [layer.size for layer in layers]
        self._fragments = [
            _Fragment(part, layers, outer) for part in fragments_of(sizes, outer.fragments)
        ]
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}
        if state is not None:
            self._load(state)
        self._optimizer = optimizer
        self._stepped = _parameters_of(optimizer)
        self._uncounted = 0  # steps of other optimizers since the last one that was counted
        refuse_loading = OwnHook(self._refuse_loading)
        self._handles = [
            optimizer.register_step_post_hook(self._after_step),
            *(
                layer.module._register_load_state_dict_pre_hook(refuse_loading)
                for layer in layers
                if not isinstance(layer.module, torch.jit.ScriptModule)  # which takes none
            ),
        ]
        # After what may fail, since it sees the steps of all optimizers for as long as it stays.
        self._handles.append(register_optimizer_step_post_hook(self._after_any_step))
        self._changes = ChangeGuard(model, optimizer)

    @property
    def iteration(self) -> int:
        """The round that is done next."""
        return self._shared.session.iteration

    def outer_state(self) -> OuterState:
        """As of the last exchange of each fragment."""
        return {
            self._names[id(parameter)]: state
            for fragment in self._fragments
            for parameter, state in fragment.states()
        }

    @torch.no_grad()
    def _load(self, state: OuterState) -> None:
        for fragment in self._fragments:
            fragment.load([state[self._names[id(one)]] for one in fragment.parameters])

    def report(self, loss: Union[float, torch.Tensor]) -> None:
        """For the job's progress: this worker's loss, the last of a round counts."""
        self._loss = loss

    def expect_no_call(self) -> None:
        """While none of the session's waits; where none does, what is exchanged is sent in no pass."""

    def finish(self) -> None:
        """After the last step: what has been learned since the last exchanges is exchanged, then the others are waited
        for."""
        self._remove_hooks()
        if self._uncounted > 0 and self.iteration == 0 and self._step == 0:
            self._refuse_uncounted()
        self._finish_rounds()
        self._shared.finish()

    def give_up(self, reason: str) -> None:
        """The others hear why."""
        self._remove_hooks()
        self._shared.give_up(reason)

    def no_sync(self):
        """Every step is a worker's own here."""
        raise ConfigError(
            "DiLoCo exchanges parameters, not gradients; add gradients up without no_sync"
        )

    def synchronize(self) -> None:
        """Parameters are always up to date."""

    def _remove_hooks(self) -> None:
        self._changes.remove()
        for handle in self._handles:
            handle.remove()

    def _refuse_loading(self, *_) -> None:
        raise ConfigError(
            "load_state_dict after DiLoCo: the next exchange would take what is loaded for what this worker has learned, so "
            "load before DiLoCo, or into a copy of the model"
        )

    def _after_any_step(self, optimizer: torch.optim.Optimizer, *_) -> None:
        """Of all optimizers: another one may step beside the one that is counted, as one that it is made of does, but not
        in its place for more than a round."""
        if optimizer is self._optimizer or self._stepped.isdisjoint(_parameters_of(optimizer)):
            return
        self._uncounted += 1
        if self._uncounted > self._options.every:
            self._refuse_uncounted()

    def _refuse_uncounted(self) -> None:
        raise ConfigError(
            f"another optimizer than the one that DiLoCo was given has made {self._uncounted} steps of the same parameters, "
            "and that one none meanwhile, so that no exchange comes; make the optimizer before DiLoCo, and step that one"
        )

    @torch.no_grad()
    def _after_step(self, *_) -> None:
        self._changes.check()
        self._uncounted = 0
        self._step += 1
        for fragment in self._fragments:
            fragment.steps += 1
            fragment.due -= 1
        for number, fragment in enumerate(self._fragments):
            if self._step == self._options.sent_after(number):
                self._send(fragment)
        if self._step == self._options.every:
            self._end_round()
        for fragment in self._fragments:
            if fragment.due == 0:
                self._receive(fragment, self._options.mixing)

    def _send(self, fragment: _Fragment) -> None:
        outer = dict(zip(map(id, fragment.parameters), fragment.outer))
        for index in reversed(fragment.layers):
            slots = self._shared.layers[index].slots
            for view, slot in zip(self._shared.gradient(index), slots):
                # As the parameter had it: what float16 and bfloat16 round off is nothing that was learned.
                start = outer[id(slot.parameter)].to(slot.parameter.dtype).float()
                torch.sub(start, slot.parameter.to(start), out=view)
            self._shared.ready(index)
        fragment.steps = 0
        fragment.due = self._options.overlap_steps

    def _receive(self, fragment: _Fragment, mixing: float) -> None:
        means = [view for index in fragment.layers for view in self._shared.wait_for_mean(index)]
        fragment.step(means)
        fragment.mix(mixing)
        fragment.due = -1

    def _end_round(self) -> None:
        self._step = 0
        self._shared.end_iteration(self._loss)
        self._loss = float("nan")

    @torch.no_grad()
    def _finish_rounds(self) -> None:
        for fragment in self._fragments:
            if fragment.due >= 0:
                self._receive(fragment, self._options.mixing)
        numbered = list(enumerate(self._fragments))
        left = [part for number, part in numbered if self._step < self._options.sent_after(number)]
        if len(left) < len(self._fragments):
            self._exchange(left)  # the round is to be whole
        learned = [fragment for fragment in self._fragments if fragment.steps > 0]
        for fragment in self._fragments:
            if fragment not in learned:
                fragment.mix(0)
        if learned:
            self._exchange(self._fragments, learned)

    def _exchange(self, sent: List[_Fragment], learned: Optional[List[_Fragment]] = None) -> None:
        """At once, with nothing of a worker's own remaining. Those that have not `learned` anything stay as they are."""
        for fragment in sent:
            self._send(fragment)
        self._end_round()
        for fragment in sent if learned is None else learned:
            self._receive(fragment, mixing=0)
