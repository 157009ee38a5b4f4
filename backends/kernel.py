"""From lowered programs to ones that run, by the backend of their kind of target.

::

    compile_lowered(lowered, target) -> Artifact     plain data, made in a process that may crash
    load_artifact(artifact) -> Executable            in the process that runs it
    load_chain(calls, blocks) -> Chain               several programs, one after the other, in memory that they share

Each kind of target has a place in `BACKENDS`; what all of them keep is asked in `tests/backend_contract.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..ir.target import Target
from .artifact import Artifact
from .executable import Bound, Call, Chain, Executable, Memory, Place

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .lower import Lowered


class Backend(NamedTuple):
    """What there is for one kind of target: a compiler, and loaders of what it made.

    Without a `chain` of its own, a chain copies its memory to and from its programs.  Buffers of a chain begin at
    multiples of `alignment` bytes.  `open` does what the first program for a device of a process would wait for.
    """

    compile: Callable[[Lowered, Target], Artifact]
    load: Callable[[Artifact], Executable]
    chain: Callable[[Sequence[Call], Sequence[int]], Chain] | None = None
    alignment: int = 64
    open: Callable[[Target], None] | None = None


def _cpu() -> Backend:
    from .chain import CpuChain
    from .cpu import compile_cpu, load_cpu
    from .memory import ALIGNMENT

    return Backend(compile_cpu, load_cpu, CpuChain, ALIGNMENT)


def _opencl() -> Backend:
    from .opencl.chain import ALIGNMENT, load_opencl_chain
    from .opencl.runtime import OpenCLExecutable, compile_opencl, open_device

    return Backend(compile_opencl, OpenCLExecutable, load_opencl_chain, ALIGNMENT, open_device)


BACKENDS: dict[str, Callable[[], Backend]] = {"cpu": _cpu, "opencl": _opencl}
"""The backend of each kind of target, imported when it is first needed."""


def compile_lowered(lowered: Lowered, target: Target) -> Artifact:
    """Compile for the target's kind of device.  Raises on what the code generator refuses."""
    if target.kind not in BACKENDS:
        raise ValueError(f"no code generator for a target of kind `{target.kind}`; known are {', '.join(BACKENDS)}")
    return BACKENDS[target.kind]().compile(lowered, target)


def open_device(target: Target) -> None:
    """Do ahead what the first program for a device waits for in this process; a GPU has to make a context."""
    backend = BACKENDS[target.kind]() if target.kind in BACKENDS else None
    if backend is not None and backend.open is not None:
        backend.open(target)


def load_artifact(artifact: Artifact) -> Executable:
    """Make an artifact callable in this process."""
    if artifact["kind"] not in BACKENDS:
        raise ValueError(f"an artifact of unknown kind `{artifact['kind']}`; known are {', '.join(BACKENDS)}")
    return BACKENDS[artifact["kind"]]().load(artifact)


def load_chain(calls: Sequence[Call], blocks: Sequence[int], kind: str = "cpu") -> Chain:
    """Programs for one device of this `kind`, which share blocks of memory of so many bytes each."""
    return (BACKENDS[kind]().chain or CopiedChain)(calls, blocks)


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
