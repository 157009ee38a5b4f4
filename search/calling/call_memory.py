"""What a call of a kernel works on: the caller's arrays where the device is the host, else memory of the device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ...backends.artifact import Argument
from ...backends.data import Array
from ...backends.executable import Executable
from ...backends.llvm.python_call import Expected, Size
from ...backends.memory import zeros
from ...errors import InternalError

if TYPE_CHECKING:
    from ...backends.cpu import CpuExecutable
    from ...backends.executable import Bound

Numbered: TypeAlias = "Sequence[tuple[int, Argument]]"


class CallMemory(ABC):
    """What a call works on."""

    @abstractmethod
    def give(self, index: int, array: Array) -> None:
        """Let parameter `index` be this physical array in the next run."""

    @abstractmethod
    def run(self, outputs: Sequence[tuple[int, Array]]) -> None:
        """One call that writes into `outputs` (parameter number and physical array)."""

    def direct(self, arguments: Sequence[Expected], sizes: Sequence[Size] = ()) -> Callable[..., bool] | None:
        """A shorter way for arrays that need no conversion, where there is one: see `python_call.native_call`."""
        return None


class _InPlace(CallMemory):
    """A CPU kernel works on the caller's arrays; only workspaces are its own."""

    def __init__(self, executable: CpuExecutable) -> None:
        self._executable = executable
        self._arrays: list[Array | None] = [None] * len(executable.params)
        self._workspaces: list[Array] = []

    def give(self, index: int, array: Array) -> None:
        self._arrays[index] = array

    def run(self, outputs: Sequence[tuple[int, Array]]) -> None:
        for index, array in outputs:
            self.give(index, array)
        self._workspaces = self._workspaces or self._new_workspaces()
        self._executable.call(self._record(self._workspaces))

    def direct(self, arguments: Sequence[Expected], sizes: Sequence[Size] = ()) -> Callable[..., bool] | None:
        """A native call with workspaces of its own: another thread may use the kernel's meanwhile."""
        workspaces = self._new_workspaces()
        return self._executable.native_call(self._record(workspaces), arguments, workspaces, sizes)

    def _new_workspaces(self) -> list[Array]:
        return [zeros(memory.nbytes) for memory in self._executable.workspaces]

    def _record(self, workspaces: Sequence[Array]) -> list[int]:
        return [0 if array is None else array.ctypes.data for array in (*self._arrays, *workspaces)]


class _Copied(CallMemory):
    """A device has memory of its own: inputs are written before a call, outputs read after it.

    Outputs are written before it, too, since a program may leave elements as they are, or read them.
    """

    def __init__(self, bound: Bound) -> None:
        self._bound = bound

    def give(self, index: int, array: Array) -> None:
        self._bound.write(index, array)

    def run(self, outputs: Sequence[tuple[int, Array]]) -> None:
        for index, array in outputs:
            self.give(index, array)
        self._bound.run()
        for index, array in outputs:
            array[...] = self._bound.read(index).reshape(array.shape)


class _OfEachShape(CallMemory):
    """Of a kernel of many shapes on a device only the kernels of one shape have memory."""

    def give(self, index: int, array: Array) -> None:
        """Constants that are packed are given to those kernels."""

    def run(self, outputs: Sequence[tuple[int, Array]]) -> None:
        raise InternalError("a kernel of many shapes is called through one of its kernels of one shape")


def memory_of(executable: Executable) -> CallMemory:
    from ...backends.cpu import CpuExecutable

    if executable.is_open:
        return _OfEachShape()
    return _InPlace(executable) if isinstance(executable, CpuExecutable) else _Copied(executable.bind())
