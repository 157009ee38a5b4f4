"""What a backend's code does once it is loaded: bind memory, take and give arrays, run, and time calls.

::

    executable.bind() -> Bound                       memory of its own for every buffer
    bound.write(k, array); bound.run(); bound.read(k); bound.time(calls)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..ir import dtypes
from ..ir.expr import Buffer
from ..ir.interpreter.numbers import boundary_dtype
from ..ir.target import Target
from .artifact import Artifact

if TYPE_CHECKING:
    from numpy.typing import NDArray

numpy_dtype = boundary_dtype
"""The NumPy type of one element; NumPy has no bfloat16, whose bits travel as uint16."""


class Memory(NamedTuple):
    """One buffer that an executable works on; `shape` is physical."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scope: str

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * dtypes.nbytes(self.dtype)


def describe(buffers: Sequence[Buffer]) -> list[list[Any]]:
    """Buffers as they stand in an artifact."""
    return [[b.name, list(b.shape), b.dtype, b.scope] for b in buffers]


class Executable(ABC):
    """A compiled program in this process."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.target = Target.from_json(artifact["target"])
        self.params = tuple(Memory(n, tuple(s), d, k) for n, s, d, k in artifact["params"])
        self.workspaces = tuple(Memory(n, tuple(s), d, k) for n, s, d, k in artifact["workspaces"])

    @abstractmethod
    def bind(self, *, guard_bytes: int = 0) -> Bound:
        """Allocate every parameter and workspace, with `guard_bytes` of guard zone before and after each."""


class Bound(ABC):
    """An executable with memory of its own; `names` are the parameters, then the workspaces."""

    names: tuple[str, ...]

    @abstractmethod
    def write(self, index: int, data: NDArray[Any]) -> None:
        """Fill buffer `index` from a physical array of the same number of bytes."""

    @abstractmethod
    def read(self, index: int) -> NDArray[Any]:
        """A copy of buffer `index` in its physical shape."""

    @abstractmethod
    def poison_guards(self, pattern: bytes) -> None:
        """Fill the guard zones with `pattern`, repeated."""

    @abstractmethod
    def guards_intact(self) -> bool:
        """Whether the guard zones still hold the pattern."""

    @abstractmethod
    def run(self) -> None:
        """One call; complete when it returns."""

    @abstractmethod
    def time(self, calls: int) -> float:
        """Seconds per call over `calls` calls back to back, Python excluded."""
