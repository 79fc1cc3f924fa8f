"""Asks for what the job config says otherwise, prints the refusals, and then trains as the config says."""

import torch

import poseidon_torch as psd

torch.set_num_threads(1)
psd.init()
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for asked in (
    psd.distribute,
    psd.DiLoCo,
    lambda *given: psd.DiLoCo(*given, every=1),
    lambda *given: psd.DiLoCo(*given, every=4, fragments=2, overlap_steps=1),
):
    try:
        asked(model, optimizer)
    except psd.ConfigError as error:
        print("refused:", error, flush=True)
psd.DiLoCo(model, optimizer, every=4, fragments=2)
for _ in range(8):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).square().sum().backward()
    optimizer.step()
psd.shutdown()
print("trained", flush=True)
