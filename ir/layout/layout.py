"""Layouts: where each element of a tensor lies in memory, and what the padding in between holds.

One value says it for programs, kernels, networks and records::

    memory[index_map(i)] = tensor[i]       every other element of `physical_shape` is padding: it holds `pad_value`

Nearly all layouts order the dimensions anew, some of them cut in blocks, with room around some.  `Layout.of_dims` makes
such a layout of its physical dimensions, outermost first, and `Layout.dims` says them again::

    Layout.of_dims((1, 20, 7, 7), (Dim(0), Dim(1, "block", 16), Dim(2), Dim(3), Dim(1, "inner", 16)))
    lambda d0, d1, d2, d3: [d0, d1 // 16, d2, d3, d1 % 16]       of extents [1, 2, 7, 7, 16]

Text is what records hold of it: `to_json` and `from_json`, and for programs in script form `parse` and `pad_text`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...errors import BadRecord
from ..arith.simplify import simplify
from ..caches import cached
from ..expr import Buffer, Expr, Var, binary, const, substitute
from .digits import Digit, digit
from .index_map import IndexMap, IndexMapError
from .pad_value import Encoded, PadValue, decode

Shape: TypeAlias = tuple[int, ...]
Size: TypeAlias = int | NDArray[np.int64] | NDArray[np.float32]
"""An extent, of one candidate or of each of a population."""


@dataclass(frozen=True)
class Dim:
    """One physical dimension: a part of the logical dimension `dim`.

    `part` is ``whole``, or for blocks of `step` points ``block`` (which block) or ``inner`` (where in it), or
    ``pitched`` for a whole one that has room for `step` points more.
    """

    dim: int
    part: str = "whole"
    step: Size = 1

    def size(self, extent: Size) -> Size:
        """The physical extent, for a logical one of `extent`."""
        if self.part == "block":
            return -(-extent // self.step)
        if self.part == "inner":
            return self.step
        return extent + self.step if self.part == "pitched" else extent

    def index(self, at: Expr) -> Expr:
        """The index in this dimension, for the logical index `at`."""
        if self.part in ("block", "inner"):
            return binary("//" if self.part == "block" else "%", at, const(int(self.step)))
        return at


@dataclass(frozen=True, eq=False)
class Layout:
    """How a tensor of `logical_shape` lies in memory of `physical_shape`.

    Two layouts are equal where each element lies in the same place of as large a memory, and its padding, if there is
    any, holds the same: however the maps are written.  A number may be given as text.  Raises `IndexMapError` for
    numbers of dimensions that differ.
    """

    logical_shape: Shape
    index_map: IndexMap
    physical_shape: Shape
    pad_value: Encoded = None

    def __post_init__(self) -> None:
        if isinstance(self.pad_value, str):
            object.__setattr__(self, "pad_value", decode(self.pad_value))
        takes, gives = self.index_map.ndim, len(self.index_map.indices)
        if (takes, gives) != (len(self.logical_shape), len(self.physical_shape)):
            raise IndexMapError(
                f"`{self.index_map.text}` takes {takes} indices and gives {gives}, but lays out "
                f"{list(self.logical_shape)} in {list(self.physical_shape)}"
            )

    # ---------------------------------------------------------------- making one

    @staticmethod
    def plain(shape: Sequence[int]) -> Layout:
        """Row by row, as an array without a layout lies."""
        return Layout(tuple(shape), _identity(len(shape)), tuple(shape))

    @staticmethod
    def of_dims(
        shape: Sequence[int],
        dims: Sequence[Dim],
        before: Sequence[int] = (),
        reach: Sequence[int] = (),
        pad_value: Encoded = None,
    ) -> Layout:
        """The layout with these physical dimensions, `before` points in front of each logical one.

        `reach` are the extents, in logical dimensions, that memory has room for; by default those of the tensor and
        what is in front of them.
        """
        front = tuple(before) or (0,) * len(shape)
        room = tuple(reach) or tuple(e + b for e, b in zip(shape, front, strict=True))
        names = _names(len(shape))
        places = [binary("+", n, const(b)) if b else n for n, b in zip(names, front, strict=True)]
        index_map = IndexMap(names, tuple(d.index(places[d.dim]) for d in dims))
        return Layout(tuple(shape), index_map, tuple(int(d.size(room[d.dim])) for d in dims), pad_value)

    @staticmethod
    def ordered(
        shape: Sequence[int],
        order: Sequence[int] = (),
        block: tuple[int, int] = (-1, 1),
        before: Sequence[int] = (),
        after: Sequence[int] = (),
        pad_value: Encoded = None,
    ) -> Layout:
        """Dimensions in an order, of ``block[0]`` the part in blocks of ``block[1]`` points last, with a halo."""
        rank, (cut, size) = len(shape), block
        dims = [Dim(d, "block", size) if d == cut else Dim(d) for d in (order or range(rank))]
        dims += [Dim(cut, "inner", size)] if cut >= 0 else []
        front, behind = tuple(before) or (0,) * rank, tuple(after) or (0,) * rank
        room = [e + b + a for e, b, a in zip(shape, front, behind, strict=True)]
        return Layout.of_dims(shape, dims, front, room, pad_value)

    @staticmethod
    def parse(logical_shape: Sequence[int], index_map: str, pad_value: str, physical_shape: Sequence[int]) -> Layout:
        """The layout of these texts, as programs in script form have them.  Raises ValueError; nothing is evaluated."""
        read = IndexMap.parse(index_map) if logical_shape or physical_shape else _identity(0)
        return Layout(tuple(logical_shape), read, tuple(physical_shape), pad_value)

    # ---------------------------------------------------------------- equality

    @cached_property
    def _meaning(self) -> tuple[Any, ...]:
        """What equal layouts share."""
        indices = _normal(self.index_map, self.logical_shape)
        pad = self.pad_value if self.pads else None
        if isinstance(pad, (int, float)):  # the text tells zeros apart and makes NaN equal to itself
            pad = repr(float(pad)) if float(pad) == pad else str(pad)
        return self.logical_shape, indices, self.physical_shape, self.index_map.axis_separators, pad

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Layout) and self._meaning == other._meaning)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self._meaning)

    def __getstate__(self) -> dict[str, Any]:
        """What is found out about a layout stays in its process, in which texts have hashes of their own."""
        return {name: getattr(self, name) for name in self.__match_args__}

    # ---------------------------------------------------------------- memory

    @property
    def pads(self) -> bool:
        """Whether some element in memory is none of the tensor."""
        return prod(self.physical_shape) > prod(self.logical_shape)

    @property
    def is_plain(self) -> bool:
        """Whether the tensor lies row by row, in its own extents."""
        return self.logical_shape == self.physical_shape and self.index_map.is_identity()

    @property
    def is_in_place(self) -> bool:
        """Whether memory is that of the plain tensor: at most its shape is another."""
        return self.is_plain or self.index_map.keeps_memory_order(self.logical_shape, self.physical_shape)

    def same_memory(self, other: Layout) -> bool:
        """Whether two layouts mean the same memory, whatever its shape and its padding."""
        if self.is_in_place or other.is_in_place:
            return self.is_in_place and other.is_in_place
        if self._meaning[:3] == other._meaning[:3]:
            return True
        alike = self.logical_shape == other.logical_shape and prod(self.physical_shape) == prod(other.physical_shape)
        return alike and bool(np.array_equal(self.positions, other.positions))

    @property
    def positions(self) -> NDArray[np.int64]:
        """The place of each element in flat memory, in the logical shape."""
        return _positions(self.index_map, self.logical_shape, self.physical_shape)

    # ---------------------------------------------------------------- padding

    @property
    def promises(self) -> bool:
        """Whether there is a value that padding holds."""
        return self.pad_value not in (None, "undef")

    @property
    def pad_number(self) -> int | float | None:
        """The number that padding holds; None where it holds no number, or different ones."""
        return None if isinstance(self.pad_value, str) else self.pad_value

    @property
    def pad_text(self) -> str:
        """What padding holds as text, empty for nothing: what `parse` takes."""
        return "" if self.pad_value is None else str(self.pad_value)

    @property
    def pad_argument(self) -> Encoded:
        """What padding holds as an argument of an instruction: JSON has no number that is not finite."""
        number = self.pad_number
        return self.pad_value if number is None or np.isfinite(number) else repr(number)

    def padding(self, indices: Sequence[Expr]) -> Expr:
        """The condition of being padding at physical indices."""
        return self.index_map.non_surjective_inverse(self.logical_shape, self.physical_shape)[1].at(indices)

    def pad(self, buffer: Buffer, names: Sequence[Var] | None = None) -> PadValue:
        """What the padding of a buffer in this layout holds, in the buffer's element type.  Raises PadValueError."""
        return PadValue.parse(self.pad_text, buffer, names)

    # ---------------------------------------------------------------- dimensions

    @cached_property
    def dims(self) -> tuple[Dim, ...]:
        """The physical dimensions, outermost first, of a layout that is made of such.  Raises IndexMapError."""
        return tuple(d for d, _ in self._parts)

    @cached_property
    def before(self) -> tuple[int, ...]:
        """The points in front of each dimension, of a layout with `dims`."""
        front = {d.dim: offset for d, offset in self._parts}
        return tuple(front[d] for d in range(len(self.logical_shape)))

    @cached_property
    def room(self) -> tuple[int, ...]:
        """The points of each dimension that memory has room for, of a layout with `dims`, those in front included."""
        found = [e + b for e, b in zip(self.logical_shape, self.before, strict=True)]
        for d, extent in zip(self.dims, self.physical_shape, strict=True):
            size = int(d.step)
            if d.part == "whole" or (d.part == "block" and extent > -(-found[d.dim] // size)):
                found[d.dim] = extent * size
        return tuple(found)

    @cached_property
    def _parts(self) -> tuple[tuple[Dim, int], ...]:
        numbers = {v: k for k, v in enumerate(self.index_map.variables)}
        found = [_part(digit(index), numbers) for index in self.index_map.indices]
        parts = [part for part in found if part is not None]
        by_dim: dict[int, set[tuple[str, Size, int]]] = {}
        for part, offset in parts:
            by_dim.setdefault(part.dim, set()).add((part.part, part.step, offset))
        complete = len(parts) == len(found) and len(by_dim) == len(numbers) and all(map(_is_whole, by_dim.values()))
        if not complete or len(parts) != sum(map(len, by_dim.values())) or self.index_map.axis_separators:
            raise IndexMapError(f"`{self.index_map.text}` is not made of dimensions, some of them in blocks")
        return tuple(parts)

    @property
    def order(self) -> tuple[int, ...]:
        """The logical dimensions, outermost first; one in blocks stands where its blocks do."""
        return tuple(d.dim for d in self.dims if d.part != "inner")

    @property
    def blocks(self) -> Mapping[int, int]:
        """The points of a block, for each logical dimension that is cut in blocks."""
        return {d.dim: int(d.step) for d in self.dims if d.part == "inner"}

    @property
    def innermost(self) -> int:
        """The logical dimension along which neighbours in memory lie."""
        return self.dims[-1].dim

    @property
    def has_halo(self) -> bool:
        """Whether there is room in front of or behind some dimension, beside that of a last block."""
        return any(self.before) or self.physical_shape != self.without_halo.physical_shape

    @cached_property
    def without_halo(self) -> Layout:
        """The same dimensions, and no other padding than that of a last block."""
        bare = Layout.of_dims(self.logical_shape, self.dims)
        return replace(bare, pad_value=self.pad_value) if bare.pads else bare

    # ---------------------------------------------------------------- for people, and for records

    @property
    def label(self) -> str:
        """A short name, such as ``0231``, ``block1x16+halo2,3=0.0`` or ``0,1/8,2,3,1%4``."""
        try:
            name = label_of(self.dims)
            bare = self.without_halo.physical_shape
        except IndexMapError:
            return str(self)
        wide = {d.dim for d, e, b in zip(self.dims, self.physical_shape, bare, strict=True) if e > b}
        halo = [str(d) for d in range(len(self.logical_shape)) if d in wide or self.before[d]]
        name += f"+halo{','.join(halo)}" if halo else ""
        return f"{name}={self.pad_text}" if self.pads and self.pad_value is not None else name

    def __str__(self) -> str:
        """The map, the extents and what padding holds; ``as given`` for an array of the caller."""
        if self.is_in_place:
            return "as given"
        pad = f", padding {self.pad_text}" if self.pads and self.pad_value is not None else ""
        return f"{self.index_map.text} -> {'x'.join(map(str, self.physical_shape))}{pad}"

    def to_json(self) -> dict[str, Any]:
        """The layout as JSON."""
        return {
            "shape": list(self.logical_shape), "index_map": self.index_map.text,
            "physical_shape": list(self.physical_shape), "pad_value": self.pad_text,
        }  # fmt: skip

    @staticmethod
    def from_json(data: object) -> Layout:
        """The layout that `to_json` wrote, now or when it had another form.  Raises BadRecord; nothing is evaluated."""
        try:
            match data:
                case {"shape": shape, "index_map": str(text), "physical_shape": physical, "pad_value": str(pad)}:
                    return Layout.parse(_extents(shape), text, pad, _extents(physical))
                case {
                    "shape": shape,
                    "order": order,
                    "block": [int(cut), int(size)],
                    "before": before,
                    "after": after,
                    "pad_value": str(pad),
                }:  # how networks wrote their tensors' at first
                    made = Layout.ordered(
                        _extents(shape), _extents(order), (cut, size), _extents(before), _extents(after)
                    )
                    return Layout.parse(made.logical_shape, made.index_map.text, pad, made.physical_shape)
        except (ValueError, IndexError, ZeroDivisionError) as error:
            raise BadRecord(f"not a layout: {error!s:.200}") from None
        raise BadRecord(f"not a layout: {data!r:.200}")


def _extents(data: object) -> Shape:
    """Whole numbers, none of them negative.  Raises ValueError."""
    items = tuple(data) if isinstance(data, (list, tuple)) else (data,)
    if not isinstance(data, (list, tuple)) or not all(type(n) is int and 0 <= n < 2**31 for n in items):
        raise ValueError(f"{data!r:.80} are no extents")
    return items


def _names(rank: int) -> tuple[Var, ...]:
    return tuple(Var(f"d{k}") for k in range(rank))


@cached(64)
def _identity(rank: int) -> IndexMap:
    return IndexMap(_names(rank), _names(rank))


@cached(4096)
def _normal(index_map: IndexMap, shape: Shape) -> tuple[Expr, ...]:
    """The indices in terms of variables that are named alike, simplified inside of a shape."""
    names = _names(len(shape))
    renamed = dict(zip(index_map.variables, names, strict=True))
    ranges = {name: (0, extent - 1) for name, extent in zip(names, shape, strict=True)}
    return tuple(simplify(substitute(index, renamed), ranges) for index in index_map.indices)


@cached(64)
def _positions(index_map: IndexMap, logical: Shape, physical: Shape) -> NDArray[np.int64]:
    grid = np.ogrid[tuple(slice(0, extent) for extent in logical)]
    flat: Any = np.int64(0)
    for index, extent in zip(index_map.map_point(tuple(grid)), physical, strict=True):
        flat = flat * extent + index
    return np.array(np.broadcast_to(flat, logical), np.int64, order="C")


def _part(found: Digit | None, numbers: Mapping[Var, int]) -> tuple[Dim, int] | None:
    """The physical dimension that a digit of one variable is, and what was added to that."""
    if found is None or not isinstance(found.of, Var) or (found.low > 1 and found.high is not None):
        return None
    dim = numbers[found.of]
    if found.low > 1:
        return Dim(dim, "block", found.low), found.offset
    return (Dim(dim) if found.high is None else Dim(dim, "inner", found.high)), found.offset


def _is_whole(parts: set[tuple[str, Size, int]]) -> bool:
    """Whether the parts of a logical dimension are all that there is of it."""
    kinds = sorted(part for part, _, _ in parts)
    return kinds == ["whole"] or (kinds == ["block", "inner"] and len({(step, front) for _, step, front in parts}) == 1)


def label_of(dims: Sequence[Dim]) -> str:
    """Dimensions in an order as digits, one of them cut in blocks by its number and size, others one by one."""
    whole = [d for d in dims if d.part != "inner"]
    order = [d.dim for d in whole]
    if len(whole) == len(dims) and len(dims) <= 10:
        return "".join(map(str, order))
    if len(whole) == len(dims) - 1 and dims[-1].part == "inner" and order == sorted(order):
        return f"block{dims[-1].dim}x{dims[-1].step}"
    signs = {"block": "/", "inner": "%"}
    return ",".join(f"{d.dim}{signs[d.part]}{d.step}" if d.part in signs else str(d.dim) for d in dims)
