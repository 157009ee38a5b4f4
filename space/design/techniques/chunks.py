"""Stages that share their rows, together: all of them for a chunk of rows before the next one.

    for i in M: m[i] = max_j x[i, j];    for i in M: e[i, j] = exp(x[i, j] - m[i]);    ...
    ->    for c in M / C:  { for i in C: m[c C + i] = ..;    for i in C: e[c C + i, j] = ..;    ... }

What the stages hand to each other is a chunk then, which stays in the first caches, and threads meet once instead of
after each stage.  The rows are an axis of each stage, found by what the stages hand on: a dimension that one writes
along its axis and the next one reads along its own.  Where every result is contiguous along it, as pixels are in a
softmax over channels, vectors run along a chunk; else they run across the rows.  The last chunk may be
shorter, and is peeled off then.

In primitives: each stage's rows split by C; every stage tiled as if it had C rows; in the end the outer loops merged
(`merge_adjacent_loops`, which proves that no chunk needs another one) and shared between threads.
Source: RFC 0077, "Utility - Merge Adjacent Loops"; the same is `compute_at` of all stages in Halide's terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod, sqrt

from ....ir import dtypes
from ....ir.expr import Buffer, Load, conjuncts, variables
from ....ir.node import walk
from ....ir.stmt import PrimFunc, Store
from ....ir.target import Target
from ...errors import ScheduleError
from ...schedule import Schedule
from ...tree import find_block, leaf_blocks
from ..program import Anchor
from ..stages import distribute, loop_of
from ..structure import Structure, structures
from .technique import most_scratch

MOST_ROWS = 32
MOST_VECTORS = 64
IDLE = 1.35
"""How much longer the thread with most rows may take than if all had as many."""


Handed = tuple[Buffer, Mapping[int, int]]
"""A buffer that one stage writes or reads, with the axis of the stage that alone indexes a dimension."""


@dataclass(frozen=True)
class Rows:
    """The axis of each anchor, by number, that are the rows of all; `along` says whether vectors run along them."""

    axes: tuple[int, ...]
    extent: int
    along: bool


def shared_rows(anchors: tuple[Anchor, ...], func: PrimFunc, target: Target) -> list[Rows]:
    """The rows that all stages of a program share, one for each axis of the first stage that they may be.

    There are none on a device other than a CPU, whose many items would have few rows each, where the anchors with their
    epilogues are not all blocks of the program, or where one reads what is computed element by element for it alone.
    """
    own = {name for a in anchors for name in (a.block, a.epilogue) if name}
    if not target.execution.work_items_share_a_thread or len(anchors) < 2:
        return []
    if own != {block.name for block in leaf_blocks(func.body)}:
        return []
    if any(o.source == "stage" for anchor in anchors for o in anchor.inputs):
        return []
    stages = [_handed(func, anchor) for anchor in anchors]
    found = []
    for first in anchors[0].spatial:
        axes = _followed(stages, first)
        if not axes or any(axis not in a.spatial for a, axis in zip(anchors, axes, strict=True)):
            continue
        extents = {a.axes[axis].extent for a, axis in zip(anchors, axes, strict=True)}
        if len(extents) == 1 and max(extents) >= max(2, target.threads):
            along = all(a.output.stride(axis) == 1 for a, axis in zip(anchors, axes, strict=True))
            wide = any(len(a.output.shape) - a.output.shape.count(1) > 1 for a in anchors)
            found.append(Rows(tuple(axes), max(extents), along and wide))
    return found


def _handed(func: PrimFunc, anchor: Anchor) -> tuple[Handed, list[Handed]]:
    """The buffer that an anchor, with its epilogue, writes in the end, and those that it reads."""
    plain = {axis: dim for axis in anchor.spatial if (dim := anchor.output.plain_dim(axis)) is not None}
    reads: list[Handed] = []
    for operand in anchor.inputs:
        terms = zip(operand.dims, operand.offsets, strict=True)
        alone = {d: t[0][0] for d, (t, offset) in enumerate(terms) if len(t) == 1 and t[0][1] == 1 and offset == 0}
        reads.append((operand.buffer, alone))
    if not anchor.epilogue:
        return (anchor.output.buffer, {dim: axis for axis, dim in plain.items()}), reads
    body = find_block(func, anchor.epilogue).body
    assert isinstance(body, Store)
    loads = [n for n in walk(body.value) if isinstance(n, Load)]
    own = next(load for load in loads if load.buffer == anchor.output.buffer)
    named = {own.indices[dim]: axis for axis, dim in plain.items()}
    accesses: list[Load | Store] = [body, *loads]
    indexed = [(n.buffer, {d: named[i] for d, i in enumerate(n.indices) if i in named}) for n in accesses]
    return indexed[0], reads + [item for item in indexed[1:] if item[0] != own.buffer]


def _followed(stages: Sequence[tuple[Handed, list[Handed]]], first: int) -> list[int]:
    """The axis of each anchor that goes with an axis of the first one; empty where one is missing or they differ."""
    known = {0: first}
    while True:
        more = dict(known)
        for writer, ((buffer, written), _) in enumerate(stages):
            for reader, (_, reads) in enumerate(stages):
                for read in (dims for what, dims in reads if what == buffer):
                    if writer not in known and reader not in known:
                        continue
                    pairs = {(axis, read[dim]) for dim, axis in written.items() if dim in read}
                    pairs = {(w, r) for w, r in pairs if known.get(writer, w) == w and known.get(reader, r) == r}
                    if len(pairs) != 1:
                        return []
                    ((more[writer], more[reader]),) = pairs
        if more == known:
            return [known[n] for n in range(len(stages))] if len(known) == len(stages) else []
        known = more


def chunk_sizes(rows: Rows, anchors: Sequence[Anchor], target: Target) -> list[int]:
    """Rows of a chunk: for each power of two a divisor of the rows that is about as large, or itself.

    Vectors along the rows are whole, no thread is long without work, and what is handed on stays in its caches.
    """
    lanes = target.vector_lanes(anchors[0].output.dtype)
    unit, most = (lanes, MOST_VECTORS * lanes) if rows.along else (1, MOST_ROWS)
    divisors = [d for d in range(unit, min(rows.extent, 2 * most), unit) if rows.extent % d == 0]
    found: dict[int, None] = {}
    size = unit
    while size <= min(most, rows.extent // max(2, target.threads)):
        near = [d for d in divisors if size / sqrt(2) < d < size * sqrt(2)]
        found[min(near, key=lambda d: (abs(d - size), d)) if near else size] = None
        size *= 2
    return [size for size in found if _keeps_busy(rows.extent, size, target) and _stays(rows, anchors, size, target)]


def _keeps_busy(extent: int, size: int, target: Target) -> bool:
    chunks, threads = -(-extent // size), max(1, target.threads)
    turns = -(-chunks // threads)
    return chunks >= threads and turns * threads * size <= IDLE * extent


def _stays(rows: Rows, anchors: Sequence[Anchor], size: int, target: Target) -> bool:
    """Whether a thread may have for itself what a chunk of each stage hands on."""
    elements = [prod(a.output.shape) // rows.extent * size * dtypes.nbytes(a.output.dtype) for a in anchors]
    return max(elements) <= most_scratch(target)


def in_chunks(
    schedule: Schedule, anchors: Sequence[Anchor], rows: Rows, size: int, target: Target
) -> tuple[Schedule, tuple[str, ...]] | None:
    """The schedule with all anchors in chunks of `size` rows, and the loops over these, which may be merged.

    None where they may not: where stages need rows of other chunks.
    """
    split = schedule.copy()
    try:
        chunks = tuple(_split_rows(split, a, axis, size) for a, axis in zip(anchors, rows.axes, strict=True))
        merged = split.copy()
        for anchor, chunk in zip(anchors, chunks, strict=True):
            if anchor.epilogue:
                merged.reverse_compute_at(anchor.epilogue, chunk)
        merge_chunks(merged, chunks, target)
    except ScheduleError:
        return None
    return split, chunks


def merge_chunks(sch: Schedule, chunks: Sequence[str], target: Target, peel: bool = False) -> None:
    """One loop for the chunks of all stages, which threads share, or work-groups of one item each.

    With `peel` the last chunk is peeled off, so that whole chunks test nothing.  Raises ScheduleError where that is
    refused.
    """
    loop = str(sch.merge_adjacent_loops(*chunks, inner=False)) if len(chunks) > 1 else chunks[0]
    for inner in _cut_by(sch, loop) if peel else ():
        sch.annotate(inner, "peel", True)
    distribute(sch, loop, target, 1)


def is_last_shorter(sch: Schedule, chunks: Sequence[str]) -> bool:
    """Whether the last chunk is shorter than the others, in a schedule that split rows into chunks and no more."""
    return any(v.name in chunks for block in leaf_blocks(sch.func.body) for v in variables(block.predicate))


def _cut_by(sch: Schedule, chunks: str) -> list[str]:
    """The loops whose variables stand in a condition together with that of the loop over chunks, by name."""
    blocks = leaf_blocks(sch.func.body)
    conds = [variables(c) for block in blocks for c in conjuncts(block.predicate)]
    inside = {v.name for names in conds if any(v.name == chunks for v in names) for v in names}
    return sorted(inside - {chunks})


def _split_rows(sch: Schedule, anchor: Anchor, axis: int, size: int) -> str:
    """Bring the loop over rows outside and split it; returns the loop over chunks."""
    rows = loop_of(sch, anchor.block, anchor.axes[axis])
    others = [loop for loop in sch.get_loops(anchor.block) if loop != rows]
    sch.reorder(rows, *others)
    chunks, _ = sch.split(rows, [None, size])
    return str(chunks)


def of_a_chunk(anchor: Anchor, axis: int, size: int) -> Anchor:
    """The anchor inside of a chunk: `axis` has `size` points, and the layouts of its inputs are given."""
    axes = tuple(replace(item, extent=size) if n == axis else item for n, item in enumerate(anchor.axes))
    operands = tuple(o if o.is_output else replace(o, source="other", producer="") for o in anchor.operands)
    return replace(anchor, axes=axes, operands=operands)


def structures_of_a_chunk(anchor: Anchor, axis: int, rows: Rows, target: Target) -> tuple[Structure, ...]:
    """The structures of an anchor inside of a chunk: vectors run along its rows in all stages, or in none.

    A chunk is one item's, so that no subgroup shares it.
    """
    return tuple(s for s in structures(anchor, target) if (s.vec == axis) == rows.along and not s.subgroup)
