"""DistributedDataParallel as those use it who have just read about it: a model, an optimizer, a loop, a checkpoint. What
trains knows nothing of the process group's backend. Wide enough that a backend's own all-reduce carries it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS = 5


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(128, 256)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(256, 64)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def learn(ddp_model, rank):
    """The losses of all ranks together."""
    loss_fn = nn.MSELoss()
    optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.5)
    torch.manual_seed(10 + rank)
    inputs, labels = torch.randn(20, 128), torch.randn(20, 64)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_fn(ddp_model(inputs), labels)
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss)
        losses.append(loss.item())
    return torch.tensor(losses)


def demo_basic(rank, world_size, prepared=lambda model: model):
    """Ranks start from other values; rank 0's become everybody's."""
    assert dist.get_world_size() == world_size
    torch.manual_seed(rank)
    return learn(DDP(prepared(ToyModel())), rank)


def demo_checkpoint(rank, folder, prepared=lambda model: model):
    """Rank 0 saves, and all go on from there."""
    torch.manual_seed(rank)
    ddp_model = DDP(prepared(ToyModel()))
    learn(ddp_model, rank)
    path = folder / "model.checkpoint"
    if rank == 0:
        torch.save(ddp_model.state_dict(), path)
    dist.barrier()  # nobody loads before it is there
    ddp_model.load_state_dict(torch.load(path, map_location="cpu"))
    losses = learn(ddp_model, rank)
    dist.barrier()
    if rank == 0:
        path.unlink()
    return losses
