"""Refuses what would let a parameter of a distributed model learn on each worker alone, without a word."""

import weakref
from typing import Dict, Optional, Set, Tuple

import torch
from torch.nn.modules import module as module_hooks

from ._layers import frozen_parameters
from ._errors import ConfigError


def check_optimizer_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Raises ConfigError if it has parameters that the model has not."""
    if not isinstance(model, torch.nn.Module) or not isinstance(optimizer, torch.optim.Optimizer):
        raise ConfigError("distribute takes a torch.nn.Module and a torch.optim.Optimizer")
    _check_groups(optimizer, _ids_of(model))


def _ids_of(model: torch.nn.Module) -> Set[int]:
    return {id(parameter) for parameter in model.parameters()}


def _check_groups(optimizer: torch.optim.Optimizer, ours: Set[int]) -> None:
    for number, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            if id(parameter) not in ours:
                raise ConfigError(
                    f"the optimizer's group {number} has a parameter of shape {tuple(parameter.shape)} that is not the "
                    "model's; build the optimizer from model.parameters(), after the model is where it is to be trained"
                )


def _count(optimizer: Optional[torch.optim.Optimizer]) -> int:
    groups = [] if optimizer is None else optimizer.param_groups
    return sum(len(group["params"]) for group in groups)


class ChangeGuard:
    """Looks after a model's parameters from now on: one that is added is refused at once, and one that is frozen now
    and requires a gradient later, when `check` is called; so are those of others that `optimizer`, where it is given,
    has got meanwhile. Raises ConfigError. One thread at a time.
    """

    def __init__(self, model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer]):
        self._frozen = frozen_parameters(model)
        self._optimizer = optimizer
        # Their number, since wrappers put copies of another precision in the place of the model's own.
        self._count = _count(optimizer)
        self._parameters = _ids_of(model)
        # By id, as a class of modules may compare them in its own way; but that of one that is gone may be another's.
        ours: Dict[int, Tuple[weakref.ReferenceType, str]] = {
            id(module): (weakref.ref(module), name) for name, module in model.named_modules()
        }
        parts = {
            path: weakref.ref(part) for path, part in model.named_modules(remove_duplicate=False)
        }

        def refuse(module: torch.nn.Module, name: str, what) -> None:
            known, path = ours.get(id(module), (lambda: None, ""))
            if known() is not module or what is None:
                return
            if isinstance(what, torch.nn.Module) and not any(True for _ in what.parameters()):
                return
            where = f"{path}.{name}".strip(".")
            # As where weights are tied once more, or a layer comes back that was left out for a while.
            if module._parameters.get(name) is what or parts.get(where, lambda: None)() is what:
                return
            raise ConfigError(
                f"{where} was set after distribute; change the model before it is distributed"
            )

        self._handles = [
            module_hooks.register_module_parameter_registration_hook(refuse),
            module_hooks.register_module_module_registration_hook(refuse),
        ]

    def check(self) -> None:
        """That what was frozen still is, and that the optimizer has the model's parameters only."""
        count = _count(self._optimizer)
        if count != self._count:
            _check_groups(self._optimizer, self._parameters)
            self._count = count
        for name, parameter in self._frozen:
            if parameter.requires_grad:
                raise ConfigError(
                    f"{name} was frozen when distribute was called, and now requires a gradient; freeze it after "
                    "distribute instead"
                )

    def remove(self) -> None:
        """The model may change again."""
        for handle in self._handles:
            handle.remove()
