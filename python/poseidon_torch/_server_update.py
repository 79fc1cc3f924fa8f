"""Has the servers carry torch.optim's SGD and AdamW out: gradients go there with the numbers of their parameter group,
and parameters come back. The optimizer's state is spread over the servers, and is nowhere else.
"""

from typing import Callable, Dict, Iterable, List, Optional, Set

import torch

from ._layers import Layer
from ._errors import ConfigError
from ._library import Floats, LayerSpec, ParameterGroup, Session

# By class: the update rule, and the names of a parameter's state in the order of the servers'.
_RULES = {
    torch.optim.SGD: ("TorchSGD", ("momentum_buffer",)),
    torch.optim.AdamW: ("TorchAdamW", ("exp_avg", "exp_avg_sq")),
}

# Of an optimizer: the ServerUpdate of its last job.
_ATTRIBUTE = "_poseidon_server_update"


def check_server_update(
    optimizer: torch.optim.Optimizer,
    layers: List[Layer],
    policy: Optional[str],
    codec: Optional[str],
) -> None:
    """Raises ConfigError for what servers can't update."""
    if type(optimizer) not in _RULES:
        raise ConfigError(
            f"update='server' is for torch.optim.SGD and AdamW; {type(optimizer).__qualname__} needs update='worker'"
        )
    if policy not in (None, "ALL_PS") or codec not in (None, "FP32"):
        raise ConfigError(
            "update='server' sends all gradients to parameter servers, and all as float32; leave policy and codec out"
        )
    for number, group in enumerate(optimizer.param_groups):
        for option in ("amsgrad", "differentiable", "capturable"):
            if group.get(option):
                raise ConfigError(
                    f"the optimizer's group {number} has {option}=True, which servers don't compute; use update='worker'"
                )
    in_groups = {id(one) for group in optimizer.param_groups for one in group["params"]}
    for layer in layers:
        for slot in layer.slots:
            shape = tuple(slot.parameter.shape)
            if slot.parameter.dtype is not torch.float32:
                raise ConfigError(
                    f"layer {layer.name!r} has a parameter of {slot.parameter.dtype}; with update='server' the servers' "
                    "float32 values would be others than the worker's; use float32 with autocast, or update='worker'"
                )
            if id(slot.parameter) not in in_groups:
                raise ConfigError(
                    f"layer {layer.name!r} has a parameter of shape {shape} that is in none of the optimizer's groups; "
                    "with update='server' it must be, or be frozen before distribute"
                )


class ServerUpdate:
    """What the servers are told of an optimizer, and its state on the way to them and back. One thread at a time."""

    option = "update='server'"

    def __init__(self, optimizer: torch.optim.Optimizer, layers: List[Layer]):
        """Takes over the state that the optimizer has, which is worker 0's. Raises ConfigError if it can't."""
        self.rule, self._names = _RULES[type(optimizer)]
        self._optimizer = optimizer
        self._layers = layers
        self._group_of = {
            id(parameter): number
            for number, group in enumerate(optimizer.param_groups)
            for parameter in group["params"]
        }
        self._parameters = [slot.parameter for layer in layers for slot in layer.slots]
        self._groups = 1 + max(self._group_of[id(one)] for one in self._parameters)
        self._count = len(optimizer.param_groups)
        self._session: Optional[Session] = None
        self._take_values: Optional[Callable[[int], None]] = None
        self._sent: Optional[
            List[dict]
        ] = None  # settings that have left with the gradients of the last pass
        # By id of a parameter: PyTorch's count of the writes to it, which shows those that are not ours.
        self._versions: Dict[int, int] = {}
        self._dampened: Set[int] = set()  # groups that had dampening and no momentum
        self._before: Optional[ServerUpdate] = getattr(
            optimizer, _ATTRIBUTE, None
        )  # of a job before
        self._handles: list = []
        self.first_iteration = self._steps_done()
        self._steps = self.first_iteration
        # Whether the servers have had a state of any parameter.
        self._had_state = self._steps > 0 or any(map(_has_state, optimizer.param_groups))
        if self._steps == 0 and self._before is not None and self._before.lost_state:
            raise ConfigError(
                "the optimizer's state has ended with the servers of the job before; load a checkpoint of it first, or "
                "make another optimizer"
            )
        self._state = self._state_of_optimizer() if self.first_iteration > 0 else None

    def specs(self) -> List[LayerSpec]:
        """The layers, with the groups of their parameters."""
        return [
            layer.spec()._replace(
                groups=[self._group_of[id(slot.parameter)] for slot in layer.slots]
            )
            for layer in self._layers
        ]

    def restore(self, session: Session) -> None:
        """Worker 0, before training begins: hands the optimizer's state over."""
        if self._state is not None:
            session.restore_optimizer_state(_floats(self._state))
        self._state = None

    def begin(self, session: Session, take_values: Callable[[int], None]) -> None:
        """Training begins; `take_values(i)` waits for layer i's new values and puts them into its parameters."""
        self._session = session
        self._take_values = take_values
        self._note_versions(self._parameters)
        self._steps = (
            session.iteration
        )  # of worker 0's optimizer, or of the job that this process has come to
        self._state = None
        self._optimizer.state.clear()
        if self._before is not None:
            self._before.remove_hooks()
            self._before = None
        setattr(self._optimizer, _ATTRIBUTE, self)
        self._handles = [
            self._optimizer.register_state_dict_post_hook(self._add_state),
            self._optimizer.register_load_state_dict_pre_hook(self._refuse_loading),
        ]

    def send_settings(self) -> None:
        """Before the first gradient of a pass leaves: by what numbers it is to be applied."""
        for layer in self._layers:
            self._check_versions(layer)
        settings = self._settings()
        self._session.set_groups(
            [self._numbers(number, settings[number]) for number in range(self._groups)]
        )
        self._sent = settings
        self._had_state = self._had_state or any(map(_has_state, settings))
        self._steps += 1

    def step(self) -> None:
        """The optimizer's: its gradients have left long ago."""
        if self._settings() != self._sent:
            raise ConfigError(
                "the optimizer's settings, as its learning rate, have changed between backward() and step(); with "
                "update='server' they leave with the gradients, so change them after step(), as schedulers do"
            )
        self._sent = None

    def update(self, numbers: Iterable[int]) -> None:
        """Brings layers up to date."""
        for number in numbers:
            layer = self._layers[number]
            self._check_versions(layer)
            self._take_values(number)
            self._note_versions(slot.parameter for slot in layer.slots)

    def check_loading(self) -> None:
        """Raises ConfigError: parameters can't be loaded any more."""
        raise ConfigError(
            "load_state_dict after distribute: with update='server' the servers have the parameters, and would bring "
            "theirs back; load them before"
        )

    def end(self) -> None:
        """The job has ended, and with it the servers that had the state."""
        self._session = None

    @property
    def lost_state(self) -> bool:
        """Whether the optimizer is without the state that it had in the end."""
        trained = self._session is None and self._steps > 0
        return trained and self._had_state and not self._optimizer.state

    def remove_hooks(self) -> None:
        """Another job has the optimizer."""
        for handle in self._handles:
            handle.remove()

    def _note_versions(self, parameters: Iterable[torch.Tensor]) -> None:
        self._versions.update((id(one), one._version) for one in parameters)

    def _check_versions(self, layer: Layer) -> None:
        if any(
            slot.parameter._version != self._versions[id(slot.parameter)] for slot in layer.slots
        ):
            raise ConfigError(
                f"a parameter of layer {layer.name!r} was written to after distribute, in place; with update='server' the "
                "servers have the values and would bring theirs back; write before distribute, or use update='worker'"
            )

    def _settings(self) -> List[dict]:
        groups = self._optimizer.param_groups
        if len(groups) != self._count:
            raise ConfigError(
                "the optimizer got another group after distribute, which update='server' can't take in"
            )
        return [
            {
                key: float(value) if isinstance(value, torch.Tensor) else value
                for key, value in group.items()
                if key != "params"
            }
            for group in groups
        ]

    def _numbers(self, number: int, group: dict) -> ParameterGroup:
        numbers = ParameterGroup(
            learning_rate=group["lr"],
            weight_decay=group["weight_decay"],
            maximize=int(group["maximize"]),
        )
        if self.rule == "TorchAdamW":
            numbers.momentum, numbers.momentum2 = group["betas"]
            numbers.delta = group["eps"]
            return numbers
        numbers.momentum = group["momentum"]
        numbers.dampening = group["dampening"]
        numbers.nesterov = int(group["nesterov"])
        if numbers.dampening != 0 and numbers.momentum == 0:
            self._dampened.add(number)
        elif numbers.dampening != 0 and number in self._dampened:
            raise ConfigError(
                f"the optimizer's group {number} with dampening got a momentum after steps without one, which "
                "update='server' would dampen at once"
            )
        return numbers

    def _steps_done(self) -> int:
        state = self._optimizer.state
        mine = [state[parameter] for parameter in self._parameters if state.get(parameter)]
        if not mine:
            return 0
        steps = {int(one.get("step", 1)) for one in mine}
        groups = self._optimizer.param_groups
        incomplete = any(
            _has_state(groups[self._group_of[id(parameter)]]) and not state.get(parameter)
            for parameter in self._parameters
        )
        if incomplete or len(steps) != 1:
            raise ConfigError(
                "the optimizer has the state of some parameters only, or of different numbers of steps; with "
                "update='server' all must have done the same steps"
            )
        return steps.pop()

    def _views(self, floats: torch.Tensor) -> Dict[int, Dict[str, torch.Tensor]]:
        # By id of the parameter: parts of all parameters' state, which is interleaved, number by number.
        views = {}
        begin = 0
        for parameter in self._parameters:
            part = floats[begin : begin + parameter.numel() * len(self._names)]
            begin += len(part)
            columns = part.view(parameter.numel(), len(self._names))
            views[id(parameter)] = {
                name: columns[:, place].view(parameter.shape)
                for place, name in enumerate(self._names)
            }
        return views

    def _new_state(self) -> torch.Tensor:
        floats = sum(one.numel() for one in self._parameters) * len(self._names)
        # Whatever default type and device the program has set: the library writes there.
        return torch.zeros(floats, dtype=torch.float32, device="cpu")

    def _state_of_optimizer(self) -> torch.Tensor:
        floats = self._new_state()
        views = self._views(floats)
        for parameter in self._parameters:
            for name, view in views[id(parameter)].items():
                value = self._optimizer.state[parameter].get(name)
                if value is not None:  # SGD without momentum has none
                    view.copy_(value)
        return floats

    def _add_state(self, _optimizer, state_dict: dict) -> None:
        if self._session is None and not self.lost_state:
            return
        if self._session is None:
            raise ConfigError(
                "the job has ended, and with it the servers, which had the optimizer's state; with update='server' "
                "call state_dict() before shutdown()"
            )
        if self._session.rank != 0:
            raise ConfigError(
                "with update='server' the servers have the optimizer's state and give it to rank 0 only; call "
                "optimizer.state_dict() where poseidon_torch.rank() is 0"
            )
        if self._sent is not None:
            raise ConfigError(
                "state_dict() between backward() and step(): with update='server' the servers are a step ahead; call "
                "it after step()"
            )
        if self._steps == 0:
            return
        floats = self._new_state()
        self._session.collect_optimizer_state(_floats(floats))
        views = self._views(floats)
        state = {}
        index = 0
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) in views and _has_state(group):
                    state[index] = self._state_of(views[id(parameter)], parameter)
                index += 1
        state_dict["state"] = state

    def _refuse_loading(self, *_) -> None:
        if self._session is not None:
            raise ConfigError(
                "load_state_dict after distribute: with update='server' the servers have the optimizer's state; load it "
                "before"
            )

    def _state_of(self, views: Dict[str, torch.Tensor], parameter: torch.Tensor) -> dict:
        state = {} if self.rule == "TorchSGD" else {"step": torch.tensor(float(self._steps))}
        for name, view in views.items():
            state[name] = view.to(parameter.device, copy=True).contiguous()
        return state


def _has_state(group: dict) -> bool:
    """Whether the parameters of a group have a state; SGD's have none without momentum."""
    return group.get("momentum") != 0


def _floats(tensor: torch.Tensor) -> Floats:
    return Floats(tensor.data_ptr(), tensor.numel())
