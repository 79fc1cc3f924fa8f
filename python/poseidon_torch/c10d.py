"""A backend for torch.distributed, by which DistributedDataParallel, FSDP2 and what is built on them use this project's
all-reduce without a change:

    import poseidon_torch.c10d

    torch.distributed.init_process_group("poseidon")
    model = DistributedDataParallel(model)

Sums and means of float32 tensors on the processor, from 64 KiB on, go to a Communicator
(include/poseidon/communicator.h): its ring or halving and doubling, over lanes of its own. All else (other types,
devices and operations, small tensors, all-gathers) goes to gloo. It brings reach, not the best speed: what knows a
model's layers is poseidon_torch.distribute.

    options = poseidon_torch.c10d.Options(key_file="job.key")  # made by `poseidon keys`, on each machine
    torch.distributed.init_process_group("poseidon", pg_options=options)

encrypts what goes to the Communicator, in which only who has the key can be a rank; what goes to gloo is open
(docs/security.md).

Ranks are named in errors, and no call waits for longer than the group's timeout. A job whose ranks do not make the same
calls in the same order ends with an error.
"""

import atexit
import collections
import concurrent.futures
import contextlib
import dataclasses
import datetime
import operator
import os
import queue
import threading
import warnings
import weakref
from typing import Any, Callable, Deque, List, Optional, Sequence

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future

from ._communicator import Communicator
from ._fresh_part import fresh_part
from ._job import free_ports, own_address, resolve
from ._errors import ConfigError, DeadlineExceeded, PoseidonError

# For init_process_group.
NAME = "poseidon"

# Below this gloo's latency is the smaller one (docs/performance.md, "All-reduce").
_SMALLEST = 64 * 1024 // 4  # floats
# A call that waits looks a few times a second whether it is to be left.
_LEAVE_SECONDS = 5
# Works whose results nobody has asked for yet. A program asks for one before it has begun so many, or never: then these
# are the tensors that stay in memory.
_KEPT_WORKS = 64
# What a process group may be asked for beside all-reduces. Names differ between versions of PyTorch.
_DELEGATED = (
    "allreduce_coalesced",
    "broadcast",
    "allgather",
    "_allgather_base",
    "all_gather_single",
    "allgather_coalesced",
    "all_gather_single_coalesced",
    "allgather_into_tensor_coalesced",
    "reduce",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
    "alltoall",
    "alltoall_base",
    "all_to_all_single",
    "gather",
    "scatter",
    "send",
    "recv",
    "recv_anysource",
    "barrier",
)
# Of these, those that write to their first argument wherever its tensors' numbers are; gloo's others copy, or refuse.
_WRITE_TO_FIRST = (
    "broadcast",
    "reduce",
    "scatter",
    "alltoall",
    "alltoall_base",
    "all_to_all_single",
)


@dataclasses.dataclass(frozen=True)
class Options:
    """Who may be a rank, for init_process_group's pg_options; all groups have those of the first one."""

    key_file: str = ""  # of a key that all ranks share; not given: none
    # Addresses and networks ("10.0.0.0/8") that connections may come from, besides, without a key, the ranks' own.
    allow: Sequence[str] = ()


class _CallThread:
    """Carries out calls in their order, in a thread that does not keep the process from its end."""

    def __init__(self):
        self._calls: queue.SimpleQueue = queue.SimpleQueue()
        # Of what follows. A group's finalizer comes to end() wherever Python runs it, so also while this thread has it.
        self._lock = threading.RLock()
        self._under_way = 0  # calls, with what waits for them in this thread
        self._ended = False  # nobody takes calls any more
        self._leaves = False
        self._thread = threading.Thread(target=self._run, name="poseidon all-reduce", daemon=True)
        self._thread.start()
        # A call that still waits then would come back into an interpreter that is no more.
        atexit.register(self._leave)

    def is_idle(self) -> bool:
        """Whether all calls have been carried out, and the callbacks of their futures, and more may come."""
        return self._under_way == 0 and not self._ended

    def submit(self, call: Callable, *arguments) -> concurrent.futures.Future:
        """Returns at once, with what `call` will have returned or raised: PoseidonError after the end."""
        done: concurrent.futures.Future = concurrent.futures.Future()
        if self._is_current():
            # By a future's callback, which may wait for it here, so that its turn would never come. All ranks come to it
            # at the same place between their calls.
            _carry_out(call, arguments, done)
            return done
        with self._lock:
            if not self._ended:
                self._under_way += 1
                self._calls.put((call, arguments, done))
                return done
        done.set_exception(
            PoseidonError(
                "an all-reduce was begun after its process group had been shut down, or while the program ends; make it "
                "before destroy_process_group()"
            )
        )
        return done

    def check(self) -> None:
        """Called by what waits in a call, several times a second. Raises PoseidonError when the process ends."""
        if self._leaves:
            raise PoseidonError("the program has ended while an all-reduce was under way")

    def end(self) -> None:
        """Waits until all calls have been carried out."""
        self._take_no_more()
        if not self._is_current():
            self._thread.join()
        atexit.unregister(self._leave)

    def _is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def _leave(self) -> None:
        self._leaves = True
        self._take_no_more()
        self._thread.join(_LEAVE_SECONDS)

    def _take_no_more(self) -> None:
        with self._lock:
            self._ended = True
            self._calls.put(None)

    def _run(self) -> None:
        for call, arguments, done in iter(self._calls.get, None):
            _carry_out(call, arguments, done)
            # Else they would stay until the next call comes, and with them a tensor and the group.
            del call, arguments, done
            with self._lock:
                self._under_way -= 1


def _carry_out(call: Callable, arguments: Sequence, done: concurrent.futures.Future) -> None:
    try:
        done.set_result(call(*arguments))
    except Exception as error:  # pylint: disable=broad-except
        done.set_exception(error)


class _CollectiveWork(dist.Work):
    """A collective in the thread of calls. PyTorch's own Work of a future does not raise what the future ended with.

    `kept`: works that stay alive until somebody has asked for the result. Where C++ asks, in some versions of PyTorch
    nothing else keeps this part of a work, without which there is no result."""

    def __init__(self, name: str, done: concurrent.futures.Future, kept: Deque["_CollectiveWork"]):
        super().__init__()
        self._name = name
        self._done = done
        self._kept = kept
        kept.append(self)

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        """Raises what the collective has raised, and DeadlineExceeded after `timeout`; 0: the group's alone."""
        seconds = timeout.total_seconds()
        try:
            self._done.result(seconds if seconds > 0 else None)
        except concurrent.futures.TimeoutError:
            raise DeadlineExceeded(
                f"{self._name} was not done after the {seconds:g} s of wait(timeout), and is still under way; wait for "
                "longer, or look why a rank has not made the call"
            ) from None
        finally:
            if self._done.done():
                self._let_go()
        return True

    def get_future(self) -> torch.futures.Future:
        """Its value is a list of the tensor; its error is one in C++, too, which set_exception's is not."""
        begun = torch.futures.Future()
        future = begun.then(lambda _: self._done.result())
        self._done.add_done_callback(lambda _: begun.set_result(None))
        self._let_go()
        return future

    def is_completed(self) -> bool:
        """Whether wait() would return, or raise, at once."""
        return self._done.done()

    def is_success(self) -> bool:
        """Whether wait() would return at once."""
        return self._done.done() and self._done.exception() is None

    def exception(self) -> Optional[BaseException]:
        """What the all-reduce has raised so far."""
        return self._done.exception() if self._done.done() else None

    def result(self) -> List[torch.Tensor]:
        """What wait() has waited for."""
        return self._done.result()

    def _let_go(self) -> None:
        with contextlib.suppress(ValueError):  # nobody keeps it any more
            self._kept.remove(self)


class _DeviceWarning:
    """Says once that what is not in the processor's memory goes to gloo, as PyTorch says nothing of a backend that it
    drops: of "cpu:poseidon,cuda:nccl" it makes this one alone."""

    def __init__(self):
        self._said = False

    def look(self, values: Any) -> None:
        """At tensors, and lists of them, that a call was given."""
        device = None if self._said else _device_beside_cpu(values)
        if device is None:
            return
        self._said = True
        warnings.warn(
            f'tensors on {device} go to gloo: the backend "poseidon" can\'t be combined with another one, as in '
            '"cpu:poseidon,cuda:nccl"; let a process group of its own, by init_process_group or new_group with '
            "backend='nccl', carry them where there is NCCL",
            stacklevel=4,
        )


def _device_beside_cpu(values: Any) -> Optional[str]:
    if isinstance(values, torch.Tensor):
        return None if values.is_cpu else values.device.type
    if isinstance(values, (list, tuple)):
        return next(filter(None, map(_device_beside_cpu, values)), None)
    return None


class PoseidonProcessGroup(dist.ProcessGroup):
    """Ranks with a Communicator, and a gloo group for the rest. Calls return at once, and one thread carries out
    the all-reduces in the order of the calls; a call that is waited for is carried out where it is made.
    """

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        size: int,
        timeout: datetime.timedelta,
        options: Options = Options(),
    ):
        super().__init__(rank, size)
        self.poseidon_options = options
        self._name = ""
        self._size = size
        self._devices = _DeviceWarning()
        self._thread = _CallThread()
        store = fresh_part(store, rank, size, timeout.total_seconds())
        self._gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timeout)
        self._communicator = Communicator(
            rank,
            _endpoints(store, rank, size),
            deadline_seconds=timeout.total_seconds(),
            key_file=options.key_file,
            allow=options.allow,
            watch=self._thread.check,
        )
        # PyTorch 2.1 destroys a group without a shutdown. At the program's end the thread leaves its calls instead.
        self._end = weakref.finalize(self, _end, self._thread, self._communicator)
        self._end.atexit = False
        self._kept: Deque[_CollectiveWork] = collections.deque(maxlen=_KEPT_WORKS)
        ended = torch.futures.Future()
        ended.set_result([])
        self._ended = _create_work_from_future(ended)

    def allreduce(self, tensors: List[torch.Tensor], options=None) -> dist.Work:
        """In place: the sum or the mean of all ranks' tensors."""
        mean = _is_mean(options)
        if mean is None or len(tensors) != 1 or not _is_ours(tensors[0]):
            self._devices.look(tensors)
            return self._ask_gloo("allreduce", tensors, options or dist.AllreduceOptions())
        # Who waits anyway is spared the ways to another thread and back, unless calls before it are still under way,
        # and the making of a future: between all-reduces the caches forget all of this, so that every step counts.
        if not getattr(options, "asyncOp", True) and self._thread.is_idle():
            self._all_reduce(tensors[0], mean)
            return self._ended
        done = self._thread.submit(self._all_reduce, tensors[0], mean)
        return _CollectiveWork("an all-reduce", done, self._kept)

    def _all_reduce(self, tensor: torch.Tensor, mean: bool) -> List[torch.Tensor]:
        whole = tensor if tensor.is_contiguous() else tensor.detach().contiguous()
        self._communicator.all_reduce(whole.data_ptr(), whole.numel())
        if mean:
            whole.detach().div_(self._size)
        if whole is not tensor:
            tensor.detach().copy_(whole)
        return [tensor]

    def _ask_gloo(self, name: str, written: Any, *arguments, **named) -> dist.Work:
        """Calls gloo's function of that name, which writes to `written`, a tensor or a list of them."""
        whole = _contiguous(written)
        work = getattr(self._gloo, name)(whole, *map(_contiguous, arguments), **named)
        if whole is written:
            return work
        done = self._thread.submit(_copy_back, work, whole, written)
        return _CollectiveWork(f"a collective ({name})", done, self._kept)

    def shutdown(self) -> None:
        """After the last call."""
        self._end()

    def _get_backend(self, device: torch.device):
        """Asked by torch.distributed, as by batch_isend_irecv, for what a backend can do."""
        return self._gloo if device.type == "cpu" else super()._get_backend(device)

    def getBackendName(self) -> str:  # pylint: disable=invalid-name
        """For torch.distributed.get_backend."""
        return NAME

    # FSDP2 finds a group by its name.
    def setGroupName(self, name: str) -> None:  # pylint: disable=invalid-name
        """Kept for getGroupName."""
        self._name = name

    def getGroupName(self) -> str:  # pylint: disable=invalid-name
        """What setGroupName was given."""
        return self._name


def _end(thread: _CallThread, communicator: Communicator) -> None:
    thread.end()
    communicator.close()


def _is_mean(options: Optional[dist.AllreduceOptions]) -> Optional[bool]:
    """Whether an all-reduce is a mean; None if it is neither a sum nor a mean."""
    if options is None:
        return False
    # An option's operation equals a ReduceOp's name from its own side only, so that `in` would find none.
    operation = options.reduceOp
    if operation == dist.ReduceOp.SUM:
        return False
    return True if operation == dist.ReduceOp.AVG else None


def _is_ours(tensor: torch.Tensor) -> bool:
    return (
        tensor.dtype == torch.float32
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.numel() >= _SMALLEST
    )


def _contiguous(values: Any) -> Any:
    """What a call was given, in which contiguous copies are in the place of other tensors in the processor's memory:
    gloo would read and write what lies between the numbers of these."""
    if isinstance(values, (list, tuple)):
        whole = list(map(_contiguous, values))
        return values if all(map(operator.is_, whole, values)) else whole
    if not isinstance(values, torch.Tensor):
        return values
    is_apart = values.is_cpu and values.layout is torch.strided and not values.is_contiguous()
    return values.detach().contiguous() if is_apart else values


def _copy_back(work: dist.Work, whole: Any, written: Any) -> List[torch.Tensor]:
    """When gloo's call has ended; returns what it has written to."""
    work.wait()
    if isinstance(written, torch.Tensor):
        whole, written = [whole], [written]
    for copy, tensor in zip(whole, written):
        if copy is not tensor:
            tensor.detach().copy_(copy)
    return list(written)


def _delegate(name: str) -> Callable:
    def call(self, *arguments, **named):
        # pylint: disable=protected-access
        self._devices.look((arguments, *named.values()))
        if name in _WRITE_TO_FIRST and arguments:
            return self._ask_gloo(name, *arguments, **named)
        return getattr(self._gloo, name)(*arguments, **named)

    call.__name__ = name
    return call


for _name in _DELEGATED:
    if hasattr(dist.ProcessGroup, _name):
        setattr(PoseidonProcessGroup, _name, _delegate(_name))


def _endpoints(store: dist.Store, rank: int, size: int) -> List[str]:
    """The ranks' addresses, each "host:port", by the store."""
    if rank == size - 1:
        # The last rank is where the store's name does not mean the machine itself, if any is; there it does not lead to
        # a loopback address.
        store.set("host", resolve(_host_of(store)))
    host = own_address(store.get("host").decode())
    host = f"[{host}]" if ":" in host else host
    # Groups of some ranks may be made at the same time, too.
    place = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (rank, size)
    store.set(f"endpoint/{rank}", f"{host}:{free_ports(1, *place)}")
    return [store.get(f"endpoint/{other}").decode() for other in range(size)]


def _host_of(store: dist.Store) -> str:
    """Where the store is, and with it the network that the ranks share."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return getattr(store, "host", None) or os.environ.get("MASTER_ADDR", "127.0.0.1")


def _options_of(given: Optional[object]) -> Options:
    if isinstance(given, Options):
        return given
    if given is not None:
        raise ConfigError(f"pg_options is {given!r}; it must be a poseidon_torch.c10d.Options")
    # A group of some ranks, as FSDP's, must not be more open than that of all.
    world = dist.GroupMember.WORLD
    return world.poseidon_options if isinstance(world, PoseidonProcessGroup) else Options()


def _create(group, options: Optional[object]) -> PoseidonProcessGroup:
    return PoseidonProcessGroup(
        group.store, group.group_rank, group.group_size, group.timeout, _options_of(options)
    )


dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
