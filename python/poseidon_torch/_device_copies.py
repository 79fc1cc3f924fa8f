"""Between GPUs and the session's memory, while computing goes on: what is exchanged together is copied together.

As in DistributedDataParallel's buckets (Li et al., "PyTorch Distributed", VLDB 2020, section 3.2): a copy of each tensor
would cost the launching thread as long as its kernels do.
"""

import contextlib
import itertools
import queue
import threading
from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

import torch

from ._layers import Layer, view_of
from ._library import Floats

Pair = Tuple[
    torch.Tensor, torch.Tensor
]  # a tensor of any device, and its place in the session's memory


class _Departure(NamedTuple):
    """What is called when the events have happened; the tensors are in use until then."""

    events: List[torch.cuda.Event]
    tensors: List[torch.Tensor]
    calls: List[Callable[[], None]]


class _Bucket(NamedTuple):
    """Of layers that are exchanged together, what has been given of them so far."""

    pairs: List[Pair]
    calls: List[Callable[[], None]]
    streams: Set[torch.cuda.Stream]  # in which that was computed


class DeviceCopies:
    """Copies to the host in a stream of their own on each GPU, behind what the calling threads' streams have to do by
    then; back in the calling thread's stream. A thread waits until they have arrived, so that neither the GPU nor who
    gives it work does. One thread at a time."""

    @staticmethod
    def of(layers: List[Layer]) -> Optional["DeviceCopies"]:
        """None where all parameters are on the CPU."""
        return None if all(layer.on_cpu() for layer in layers) else DeviceCopies()

    def __init__(self):
        self._streams: Dict[torch.device, torch.cuda.Stream] = {}
        self._gathered: Dict[int, _Bucket] = {}  # by first layer
        self._fetched: Dict[int, List[torch.Tensor]] = {}  # by layer
        self._joined: Dict[Tuple[int, int], torch.Tensor] = {}  # by address and floats
        self._departures: "queue.SimpleQueue[Optional[_Departure]]" = queue.SimpleQueue()
        self._failure: Optional[BaseException] = None  # of a call
        self._has_left_memory = False  # since the last wait
        self._thread = threading.Thread(target=self._await_arrivals, daemon=True)
        self._thread.start()

    def send(
        self,
        together: range,
        pairs: List[Pair],
        ready: Callable[[], None],
        computed_in: Iterable[torch.cuda.Stream] = (),
    ) -> None:
        """One of the layers `together`, of which the tensors go to their places. When all of these layers have been
        given they are copied; when they have arrived each one's `ready` is called, by another thread. `computed_in`:
        streams of the tensors besides those that are current, as who sends a layer may be in its last parameter's only.
        """
        bucket = self._gathered.setdefault(together.start, _Bucket([], [], set()))
        bucket.pairs.extend(pairs)
        bucket.calls.append(ready)
        bucket.streams.update(computed_in, current_streams(tensor for tensor, _ in pairs))
        if len(bucket.calls) == len(together):
            del self._gathered[together.start]
            self._departures.put(self._depart(bucket))

    def wait(self) -> None:
        """Until all has arrived, and each `ready` was called; raises what one has raised."""
        arrived = threading.Event()
        self._departures.put(_Departure([], [], [arrived.set]))
        arrived.wait()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        # An iteration after it was left, as it is freed with the last of what the network still sends of it.
        if self._has_left_memory:
            self._has_left_memory = False
            give_back_pinned()

    def fetch(
        self, index: int, layers: List[Layer], together: range, views_of: Callable[[int], list]
    ) -> List[torch.Tensor]:
        """What is at `views_of(index)`, on the devices of the layer's parameters; for the layers that came `together`
        when the first one is asked for."""
        if index not in self._fetched:
            pairs = [
                (slot.parameter, view)
                for number in together
                for slot, view in zip(layers[number].slots, views_of(number))
            ]
            tensors = iter(self._on_devices(pairs))
            for number in together:
                self._fetched[number] = list(itertools.islice(tensors, len(layers[number].slots)))
        return self._fetched.pop(index)

    def forget(self) -> None:
        """Waits until nothing is copied any more, and calls nothing: the memory may be freed."""
        self.forget_memory()
        self._departures.put(None)
        self._thread.join()
        for device, stream in self._streams.items():
            with contextlib.suppress(RuntimeError):  # a device that has failed copies no more
                stream.synchronize()
                torch.cuda.current_stream(device).synchronize()

    def forget_memory(self) -> None:
        """The session's is elsewhere from now on."""
        self._gathered.clear()
        self._fetched.clear()
        self._joined.clear()
        self._has_left_memory = True

    def _await_arrivals(self) -> None:
        for departure in iter(self._departures.get, None):
            try:
                for event in departure.events:
                    # A thread of its own begins with GPU 0, on which it would make a context and keep it.
                    with torch.cuda.device(event.device):
                        event.synchronize()
                for call in departure.calls:
                    call()
            except BaseException as failure:  # pylint: disable=broad-except
                self._failure = self._failure or failure
            del departure  # and the tensors, while there is nothing to do

    def _depart(self, bucket: _Bucket) -> _Departure:
        tensors: List[torch.Tensor] = []
        events = []
        for device, of_device in _by_device(bucket.pairs):
            if device.type != "cuda":
                for tensor, place in of_device:
                    place.copy_(tensor)
                continue
            if device not in self._streams:
                self._streams[device] = torch.cuda.Stream(device)
            stream = self._streams[device]
            for computed_in in bucket.streams:
                if computed_in.device == device:
                    stream.wait_stream(computed_in)
            with torch.cuda.stream(stream):
                for run in _adjacent(of_device):
                    # PyTorch knows nothing of what is in use until the copy is done.
                    flat = torch.cat([tensor.reshape(-1).float() for tensor, _ in run])
                    self._join(run).copy_(flat, non_blocking=True)
                    tensors += [flat, *(tensor for tensor, _ in run)]
            event = torch.cuda.Event(blocking=True)  # else who waits for it keeps a core busy
            event.record(stream)
            events.append(event)
        return _Departure(events, tensors, bucket.calls)

    def _on_devices(self, pairs: List[Pair]) -> List[torch.Tensor]:
        """What is at the places, on the tensors' devices, in the order given; what is on the CPU stays where it is."""
        found: Dict[int, torch.Tensor] = {}  # by id of a place
        for device, of_device in _by_device(pairs):
            for run in _adjacent(of_device):
                flat = self._join(run).to(device, non_blocking=True)
                parts = flat.split([place.numel() for _, place in run])
                for (_, place), part in zip(run, parts):
                    found[id(place)] = part.view(place.shape)
        return [found[id(place)] for _, place in pairs]

    def _join(self, run: List[Pair]) -> torch.Tensor:
        """Places that follow each other as one."""
        key = run[0][1].data_ptr(), sum(place.numel() for _, place in run)
        known = self._joined.get(key)
        if known is None:
            known = self._joined[key] = view_of(Floats(*key))
        return known


def current_streams(tensors: Iterable[torch.Tensor]) -> Set[torch.cuda.Stream]:
    """Those of the tensors' GPUs."""
    devices = {tensor.device for tensor in tensors if tensor.device.type == "cuda"}
    return {torch.cuda.current_stream(device) for device in devices}


def wait_for_streams(streams: Iterable[torch.cuda.Stream]) -> None:
    """What is put in the current streams from now on comes behind what these have to do by now."""
    for stream in streams:
        current = torch.cuda.current_stream(stream.device)
        if stream != current:
            current.wait_stream(stream)


def pinned_block(size: int) -> torch.Tensor:
    """Zeros that GPUs copy from and to by themselves; for Session.make_memory_by."""
    return torch.zeros(size, dtype=torch.uint8, pin_memory=True)


def give_back_pinned() -> None:
    """What has been freed of pinned memory: PyTorch keeps it for later, so that nobody else can have it."""
    give_back = getattr(torch._C, "_host_emptyCache", None)  # older versions of PyTorch have none
    if give_back is not None and torch.cuda.is_initialized():
        give_back()


def _by_device(pairs: Iterable[Pair]) -> Iterable[Tuple[torch.device, List[Pair]]]:
    found: Dict[torch.device, List[Pair]] = {}
    for pair in pairs:
        found.setdefault(pair[0].device, []).append(pair)
    return found.items()


def _adjacent(pairs: List[Pair]) -> Iterator[List[Pair]]:
    """Those whose places follow each other in memory, without those that are empty, as factors of no rows."""
    run: List[Pair] = []
    end = 0
    places = [pair for pair in pairs if pair[1].numel() > 0]
    for tensor, place in sorted(places, key=lambda pair: pair[1].data_ptr()):
        if run and place.data_ptr() != end:
            yield run
            run = []
        run.append((tensor, place))
        end = place.data_ptr() + place.numel() * place.element_size()
    if run:
        yield run
