"""Loops of blocks: an axis's loop, and element-wise blocks of their own, shared between threads and vectorized."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from ...ir import dtypes
from ...ir.expr import Call, Expr, Load, Select, Var, variables
from ...ir.node import children
from ...ir.stmt import Store
from ...ir.target import Target
from ..errors import ScheduleError
from ..schedule import Schedule
from ..tree import block_stores, extent_of, find_block, find_loop
from .contiguity import WORD, interleaved_lanes, is_contiguous, is_interleaved, is_transposed, square_side
from .operand import Axis

ENOUGH = 16
"""Iterations that threads share, from which on one of them need not be shared itself: its places take divisions."""
STAGE_ITEMS = 64
"""Work-items of a group for an element-wise block in a nest of its own, on a device other than a CPU."""


def loop_of(sch: Schedule, block: str, axis: Axis) -> str:
    """The loop that an anchor's axis is bound to; the inner one where a chunk has cut the axis in two.

    With a single row in a chunk no index depends on the inner one, which stands right inside of the chunk's.
    """
    loops = sch.get_loops(block)
    for item in find_block(sch.func, block).iters:
        if item.var.name == axis.var:
            used = {var.name for var in variables(item.binding)}
            found = max(number for number, loop in enumerate(loops) if loop in used)
            is_chunk = axis.extent == 1 < item.extent
            return str(loops[found + is_chunk])
    raise ScheduleError("block `{block}` has no iterator `{axis}`", block=block, axis=axis.var)


def distribute(sch: Schedule, loop: str, target: Target, work_group: int, along: str = "x") -> str:
    """Run a loop's iterations on threads, or on work-items in groups `along` an axis; the innermost shared loop."""
    if target.kind == "cpu":
        sch.parallel(loop)
        return loop
    group, item = sch.split(loop, [None, work_group])
    sch.bind(group, "blockIdx.x")
    sch.bind(item, f"threadIdx.{along}")
    return str(item)


def schedule_stage(sch: Schedule, block: str, target: Target, shared: bool = True, inside: int = 1) -> None:
    """An element-wise block in a nest of its own: outer loops shared, inner ones in vectors, or in squares of them.

    Where there are more than `inside` loops, so many are not shared.  On a device other than a CPU all of them are, in
    groups of `STAGE_ITEMS`, so that neighbouring items take neighbouring elements.
    """
    loops = sch.get_loops(block)
    if not loops:
        return
    if shared and not target.execution.work_items_share_a_thread:
        fused = sch.fuse(*loops) if len(loops) > 1 else loops[0]
        distribute(sch, fused, target, min(STAGE_ITEMS, target.max_work_group, extent_of(find_loop(sch.func, fused))))
        return
    squares = transpose_stage(sch, block, loops, target)
    if squares is None:
        squares = interleave_stage(sch, block, loops, target)
    if squares is not None:
        head, tail = squares, None
    else:
        head, tail = loops[:-inside] or loops[:-1], vectorize_stage(sch, block, loops[-1], target)
    if not shared:
        return
    if head:
        distribute(sch, sch.fuse(*head) if len(head) > 1 else head[0], target, 1)
    elif tail is not None:
        distribute(sch, tail, target, 1)


def schedule_inner_stage(sch: Schedule, block: str, outer: str, target: Target) -> None:
    """An element-wise block inside a shared loop: inner loops in vectors where contiguous, or in squares of them."""
    loops = sch.get_loops(block)
    inner = loops[loops.index(outer) + 1 :]
    if not inner or transpose_stage(sch, block, inner, target) is not None:
        return
    if interleave_stage(sch, block, inner, target) is None:
        vectorize_stage(sch, block, inner[-1], target)


def transpose_stage(sch: Schedule, block: str, loops: Sequence[str], target: Target) -> list[str] | None:
    """A copy that reads neighbours along a loop p and writes them along the last one, q, in squares with a side of L.

        for .., p, .., q: S   ->   for .., p / L, .., q / L: for p % L {unrolled}: for q % L {vectorized}: S

    Vectors are read along p, transposed in registers, and written along q (see `backends.squares`).  Returns the
    loops down to the last one before q; None, and nothing is changed, where the block is no such copy, or where no
    square fits in it.
    """
    func, last = sch.func, loops[-1]
    extents = {loop: extent_of(find_loop(func, loop)) for loop in loops}
    stores = block_stores(find_block(func, block))
    if not target.execution.has_vectors or not stores:
        return None
    lanes = target.vector_lanes(stores[0].buffer.dtype)
    sides = {p: int(square_side(extents[p], extents[last], lanes)) for p in loops[:-1]}
    across = [p for p in loops[:-1] if sides[p] and is_transposed(func, block, p, last)]
    if not across:
        return None
    side, outside, inside = sides[across[-1]], list(loops), []
    for loop in (across[-1], last):
        outside[loops.index(loop)], inner = sch.split(loop, [None, side])
        inside.append(inner)
        if extents[loop] % side:
            sch.annotate(inner, "peel", True)
    sch.reorder(*outside[loops.index(across[-1]) :], *inside)
    sch.unroll(inside[0])
    sch.vectorize(inside[1])
    return outside[:-1]


def interleave_stage(sch: Schedule, block: str, loops: Sequence[str], target: Target) -> list[str] | None:
    """A copy that lays rows side by side in words, as the steps of a dot product: q is the last loop, p the one before.

        for .., p, q: S   ->   for .., p / L: for q {unrolled}: for p % L {vectorized}: S

    Vectors are read along p and shuffled together (see `backends.legal.interleaves`); what is left over at the end, and
    the border around an image, by shorter ones.  Returns loops to share, down to p / L where there are few around it;
    None, and nothing is changed, where the block is no such copy, or where rows are short.
    """
    func = sch.func
    stores = block_stores(find_block(func, block))
    if target.kind != "cpu" or len(loops) < 2 or not stores:
        return None
    p, q = loops[-2:]
    extent, count = (extent_of(find_loop(func, loop)) for loop in (p, q))
    side = int(interleaved_lanes(extent, _lanes(stores[0], target)))
    bits = count * dtypes.bits(stores[0].buffer.dtype)
    if not WORD <= bits <= 2 * WORD or not side or not is_interleaved(func, block, p, q, count):
        return None
    outer, inner = sch.split(p, [None, side])
    sch.reorder(outer, q, inner)
    sch.unroll(q)
    sch.vectorize(inner)
    if extent % side:
        sch.annotate(inner, "peel", True)
    shared = loops[:-2]
    enough = prod(extent_of(find_loop(func, loop)) for loop in shared) >= ENOUGH
    return list(shared) if enough else [*shared, outer]


def vectorize_stage(sch: Schedule, block: str, loop: str, target: Target) -> str | None:
    """Vectorize the innermost loop of a block if it reads and writes neighbours along it; returns its outer part.

    A vector has as many lanes as numbers of the widest type that the block computes with.  Of narrow ones a register
    holds more than many rows have, as the channels of a pixel, which are worth a shorter vector.
    """
    func = sch.func
    extent = extent_of(find_loop(func, loop))
    stores = block_stores(find_block(func, block))
    lanes = _lanes(stores[0], target) if stores else 1
    if stores and (bits := dtypes.bits(stores[0].buffer.dtype)) < WORD <= extent * bits and extent < lanes:
        lanes = 1 << (extent.bit_length() - 1)
    if extent < lanes or lanes < 2 or not is_contiguous(func, block, loop):
        return loop
    if extent == lanes:
        sch.vectorize(loop)
        return None
    outer, inner = sch.split(loop, [None, lanes])
    sch.vectorize(inner)
    if extent % lanes:
        sch.annotate(inner, "peel", True)
    return str(outer)


def _lanes(store: Store, target: Target) -> int:
    """The lanes of vectors of the widest numbers that a store computes with."""
    return target.vector_lanes(max((store.buffer.dtype, *_computed(store.value)), key=dtypes.bits))


def _computed(value: Expr) -> Iterator[str]:
    """The types of what a value is computed from, without indices and conditions."""
    if not isinstance(value, Var):
        yield dtypes.element(value.dtype)
    if isinstance(value, Select) or (isinstance(value, Call) and value.name == "if_then_else"):
        parts = (value.a, value.b) if isinstance(value, Select) else value.args[1:]
    else:
        parts = () if isinstance(value, Load) else tuple(c for c in children(value) if isinstance(c, Expr))
    for part in parts:
        yield from _computed(part)
