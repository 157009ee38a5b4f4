"""A program over memory of its own, on stridesmith's threads."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from ..executable import Bound, Memory, numpy_dtype
from ..launch import Launch
from .failures import on_device
from .pool_launches import PoolLaunches, Shared, shared_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

GUARD_ALIGNMENT = 64


class PoolBound(Bound):
    """Kernels with their arguments set to memory that host and devices share, between guard zones."""

    @on_device
    def __init__(
        self,
        program: Any,
        threads: int,
        launches: Sequence[Launch],
        memories: Sequence[Memory],
        guard_bytes: int,
    ) -> None:
        self._memories = memories
        self.names = tuple(memory.name for memory in memories)
        self._guard = -(-guard_bytes // GUARD_ALIGNMENT) * GUARD_ALIGNMENT
        self._whole = [shared_memory(program.context, m.nbytes + 2 * self._guard) for m in self._memories]
        self._inner = [
            whole[self._guard : self._guard + m.nbytes] for whole, m in zip(self._whole, self._memories, strict=True)
        ]
        self._pattern: NDArray[np.uint8] | None = None
        shared = [Shared(program, launch, [self._inner[k] for k in launch.args]) for launch in launches]
        self._launches = PoolLaunches(program.context, threads, shared)

    def write(self, index: int, data: NDArray[Any]) -> None:
        flat = np.ascontiguousarray(data)
        memory = self._memories[index]
        if flat.nbytes != memory.nbytes:
            raise ValueError(f"`{memory.name}` has {memory.nbytes} bytes, but got {flat.nbytes}")
        self._inner[index][:] = flat.reshape(-1).view(np.uint8)

    def read(self, index: int) -> NDArray[Any]:
        memory = self._memories[index]
        return self._inner[index].view(numpy_dtype(memory.dtype)).reshape(memory.shape).copy()

    def poison_guards(self, pattern: bytes) -> None:
        if self._guard:
            self._pattern = np.resize(np.frombuffer(pattern, np.uint8), self._guard)
            for zone in self._zones():
                zone[:] = self._pattern

    def guards_intact(self) -> bool:
        return self._pattern is None or all(np.array_equal(zone, self._pattern) for zone in self._zones())

    def _zones(self) -> list[NDArray[np.uint8]]:
        """The memory before and behind each buffer."""
        behind = [(whole, self._guard + m.nbytes) for whole, m in zip(self._whole, self._memories, strict=True)]
        return [zone for whole, end in behind for zone in (whole[: self._guard], whole[end : end + self._guard])]

    @on_device
    def run(self) -> None:
        self._launches.run()

    @on_device
    def time(self, calls: int) -> float:
        if calls < 1:
            raise ValueError(f"`calls` must be at least 1, but got {calls}")
        start = time.perf_counter()
        self._launches.run(calls=calls)
        return (time.perf_counter() - start) / calls
