"""Trains PyTorch models on many machines over ordinary networks.

    import poseidon_torch as psd

    psd.init()  # torchrun --nnodes=4 --nproc-per-node=1 train.py
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer = psd.distribute(model, optimizer)
    sampler = DistributedSampler(dataset, psd.size(), psd.rank())

The loop stays as it is. When backward() returns, every p.grad is the mean of all workers' gradients, as with
DistributedDataParallel; the model's state_dict keeps its keys. docs/pytorch.md tells the rest.

Errors are PoseidonError and its classes. Thread safety: one thread.
"""

import atexit
import contextlib
import dataclasses
import os
import pathlib
import sys
from typing import Callable, ContextManager, List, Optional, Union

import torch

from ._changes import check_optimizer_of
from ._compilation import check_compilation
from ._diloco import (
    Outer,
    OuterState,
    Rounds,
    check_outer_state,
    expect_local_steps,
    refuse_local_steps,
    values_of_outer,
)
from ._example import Example, Trace
from ._exchange import Exchange
from ._forward_overlap import check_optimizer
from ._job import Admission, Job, JobOptions, Place, default_policy, needs_servers
from ._layers import layers_of
from ._moments import timed_device
from ._norms import check_max_norms, check_norms
from ._profile import LocalSteps, Profile, profile
from ._program_end import EndNotes, LateExit, failure_of, report_late
from ._server_update import ServerUpdate, check_server_update
from ._untrained import NamedTensors, Untrained, values_of
from ._errors import ConfigError, DeadlineExceeded, Left, PeerLost, PoseidonError
from ._library import Session, version

__all__ = [
    "ConfigError",
    "DiLoCo",
    "DeadlineExceeded",
    "Left",
    "LocalSteps",
    "PeerLost",
    "PoseidonError",
    "Profile",
    "distribute",
    "init",
    "iteration",
    "no_sync",
    "outer_state",
    "profile",
    "rank",
    "report",
    "shutdown",
    "size",
    "synchronize",
    "version",
]


class _Process:
    """What this process takes part in: one job at a time, and in that one distributed model."""

    def __init__(self):
        self.place: Optional[Place] = None
        self.job: Optional[Job] = None
        self.session: Optional[Session] = None
        self.exchange: Optional[Union[Exchange, Rounds]] = None
        self.end_notes: Optional[EndNotes] = None
        self.late_exit: Optional[LateExit] = None
        self.pid = os.getpid()
        self.jobs = 0  # that it has taken part in
        # Where it took part last, also when that has ended.
        self.rank: Optional[int] = None
        self.size: Optional[int] = None

    def leave(self) -> None:
        self.place = self.job = self.session = self.exchange = None

    def expect_init(self) -> None:
        if self.job is None and self.session is None:
            raise ConfigError("call poseidon_torch.init() first")


_process = _Process()


def init(
    job: Optional[str] = None,
    out: Optional[str] = None,
    *,
    key_file: Optional[str] = None,
    allow: Optional[List[str]] = None,
) -> None:
    """Takes part in a job.

    Without arguments in one that torchrun has started: rank 0 starts a scheduler and each machine's first process a
    parameter server, which end with the job. Or, started by `poseidon run --config=FILE -- python PROGRAM`, in that one.

    `job`: path of the job config of daemons that run already (docs/configuration.md); joins at once. `out`: directory
    for the daemons' logs and summary.json; without it a new one below the temporary directory. With `job` it is for this
    worker's trace and events; without it there are none. `poseidon run` says itself where they go.

    Of a job that torchrun has started (docs/security.md): `key_file`, a key made by `poseidon keys`, of which each
    machine has a copy: everything is encrypted, and only who has it may take part. `allow`: addresses and networks
    ("10.0.0.0/8") that may connect; without a key those of the job's machines, if not given. Raises PoseidonError.
    """
    if _process.job is not None or _process.session is not None:
        raise ConfigError("init was called twice; a process takes part in one job")
    if (job is not None or "POSEIDON_JOB" in os.environ) and (key_file or allow):
        raise ConfigError("key_file, allow: the job config says so itself (docs/security.md)")
    if key_file is not None and not str(key_file):
        raise ConfigError(
            "key_file is empty; name the job's key, or leave it out (docs/security.md)"
        )
    if job is None and "POSEIDON_JOB" in os.environ:
        if out:
            raise ConfigError("out: `poseidon run` has said where (--out); leave it out here")
        job = os.environ["POSEIDON_JOB"]
        _process.session = Session(
            job=job,
            rank=int(os.environ["POSEIDON_RANK"]),
            host=os.environ.get("POSEIDON_HOST", ""),
            trace_directory=str(pathlib.Path(job).parent),
            incarnation=int(os.environ.get("POSEIDON_INCARNATION", 0)),
            replaces=int(os.environ.get("POSEIDON_REPLACES", 0)),
        )
    elif job is not None:
        if out:
            out = os.path.abspath(out)
            os.makedirs(out, exist_ok=True)
        _process.session = Session(job=job, trace_directory=out or "")
    else:
        _process.place = Place.from_environment()
        _process.job = Job(_process.place, out, _process.jobs, Admission(key_file, allow))
    where = _process.place or _process.session
    _process.rank, _process.size = where.rank, where.workers
    _process.jobs += 1
    _process.pid = os.getpid()
    if _process.end_notes is None:
        _process.end_notes = EndNotes()
        atexit.register(_end)
    _process.end_notes.failure = None


def rank() -> int:
    """This worker's, from 0; after shutdown() what it was."""
    if _process.rank is None:
        _process.expect_init()
    return _process.rank


def size() -> int:
    """The job's workers; after shutdown() as many as there were."""
    if _process.size is None:
        _process.expect_init()
    return _process.size


def iteration() -> int:
    """Which iteration is next: 0 at first, and where the program should begin its loop.

    for step in range(psd.iteration(), steps):

    It is not 0 where this process has taken a lost one's place, and with update="server" where the optimizer has gone
    on from a checkpoint (docs/pytorch.md): then the learning rate's schedule and the data are to be those of that
    iteration, too. A checkpoint of AdamW has the number of its steps, at which this begins. One of SGD has not: this
    begins at 1 where the state has momentum, else at 0, however many steps came before. A program that goes on from
    there saves that number itself. Of DiLoCo, the rounds.
    """
    return _exchange().iteration


def distribute(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    example: Optional[Example] = None,
    overlap: str = "backward",
    update: str = "worker",
    policy: Optional[str] = None,
    codec: Optional[str] = None,
    servers: Optional[int] = None,
    bandwidth: Optional[str] = None,
    lanes: Optional[int] = None,
    bucket_bytes: Optional[int] = None,
    deterministic: Optional[bool] = None,
    deadline_seconds: Optional[float] = None,
    batch_size: Optional[int] = None,
) -> torch.optim.Optimizer:
    """Makes `model` train together with the other workers' and returns `optimizer`, which is to be used as before.

    Rank 0's parameters become everybody's; buffers, as BatchNorm's statistics, stay each worker's own, and what is frozen
    must be the same on all. From now on a backward pass ends with the mean of all workers' gradients in p.grad, so that
    all workers must make as many of them.

    `example`: the arguments of a forward pass with one batch (a tensor; a sequence; a mapping by names). With it the
    layers' order is that of their use, and torch.nn.Linear layers may send sufficient factors, the gradient at their top
    and the data at their bottom, where these are fewer bytes than the gradient of the weight.

    `overlap`: "backward", or "forward" for updates layer by layer just before the next forward pass: more of the
    exchange is hidden, but p.grad is of no use between, so that clipping and GradScaler can't be used, and parameters
    must not be read outside of the forward pass without synchronize(). Compiled modules need "backward".

    `update`: "worker", or "server": the parameter servers carry out torch.optim.SGD or AdamW, with their state, and new
    parameters come back instead of gradients. What needs the gradients after backward, as clipping and GradScaler, can't
    be used then, and optimizer.state_dict() is rank 0's (docs/pytorch.md).

    `policy`, `codec`, `lanes`, `bucket_bytes` and `deterministic` are communication's of docs/configuration.md,
    `servers` is cluster's (not given: one a machine) and `bandwidth` cluster.network's ("10Gbps"). Not given, the policy
    is TIME: the network is measured at the start, the model's passes in the first dozen iterations, and the scheme and
    the bucket of each layer are planned by that. With `deterministic`, since a measured plan is not the same twice, and
    for a model on several devices, whose passes are not measured, it is ALL_RING, or BYTES where an example is given.
    `deadline_seconds`: how long workers wait for one another before the job ends (600); longer than a test that only
    one of them makes. `batch_size`: samples a worker computes in an iteration, for the rates that the job tells of; not
    given: it tells of none. The same on all ranks; a job config file says all but the last itself.

    Raises ConfigError for what can't be trained so, PoseidonError for what happens on the way.
    """
    if overlap not in ("backward", "forward"):
        raise ConfigError(f"overlap is {overlap!r}; it can be 'backward' or 'forward'")
    if update not in ("worker", "server"):
        raise ConfigError(f"update is {update!r}; it can be 'worker' or 'server'")
    options = {
        "policy": policy,
        "codec": codec,
        "servers": servers,
        "bandwidth": bandwidth,
        "lanes": lanes,
        "bucket_bytes": bucket_bytes,
        "deterministic": deterministic,
        "deadline_seconds": deadline_seconds,
    }
    _check_start(model, optimizer)
    if update != "server":
        _refuse_recovery("with update='worker'", "use update='server'")
    check_max_norms(model, size())
    refuse_local_steps(_process.session)
    check_compilation(model, overlap, update, example is not None)
    layers = layers_of(model)
    if example is not None:
        layers = Trace(model, example).apply(model, layers)
    server_update: Optional[ServerUpdate] = None
    if update == "server":
        check_server_update(optimizer, layers, policy, codec)
        server_update = ServerUpdate(optimizer, layers)
    elif overlap == "forward":
        check_optimizer(optimizer)
    if _process.job is not None:  # else the job config says it
        options["wait_for_all"] = overlap == "backward"
        timed = not deterministic and timed_device(model, layers) is not None
        options["policy"] = policy or default_policy(timed, example is not None, codec)
        if update == "server":
            options["policy"] = "ALL_PS"
    _start(
        model,
        values_of(optimizer, model) if update == "worker" else (),
        options,
        lambda session: Exchange(
            model, optimizer, layers, session, overlap, batch_size, server_update
        ),
    )
    return optimizer


def DiLoCo(  # pylint: disable=invalid-name
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    every: int = 100,
    outer_lr: float = 0.7,
    outer_momentum: float = 0.9,
    fragments: int = 1,
    overlap_steps: int = 0,
    mixing: Optional[float] = None,
    step_deadline_seconds: Optional[float] = None,
    batch_size: Optional[int] = None,
    outer_state: Optional[OuterState] = None,
    **options,
) -> torch.optim.Optimizer:
    """Instead of distribute, where even a few bytes an iteration are too many: DiLoCo (arXiv 2311.08105).

    Each worker trains on its own. After `every` steps of `optimizer` the way that the parameters have gone since the
    last exchange is averaged over all workers and taken for a gradient, which Nesterov's momentum (`outer_lr`,
    `outer_momentum`) applies; all go on from there. The training is another one than with the whole batch. What of the
    optimizer is state stays each worker's own. Returns `optimizer`.

    `fragments`, `overlap_steps` and `mixing` are Streaming DiLoCo's (arXiv 2501.18512). The layers are divided into
    so many fragments of about the same size, each of which is exchanged every `every` steps, one after the other, so
    that a fragment's bytes are the most that move at a time. Training goes on for `overlap_steps` steps before the
    result is waited for; then `mixing` of the worker's own parameters remains, and the rest becomes the outer ones
    (not given: 0.5 with an overlap, as in the paper, else 0).

    `step_deadline_seconds`: an exchange is waited for as many times as long as there are steps between two of them
    (60). `batch_size` is that of a step, and rates are of whole rounds. `options` are distribute's `policy` (not given:
    ALL_RING, or ALL_PS for a codec that needs servers), `codec`, `servers`, `bandwidth`, `lanes`, `bucket_bytes` (of
    one fragment only), `deterministic` and `deadline_seconds`. What was learned since the last exchange when the
    training ends is exchanged by shutdown().

    `outer_state`: to go on from what psd.outer_state() has returned, the same on all ranks.

    Raises ConfigError for what can't be trained so, PoseidonError for what happens on the way.
    """
    for name, instead in (
        ("local_steps", "what the job config calls so is every here"),
        ("wait_for_all", "it is of distribute's overlap; of DiLoCo give overlap_steps"),
    ):
        if name in options:
            raise ConfigError(f"{name}: {instead}")
    if mixing is None:
        mixing = 0.5 if overlap_steps > 0 else 0.0
    outer = Outer(every, fragments, overlap_steps, mixing, outer_lr, outer_momentum)
    _check_start(model, optimizer)
    _refuse_recovery("with DiLoCo", "use distribute(update='server')")
    expect_local_steps(_process.session, every, fragments, overlap_steps)
    layers = layers_of(model)
    if fragments > len(layers):
        raise ConfigError(
            f"fragments is {fragments}, and the model has {len(layers)} layers that train; it can be at most as many"
        )
    if outer_state is not None:
        check_outer_state(outer_state, model)
    if step_deadline_seconds is not None:
        options["step_deadline_seconds"] = step_deadline_seconds
    if _process.job is not None:  # else the job config says it
        options.setdefault("step_deadline_seconds", 60.0)
        options.update(local_steps=every, fragments=fragments, overlap_steps=overlap_steps)
        if fragments > 1:
            options.setdefault("bucket_bytes", 0)  # a bucket's layers are exchanged together
        if needs_servers(options.get("codec")):
            options.setdefault("policy", "ALL_PS")
    _start(
        model,
        values_of_outer(outer_state or {}),
        options,
        lambda session: Rounds(model, optimizer, layers, session, outer, batch_size, outer_state),
    )
    return optimizer


def outer_state() -> OuterState:
    """Of DiLoCo, for a checkpoint: what all workers have alike, by the parameters' names. These are the outer parameters
    and their momentum; a worker's own steps since the last exchange are not in it (docs/pytorch.md).
    """
    exchange = _exchange()
    if not isinstance(exchange, Rounds):
        raise ConfigError("outer_state is of DiLoCo; what distribute trains is in the state_dicts")
    return exchange.outer_state()


def no_sync() -> ContextManager[None]:
    """For gradient accumulation: backward passes inside only add up; the next one outside exchanges the sum.

    with psd.no_sync():
        loss_of(first_half).backward()
    loss_of(second_half).backward()
    """
    return _exchange().no_sync()


def synchronize() -> None:
    """With overlap="forward", before parameters are read outside of the model's forward pass (an average of them, a
    norm): carries the last optimizer.step() out in all layers. state_dict() does so by itself."""
    _exchange().synchronize()


def report(loss: Union[float, torch.Tensor]) -> None:
    """Before backward: this worker's loss, for the job's progress and summary.json."""
    if isinstance(loss, torch.Tensor):
        loss = loss.detach()
        # A device has it later, and is asked when the backward pass has ended: to wait for it here would hold up what is
        # asked of the device next. The program may change its own meanwhile.
        loss = float(loss) if loss.is_cpu else loss.reshape(()).clone()
    _exchange().report(loss)


def shutdown() -> None:
    """After the last iteration, on all workers: waits until all have finished, and ends the daemons. All ranks' parameters
    are compared as they are now, so load or average some only afterwards, or in a copy of the model.

    A program that ends without it ends the same way, and says then what this would raise, which is the process's exit
    code. But if an exception ends it, or sys.exit with another code than 0, the job ends for all workers, which name
    the exception; so it does where this is called while an exception is handled, as in a `finally`.

    Raises PoseidonError where workers ended with different parameters, or could not end together.
    """
    for part in filter(None, (_process.session, _process.exchange)):
        part.expect_no_call()
    failure = failure_of(sys.exc_info()[1])
    if failure is not None:
        _give_up(f"its program was ended by {failure}")
        return
    try:
        if _process.exchange is not None:
            _process.exchange.finish()
        elif _process.session is not None:
            _process.session.close()
    except BaseException as error:
        _give_up(f"its shutdown() was ended by {failure_of(error)}")
        raise
    job = _process.job
    _process.leave()
    if job is not None:
        job.end()


def _exchange() -> Union[Exchange, Rounds]:
    if _process.exchange is None:
        raise ConfigError("call poseidon_torch.distribute(model, optimizer) first")
    return _process.exchange


def _check_start(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    _process.expect_init()
    if _process.exchange is not None:
        raise ConfigError(
            "distribute was called twice; a process trains one model, to which all parts belong"
        )
    check_optimizer_of(model, optimizer)
    check_norms(model, size())


def _refuse_recovery(what: str, instead: str) -> None:
    if _process.session is not None and _process.session.recovers:
        raise ConfigError(
            f"recovery: {what} each process has an optimizer's state of its own, which nobody could give to the process "
            f"that takes the place of a lost one; {instead}, or leave recovery out of the job config and begin again "
            "from a checkpoint"
        )


def _start(
    model: torch.nn.Module,
    alike: NamedTensors,
    options: dict,
    exchange_of: Callable[[Session], Union[Exchange, Rounds]],
) -> None:
    """`alike`: what must begin the same on all ranks."""
    given = {name: value for name, value in options.items() if value is not None}
    if _process.session is not None and given:
        raise ConfigError(
            f"{', '.join(given)}: the job config says so itself (docs/configuration.md)"
        )
    unknown = set(given) - {field.name for field in dataclasses.fields(JobOptions)}
    if unknown:
        raise ConfigError(f"no such option: {', '.join(sorted(unknown))}")
    job_options = JobOptions(**given)
    try:
        if _process.job is not None:
            untrained = Untrained(model, alike)
            _process.job.share("untrained", untrained.text())
            _process.session = _process.job.start(job_options)
            untrained.compare(_process.job.shared("untrained"))
        _process.exchange = exchange_of(_process.session)
    except BaseException as error:
        _give_up(f"it could not begin its training: {failure_of(error)}")
        raise


def _give_up(reason: str) -> None:
    """Leaves the job as it is; the others hear why."""
    exchange, session, job = _process.exchange, _process.session, _process.job
    _process.leave()
    if exchange is not None:
        exchange.give_up(reason)
    elif session is not None:
        with contextlib.suppress(PoseidonError):
            session.fail(reason)
        session.close()
    if job is not None:
        job.abandon(reason, session is not None)


def _end() -> None:
    """At exit."""
    if os.getpid() != _process.pid:
        return
    failure = _process.end_notes.failure
    try:
        if failure is None:
            shutdown()
        else:
            _give_up(f"its program was ended by {failure}")
    except BaseException as error:  # pylint: disable=broad-except
        _process.late_exit = report_late(error)
