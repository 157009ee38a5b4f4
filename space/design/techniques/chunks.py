"""Stages that share their rows, together: all of them for a chunk of rows before the next one.

    for i in M: m[i] = max_j x[i, j];    for i in M: e[i, j] = exp(x[i, j] - m[i]);    ...
    ->    for c in M / C:  { for i in C: m[c C + i] = ..;    for i in C: e[c C + i, j] = ..;    ... }

What the stages hand to each other is a chunk then, which stays in the first caches, and threads meet once instead of
after each stage.  In primitives: each stage's rows split by C; every stage tiled as if it had C rows; in the end the
outer loops merged (`merge_adjacent_loops`, which proves that no chunk needs another one) and shared between threads.
Source: RFC 0077, "Utility - Merge Adjacent Loops"; the same is `compute_at` of all stages in Halide's terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....ir.stmt import PrimFunc
from ....ir.target import Target
from ...errors import ScheduleError
from ...schedule import Schedule
from ...tree import leaf_blocks
from ..program import Anchor
from ..stages import loop_of
from ..structure import Structure, structures

CHUNKS = (1, 2, 4, 8, 16, 32)


def rows_of(anchors: Sequence[Anchor]) -> int:
    """The number of the axis of rows: that of the outermost dimension of the results that has more than one point."""
    return next((k for k in anchors[0].spatial if anchors[0].axes[k].extent > 1), 0) if anchors else 0


def chunk_sizes(anchors: tuple[Anchor, ...], func: PrimFunc, target: Target) -> list[int]:
    """Rows of a chunk: divisors of the rows, so that all are as large, and at least one chunk for each thread.

    There are no chunks where the anchors are not all blocks of the program, or where an anchor has no rows, others
    than the rest, or reads what is computed element by element for it alone.
    """
    if target.kind != "cpu" or len(anchors) < 2 or not all(anchor.spatial for anchor in anchors):
        return []
    everything = {anchor.block for anchor in anchors} == {block.name for block in leaf_blocks(func.body)}
    rows = rows_of(anchors)
    alike = len({tuple(anchor.axes[k].extent for k in anchor.spatial[: rows + 1]) for anchor in anchors}) == 1
    plain = all(a.output.plain_dim(rows) is not None and all(o.source != "stage" for o in a.inputs) for a in anchors)
    if not (everything and alike and plain):
        return []
    extent = anchors[0].axes[rows].extent
    return [size for size in CHUNKS if extent % size == 0 and extent // size >= target.threads > 0]


def in_chunks(schedule: Schedule, anchors: Sequence[Anchor], size: int) -> tuple[Schedule, tuple[str, ...]] | None:
    """The schedule with all anchors in chunks of `size` rows, and the loops over these, which may be merged.

    None where they may not: where stages need rows of other chunks.
    """
    split, rows = schedule.copy(), rows_of(anchors)
    try:
        chunks = tuple(_split_rows(split, anchor, rows, size) for anchor in anchors)
        merge_chunks(split.copy(), chunks)
    except ScheduleError:
        return None
    return split, chunks


def merge_chunks(sch: Schedule, chunks: Sequence[str]) -> None:
    """One loop for the chunks of all stages, which threads share.  Raises ScheduleError where that is refused."""
    sch.parallel(sch.merge_adjacent_loops(*chunks, inner=False))


def _split_rows(sch: Schedule, anchor: Anchor, number: int, size: int) -> str:
    """Bring the loop over rows outside and split it; returns the loop over chunks."""
    rows = loop_of(sch, anchor.block, anchor.axes[number])
    others = [loop for loop in sch.get_loops(anchor.block) if loop != rows]
    sch.reorder(rows, *others)
    chunks, _ = sch.split(rows, [None, size])
    return str(chunks)


def of_a_chunk(anchor: Anchor, rows: int, size: int) -> Anchor:
    """The anchor as it is inside of a chunk: with fewer points of the axis `rows`, and inputs that lie as they do."""
    axes = (*anchor.axes[:rows], replace(anchor.axes[rows], extent=size), *anchor.axes[rows + 1 :])
    operands = tuple(o if o.is_output else replace(o, source="other", producer="") for o in anchor.operands)
    return replace(anchor, axes=axes, operands=operands)


def structures_of_a_chunk(anchor: Anchor, rows: int, target: Target) -> tuple[Structure, ...]:
    """The structures of an anchor inside of a chunk: vectors do not run across its few rows."""
    return tuple(s for s in structures(anchor, target) if s.vec != rows)
