"""Compiled programs as data, and the two things that can be done with one: bind memory, and run.

::

    compile_lowered(lowered, target) -> Artifact     plain data, made in a process that may crash
    load_artifact(artifact) -> Executable            in the process that runs it
    executable.bind() -> Bound                       memory of its own for every buffer
    bound.write(k, array); bound.run(); bound.read(k); bound.time(calls)

    load_chain(calls, blocks) -> Chain               several programs, one after the other, in memory that they share
    chain.write(place, array); chain.run(); chain.read(place, nbytes); chain.profile()

Each kind of target has a place in `BACKENDS`; what all of them keep is asked in `tests/backend_contract.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..ir import dtypes
from ..ir.expr import Buffer
from ..ir.interpreter.numbers import boundary_dtype
from ..ir.target import Target
from .artifact import Artifact

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .lower import Lowered


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


class Place(NamedTuple):
    """Where a buffer of a chain begins: so many bytes into one of its blocks of memory."""

    block: int
    offset: int


class Call(NamedTuple):
    """One program of a chain, and where its parameters and then its workspaces lie."""

    artifact: Artifact
    places: tuple[Place, ...]


class Backend(NamedTuple):
    """What there is for one kind of target: a compiler, and loaders of what it made.

    Without a `chain` of its own, a chain copies its memory to and from its programs.  Buffers of a chain begin at
    multiples of `alignment` bytes.
    """

    compile: Callable[[Lowered, Target], Artifact]
    load: Callable[[Artifact], Executable]
    chain: Callable[[Sequence[Call], Sequence[int]], Chain] | None = None
    alignment: int = 64


def _cpu() -> Backend:
    from .chain import CpuChain
    from .cpu import compile_cpu, load_cpu
    from .memory import ALIGNMENT

    return Backend(compile_cpu, load_cpu, CpuChain, ALIGNMENT)


def _opencl() -> Backend:
    from .opencl.chain import ALIGNMENT, OpenCLChain
    from .opencl.runtime import compile_opencl, load_opencl

    return Backend(compile_opencl, load_opencl, OpenCLChain, ALIGNMENT)


BACKENDS: dict[str, Callable[[], Backend]] = {"cpu": _cpu, "opencl": _opencl}
"""The backend of each kind of target, imported when it is first needed."""


def compile_lowered(lowered: Lowered, target: Target) -> Artifact:
    """Compile for the target's kind of device.  Raises on what the code generator refuses."""
    if target.kind not in BACKENDS:
        raise ValueError(f"no code generator for a target of kind `{target.kind}`; known are {', '.join(BACKENDS)}")
    return BACKENDS[target.kind]().compile(lowered, target)


def load_artifact(artifact: Artifact) -> Executable:
    """Make an artifact callable in this process."""
    if artifact["kind"] not in BACKENDS:
        raise ValueError(f"an artifact of unknown kind `{artifact['kind']}`; known are {', '.join(BACKENDS)}")
    return BACKENDS[artifact["kind"]]().load(artifact)


def load_chain(calls: Sequence[Call], blocks: Sequence[int], kind: str = "cpu") -> Chain:
    """Programs for one device of this `kind`, which share blocks of memory of so many bytes each."""
    return (BACKENDS[kind]().chain or CopiedChain)(calls, blocks)


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


class CopiedChain(Chain):
    """A chain of bound programs: before each the parameters are copied from the blocks, and after it back."""

    def __init__(self, calls: Sequence[Call], blocks: Sequence[int]) -> None:
        self.blocks = [np.zeros(size, np.uint8) for size in blocks]
        self._steps: list[tuple[Bound, list[tuple[Place, Memory]]]] = []
        for call in calls:
            executable = load_artifact(call.artifact)
            if len(call.places) != len(executable.params) + len(executable.workspaces):
                raise ValueError(f"`{call.artifact['entry']}` takes other buffers than {len(call.places)} places")
            self._steps.append((executable.bind(), list(zip(call.places, executable.params, strict=False))))

    def write(self, place: Place, data: NDArray[Any]) -> None:
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self.blocks[place.block][place.offset : place.offset + raw.size] = raw

    def read(self, place: Place, nbytes: int) -> NDArray[np.uint8]:
        return self.blocks[place.block][place.offset : place.offset + nbytes].copy()

    def run(self, first: int = 0, last: int | None = None) -> None:
        self.profile(first, last)

    def profile(self, first: int = 0, last: int | None = None) -> list[float]:
        seconds = []
        for bound, params in self._steps[first:last]:
            for index, (place, memory) in enumerate(params):
                bound.write(index, self.read(place, memory.nbytes))
            seconds.append(bound.time(1))
            for index, (place, _) in enumerate(params):
                self.write(place, bound.read(index))
        return seconds
