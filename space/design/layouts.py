"""Families of layouts of an operand, each a class: an order of its dimensions, some of them cut in blocks.

The numbers in a layout (tile, physical extents) follow from other decisions, so that an alternative of a decision is a
family of layouts; `LayoutFamily.layout` is the one (`ir.layout.layout.Layout`) that a candidate has.  Its extents are
large enough for the tiles and halos that reach over an edge.  `Identity` leaves the order of elements; a buffer that
the caller fixes it leaves alone, while the others move such a buffer through a cache.

A family says its `order` of physical dimensions once; the index map, the physical shape, the padding, and the runs of
neighbours that the cost model counts all follow from it.  A new family is a class here, and a place in `LAYOUTS`
(`docs/howto/layout.md` adds one).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ...ir import dtypes
from ...ir.layout.layout import Dim, Layout, Size
from ...ir.layout.pad_value import Encoded
from .operand import Operand
from .program import Anchor
from .structure import Structure

LINE = 64  # bytes
CONFLICTING = 4
"""Cache lines in a row from which on neighbours in a column meet in few of a cache's sets."""
LONGEST_PHASE = 8
"""The longest stride that a layout takes out of a dimension."""

BROADCAST, CONTIGUOUS, PAIRED, STRIDED = 0.0, 1.0, 1.5, 2.0
"""How the lanes of a vector meet an operand: in one element, in neighbours, in every second element, or anyhow."""


@dataclass(frozen=True)
class LayoutFamily:
    """One alternative for an operand: the dimension it acts on, the axis whose tile it follows, and its own `size`."""

    dim: int = -1
    axis: int = -1
    size: int = 0
    kind: ClassVar[str]

    @classmethod
    def offers(cls, anchor: Anchor, operand: Operand, structure: Structure) -> Iterator[LayoutFamily]:
        """The layouts of this kind for an input with known accesses, whose layout may be chosen."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        return self.kind if self.dim < 0 else f"{self.kind}:d{self.dim}"

    def order(self, operand: Operand, tiles: Sequence[Size]) -> list[Dim]:
        """The physical dimensions, outermost first; `tiles` are the extents of the register tile by axis."""
        return _whole(operand)

    def meets(self, operand: Operand, vec: int, target_kind: str) -> float:
        """How a vector along the axis `vec`, which indexes the operand, meets it in this layout."""
        return STRIDED

    def last_dim(self, operand: Operand) -> int:
        """The dimension along which neighbours in memory are neighbours; -1 where there is none."""
        return len(operand.dims) - 1

    def scatters(self, operand: Operand) -> bool:
        """Whether a copy into the layout, written in order, reads elements that are no neighbours."""
        return self.last_dim(operand) != operand.source_dim

    def box(self, operand: Operand, spans: Sequence[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        """Extents of the physical box around a box of the given logical extents that begins anywhere."""
        return list(spans)

    def sides(self, operand: Operand, tiles: Sequence[Size], logical: Sequence[Size]) -> tuple[Size, Size] | None:
        """Points along which a copy of logical extents into the layout reads neighbours, and writes them, if apart."""
        order = self.order(operand, tiles)
        read = [d for d in order if d.dim == operand.source_dim and d.part != "block"]
        if not read or read[-1] is order[-1]:
            return None
        return read[-1].size(logical[read[-1].dim]), order[-1].size(logical[order[-1].dim])

    # What follows from the order.

    def layout(self, operand: Operand, tiles: Sequence[int], reach: Sequence[int], pad_value: Encoded = None) -> Layout:
        """The layout of one candidate, with room for the extents that accesses reach."""
        return Layout.of_dims(operand.shape, self.order(operand, tiles), reach=reach, pad_value=pad_value)

    def shape(self, operand: Operand, tiles: Sequence[Size], logical: Sequence[Size]) -> tuple[Size, ...]:
        """Physical extents, for the logical ones that accesses reach."""
        return tuple(d.size(logical[d.dim]) for d in self.order(operand, tiles))

    def pads(self, operand: Operand, tiles: Sequence[NDArray[np.int64]]) -> NDArray[np.bool_]:
        """Whether the layout of the operand's own shape leaves padding."""
        result: NDArray[np.bool_] = np.zeros(1, dtype=bool)
        for d in self.order(operand, tiles):
            if d.part == "pitched":
                result = ~np.zeros(1, dtype=bool)
            elif d.part == "inner":
                result = result | (operand.shape[d.dim] % d.step != 0)
        return result


def _whole(operand: Operand) -> list[Dim]:
    """The operand's own dimensions."""
    return [Dim(number) for number in range(len(operand.dims))]


class _AsBefore(LayoutFamily):
    """A layout in which neighbours along a row stay neighbours."""

    def meets(self, operand: Operand, vec: int, target_kind: str) -> float:
        if operand.stride(vec) == 2 and not operand.is_output and target_kind == "cpu":
            return PAIRED
        return CONTIGUOUS if operand.stride(vec) == 1 else STRIDED


@dataclass(frozen=True)
class Identity(_AsBefore):
    """The operand as it is; physical extents of its own where its buffer may be enlarged."""

    kind = "identity"

    @classmethod
    def offers(cls, anchor: Anchor, operand: Operand, structure: Structure) -> Iterator[LayoutFamily]:
        yield cls()


@dataclass(frozen=True)
class Copy(_AsBefore):
    """A copy in the same order, with physical extents of its own."""

    kind = "copy"

    @classmethod
    def offers(cls, anchor: Anchor, operand: Operand, structure: Structure) -> Iterator[LayoutFamily]:
        if operand.source == "fixed":
            yield cls()


@dataclass(frozen=True)
class Tiled(LayoutFamily):
    """``[i // T, ..., i % T]`` for the dimension that the tiled `axis` indexes: the panel of a tile last."""

    kind = "tiled"

    @classmethod
    def offers(cls, anchor: Anchor, operand: Operand, structure: Structure) -> Iterator[LayoutFamily]:
        for axis in (structure.vec, structure.row):
            dim = None if axis is None else operand.plain_dim(axis)
            if axis is not None and dim is not None and anchor.axes[axis].kind == "spatial":
                yield cls(dim, axis)

    def order(self, operand: Operand, tiles: Sequence[Size]) -> list[Dim]:
        return _blocks_apart(operand, self.dim, tiles[self.axis])

    def meets(self, operand: Operand, vec: int, target_kind: str) -> float:
        return CONTIGUOUS if self.axis == vec else STRIDED

    def last_dim(self, operand: Operand) -> int:
        return self.dim


@dataclass(frozen=True)
class Phase(LayoutFamily):
    """``[..., i % c, ..., i // c]`` for a dimension that the vector axis steps through by c."""

    kind = "phase"

    @classmethod
    def offers(cls, anchor: Anchor, operand: Operand, structure: Structure) -> Iterator[LayoutFamily]:
        for dim, terms in enumerate(operand.dims):
            steps = [c for a, c in terms if a == structure.vec]
            if len(steps) == 1 and 1 < steps[0] <= LONGEST_PHASE:
                yield cls(dim, structure.vec)

    def step(self, operand: Operand) -> int:
        """The stride of the vector axis that is taken out."""
        return next(c for a, c in operand.dims[self.dim] if a == self.axis)

    def order(self, operand: Operand, tiles: Sequence[Size]) -> list[Dim]:
        step = self.step(operand)
        rest = [d for d in _whole(operand) if d.dim != self.dim]
        return [*rest, Dim(self.dim, "inner", step), Dim(self.dim, "block", step)]

    def meets(self, operand: Operand, vec: int, target_kind: str) -> float:
        return CONTIGUOUS

    def last_dim(self, operand: Operand) -> int:
        return -1

    def box(self, operand: Operand, spans: Sequence[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        step = self.step(operand)
        rest = [span for dim, span in enumerate(spans) if dim != self.dim]
        return [*rest, np.full(1, step, np.int64), spans[self.dim] // step + 2]


@dataclass(frozen=True)
class Last(LayoutFamily):
    """The dimension of the longest plain reduction moved last, so that its steps are neighbours."""

    kind = "last"

    @classmethod
    def offers(cls, anchor: Anchor, operand: Operand, structure: Structure) -> Iterator[LayoutFamily]:
        extent, dim = max(_plain_reductions(anchor, operand), default=(1, -1))
        if extent > 1 and dim != len(operand.dims) - 1:
            yield cls(dim)

    def order(self, operand: Operand, tiles: Sequence[Size]) -> list[Dim]:
        dims = _whole(operand)
        return [*(d for d in dims if d.dim != self.dim), dims[self.dim]]

    def meets(self, operand: Operand, vec: int, target_kind: str) -> float:
        return CONTIGUOUS if operand.dims[self.dim] == ((vec, 1),) else STRIDED

    def last_dim(self, operand: Operand) -> int:
        return self.dim


@dataclass(frozen=True)
class Blocked(_AsBefore):
    """``[i // B, ..., i % B]`` for the dimension of a reduction, in an input that vectors do not run along.

    Neighbours in the other dimensions lie B elements apart, a cache line or two, in place of a power of two that
    maps them to the same cache set.
    """

    kind = "blocked"

    @classmethod
    def offers(cls, anchor: Anchor, operand: Operand, structure: Structure) -> Iterator[LayoutFamily]:
        line = _line(operand)
        extent, dim = max(_plain_reductions(anchor, operand), default=(0, -1))
        if not operand.uses(structure.vec) and extent >= 2 * line:
            yield from (cls(dim, size=size) for size in (line, 2 * line))

    @property
    def label(self) -> str:
        return f"{self.kind}:d{self.dim}:{self.size}"

    def order(self, operand: Operand, tiles: Sequence[Size]) -> list[Dim]:
        return _blocks_apart(operand, self.dim, self.size)

    def last_dim(self, operand: Operand) -> int:
        return self.dim

    def box(self, operand: Operand, spans: Sequence[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        span, whole = spans[self.dim], -(-operand.shape[self.dim] // self.size)
        # Where panels begin anywhere in a block, no bounds are found of the blocks that one of them touches.
        blocks, inner = np.full(1, whole, np.int64), np.full(1, self.size, np.int64)
        ((_, step), *others), offset = operand.dims[self.dim], operand.offsets[self.dim]
        if not others and step == 1 and offset == 0:  # a panel begins at a multiple of its length
            blocks = np.where(span % self.size == 0, np.minimum(span // self.size, whole), blocks)
            within = self.size % span == 0
            blocks, inner = np.where(within, 1, blocks), np.where(within, span, inner)
        rest = [size for dim, size in enumerate(spans) if dim != self.dim]
        return [*rest, blocks, inner]


@dataclass(frozen=True)
class Pitched(_AsBefore):
    """The same order with a cache line more in the last dimension, for the same reason."""

    kind = "pitched"

    @classmethod
    def offers(cls, anchor: Anchor, operand: Operand, structure: Structure) -> Iterator[LayoutFamily]:
        line, row = _line(operand), operand.shape[-1]
        if not operand.uses(structure.vec) and row % line == 0 and row >= CONFLICTING * line:
            yield cls(size=line)

    def order(self, operand: Operand, tiles: Sequence[Size]) -> list[Dim]:
        dims = _whole(operand)
        return [*dims[:-1], Dim(dims[-1].dim, "pitched", self.size)]


@dataclass(frozen=True)
class First(LayoutFamily):
    """The dimension of an axis that every array has, as groups, moved first: what a group reads lies together.

    It is offered for an axis that is outside of the register tile, where something longer than one point lies before
    its dimension.
    """

    kind = "first"

    @classmethod
    def offers(cls, anchor: Anchor, operand: Operand, structure: Structure) -> Iterator[LayoutFamily]:
        outside = (a for a in anchor.spatial if a not in (structure.vec, structure.row) and anchor.axes[a].extent > 1)
        arrays = [o for o in anchor.operands if o.shape]
        for axis in outside:
            dim = operand.plain_dim(axis)
            if dim is not None and prod(operand.shape[:dim]) > 1 and all(o.uses(axis) for o in arrays):
                yield cls(dim)

    def order(self, operand: Operand, tiles: Sequence[Size]) -> list[Dim]:
        dims = _whole(operand)
        return [dims[self.dim], *(d for d in dims if d.dim != self.dim)]

    def meets(self, operand: Operand, vec: int, target_kind: str) -> float:
        return CONTIGUOUS if operand.dims[self.order(operand, ())[-1].dim] == ((vec, 1),) else STRIDED

    def last_dim(self, operand: Operand) -> int:
        return self.order(operand, ())[-1].dim


@dataclass(frozen=True)
class DotPacked4(LayoutFamily):
    """``[..., k // 4, ..., k % 4]`` for a reduction of which a dot product does four steps, as a word of four bytes.

    With an `axis` the panel of its tile is last but for that, ``[i // T, ..., k // 4, ..., i % T, k % 4]``: a vector
    along it reads words that are neighbours.  It is what libraries call the VNNI layout.
    """

    kind = "packed4"
    steps: ClassVar[int] = 4

    @classmethod
    def offers(cls, anchor: Anchor, operand: Operand, structure: Structure) -> Iterator[LayoutFamily]:
        dim = None if structure.dot is None or anchor.dot_steps != cls.steps else operand.plain_dim(structure.dot)
        if dim is None or anchor.operands.index(operand) not in anchor.factors:
            return
        yield cls(dim)
        for axis in (structure.vec, structure.row):
            if axis is not None and operand.plain_dim(axis) is not None:
                yield cls(dim, axis, operand.plain_dim(axis) or 0)

    @property
    def label(self) -> str:
        return f"{self.kind}:d{self.dim}" + (f":d{self.size}" if self.axis >= 0 else "")

    def order(self, operand: Operand, tiles: Sequence[Size]) -> list[Dim]:
        dims = _whole(operand) if self.axis < 0 else _blocks_apart(operand, self.size, tiles[self.axis])
        words = [Dim(d.dim, "block", self.steps) if d.dim == self.dim else d for d in dims]
        return [*words, Dim(self.dim, "inner", self.steps)]

    def meets(self, operand: Operand, vec: int, target_kind: str) -> float:
        along = self.size if self.axis >= 0 else len(operand.dims) - 1
        return CONTIGUOUS if along != self.dim and (vec, 1) in operand.dims[along] else STRIDED

    def last_dim(self, operand: Operand) -> int:
        return self.dim

    def scatters(self, operand: Operand) -> bool:
        """Also where a copy moves words, the neighbours of which are not those that they have where they come from."""
        along = self.size if self.axis >= 0 else len(operand.dims) - 1
        return super().scatters(operand) or along != self.dim


@dataclass(frozen=True)
class DotPacked2(DotPacked4):
    """The same for dot products of two steps, as a word of two bfloat16."""

    kind = "packed2"
    steps: ClassVar[int] = 2


LAYOUTS: tuple[type[LayoutFamily], ...] = (
    Identity, Copy, Tiled, Phase, Last, Blocked, Pitched, First, DotPacked4, DotPacked2,
)  # fmt: skip
"""The kinds of families; a kind's place is its number in features."""


def alternatives(anchor: Anchor, operand: Operand, structure: Structure) -> tuple[LayoutFamily, ...]:
    """Every layout of an input of an anchor; the identity alone where its accesses or its owner leave no choice."""
    if not operand.dims or operand.source == "other":
        return (Identity(),)
    found = tuple(layout for kind in LAYOUTS for layout in kind.offers(anchor, operand, structure))
    if not is_read_in_words(anchor, operand, structure):
        return found
    return tuple(layout for layout in found if _ends_with(layout, operand, structure.dot))


def is_read_in_words(anchor: Anchor, operand: Operand, structure: Structure) -> bool:
    """Whether an operand is a factor of dot products, and so read in words of 32 bits."""
    return structure.dot is not None and anchor.operands.index(operand) in anchor.factors


def _ends_with(layout: LayoutFamily, operand: Operand, axis: int | None) -> bool:
    """Whether neighbours in memory are those along an axis that has a dimension of its own."""
    assert axis is not None
    last = layout.order(operand, [1] * (1 + max(a for terms in operand.dims for a, _ in terms)))[-1]
    return last.dim == operand.plain_dim(axis) and last.part != "block"


def code(layout: LayoutFamily) -> int:
    """The number of a layout's kind."""
    return LAYOUTS.index(type(layout))


def meeting(operand: Operand, layout: LayoutFamily, vec: int, target_kind: str) -> float:
    """How a vector along the axis `vec` meets an operand in a layout."""
    if not operand.is_linear:
        return CONTIGUOUS if vec == operand.along and isinstance(layout, Identity) else STRIDED
    return layout.meets(operand, vec, target_kind) if operand.uses(vec) else BROADCAST


def _blocks_apart(operand: Operand, dim: int, step: Size) -> list[Dim]:
    """``[i // step, ..., i % step]`` for the index i in `dim`."""
    rest = [d for d in _whole(operand) if d.dim != dim]
    return [Dim(dim, "block", step), *rest, Dim(dim, "inner", step)]


def _plain_reductions(anchor: Anchor, operand: Operand) -> list[tuple[int, int]]:
    """``(extent, dimension)`` of each axis of the reduction that has a dimension of its own."""
    found = ((anchor.axes[a].extent, operand.plain_dim(a)) for a in anchor.reduce)
    return [(extent, dim) for extent, dim in found if dim is not None]


def _line(operand: Operand) -> int:
    """Elements of a cache line."""
    return max(1, LINE // dtypes.nbytes(operand.dtype))
