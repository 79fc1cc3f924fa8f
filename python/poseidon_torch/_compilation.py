"""What torch.compile does to an exchange that follows the backward pass layer by layer."""

import warnings

import torch

from ._errors import ConfigError


def is_compiled(module: torch.nn.Module) -> bool:
    """By torch.compile(module), which wraps it, or by module.compile()."""
    wrapped = module._modules.get("_orig_mod")
    return wrapped is not None or getattr(module, "_compiled_call_impl", None) is not None


def check_compilation(model: torch.nn.Module, overlap: str) -> None:
    """Warns of a model that is compiled as a whole; raises ConfigError for what can't be compiled."""
    compiled = [name for name, module in model.named_modules() if is_compiled(module)]
    if compiled and overlap == "forward":
        raise ConfigError(
            f"{compiled[0] or 'the model'} is compiled; overlap='forward' updates layers between the modules' forward "
            "passes, which torch.compile makes one; use overlap='backward', or do not compile"
        )
    if "" in compiled:
        warnings.warn(
            "the model is compiled as a whole, so that all gradients come at the end of its backward pass and nothing of "
            "the exchange is hidden; compile its blocks instead: `for block in model.blocks: block.compile()`",
            stacklevel=3,
        )
