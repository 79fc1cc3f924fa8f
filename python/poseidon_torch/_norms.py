"""Normalization over all workers' batches, which is torch.distributed's affair and not the job's."""

import torch
import torch.distributed as dist

from ._errors import ConfigError


def check_norms(model: torch.nn.Module, workers: int) -> None:
    """Raises ConfigError for a SyncBatchNorm that nothing synchronizes: without a process group of torch.distributed's it
    takes the statistics of this worker's batch alone, and says nothing of it."""
    if workers == 1 or dist.is_initialized():
        return
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.SyncBatchNorm):
            raise ConfigError(
                f"{name or 'the model'} is a SyncBatchNorm, which synchronizes nothing without a process group of "
                "torch.distributed's; call torch.distributed.init_process_group beside poseidon_torch.init, or use "
                "another norm"
            )
