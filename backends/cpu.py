"""Kernels on the host's CPU: object files, loaded and called in this process."""

from __future__ import annotations

import base64
import ctypes
import time
from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir.target import Target
from .artifact import OPEN, Artifact, InNetwork
from .executable import Executable, describe, numpy_dtype
from .host_bound import HostBound
from .in_network import CallsInNetwork
from .llvm.compile import LoadedObject, compile_assembly, compile_object
from .llvm.pool import ensure_pool
from .llvm.python_call import Expected, Size, native_call
from .render.llvm_module import entry_name, generate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .lower import Lowered


CROSSINGS = 50  # empty calls, of which the shortest tells what a call from Python takes


def compile_cpu(lowered: Lowered, target: Target) -> Artifact:
    """The object file of `lowered`, in base64."""
    code = compile_object(generate(lowered, target), target)
    return Artifact(
        kind="cpu",
        entry=entry_name(lowered.name),
        code=base64.b64encode(code).decode("ascii"),
        target=target.to_json(),
        params=describe(lowered.params),
        workspaces=describe(lowered.workspaces),
        launches=[],
    )


def assembly(lowered: Lowered, target: Target) -> str:
    """The machine code of `lowered` as text, for reading."""
    return compile_assembly(generate(lowered, target), target)


def load_cpu(artifact: Artifact) -> CpuExecutable:
    """Load the object file into this process."""
    return CpuExecutable(artifact)


class CpuExecutable(Executable):
    """Machine code in this process, called on the target's number of threads."""

    def __init__(self, artifact: Artifact) -> None:
        super().__init__(artifact)
        ensure_pool()
        self._object = LoadedObject(base64.b64decode(artifact["code"], validate=True))
        entry = artifact["entry"]
        self.entry_address = self._object.address(entry)
        self._entry = self._object.function(entry, ctypes.c_void_p, ctypes.c_int64)
        self._repeat = self._object.function(f"{entry}.repeat", ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self._sizes: tuple[NDArray[Any], ...] = ()

    def at(self, shapes: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> CpuExecutable:
        count = len(shapes)
        if len(self.params) != count + len(sizes) or not sizes:
            raise ValueError(f"the kernel takes {len(self.params)} parameters, but got {count} and {len(sizes)} sizes")
        made = copy(self)
        made.params = tuple(
            memory._replace(shape=shape) if OPEN in memory.shape else memory
            for memory, shape in zip(self.params, shapes, strict=False)
        )
        made._sizes = tuple(
            np.full(1, size, numpy_dtype(memory.dtype)) for memory, size in zip(self.params[count:], sizes, strict=True)
        )
        return made

    def bind(self, *, guard_bytes: int = 0, called: InNetwork | None = None) -> CpuBound:
        return CpuBound(self, guard_bytes, called)

    def call(self, pointers: Sequence[int]) -> None:
        """One call on the caller's memory: addresses of the parameters, then of the workspaces.

        Parameters are aligned to their elements, workspaces to 64 bytes; nothing overlaps.
        """
        self._entry(self.pack(pointers), self.target.threads)

    def pack(self, pointers: Sequence[int]) -> ctypes.Array[ctypes.c_void_p]:
        """The argument record of a call.  Raises ValueError for a wrong number of addresses."""
        count = len(self.params) + len(self.workspaces)
        if len(pointers) != count:
            raise ValueError(f"the kernel takes {count} buffers, but got {len(pointers)}")
        return (ctypes.c_void_p * (count + len(self._sizes)))(*self._with_sizes(pointers))

    def _with_sizes(self, pointers: Sequence[int]) -> list[int]:
        """Addresses of parameters and workspaces, with those of the sizes between them."""
        count = len(self.params)
        return [*pointers[:count], *(size.ctypes.data for size in self._sizes), *pointers[count:]]

    def native_call(
        self, record: Sequence[int], arguments: Sequence[Expected], workspaces: Sequence[NDArray[Any]],
        sizes: Sequence[Size] = (),
    ) -> Callable[..., bool] | None:  # fmt: skip
        """A short way to call with arrays, where there is one (see `llvm.python_call`); it keeps the workspaces."""
        whole, owner = self._with_sizes(record), (self, tuple(workspaces))
        return native_call(self.entry_address, self.target.threads, whole, arguments, owner, sizes)

    def repeat(self, record: ctypes.Array[ctypes.c_void_p], calls: int) -> None:
        """`calls` calls, back to back, with a record that `pack` made."""
        self._repeat(record, self.target.threads, calls)


class CpuBound(HostBound):
    """Host memory for one executable; calls that are timed may be as those in a network are."""

    def __init__(self, executable: CpuExecutable, guard_bytes: int, called: InNetwork | None) -> None:
        super().__init__(executable.memories, guard_bytes)
        self._executable = executable
        self._record = executable.pack([buffer.ctypes.data for buffer in self.buffers])
        self._called = called
        self._calls: CallsInNetwork | None = None
        self._is_first = True  # since something was written

    def write(self, index: int, data: NDArray[Any]) -> None:
        super().write(index, data)
        self._calls, self._is_first = None, True

    def run(self) -> None:
        self._executable.repeat(self._record, 1)

    def time(self, calls: int) -> float:
        if calls < 1:
            raise ValueError(f"`calls` must be at least 1, but got {calls}")
        if self._called is not None and not self._is_first:
            self._calls = self._calls or CallsInNetwork(self._executable, self.buffers, self._called)
            return max(self._calls.elapsed(calls), 1) * 1e-9 / calls
        self._is_first = False  # the call that verifies is one of its own
        return max(self._elapsed(calls) - self._crossing, 1) * 1e-9 / calls

    @cached_property
    def _crossing(self) -> int:
        """Nanoseconds, at least, from Python into machine code and back: a kernel may be faster."""
        return min(self._elapsed(0) for _ in range(CROSSINGS))

    def _elapsed(self, calls: int) -> int:
        start = time.perf_counter_ns()
        self._executable.repeat(self._record, calls)
        return time.perf_counter_ns() - start
