"""What a backend's code does once it is loaded: bind memory, take and give arrays, run, and time calls.

::

    executable.bind() -> Bound                       memory of its own for every buffer
    bound.write(k, array); bound.run(); bound.read(k); bound.time(calls)

    chain.write(place, array); chain.run(); chain.read(place, nbytes); chain.profile()
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..ir import dtypes
from ..ir.expr import Buffer, Expr
from ..ir.numbers import boundary_dtype
from ..ir.target import Target
from .artifact import OPEN, Artifact, InNetwork

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
        if OPEN in self.shape:
            raise ValueError(f"the size of `{self.name}` is a matter of each call; run the kernel on arrays")
        return int(np.prod(self.shape, dtype=np.int64)) * dtypes.nbytes(self.dtype)


def describe(buffers: Sequence[Buffer]) -> list[list[Any]]:
    """Buffers as they stand in an artifact; an extent that is an expression is `OPEN`."""
    return [[b.name, [OPEN if isinstance(e, Expr) else e for e in b.extents], b.dtype, b.scope] for b in buffers]


class Place(NamedTuple):
    """Where a buffer of a chain begins: so many bytes into one of its blocks of memory."""

    block: int
    offset: int


class Call(NamedTuple):
    """One program of a chain, and where its parameters and then its workspaces lie."""

    artifact: Artifact
    places: tuple[Place, ...]


class Executable(ABC):
    """A compiled program in this process."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.target = Target.from_json(artifact["target"])
        self.params = tuple(Memory(n, tuple(s), d, k) for n, s, d, k in artifact["params"])
        self.workspaces = tuple(Memory(n, tuple(s), d, k) for n, s, d, k in artifact["workspaces"])

    @property
    def memories(self) -> tuple[Memory, ...]:
        """The parameters, then the workspaces."""
        return (*self.params, *self.workspaces)

    @property
    def is_open(self) -> bool:
        """Whether each call decides what runs, so that nothing can be bound before `at`."""
        return False

    def at(self, shapes: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> Executable:
        """The same code for the extents of one call.

        `shapes` are those of its parameters, and `sizes` the values of the integers that only extents give, which come
        behind these.  Raises ValueError where there are none, and for a device that takes them in no other way.
        """
        raise ValueError(f"kernels for {self.artifact['kind']} have one shape")

    @abstractmethod
    def bind(self, *, guard_bytes: int = 0, called: InNetwork | None = None) -> Bound:
        """Allocate every parameter and workspace, with `guard_bytes` of guard zone before and after each.

        Where a backend can do so, calls that are timed find the parameters where a call in a network finds them.
        """


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
        """Seconds per call over `calls` calls back to back, Python excluded; launches, too, by a device's own clock."""


class Chain(ABC):
    """Programs that run one after the other in one native call, in blocks of memory that they share."""

    @abstractmethod
    def write(self, place: Place, data: NDArray[Any]) -> None:
        """Fill memory from an array, whose bytes it takes."""

    @abstractmethod
    def read(self, place: Place, nbytes: int) -> NDArray[np.uint8]:
        """A copy of so many bytes."""

    @abstractmethod
    def run(self, first: int = 0, last: int | None = None) -> None:
        """Run the programs from number `first` to before `last`, by default all; complete when it returns."""

    @abstractmethod
    def profile(self, first: int = 0, last: int | None = None) -> list[float]:
        """A run as `run` makes it, and the seconds of each of its programs."""
