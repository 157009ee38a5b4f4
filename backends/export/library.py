"""What a library is: functions of C, each some lowered programs over memory that is given, constant or scratch.

A kernel is a function of one step, packing a constant another; a network is a function of many steps whose tensors lie
in scratch memory by its plan, and whose weights are constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

from ...ir import dtypes
from ...ir.expr import Buffer, Extent
from ...ir.size_ranges import Range
from ...ir.target import Target
from ..artifact import Argument
from ..lower import Lowered
from ..memory import ALIGNMENT


@dataclass(frozen=True)
class Given:
    """Memory of the caller: the parameter of the function with this name, from so many bytes behind its beginning."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Constant:
    """Bytes that the library holds, by name."""

    name: str


@dataclass(frozen=True)
class Scratch:
    """Memory that a call has to itself, at this offset; a multiple of `ALIGNMENT`."""

    offset: int


Place: TypeAlias = Given | Constant | Scratch


@dataclass(frozen=True)
class Step:
    """One program of a function, with a place for each of its parameters and then its workspaces."""

    program: Lowered
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Function:
    """A function of C.  `summary` is a sentence for its users, without the full stop.

    An array is passed as it lies in memory, in the `physical_shape` of its argument.  `packers` names, for a parameter
    that the caller packs once, the function that does.  `initial` has what scratch memory holds before the first step,
    as offsets and constants: it is written once, where memory is new, and no step may write something else there.
    Where calls decide extents, `sizes` are the scalar parameters that they are expressions of, with what these may be,
    `counted` those that arrays tell where they know their shapes, and `extents` has the shape of each array with such
    extents.
    """

    name: str
    summary: str
    parameters: tuple[Argument, ...]
    steps: tuple[Step, ...]
    scratch_bytes: int = 0
    packers: Mapping[str, str] = field(default_factory=dict)
    initial: tuple[tuple[int, str], ...] = ()
    sizes: Mapping[str, Range] = field(default_factory=dict)
    counted: tuple[str, ...] = ()
    extents: Mapping[str, tuple[Extent, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Library:
    """Functions that leave together, lowered for one target; the first one is what the library is for.

    `about` says in a line what was made, `texts` are programs to read by the names of their dialects.
    """

    name: str
    target: Target
    functions: tuple[Function, ...]
    constants: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    about: str = ""
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def main(self) -> Function:
        """What the library is for."""
        return self.functions[0]


def single(
    name: str, summary: str, arguments: Sequence[Argument], program: Lowered, constants: Mapping[str, str] | None = None
) -> Function:
    """The function of one program: its parameters are given, or one of `constants` (from parameter to constant)."""
    held = constants or {}
    places: list[Place] = [Constant(held[a.name]) if a.name in held else Given(a.name) for a in arguments]
    end = 0
    for workspace in program.workspaces:
        places.append(Scratch(end))
        end += aligned(workspace.nbytes)
    parameters = tuple(a for a in arguments if a.name not in held)
    return Function(name, summary, parameters, (Step(program, tuple(places)),), end)


def aligned(nbytes: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def nbytes(argument: Argument) -> int:
    """Bytes of an argument as it lies in memory."""
    return prod(argument.physical_shape) * dtypes.nbytes(argument.dtype)


def buffers(step: Step) -> tuple[Buffer, ...]:
    """What the places of a step are for."""
    return (*step.program.params, *step.program.workspaces)
