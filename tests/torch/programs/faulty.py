"""A training in which rank 1 does what the test asks for, in iteration 20."""

import logging
import os
import pathlib
import signal
import sys
import time

import torch

import poseidon_torch as psd


def misbehave(fault: str, model) -> None:
    if fault in ("exception", "finally", "logged", "spawned"):
        raise ValueError("record 4711 is broken")
    if fault == "exit":
        sys.exit(5)
    if fault == "handler":
        signal.signal(signal.SIGTERM, end_well)
        # As soon as a call waits, which Python runs the handler in the midst of.
        calls = psd._process.session._call  # pylint: disable=protected-access
        calls._watch = lambda: os.kill(os.getpid(), signal.SIGTERM)
        return
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "hang":
        time.sleep(600)
    raise AssertionError(fault)


def end_well(*_) -> None:
    psd.shutdown()
    sys.exit(0)


def train(fault: str, model, optimizer) -> None:
    rank = psd.rank()
    few = fault in ("some", "differ", "late") or (fault == "uneven" and rank == 1)
    iterations = 20 if few else 10**6
    for iteration in range(iterations):
        if iteration == 20:
            print("trains", flush=True)
            if rank == 1 and fault not in ("none", "some", "uneven"):
                misbehave(fault, model)
            if rank == 0 and fault == "handler":
                wait_for(pathlib.Path(sys.argv[1]) / "ended")
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
        time.sleep(0.02)  # there is no hurry: the tests wait for what happens meanwhile


def wait_for(sign: pathlib.Path) -> None:
    while not sign.exists():
        time.sleep(0.02)


def begin(sign: pathlib.Path, late: bool) -> None:
    """`late`: rank 0 begins when rank 1 has, and has looked for it in the store."""
    if late and os.environ["RANK"] == "0":
        wait_for(sign)
        time.sleep(2)
    psd.init(out=str(sign.parent))
    sign.touch()


def main() -> None:
    out, fault = sys.argv[1], sys.argv[2]
    torch.set_num_threads(1)
    begin(pathlib.Path(out) / "begun", fault == "late")
    rank = psd.rank()
    classes = 5 if fault == "other model" and rank == 1 else 4
    torch.manual_seed(rank if fault == "other frozen" else 0)
    model = torch.nn.Linear(16, classes)
    if fault == "other frozen":
        model = torch.nn.Sequential(torch.nn.Linear(16, 16).requires_grad_(False), model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if fault == "other optimizer" and rank == 0:
        model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
    policy = "ALL_RING" if fault == "other policy" and rank == 1 else "ALL_PS"
    # A store without a name service looks for each new rank's name first, for 10 s.
    seconds = 60 if fault == "late" else 8
    psd.distribute(model, optimizer, policy=policy, deadline_seconds=seconds)
    if fault == "differ" and rank == 1:
        optimizer.param_groups[0]["lr"] = 0.02
    if fault == "finally":
        try:
            train(fault, model, optimizer)
        finally:
            psd.shutdown()
    elif fault == "logged":
        try:
            train(fault, model, optimizer)
        except ValueError:
            logging.exception("the training has failed")
            sys.exit(6)
    else:
        train(fault, model, optimizer)
    if fault not in ("differ", "uneven"):  # these end without
        psd.shutdown()


def main_of(_number: int) -> None:
    main()


if __name__ == "__main__":
    if sys.argv[2] == "spawned" and os.environ["RANK"] == "1":
        torch.multiprocessing.spawn(main_of, nprocs=1)
    else:
        main()
