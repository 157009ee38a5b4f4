"""The change of a buffer's layout: every access goes through the map, padding gets its meaning.

::

    A[i]  ->  A'[f(i)]         A' has the extents that hold every f(i), or larger ones

What a physical element without a preimage means, `padding.py` writes into the program.  A
buffer and its views (`decl_buffer`) change together.  Conditions, by number:

1. the map takes one index for each dimension;
2. it is injective: a refusal names two indices that collide;
3. the physical shape holds its image;
4. the pad value is one of the element type, and reads nothing but logical elements of the
   buffer itself;
5. a view is the buffer's memory in the buffer's own indices: same element type and rank,
   same extents but for a shorter first one;
6. the padding can be written after the last writer and before every reader;
7. a vector access stays one: its lanes move in equal steps.

Sources: RFC 0039 (maps, views), RFC 0077 (padding).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from math import prod
from typing import Any

from ...errors import ProgramError
from .. import dtypes
from ..arith.linear import linear_form
from ..arith.simplify import simplify
from ..expr import (
    Broadcast,
    Buffer,
    Const,
    Expr,
    Extent,
    LetExpr,
    Load,
    Ramp,
    Var,
    as_expr,
    as_index,
    const,
    free_variables,
    substitute,
)
from ..extents import as_extent
from ..layout import ranged
from ..layout.index_map import IndexMap
from ..layout.layout import Layout
from ..layout.pad_value import PadValue, PadValueError
from ..node import Node, children, rebuild, remembered
from ..stmt import Allocate, Block, Declare, For, PrimFunc, Stmt, Store, fresh
from ..text import expr_text, extents_text

Ranges = Mapping[Var, tuple[int, int]]


class LayoutError(ProgramError, ValueError):
    """A layout that cannot be given; the message begins with the number of the condition."""


@dataclass(frozen=True)
class Change:
    """A buffer before and after a change of layout, the index map between them, and its pad value."""

    old: Buffer
    new: Buffer
    index_map: IndexMap
    pad_value: PadValue

    @property
    def pads(self) -> bool:
        """Whether there is padding."""
        if self.old.is_fixed and self.new.is_fixed:
            return prod(self.new.shape) > prod(self.old.shape)
        return ranged.pads(self.index_map, self.old.extents, self.new.extents)

    @property
    def layout(self) -> Layout:
        """How the buffer will lie, as it is to the reader of the program."""
        return Layout(self.old.shape, self.index_map, self.new.shape, self.pad_value.encoded)

    @cached_property
    def inverse(self) -> IndexMap:
        """Logical indices in terms of physical ones, valid where these are no padding."""
        return ranged.inverse(self.index_map, self.old.extents, self.new.extents)[0]

    def padding(self, indices: Sequence[Expr]) -> Expr:
        """The condition of being padding at physical indices."""
        return ranged.inverse(self.index_map, self.old.extents, self.new.extents)[1].at(indices)


def make_change(
    old: Buffer, index_map: Any, pad_value: Any = None, physical_shape: Sequence[int] | None = None,
    multiples: Sequence[int] | None = None,
) -> Change:  # fmt: skip
    """The change of `old` by a map (or its text, or a function).  Raises LayoutError, conditions 1 to 4.

    The image has its least extents, `physical_shape`, or the least ones that are `multiples` of numbers.
    """
    made = index_map if isinstance(index_map, IndexMap) else _made(index_map, old.rank)
    if made.ndim != old.rank:
        raise LayoutError(f"(1) the map takes {made.ndim} indices, but `{old.name}` has {old.rank}")
    try:
        ranged.check_injective(made, old.extents)
        box = ranged.image_extents(made, old.extents)
    except ValueError as error:
        raise LayoutError(f"(2) {error}") from None
    shape = box if physical_shape is None else _physical(box, physical_shape)
    if multiples is not None:
        shape = _rounded(shape, multiples)
    new = replace(old, extents=shape, axis_separators=tuple(made.axis_separators))
    try:
        names = ranged.inverse(made, old.extents, shape)[0].variables
    except ValueError as error:
        raise LayoutError(f"(2) {error}") from None
    try:
        return Change(old, new, made, PadValue.make(pad_value, new, names))
    except PadValueError as error:
        raise LayoutError(f"(4) {error}") from None


def _physical(box: tuple[Extent, ...], given: Sequence[int]) -> tuple[int, ...]:
    """The physical shape that is asked for.  Raises LayoutError, condition 3."""
    shape = tuple(int(e) for e in given)
    least = tuple(e for e in box if isinstance(e, int))
    if len(least) < len(box):
        raise LayoutError(f"(3) no shape of numbers holds the image, which needs ({extents_text(box)})")
    if len(shape) != len(least) or any(s < b for s, b in zip(shape, least, strict=True)):
        raise LayoutError(f"(3) the physical shape {shape} does not hold the image, which needs {least}")
    return shape


def _rounded(shape: Sequence[Extent], multiples: Sequence[int]) -> tuple[Extent, ...]:
    """Extents as the least multiples that hold them.  Raises LayoutError, condition 3."""
    if len(multiples) != len(shape) or any(number < 1 for number in multiples):
        raise LayoutError(f"(3) the {len(shape)} physical extents are multiples of as many numbers, which are at least "
                          f"1, but got {list(multiples)}")  # fmt: skip
    return tuple(
        as_extent(simplify((as_expr(extent) + (number - 1)) // number * number)) if number > 1 else extent
        for extent, number in zip(shape, multiples, strict=True)
    )


def _made(value: Any, ndim: int) -> IndexMap:
    try:
        return IndexMap.parse(value) if isinstance(value, str) else IndexMap.from_func(value, ndim)
    except ValueError as error:
        raise LayoutError(f"(1) {error}") from None


def views(func: PrimFunc, buffer: Buffer) -> tuple[Buffer, ...]:
    """The buffers of `func` over the memory of `buffer`, its owner first."""
    declared = dict.fromkeys(b for b in buffers(func) if b.memory == buffer.memory)
    return tuple(sorted(declared, key=lambda b: b.data != ""))


def buffers(func: PrimFunc) -> tuple[Buffer, ...]:
    """Every buffer of the function, parameters first, then in order of declaration."""
    return tuple(dict.fromkeys(chain(func.buffers, _declared(func.body))))


@remembered
def _declared(stmt: Stmt) -> tuple[Buffer, ...]:
    """The buffers that are allocated or declared at or below a statement, in order."""
    own: tuple[Buffer, ...] = ()
    if isinstance(stmt, Block):
        own = stmt.allocs
    elif isinstance(stmt, (Allocate, Declare)):
        own = (stmt.buffer,)
    below = (_declared(child) for child in children(stmt) if isinstance(child, Stmt))
    return tuple(dict.fromkeys(chain(own, *below)))


def rewrite_accesses(func: PrimFunc, change: Change) -> PrimFunc:
    """Every access and declaration of the old buffer or a view of it is one of the new.  Conditions 5 and 7."""
    renewed = {view: _view(view, change) for view in views(func, change.old)}
    body = _Rewriter(change, renewed).node(func.body, {})
    params = tuple(renewed.get(p, p) if isinstance(p, Buffer) else p for p in func.params)
    return replace(func, body=body, params=params)


def rewrite_expr(expr: Expr, change: Change) -> Expr:
    """`expr` with its loads of the old buffer as loads of the new."""
    result: Expr = _Rewriter(change, {change.old: change.new}).node(expr, {})
    return result


def _view(view: Buffer, change: Change) -> Buffer:
    old, new = change.old, change.new
    fits = (
        view.dtype == old.dtype
        and view.rank == old.rank
        and view.extents[1:] == old.extents[1:]
        and (view.extents[:1] == old.extents[:1] or view.shape[:1] <= old.shape[:1])
    )
    if not fits:
        raise LayoutError(
            f"(5) `{view.name}` views the memory of `{view.memory}` as {view.dtype}[{extents_text(view.extents)}], so "
            f"that its indices are not those of {old.dtype}[{extents_text(old.extents)}]"
        )
    return replace(view, extents=new.extents, axis_separators=new.axis_separators)


class _Rewriter:
    """Maps indices, and simplifies them inside the ranges of the loops and iterators around."""

    def __init__(self, change: Change, renewed: Mapping[Buffer, Buffer]) -> None:
        self.change = change
        self.renewed = renewed

    def node(self, node: Any, ranges: Ranges) -> Any:
        if isinstance(node, Buffer):
            return self.renewed.get(node, node)
        inner = _inside(node, ranges)
        if isinstance(node, (Load, Store)) and node.buffer in self.renewed:
            buffer = self.renewed[node.buffer]
            indices = self.indices(node, tuple(self.node(i, ranges) for i in node.indices), ranges)
            return Load(buffer, indices) if isinstance(node, Load) else Store(
                buffer, indices, self.node(node.value, ranges)
            )  # fmt: skip
        if isinstance(node, Block):
            return rebuild(node, lambda child: self.node(child, inner if isinstance(child, Stmt) else ranges))
        return rebuild(node, lambda child: self.node(child, inner))

    def indices(self, access: Load | Store, indices: tuple[Expr, ...], ranges: Ranges) -> tuple[Expr, ...]:
        indices = tuple(map(as_index, indices))
        if all(dtypes.lanes(i.dtype) == 1 for i in indices):
            mapped = self.change.index_map.map_indices(indices)
            return tuple(i if isinstance(i, Var) else simplify(i, ranges) for i in mapped)
        return self._vector(access, indices, ranges)

    def _vector(self, access: Load | Store, indices: tuple[Expr, ...], ranges: Ranges) -> tuple[Expr, ...]:
        """Map one lane; the lanes of each mapped index must move in equal steps."""
        lanes = max(dtypes.lanes(i.dtype) for i in indices)
        lane = Var(fresh("lane", {v.name for v in (*ranges, *(v for i in indices for v in free_variables(i)))}))
        single = [_lane(i, lane) for i in indices]
        inside = {**ranges, lane: (0, lanes - 1)}
        known = [i for i in single if i is not None]
        result: list[Expr] = []
        for index in self.change.index_map.map_indices(known) if len(known) == len(single) else ():
            moving = simplify(index, inside)
            terms, _ = linear_form(moving)
            step = terms.get(lane, 0)
            base = simplify(substitute(moving, {lane: const(0)}), ranges)
            if simplify(moving - (base + lane * step), inside) != const(0):
                break
            result.append(Ramp(base, const(step), lanes) if step else base)
        if len(result) != self.change.new.rank:
            where = f"{access.buffer.name}[{', '.join(expr_text(i) for i in indices)}]"
            raise LayoutError(
                f"(7) the lanes of `{where}` do not move in equal steps under `{self.change.index_map.text}`"
            )
        return tuple(result)


def _lane(index: Expr, lane: Var) -> Expr | None:
    """One lane of a vector of indices; None if it is neither a ramp nor a broadcast."""
    if dtypes.lanes(index.dtype) == 1:
        return index
    if isinstance(index, Broadcast):
        return index.value
    return index.base + index.stride * lane if isinstance(index, Ramp) else None


def _inside(node: Node, ranges: Ranges) -> Ranges:
    """The ranges of variables below `node`."""
    if isinstance(node, For) and isinstance(node.extent, Const):
        return {**ranges, node.var: (0, int(node.extent.value) - 1)}
    if isinstance(node, Block) and node.iters:
        return {**ranges, **{i.var: i.span for i in node.iters}}
    if isinstance(node, LetExpr):
        return {v: r for v, r in ranges.items() if v != node.var}
    return ranges
