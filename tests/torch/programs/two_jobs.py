"""Trains in two jobs, one after the other, of which rank 0 is late for the second one.

    two_jobs.py OUT
"""

import gc
import sys
import time

import torch

import poseidon_torch as psd

DEADLINE = 60  # seconds; the job says who is waited for, before the test loses its patience

torch.set_num_threads(1)
for number in range(2):
    psd.init(out=f"{sys.argv[1]}/job-{number}")
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    psd.distribute(model, optimizer, policy="ALL_RING", deadline_seconds=DEADLINE)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    psd.shutdown()
    if psd.rank() == 0:
        time.sleep(2)  # in which the others come to the next job
        gc.collect()
print("two jobs", flush=True)
