"""Memory that a program makes for the library (poseidon::SessionOptions::allocate)."""

import ctypes
import sys
from ctypes import c_uint64, c_void_p
from typing import Callable, Dict, Optional

Allocate = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_uint64)
Release = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)


class Blocks:
    """Memory for the library that the program makes; kept until the library has no use for it any more."""

    def __init__(self):
        self.make: Optional[Callable] = None
        self._kept: Dict[int, object] = {}  # by address
        # As long as the library may call them.
        self.allocate = Allocate(self._allocate)
        self.release = Release(self._release)

    def _allocate(self, _context: Optional[int], size: int) -> Optional[int]:
        if self.make is None:
            return None
        try:
            block = self.make(size)
        except RuntimeError as error:  # of pinned memory a machine has less than of other memory
            print(f"poseidon_torch: {size >> 20} MiB are not pinned: {error}", file=sys.stderr)
            return None
        self._kept[block.data_ptr()] = block
        return block.data_ptr()

    def _release(self, _context: Optional[int], address: int) -> None:
        self._kept.pop(address, None)
