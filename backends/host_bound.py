"""Memory of this process for the buffers of an executable, each between two guard zones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .executable import Bound, Memory, numpy_dtype
from .memory import ALIGNMENT, zeros

if TYPE_CHECKING:
    from numpy.typing import NDArray


class HostBound(Bound):
    """Takes, gives and guards buffers; `buffers` are their bytes, aligned to `ALIGNMENT`.  A backend adds the calls.

    Raises ValueError for a negative number of `guard_bytes`.
    """

    def __init__(self, memories: Sequence[Memory], guard_bytes: int) -> None:
        if guard_bytes < 0:
            raise ValueError(f"`guard_bytes` must not be negative, but got {guard_bytes}")
        self.names = tuple(memory.name for memory in memories)
        self.buffers: list[NDArray[np.uint8]] = []
        self._memories = tuple(memories)
        self._guards: list[NDArray[np.uint8]] = []
        self._pattern = b"\0"
        for memory in memories:
            storage = zeros(memory.nbytes + 2 * guard_bytes + ALIGNMENT)
            start = guard_bytes + -(storage.ctypes.data + guard_bytes) % ALIGNMENT
            end = start + memory.nbytes
            self.buffers.append(storage[start:end])
            self._guards += [storage[start - guard_bytes : start], storage[end : end + guard_bytes]]

    def write(self, index: int, data: NDArray[Any]) -> None:
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        if raw.size != self.buffers[index].size:
            raise ValueError(f"`{self.names[index]}` holds {self.buffers[index].size} bytes, but got {raw.size}")
        self.buffers[index][:] = raw

    def read(self, index: int) -> NDArray[Any]:
        memory = self._memories[index]
        shape = memory.shape if memory.nbytes else (0,)
        return self.buffers[index].copy().view(numpy_dtype(memory.dtype)).reshape(shape)

    def poison_guards(self, pattern: bytes) -> None:
        self._pattern = pattern
        for guard in self._guards:
            guard[:] = np.resize(np.frombuffer(pattern, np.uint8), guard.size)

    def guards_intact(self) -> bool:
        pattern = np.frombuffer(self._pattern, np.uint8)
        return all(np.array_equal(guard, np.resize(pattern, guard.size)) for guard in self._guards)
