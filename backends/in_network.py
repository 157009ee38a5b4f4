"""Timing calls of a CPU kernel as a network makes them, whose data is elsewhere than where back-to-back calls leave it.

Back to back, all that a kernel reads lies in the caches of all cores that read it.  In a network its inputs lie where
their producer's threads wrote them, half of them in the other core's cache where there are two, and its weights come
from memory.  So each call that is timed comes after one that writes the inputs anew, each thread its part of them
(`llvm.written`), and has copies of the weights of its own, which take turns until so many bytes have been read that
nothing is left of them in any core's caches.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from .llvm.chain import chain_code
from .llvm.written import LINE_BYTES, written_code
from .memory import ALIGNMENT, zeros

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..ir.target import Target
    from .artifact import InNetwork
    from .executable import Memory

STREAMED_BYTES = 64 << 20
"""That calls read of streamed constants, at most, before they come back to the same copy."""
MOST_COPIES = 256  # of small constants, a choice: filling them takes time, too


class Native(Protocol):
    """The part of `cpu.CpuExecutable` that calls need."""

    params: tuple[Memory, ...]
    target: Target
    entry_address: int

    def pack(self, pointers: Sequence[int]) -> ctypes.Array[ctypes.c_void_p]: ...


class CallsInNetwork:
    """Calls of an executable on `buffers`, the bytes of its parameters and then of its workspaces."""

    def __init__(self, executable: Native, buffers: Sequence[NDArray[np.uint8]], called: InNetwork) -> None:
        names = [memory.name for memory in executable.params]
        streamed = [k for k, name in enumerate(names) if name in called.streamed and buffers[k].size]
        written = [k for k, name in enumerate(names) if name in called.written and buffers[k].size >= LINE_BYTES]
        words = [len(written)]
        for k in written:
            words += [buffers[k].ctypes.data, buffers[k].size // LINE_BYTES]
        self._written = (ctypes.c_int64 * len(words))(*words)
        sizes = {k: -(-buffers[k].size // ALIGNMENT) * ALIGNMENT for k in streamed}
        span = sum(sizes.values())
        self._count = min(min(called.nbytes, STREAMED_BYTES) // span + 1, MOST_COPIES) if span else 1
        self._copies = zeros(self._count * span)
        addresses, offset = [buffer.ctypes.data for buffer in buffers], 0
        self._records = []
        for _ in range(self._count):
            for k, size in sizes.items():
                copy = self._copies[offset : offset + buffers[k].size]
                copy[:] = buffers[k]
                addresses[k], offset = copy.ctypes.data, offset + size
            self._records.append(executable.pack(addresses))
        prepare = written_code().address("written")
        table = [
            word
            for record in self._records
            for word in (prepare, ctypes.addressof(self._written), executable.entry_address, ctypes.addressof(record))
        ]
        self._table = (ctypes.c_void_p * len(table))(*table)
        self._stamps = (ctypes.c_int64 * (2 * self._count + 1))()
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._profile = chain_code().function("profile", pointer, number, number, pointer)
        self._threads, self._next = executable.target.threads, 0

    def elapsed(self, calls: int) -> int:
        """Nanoseconds of so many calls, without what was done before each."""
        total = 0
        while calls:
            count = min(calls, self._count - self._next)
            start = ctypes.addressof(self._table) + 4 * ctypes.sizeof(ctypes.c_void_p) * self._next
            self._profile(start, 2 * count, self._threads, self._stamps)
            total += sum(self._stamps[2 * k + 2] - self._stamps[2 * k + 1] for k in range(count))
            calls, self._next = calls - count, (self._next + count) % self._count
        return total
