"""A training by Hugging Face's accelerate, which knows nothing of this project: all that is ours is the group that was
made before, of the backend that the environment's BACKEND names. Prints the losses."""

import os

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from poseidon_torch import c10d

STEPS = 12


def main():
    torch.set_num_threads(1)
    torch.distributed.init_process_group(os.environ.get("BACKEND", c10d.NAME))

    # From here on as accelerate's own examples are.
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    random = torch.Generator().manual_seed(5)
    inputs = torch.randn(STEPS * 32, 64, generator=random)
    loader = DataLoader(TensorDataset(inputs, inputs[:, :10].argmax(1)), batch_size=16)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for batch, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), targets)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(accelerator.gather(loss.detach()).sum().item())
    accelerator.print(f"{accelerator.distributed_type} losses {losses}")
    accelerator.end_training()


main()
