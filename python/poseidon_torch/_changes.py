"""Refuses what would let a parameter of a distributed model learn on each worker alone, without a word."""

import weakref
from typing import Dict, Tuple

import torch
from torch.nn.modules import module as module_hooks

from ._layers import frozen_parameters
from ._errors import ConfigError


class ChangeGuard:
    """Looks after a model's parameters from now on: one that is added is refused at once, and one that is frozen now
    and requires a gradient later, when `check` is called. Raises ConfigError. One thread at a time.
    """

    def __init__(self, model: torch.nn.Module):
        self._frozen = frozen_parameters(model)
        # By id, as a class of modules may compare them in its own way; but that of one that is gone may be another's.
        ours: Dict[int, Tuple[weakref.ReferenceType, str]] = {
            id(module): (weakref.ref(module), name) for name, module in model.named_modules()
        }

        def refuse(module: torch.nn.Module, name: str, what) -> None:
            known, path = ours.get(id(module), (lambda: None, ""))
            if known() is not module or what is None:
                return
            if isinstance(what, torch.nn.Module) and not any(True for _ in what.parameters()):
                return
            where = f"{path}.{name}".strip(".")
            raise ConfigError(
                f"{where} was set after distribute; change the model before it is distributed"
            )

        self._handles = [
            module_hooks.register_module_parameter_registration_hook(refuse),
            module_hooks.register_module_module_registration_hook(refuse),
        ]

    def check(self) -> None:
        """That what was frozen still is."""
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
