"""Axes of free sizes that lie together in memory as one, such as the height and the width of images.

    y[o, h, w] += k[o, c] * x[c, h, w]   ->   y[o, p] += k[o, c] * x[c, p]      p = h W + w

For numbers the design space does that itself (`space.design.techniques.contiguous`, whose conditions these are).  Where
they are sizes, no proof multiplies them with indices; their product however is a size like any other.  Only the last
tile of all pixels is cut then and not that of each row, and more is known of it: heights and widths that are multiples
of 8 make pixels that are multiples of 64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from ...errors import InternalError
from ...ir.expr import Buffer, Expr, Extent, Load, Var, binary, const, free_variables, substitute
from ...ir.node import changed, rebuild, transform
from ...ir.stmt import Assume, Block, For, If, Iter, PrimFunc, Seq, Store, walk_stmts
from ...space.design.techniques.contiguous import Together, together
from ...space.tree import leaf_blocks, loops_above
from .network import Shape


class _Apart(InternalError):
    """Two axes stay two."""


@dataclass(frozen=True)
class Joined:
    """Programs with axes that are one, and for each parameter how many of its dimensions each of these was."""

    funcs: tuple[PrimFunc, ...]
    counts: tuple[tuple[int, ...], ...]

    def shapes(self, extents: Sequence[Shape]) -> tuple[Shape, ...]:
        """The extents of the parameters, whose dimensions had these."""
        found: list[Shape] = []
        for shape, counts in zip(extents, self.counts, strict=True):
            left, own = list(shape), []
            for count in counts:
                own.append(reduce(_product, left[:count]))
                del left[:count]
            found.append(tuple(own))
        return tuple(found)


def _product(a: Extent, b: Extent) -> Extent:
    return a * b if isinstance(a, int) and isinstance(b, int) else binary("*", a, b)


def joined(instances: Sequence[PrimFunc]) -> Joined | None:
    """Programs of several sizes, one text but for numbers, with all axes as one that may be; None where none may.

    At least one of two axes has an extent that is free, and both have several points at all sizes.
    """
    funcs, counts = (
        tuple(map(_without_windows_of_one, instances)),
        [[1] * buffer.rank for buffer in instances[0].buffers],
    )
    while (made := next(_joined_once(funcs), None)) is not None:
        funcs, dims = made
        for own, at in zip(counts, dims, strict=True):
            if at is not None:
                own[at : at + 2] = [own[at] + own[at + 1]]
    if all(count == 1 for own in counts for count in own):
        return None
    return Joined(funcs, tuple(map(tuple, counts)))


def _without_windows_of_one(func: PrimFunc) -> PrimFunc:
    """``x[c, h + i]`` -> ``x[c, h]`` where i has one value, as the window of a convolution of single pixels has."""

    def plain(node: object) -> object:
        if not isinstance(node, Block):
            return node
        single: dict[Var, Expr] = {item.var: const(0) for item in node.iters if item.limit == 1}

        def inside(part: object) -> object:
            if not isinstance(part, Load | Store):
                return part
            return changed(
                part, indices=tuple(i if isinstance(i, Var) else substitute(i, single) for i in part.indices)
            )

        init = None if node.init is None else transform(node.init, inside)
        return replace(node, body=transform(node.body, inside), init=init) if single else node

    made: PrimFunc = transform(func, plain)
    return made


def _joined_once(funcs: tuple[PrimFunc, ...]) -> Iterator[tuple[tuple[PrimFunc, ...], list[int | None]]]:
    """Programs with one pair of axes as one, and the first of the two dimensions of each parameter that has them."""
    first = funcs[0]
    if any(func.layouts for func in funcs):
        return
    if not all(isinstance(stmt, Assume | Block | For | If | Seq | Store) for stmt in walk_stmts(first.body)):
        return
    if len({tuple(len(block.iters) for block in leaf_blocks(func.body)) for func in funcs}) > 1:
        return  # another program for some shapes
    for place, block in enumerate(leaf_blocks(first.body)):
        own = [leaf_blocks(func.body)[place] for func in funcs]
        for high, low in ((a, b) for a in range(len(block.iters)) for b in range(len(block.iters)) if a != b):
            extents = {(other.iters[high].extent, other.iters[low].extent) for other in own}
            if len(extents) == 1 or min(map(min, extents)) == 1:
                continue
            found = [together(func, other, (high, low)) for func, other in zip(funcs, own, strict=True)]
            try:
                made = tuple(_with_one_axis(func, pair) for func, pair in zip(funcs, found, strict=True))
            except _Apart:
                continue
            assert found[0] is not None
            yield made, [found[0].dims.get(buffer) for buffer in first.buffers]


def _with_one_axis(func: PrimFunc, found: Together | None) -> PrimFunc:
    """A program with pairs of iterators and of dimensions as one.  Raises _Apart where loops are not theirs alone."""
    if found is None:
        raise _Apart
    loops: dict[Var, Expr | None] = {}
    for block in leaf_blocks(func.body):
        if block.name in found.pairs:
            loops.update(_loops(func, block, found.pairs[block.name]))
    buffers: dict[Buffer, Buffer] = {}
    for buffer, at in found.dims.items():
        a, b = buffer.shape[at : at + 2]
        buffers[buffer] = replace(buffer, extents=(*buffer.extents[:at], a * b, *buffer.extents[at + 2 :]))

    def written(node: Any) -> Any:
        if isinstance(node, Load | Store) and node.buffer in buffers:
            at = found.dims[node.buffer]
            indices = tuple(written(index) for number, index in enumerate(node.indices) if number != at + 1)
            if isinstance(node, Load):
                return Load(buffers[node.buffer], indices)
            return Store(buffers[node.buffer], indices, written(node.value))
        if isinstance(node, Buffer):
            return buffers.get(node, node)
        below = rebuild(node, written)
        if isinstance(below, For) and below.var in loops:
            extent = loops[below.var]
            return below.body if extent is None else replace(below, extent=extent)
        if isinstance(below, Block) and below.name in found.pairs:
            high, low = found.pairs[below.name]
            first, second = below.iters[high], below.iters[low]
            one = Iter(first.var, first.extent * second.extent, first.kind, first.binding)
            iters = [one if number == high else item for number, item in enumerate(below.iters) if number != low]
            return replace(below, iters=tuple(iters))
        return below

    made: PrimFunc = written(func)
    return made


def _loops(func: PrimFunc, block: Block, pair: tuple[int, int]) -> Mapping[Var, Expr | None]:
    """The extent that the loop of a pair gets, and None for the one that goes.

    Raises _Apart unless both are whole, for this block and these iterators alone, and the outer one is that of the
    first: then sums are made in the same order.
    """
    high, low = (block.iters[number] for number in pair)
    above = {loop.var: loop for loop in loops_above(func, block)}
    order = list(above)
    assert isinstance(high.binding, Var) and isinstance(low.binding, Var)  # `together` has seen to that
    for item in (high, low):
        loop = above.get(item.binding)  # type: ignore[call-overload]
        if loop is None or loop.kind != "serial" or loop.annotations or loop.extent != const(item.extent):
            raise _Apart
        used = [other for other in block.iters if item.binding in free_variables(other.binding)]
        if used != [item] or item.binding in free_variables(block.predicate):
            raise _Apart
        if [own.name for own in leaf_blocks(loop.body)] != [block.name]:
            raise _Apart
    if order.index(high.binding) > order.index(low.binding):
        raise _Apart
    return {high.binding: const(high.extent * low.extent), low.binding: None}
