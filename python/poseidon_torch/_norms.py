"""Normalization over all workers' batches, which is torch.distributed's affair and not the job's; and what a forward
pass normalizes of the parameters.
"""

import itertools

import torch
import torch.distributed as dist

from ._errors import ConfigError

_EMBEDDINGS = (torch.nn.Embedding, torch.nn.EmbeddingBag)


def check_norms(model: torch.nn.Module, workers: int) -> None:
    """Raises ConfigError for a SyncBatchNorm that nothing synchronizes: without a process group of torch.distributed's it
    takes the statistics of this worker's batch alone, and says nothing of it. With one PyTorch has it for GPUs only.
    """
    if workers == 1:
        return
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.SyncBatchNorm):
            continue
        on_cpu = any(
            value.is_cpu for value in itertools.chain(module.parameters(), module.buffers())
        )
        if on_cpu:
            raise ConfigError(
                f"{name or 'the model'} is a SyncBatchNorm, which PyTorch has for GPUs only; use another norm"
            )
        if not dist.is_initialized():
            raise ConfigError(
                f"{name or 'the model'} is a SyncBatchNorm, which synchronizes nothing without a process group of "
                "torch.distributed's; call torch.distributed.init_process_group beside poseidon_torch.init, or use "
                "another norm"
            )


def check_max_norms(model: torch.nn.Module, workers: int) -> None:
    """Raises ConfigError for an embedding with `max_norm` that learns: each forward pass scales the rows that it reads,
    which are others on each worker, so that the workers' parameters would not stay the same.
    """
    for name, module in model.named_modules():
        if workers > 1 and _has_max_norm(module) and module.weight.requires_grad:
            kind = getattr(module, "original_name", type(module).__name__)
            raise ConfigError(
                f"{name or 'the model'} is an {kind} with max_norm, which scales the rows of each worker's "
                "own batch in place, so that the workers' parameters would part; leave max_norm out, and scale all rows "
                "after step(), on all workers alike"
            )


def _has_max_norm(module: torch.nn.Module) -> bool:
    """Of an embedding, also of one that torch.jit has scripted or traced."""
    if isinstance(module, _EMBEDDINGS):
        return module.max_norm is not None
    names = [kind.__name__ for kind in _EMBEDDINGS]
    if not isinstance(module, torch.jit.ScriptModule) or module.original_name not in names:
        return False
    if getattr(module, "max_norm", None) is not None:
        return True
    # A traced one has what it does, and not why; nothing, where only its weight is used.
    does_something = module._c._has_method("forward")  # pylint: disable=protected-access
    return does_something and "embedding_renorm" in str(module.graph)
