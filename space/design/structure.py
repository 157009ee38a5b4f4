"""The structure of an anchor's schedule, and the decisions that it leaves open.

A structure fixes which axis runs in the lanes of vectors (`vec`) and which one fills
the rows of the register tile (`row`).  A reduction can be the vector axis as well: it
is then reduced in independent parts first (rfactor).  Everything else is a decision, and
`techniques` says which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...ir.stmt import PrimFunc
from ...ir.target import SUBGROUP_OPS, SUBGROUP_TYPES, Target
from .decision import Decision
from .program import Anchor

SHORTEST = 4
"""Neighbours that a vector which fills less than half of a register runs along, at least."""


@dataclass(frozen=True)
class Structure:
    """The vector axis and the row axis of one anchor, by number.

    `dot` is the reduction of which `Anchor.dot_steps` steps are one dot product, None where none are.  That is no
    decision within a structure, since few layouts, tiles and memories go with it.  In a `subgroup` the parts of a
    factored reduction are those of work-items, in the place of lanes.
    """

    vec: int
    row: int | None
    factored: bool
    dot: int | None = None
    subgroup: bool = False

    def label(self, anchor: Anchor) -> str:
        row = "" if self.row is None else f",row={anchor.axes[self.row].name}"
        dot = "" if self.dot is None else f",dot={anchor.axes[self.dot].name}"
        return f"vec={anchor.axes[self.vec].name}{row}{dot}{',subgroup' if self.subgroup else ''}"


def structures(anchor: Anchor, target: Target) -> tuple[Structure, ...]:
    """Each spatial axis as vector axis with each other as row, and the long reductions of unit stride.

    A spatial axis can be vectorized if the result has a dimension of its own for it, or, where nothing is reduced, part
    of one.  Then those with a spatial axis
    once more, with dot products where the target has them, and those of long reductions in subgroups.
    """
    wide = [a for a in anchor.spatial if anchor.axes[a].extent > 1]
    found: list[Structure] = []
    for vec in wide or list(anchor.spatial[:1]):
        if (anchor.output.plain_dim(vec) if anchor.reduce else anchor.output.own_dim(vec)) is None:
            continue
        rows: list[int | None] = [a for a in wide if a != vec]
        found.extend(Structure(vec, row, False) for row in rows or [None])
    for axis in long_reductions(anchor, target):
        rows = list(wide)
        found.extend(Structure(axis, row, True) for row in rows or [None])
    dot = dot_axis(anchor, target)
    if dot is not None:
        found += [replace(structure, dot=dot) for structure in found if not structure.factored]
    items = reductions_in_subgroups(anchor, target)
    found += [replace(structure, subgroup=True) for structure in found if structure.vec in items]
    return tuple(found)


def with_long_vectors(anchor: Anchor, found: tuple[Structure, ...], target: Target) -> tuple[Structure, ...]:
    """The structures whose vectors fill at least half of a register; all of them where none does.

    Digits are often short: groups, phases, the rows of a block.  Where elements of the result are apart along all of
    the long ones, those along at least `SHORTEST` of its neighbours stay that fill a quarter, as rows of 7 pixels do of
    16 lanes; the phases of a transposed convolution are fewer, and not computed beyond their end.
    """
    lanes = target.vector_lanes(anchor.output.dtype)
    long = [s for s in found if 2 * anchor.axes[s.vec].extent >= lanes]
    if long and all(s.factored or anchor.output.stride(s.vec) != 1 for s in long):
        neighbours = (s for s in found if not s.factored and anchor.output.stride(s.vec) == 1 and s not in long)
        long += [s for s in neighbours if anchor.axes[s.vec].extent >= max(SHORTEST, lanes / 4)]
    return tuple(s for s in found if s in long) or found


def long_reductions(anchor: Anchor, target: Target) -> list[int]:
    """Reductions of two vectors or more along which all that depends on them is read in unit stride."""
    lanes = target.vector_lanes(anchor.output.dtype)
    readers = {axis: [o for o in anchor.inputs if o.uses(axis)] for axis in anchor.reduce}
    return [
        axis
        for axis, own in readers.items()
        if anchor.axes[axis].extent >= 2 * max(lanes, 2) and own and all(o.dims and o.stride(axis) == 1 for o in own)
    ]


def reductions_in_subgroups(anchor: Anchor, target: Target) -> list[int]:
    """The long reductions that subgroups of the target do: of several results, each longer than the least of these."""
    known = anchor.op in SUBGROUP_OPS and anchor.output.dtype in SUBGROUP_TYPES
    if not target.subgroup_sizes or not known or all(anchor.axes[a].extent == 1 for a in anchor.spatial):
        return []
    least = target.subgroup_sizes[0]
    return [axis for axis in long_reductions(anchor, target) if anchor.axes[axis].extent > least]


def dot_axis(anchor: Anchor, target: Target) -> int | None:
    """The longest reduction with a dimension of its own in both factors, of more than half the steps of a product.

    So three channels of an image are a word of bytes, of which one is padding.
    """
    if anchor.signs not in target.dot_signs:
        return None
    factors = [anchor.operands[f] for f in anchor.factors]
    own = [a for a in anchor.reduce if all(f.source != "other" and f.plain_dim(a) is not None for f in factors)]
    axis = max(own, key=lambda a: anchor.axes[a].extent, default=None)
    return axis if axis is not None and 2 * anchor.axes[axis].extent > anchor.dot_steps else None


@dataclass(frozen=True)
class Open:
    """The decisions of one anchor in one structure.

    `numbers` says what they are about, as `Collector` does; `chunks` is 0, or the number of chunks of rows that
    threads share, each with all anchors (see `chunks`).
    """

    anchor: Anchor
    structure: Structure
    decisions: tuple[Decision, ...]
    numbers: Mapping[str, Mapping[int, int]]
    chunks: int = 0

    def of(self, what: str) -> Mapping[int, int]:
        """The decisions of a sort: from the number of an axis or operand to that of the decision about it."""
        return self.numbers.get(what, {})

    @property
    def outer_axes(self) -> tuple[int, ...]:
        """Spatial axes with a loop outside the register tile."""
        return tuple(a for a in self.anchor.spatial if self.anchor.axes[a].extent > 1)

    @cached_property
    def tables(self) -> Mapping[str, tuple[int, NDArray[np.float32]]]:
        """Each column of the decisions' tables, with the number of the decision whose alternatives it counts."""
        return {
            name: (number, np.asarray(column, np.float32))
            for number, item in enumerate(self.decisions)
            for name, column in item.table.items()
        }

    @cached_property
    def whole_tables(self) -> Mapping[str, tuple[int, NDArray[np.int64]]]:
        """`tables` with whole numbers."""
        return {name: (number, column.astype(np.int64)) for name, (number, column) in self.tables.items()}


@dataclass(frozen=True)
class Site:
    """What a technique looks at when it says which decisions are open: an anchor of a program in a structure."""

    func: PrimFunc
    anchor: Anchor
    structure: Structure
    target: Target
    chunks: int = 0

    @property
    def wide(self) -> list[int]:
        """Spatial axes of more than one point."""
        return [a for a in self.anchor.spatial if self.anchor.axes[a].extent > 1]

    @property
    def lanes(self) -> int:
        """Elements of the result in one vector register."""
        return self.target.vector_lanes(self.anchor.output.dtype)
