"""The C interface's Communicator by ctypes; how it is called, _library says."""

import ctypes
import os
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_void_p
from typing import Callable, Sequence

from ._errors import ConfigError
from ._library import LIB, Calls, Interrupted, function_of


class _CommunicatorOptions(ctypes.Structure):
    _fields_ = [
        ("rank", c_int),
        ("ranks", c_int),
        ("endpoints", POINTER(c_char_p)),
        ("bind_host", c_char_p),
        ("lanes", c_int),
        ("deadline_seconds", c_double),
        ("interrupted", Interrupted),
        ("context", c_void_p),
        ("key_file", c_char_p),
        ("allow", POINTER(c_char_p)),
        ("networks", c_int),
    ]


class _CollectiveOptions(ctypes.Structure):
    _fields_ = [("scheme", c_int), ("codec", c_int), ("chunk_bytes", c_int64)]


for _name, _arguments in {
    "communicator_create": [POINTER(_CommunicatorOptions), POINTER(c_void_p)],
    "communicator_all_reduce": [c_void_p, c_void_p, c_int64, POINTER(_CollectiveOptions)],
    "communicator_all_gather": [c_void_p, c_void_p, POINTER(c_int64), POINTER(_CollectiveOptions)],
    "communicator_barrier": [c_void_p],
}.items():
    function_of("poseidon_" + _name).argtypes = _arguments
LIB.poseidon_communicator_destroy.argtypes = [c_void_p]
LIB.poseidon_communicator_destroy.restype = None


class Communicator:
    """All-reduce and all-gather without a job (include/poseidon/communicator.h). One thread at a time.

    A rank whose call raises tells the others why, and later calls raise it again. Not so where a call's own arguments
    are wrong: nobody is told. The rank can still make the call, for which the others wait until their deadline.
    Nor is anybody told what the constructor raises before it waits for the others.
    """

    def __init__(
        self,
        rank: int,
        endpoints: Sequence[str],
        lanes: int = 1,
        deadline_seconds: float = 60.0,
        key_file: str = "",
        allow: Sequence[str] = (),
        watch: Callable[[], None] = lambda: None,
    ):
        """`endpoints`: "host:port" of all ranks; this one listens on its own. Waits for all. `key_file`: of a key that
        all ranks share; `allow`: networks that connections may come from (docs/security.md). `watch` is called a few
        times a second while a call waits; what it raises leaves that call. Raises PoseidonError.
        """
        self._call = Calls(watch)
        self._ranks = len(endpoints)
        texts = (c_char_p * len(endpoints))(*(endpoint.encode() for endpoint in endpoints))
        networks = (c_char_p * len(allow))(*(network.encode() for network in allow))
        options = _CommunicatorOptions(
            rank=rank,
            ranks=len(endpoints),
            endpoints=texts,
            lanes=lanes,
            deadline_seconds=deadline_seconds,
            interrupted=self._call.interrupted,
            key_file=os.fsencode(key_file),
            allow=networks,
            networks=len(allow),
        )
        self._call("communicator_create", options, ctypes.byref(self._call.handle))

    def all_reduce(self, address: int, size: int, scheme: int = 0, codec: int = 0) -> None:
        """`size` float32 at `address` become the sum of all ranks'. Scheme and codec as in poseidon.h."""
        options = _CollectiveOptions(scheme, codec, 0)
        self._call("communicator_all_reduce", self._call.handle, address, size, options)

    def all_gather(self, address: int, counts: Sequence[int]) -> None:
        """The memory at `address` is all ranks' blocks, counts[r] float32 of rank r; each brings its own."""
        if len(counts) != self._ranks:
            raise ConfigError(f"all_gather of {self._ranks} ranks was given {len(counts)} counts")
        blocks = (c_int64 * len(counts))(*counts)
        self._call("communicator_all_gather", self._call.handle, address, blocks, None)

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        self._call("communicator_barrier", self._call.handle)

    def close(self) -> None:
        """What other ranks still need of this one is sent."""
        handle, self._call.handle = self._call.handle, c_void_p()
        LIB.poseidon_communicator_destroy(handle)
