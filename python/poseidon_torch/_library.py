"""The C interface (include/poseidon/poseidon.h) by ctypes: handles as objects, exit codes as exceptions.

Calls release Python's lock while they wait, and let signals through: what a signal's handler raises (KeyboardInterrupt)
leaves the call that waited, if the main thread did, which is where Python runs handlers.
"""

import ctypes
import os
import pathlib
import shutil
import sys
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int64, c_uint64, c_void_p
from typing import Callable, Dict, Generator, NamedTuple, Optional, Sequence

from ._blocks import Allocate, Blocks, Release
from ._errors import ConfigError, Left, Rewound, called_within_a_call, error_of

_PACKAGE = pathlib.Path(__file__).resolve().parent
# Where a build leaves its results in a checkout, of which this package is the folder python/poseidon_torch.
_BUILD = _PACKAGE.parent.parent / "build"
_LIBRARY = "libposeidon.so"
# Of an installed libposeidon: include/poseidon of other minor versions may differ (packaging/CMakeLists.txt).
_INSTALLED_LIBRARY = "libposeidon.so.0.1"

_REWOUND = -1  # POSEIDON_REWOUND
_LEFT = -2  # POSEIDON_LEFT

Interrupted = ctypes.CFUNCTYPE(c_int, c_void_p)


class _SessionOptions(ctypes.Structure):
    _fields_ = [
        ("job", c_char_p),
        ("job_text", c_char_p),
        ("host", c_char_p),
        ("trace_directory", c_char_p),
        ("rank", c_int),
        ("interrupted", Interrupted),
        ("context", c_void_p),
        ("goes_back", c_int),
        ("incarnation", c_uint64),
        ("replaces", c_uint64),
        ("allocate", Allocate),
        ("release", Release),
        ("memory_context", c_void_p),
    ]


class _Blob(ctypes.Structure):
    _fields_ = [
        ("shape", POINTER(c_int64)),
        ("axes", c_int),
        ("lr_mult", c_float),
        ("decay_mult", c_float),
        ("group", c_int),
    ]


class _Layer(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("type", c_char_p),
        ("blobs", POINTER(_Blob)),
        ("blob_count", c_int),
        ("outputs", c_int64),
        ("inputs", c_int64),
        ("rows", c_int64),
        ("multiply_adds", c_int64),
        ("forward_ms", c_double),
        ("backward_ms", c_double),
    ]


class _Model(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("layers", POINTER(_Layer)),
        ("layer_count", c_int),
        ("batch", c_int64),
        ("iterations", c_int64),
        ("optimizer", c_char_p),
    ]


class ParameterGroup(ctypes.Structure):
    """By what numbers servers update the parameters of a group; beta1 is momentum, beta2 momentum2, eps delta."""

    _fields_ = [
        ("learning_rate", c_double),
        ("weight_decay", c_double),
        ("momentum", c_double),
        ("momentum2", c_double),
        ("dampening", c_double),
        ("delta", c_double),
        ("nesterov", c_int),
        ("maximize", c_int),
    ]


class _LayerMemory(ctypes.Structure):
    _fields_ = [
        (name + suffix, kind)
        for name in ("values", "gradient", "u", "v", "mean_gradient")
        for suffix, kind in (("", c_void_p), ("_size", c_int64))
    ]


def _candidates(name: str, in_package: str, in_build: str) -> list:
    return [_PACKAGE / in_package / name, _BUILD / in_build / name]


def _load() -> ctypes.CDLL:
    for path in _candidates(_LIBRARY, "lib", "packaging"):
        if path.exists():
            return ctypes.CDLL(str(path))
    try:
        return ctypes.CDLL(_INSTALLED_LIBRARY)
    except OSError as error:
        raise ImportError(
            f"{_LIBRARY} is neither in this package, nor built in {_BUILD}, nor installed ({error}); install the "
            "wheel, or build the project (cmake --preset release && ninja -C build)"
        ) from error


def find_program(name: str) -> str:
    """The path of one of the project's programs, such as "poseidon_scheduler". Raises ConfigError if there is none."""
    for path in _candidates(name, "bin", "bin"):
        if path.exists():
            return str(path)
    found = shutil.which(name)
    if found is None:
        raise ConfigError(
            f"the program {name} is neither in this package, nor in {_BUILD / 'bin'}, nor on PATH"
        )
    return found


LIB = _load()


def function_of(name: str):
    """The library's. Raises ImportError if it has none of that name."""
    try:
        return getattr(LIB, name)
    except AttributeError as error:
        # The loader's words name the file.
        raise ImportError(
            f"the library is of another build than this package, at {_PACKAGE} ({error}); build the project again, or "
            "install both from one build"
        ) from error


LIB.poseidon_version.restype = c_char_p
LIB.poseidon_last_error.restype = c_char_p
for _name, _arguments in {
    "session_create": [POINTER(_SessionOptions), POINTER(c_void_p)],
    "session_rank": [c_void_p],
    "session_workers": [c_void_p],
    "session_declare": [c_void_p, POINTER(_Model), c_int64],
    "session_begin": [c_void_p],
    "session_memory": [c_void_p, c_int, POINTER(_LayerMemory)],
    "session_gradient_ready": [c_void_p, c_int],
    "session_wait_fresh": [c_void_p, c_int],
    "session_layers_sent_with": [c_void_p, c_int, POINTER(c_int), POINTER(c_int)],
    "session_set_groups": [c_void_p, POINTER(ParameterGroup), c_int],
    "session_restore_optimizer_state": [c_void_p, c_void_p, c_int64],
    "session_collect_optimizer_state": [c_void_p, c_void_p, c_int64],
    "session_end_iteration": [c_void_p, c_float, POINTER(c_int)],
    "session_wants_layer_times": [c_void_p],
    "session_report_layer_times": [c_void_p, POINTER(c_double), POINTER(c_double), c_int],
    "session_finish": [c_void_p],
    "session_iteration": [c_void_p],
    "session_local_steps": [c_void_p],
    "session_fragments": [c_void_p],
    "session_overlap_steps": [c_void_p],
    "session_recovers": [c_void_p],
    "session_go_back": [c_void_p],
    "session_sends_statistics": [c_void_p],
    "session_awaits_statistics": [c_void_p],
    "session_send_statistics": [c_void_p, c_void_p, c_int64],
    "session_await_statistics": [c_void_p, c_void_p, c_int64],
    "session_fail": [c_void_p, c_char_p],
}.items():
    function_of("poseidon_" + _name).argtypes = _arguments
LIB.poseidon_session_destroy.argtypes = [c_void_p]
LIB.poseidon_session_destroy.restype = None
LIB.poseidon_session_iteration.restype = c_int64


# Those that are called for each layer of each iteration.
_MEMORY = LIB.poseidon_session_memory
_GRADIENT_READY = LIB.poseidon_session_gradient_ready
_WAIT_FRESH = LIB.poseidon_session_wait_fresh


def version() -> str:
    """Of the library: "0.1.0"."""
    return LIB.poseidon_version().decode()


class Calls:
    """Carries out the calls of one handle, and keeps what a signal's handler raised meanwhile."""

    def __init__(self, watch: Callable[[], None]):
        self.handle = c_void_p()
        self._watch = watch
        self._raised: Optional[BaseException] = None
        self._answers = self._asked()
        next(self._answers)
        # Kept as long as the library may call it.
        self.interrupted = Interrupted(self._answers.send)

    def _asked(self) -> Generator[bool, Optional[int], None]:
        """Answers each call of the library's by whether something was raised since it began to wait."""
        # Python runs a signal's handler between two steps of its own code, so here; what the handler raises would be
        # lost, as it can't pass through C. A function would be left by it before it comes to its `try`; a generator
        # goes on within.
        while True:
            try:
                while True:
                    yield self._raised is not None
                    self._watch()
            except GeneratorExit:
                return
            except BaseException as raised:  # pylint: disable=broad-except
                self._raised = raised

    def expect_none_waits(self) -> None:
        """Raises PoseidonError to a signal's handler that Python runs while a call waits."""
        if self._answers.gi_running:
            raise called_within_a_call()

    def __call__(self, name: str, *arguments) -> None:
        self.check(getattr(LIB, "poseidon_" + name)(*arguments))

    def check(self, code: int) -> None:
        """Raises what a call's code says."""
        if code == 0:
            return
        if code == _REWOUND:
            raise Rewound()
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised
        message = LIB.poseidon_last_error().decode(errors="replace")
        if code == _LEFT:
            print(f"poseidon: {message}", file=sys.stderr)
            raise Left(message)
        raise error_of(message, code)


class Floats(NamedTuple):
    """Memory of the library's: an address and a number of float32; (0, 0) where there is none."""

    address: int
    size: int


class LayerMemory(NamedTuple):
    """Where a layer's floats are in this iteration; either gradient or u and v are to be written."""

    values: Floats
    gradient: Floats
    u: Floats
    v: Floats
    mean_gradient: Floats


class LayerSpec(NamedTuple):
    """A layer as the job's scheduler sees it: the shapes of what learns, and for factors (outputs, inputs, rows)."""

    name: str
    type: str
    shapes: Sequence[Sequence[int]]
    inner_product: Optional[tuple] = None
    forward_ms: float = 0.0
    backward_ms: float = 0.0
    groups: Sequence[int] = ()  # parameter groups, by shape, where servers update; not given: 0


class Session:
    """A worker of a job (include/poseidon/session.h). One thread at a time."""

    def __init__(
        self,
        job: str = "",
        job_text: str = "",
        rank: int = -1,
        trace_directory: str = "",
        watch: Callable[[], None] = lambda: None,
        incarnation: int = 0,
        replaces: int = 0,
        host: str = "",
    ):
        """Joins the job, of which either the config's path or its text is given; waits until all its nodes are there.

        `watch` is called a few times a second while a call waits; what it raises leaves that call. `incarnation`: a
        number of this process's own; `replaces`: that of the dead one whose place it takes. `host`: that other nodes
        reach this machine at; found out if not given. Raises PoseidonError. In a job with `recovery` all calls from
        begin to finish may raise Rewound.
        """
        self._call = Calls(watch)
        self._memory = _LayerMemory()
        self._memory_pointer = ctypes.pointer(self._memory)
        self._blocks = Blocks()
        options = _SessionOptions(
            job=os.fsencode(job),
            job_text=job_text.encode(),
            host=host.encode(),
            trace_directory=os.fsencode(trace_directory),
            rank=rank,
            interrupted=self._call.interrupted,
            goes_back=1,
            incarnation=incarnation,
            replaces=replaces,
            allocate=self._blocks.allocate,
            release=self._blocks.release,
        )
        self._call("session_create", options, ctypes.byref(self._call.handle))
        self.rank: int = LIB.poseidon_session_rank(self._call.handle)
        self.workers: int = LIB.poseidon_session_workers(self._call.handle)

    def make_memory_by(self, make: Callable) -> None:
        """Before declare. `make(size)`, which is called in threads of the library's, returns a tensor of so many zeros
        of one byte, where layers then are; without it they are on the heap."""
        self._blocks.make = make

    def declare(
        self,
        name: str,
        layers: Sequence[LayerSpec],
        batch: int,
        optimizer: str = "",
        first_iteration: int = 0,
    ) -> None:
        """Waits for the plan. `batch`: samples a worker computes in an iteration; 0: nobody knows.

        `optimizer`: "TorchSGD" or "TorchAdamW", which the servers carry out; not given: workers get mean gradients.
        `first_iteration`: not 0 where the optimizer goes on with a state; worker 0's counts.
        """
        kept = []  # what the structures point at

        def blob(shape, group):
            extents = (c_int64 * len(shape))(*shape)
            kept.append(extents)
            return _Blob(extents, len(shape), 1.0, 1.0, group)

        def layer(spec):
            groups = spec.groups or [0] * len(spec.shapes)
            blobs = (_Blob * len(spec.shapes))(*map(blob, spec.shapes, groups))
            kept.append(blobs)
            outputs, inputs, rows = spec.inner_product or (0, 0, 0)
            return _Layer(
                name=spec.name.encode(),
                type=spec.type.encode(),
                blobs=blobs,
                blob_count=len(blobs),
                outputs=outputs,
                inputs=inputs,
                rows=rows,
                forward_ms=spec.forward_ms,
                backward_ms=spec.backward_ms,
            )

        specs = (_Layer * len(layers))(*(layer(spec) for spec in layers))
        model = _Model(name.encode(), specs, len(layers), batch, 0, optimizer.encode())
        self._call("session_declare", self._call.handle, model, first_iteration)

    def begin(self) -> None:
        """Waits until all nodes are ready; worker 0's values, as they are now, set out for the others."""
        self._call("session_begin", self._call.handle)

    def memory(self, layer: int) -> LayerMemory:
        """To be asked in every iteration anew, when the layer is fresh, or before begin."""
        self._ask_for_memory(layer)
        memory = self._memory
        return LayerMemory(
            *(
                Floats(getattr(memory, name) or 0, getattr(memory, name + "_size"))
                for name in LayerMemory._fields
            )
        )

    def gradient_memory(self, layer: int) -> Floats:
        """memory(layer).gradient."""
        self._ask_for_memory(layer)
        return Floats(self._memory.gradient or 0, self._memory.gradient_size)

    def mean_gradient_memory(self, layer: int) -> Floats:
        """memory(layer).mean_gradient."""
        self._ask_for_memory(layer)
        return Floats(self._memory.mean_gradient or 0, self._memory.mean_gradient_size)

    def _ask_for_memory(self, layer: int) -> None:
        self._call.check(_MEMORY(self._call.handle, layer, self._memory_pointer))

    def set_groups(self, groups: Sequence[ParameterGroup]) -> None:
        """By what numbers servers update from this iteration on; before its first gradient_ready."""
        array = (ParameterGroup * len(groups))(*groups)
        self._call("session_set_groups", self._call.handle, array, len(groups))

    def restore_optimizer_state(self, state: Floats) -> None:
        """Worker 0, before begin: the state that the servers go on with, of all parameters."""
        self._call("session_restore_optimizer_state", self._call.handle, *state)

    def collect_optimizer_state(self, state: Floats) -> None:
        """Worker 0, between iterations: writes the servers' state there."""
        self._call("session_collect_optimizer_state", self._call.handle, *state)

    def gradient_ready(self, layer: int) -> None:
        """The layer's gradient of this iteration is in its memory. Returns at once."""
        self._call.check(_GRADIENT_READY(self._call.handle, layer))

    def wait_fresh(self, layer: int) -> None:
        """Waits until the mean gradient of the iteration before, or the new values, are there."""
        self._call.check(_WAIT_FRESH(self._call.handle, layer))

    def layers_sent_with(self, layer: int) -> range:
        """The layers of one bucket, which become fresh together; this one is one of them."""
        first, count = c_int(), c_int()
        results = ctypes.byref(first), ctypes.byref(count)
        self._call("session_layers_sent_with", self._call.handle, layer, *results)
        return range(first.value, first.value + count.value)

    def end_iteration(self, loss: float = float("nan")) -> bool:
        """All gradients are ready. True: the plan has changed, and with it all layers' memory."""
        changed = c_int()
        self._call("session_end_iteration", self._call.handle, loss, ctypes.byref(changed))
        return bool(changed.value)

    def wants_layer_times(self) -> bool:
        """Whether the job plans by how long layers compute (policy TIME)."""
        return bool(LIB.poseidon_session_wants_layer_times(self._call.handle))

    def report_layer_times(self, forward_ms: Sequence[float], backward_ms: Sequence[float]) -> None:
        """Of all layers, as measured; once. When all workers have, the plan may change."""
        kind = c_double * len(forward_ms)
        times = kind(*forward_ms), kind(*backward_ms), len(forward_ms)
        self._call("session_report_layer_times", self._call.handle, *times)

    @property
    def iteration(self) -> int:
        """That which is computed, or is next."""
        return LIB.poseidon_session_iteration(self._call.handle)

    @property
    def local_steps(self) -> Dict[str, int]:
        """The job config's `local_steps`, `fragments` and `overlap_steps`, by these names."""
        return {
            name: getattr(LIB, "poseidon_session_" + name)(self._call.handle)
            for name in ("local_steps", "fragments", "overlap_steps")
        }

    @property
    def recovers(self) -> bool:
        """Whether the job goes back after a loss."""
        return bool(LIB.poseidon_session_recovers(self._call.handle))

    def go_back(self) -> None:
        """After Rewound: waits until the job goes on, from `iteration`; all layers' memory is elsewhere."""
        self._call("session_go_back", self._call.handle)

    def sends_statistics(self) -> bool:
        """After begin or go_back: whether this worker is to send_statistics."""
        return bool(LIB.poseidon_session_sends_statistics(self._call.handle))

    def awaits_statistics(self) -> bool:
        """After declare: whether this worker has come to a job under way, and is to await_statistics."""
        return bool(LIB.poseidon_session_awaits_statistics(self._call.handle))

    def send_statistics(self, statistics: Floats) -> None:
        """What the model has beside its parameters."""
        self._call("session_send_statistics", self._call.handle, *statistics)

    def await_statistics(self, statistics: Floats) -> None:
        """Waits for another worker's, which are written there."""
        self._call("session_await_statistics", self._call.handle, *statistics)

    def expect_no_call(self) -> None:
        """Raises PoseidonError to a signal's handler that runs while a call waits, which goes on afterwards."""
        self._call.expect_none_waits()

    def finish(self) -> None:
        """Waits until all workers have finished."""
        self._call("session_finish", self._call.handle)

    def fail(self, reason: str) -> None:
        """Ends the job for all nodes, which say `reason`."""
        self._call("session_fail", self._call.handle, reason.encode(errors="backslashreplace"))

    def close(self) -> None:
        """Without finish before it, the other nodes hear that this one gives up."""
        handle, self._call.handle = self._call.handle, c_void_p()
        LIB.poseidon_session_destroy(handle)


if sys.byteorder != "little":
    raise ImportError("Poseidon needs a little-endian machine")
