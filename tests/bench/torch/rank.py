#!/usr/bin/env python3
"""A rank of peers.py, which starts it: trains a paced net by one variant after the other.

    rank.py JOB.json OUT.json

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are torchrun's; each variant takes the next port."""

import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import sys
import time
from typing import Callable, Iterator, List

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import nets
import poseidon_torch as psd
from poseidon_torch._job import own_address

RATE = 1e-4
# Relative, of what the parameters have learned: BF16 has 8 bits.
TOLERANCE = {"exact": 1e-4, "rounded": 2e-2}
_COUNTERS = pathlib.Path("/sys/class/net/eth0/statistics")


@dataclasses.dataclass
class Training:
    """What a variant's trainings are made of."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    inputs: torch.Tensor
    synchronize: Callable[[], None] = lambda: None


@contextlib.contextmanager
def alone(training: Training, _options) -> Iterator[None]:
    """No exchange."""
    del training
    yield


@contextlib.contextmanager
def ddp(training: Training, options) -> Iterator[None]:
    """DistributedDataParallel over gloo."""
    hook = options.pop("hook", None)
    dist.init_process_group("gloo")
    try:
        training.model = DistributedDataParallel(training.model, **options)
        if hook == "bf16":
            training.model.register_comm_hook(None, default_hooks.bf16_compress_hook)
        elif hook == "powersgd":
            # From the third iteration on; DDP's first one is there to find the buckets.
            state = powerSGD_hook.PowerSGDState(
                process_group=None, matrix_approximation_rank=1, start_powerSGD_iter=2
            )
            training.model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        yield
    finally:
        training.model = None
        dist.destroy_process_group()


@contextlib.contextmanager
def torchft(training: Training, options) -> Iterator[None]:
    """torchft's DistributedDataParallel over its gloo: every rank is a replica group of its own, and none is lost."""
    # Only who has installed it measures it.
    import torchft as ft  # pylint: disable=import-error,import-outside-toplevel
    from torchft import coordination  # pylint: disable=import-error,import-outside-toplevel

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    master, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    host = own_address(master)
    lighthouse = None
    if rank == 0:
        lighthouse = coordination.LighthouseServer(f"{master}:{port}", min_replicas=ranks)
    store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)
    group = ft.ProcessGroupGloo(timeout=datetime.timedelta(seconds=60))
    manager = ft.Manager(
        pg=group,
        load_state_dict=training.model.load_state_dict,
        state_dict=training.model.state_dict,
        min_replica_size=ranks,
        init_sync=False,  # all have the same seed
        rank=0,
        world_size=1,
        store_addr=host,
        store_port=store.port,
        lighthouse_addr=f"http://{master}:{port}",
        replica_id=f"replica_{rank}",
        hostname=host,
    )
    try:
        training.model = ft.DistributedDataParallel(manager, training.model, **options)
        training.optimizer = ft.Optimizer(manager, training.optimizer)
        yield
    finally:
        manager.shutdown(wait=False)
        group.shutdown()
        if lighthouse is not None:
            lighthouse.shutdown()


@contextlib.contextmanager
def ours(training: Training, options) -> Iterator[None]:
    """poseidon_torch. `factors`: distribute gets an example."""
    if options.pop("factors", False):
        options["example"] = training.inputs
    psd.init()
    psd.distribute(training.model, training.optimizer, **options)
    training.synchronize = psd.synchronize
    yield
    psd.shutdown()


SYSTEMS = {"alone": alone, "ddp": ddp, "torchft": torchft, "poseidon": ours}


def processor_seconds() -> float:
    """Of this process and of those that it has started and that still run."""
    tick = os.sysconf("SC_CLK_TCK")
    total = 0.0
    waiting = [os.getpid()]
    while waiting:
        directory = pathlib.Path("/proc", str(waiting.pop()))
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = (directory / "stat").read_text(encoding="ascii").rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / tick
            for task in (directory / "task").iterdir():
                waiting += map(int, (task / "children").read_text(encoding="ascii").split())
    return total


def sent_bytes() -> int:
    """By this namespace's link, all headers included."""
    return int((_COUNTERS / "tx_bytes").read_text(encoding="ascii"))


def iterate(training: Training, count: int) -> List[float]:
    """Seconds of each iteration."""
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        training.optimizer.zero_grad()
        training.model(training.inputs).sum().backward()
        training.optimizer.step()
        times.append(time.perf_counter() - begin)
    return times


def timed(training: Training, count: int) -> List[float]:
    """Seconds of so many iterations with an exchange each. One more comes before them: after all have
    met, a forward pass with which exchanges overlap finds none to wait for."""
    return iterate(training, count + 1)[1:]


def check(model: nets.PacedNet, iterations: int, ranks: int, tolerance: float) -> None:
    """Every float of a paced part has learned the mean of all ranks' gradients."""
    expected = -RATE * iterations * (ranks + 1) / 2
    for name, module in model.named_modules():
        if not isinstance(module, nets.Paced):
            continue
        for parameter in module.own:
            error = (parameter.detach() - expected).abs().max().item()
            if error > tolerance * abs(expected):
                raise AssertionError(f"{name} learned {parameter.flatten()[0]}, not {expected}")


def measure(job: dict, variant: dict) -> dict:
    """One variant."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(7)
    net = nets.NETS[job["net"]]()
    model = nets.PacedNet(net.scaled(job["side"]), job["seconds"], float(rank + 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    training = Training(model, optimizer, torch.randn(net.batch, model.inputs))
    with SYSTEMS[variant["system"]](training, dict(variant["options"])):
        iterate(training, job["warm_up"])
        # What overlaps with the next forward pass is not counted as the timed iterations'.
        training.synchronize()
        before = processor_seconds(), sent_bytes(), time.thread_time()
        times = timed(training, job["iterations"])
        training.synchronize()
        after = processor_seconds(), sent_bytes(), time.thread_time()
        counted = job["iterations"] + 1
        if variant["system"] != "alone" and variant["means"]:
            check(model, job["warm_up"] + counted, ranks, TOLERANCE[variant["means"]])
    cpu, sent, thread = ((end - begin) / counted for begin, end in zip(before, after))
    layers = sum(1 for part in net.parts if part.shapes)
    return {
        "seconds": times,
        "cpu_seconds": cpu,
        "bytes": sent,
        "thread_seconds": thread,
        "layers": layers,
    }


def main() -> None:
    torch.set_num_threads(1)
    job = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    port = int(os.environ["MASTER_PORT"])
    results = []
    for number, variant in enumerate(job["variants"]):
        os.environ["MASTER_PORT"] = str(port + number)
        results.append(measure(job, variant))
    pathlib.Path(sys.argv[2]).write_text(json.dumps(results), encoding="utf-8")
    # No destructor of a library may turn a training that went well into a failure.
    sys.stdout.flush()


if __name__ == "__main__":
    main()
