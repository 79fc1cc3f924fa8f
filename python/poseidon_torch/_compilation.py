"""What torch.compile and torch.jit do to an exchange that follows the backward pass layer by layer."""

import warnings

import torch

from ._errors import ConfigError


def is_compiled(module: torch.nn.Module) -> bool:
    """By torch.compile(module), which wraps it, or by module.compile()."""
    wrapped = "_orig_mod" in module._modules  # of torch.jit's modules these are no dict
    return wrapped or getattr(module, "_compiled_call_impl", None) is not None


def refuse_scripted(model: torch.nn.Module, what: str) -> None:
    """Raises ConfigError if a part of the model is of torch.jit's, which takes no hooks; `what` needs them."""
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ConfigError(
                f"{name or 'the model'} is a ScriptModule of torch.jit's, which takes no hooks of its passes, as {what} "
                f"needs them; do without {what}, or without torch.jit"
            )


def check_compilation(model: torch.nn.Module, overlap: str, update: str, has_example: bool) -> None:
    """Warns of a model that is compiled as a whole; raises ConfigError for what can't be compiled or scripted."""
    for needs_hooks, option in (
        (overlap == "forward", "overlap='forward'"),
        (update == "server", "update='server'"),
        (has_example, "an example"),
    ):
        if needs_hooks:
            refuse_scripted(model, option)
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
