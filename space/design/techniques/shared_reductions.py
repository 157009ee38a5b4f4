"""A long reduction of few results, shared between threads: in parts, which are added up in the end.

    y[s] = sum_r e(s, r)   ->   p[q, s] = sum_k e(s, q K + k)    for q < Q, on threads,
                                y[s] = sum_q p[q, s]             which is little work

Threads share the points of a result.  The sum of a whole array has one, and the mean of each channel of an image, with
channels last, as many as lie beside each other in a few vectors: there, threads have nothing to share but the reduction
itself.  The parts are a spatial axis like any other, so that all techniques apply to them: vectors along the result, or
along the reduction where that is contiguous, register tiles, orders of loops.  In primitives: split, and `rfactor` of
the outer loop.

Parts are about as many as there are threads, or four times as many, of the reduced axis that is outermost in memory and
can be cut evenly, so that each thread reads what lies together; else the last part is shorter.

A device that runs work-items in step wants thousands of them at a time: there, parts are as many as it takes to have so
many results, of all reductions with fewer ("split-K" of matrix products).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt, prod

from ....ir.target import Target
from ...errors import ScheduleError
from ...schedule import Schedule
from ..program import Anchor
from ..stages import loop_of
from ..structure import Structure, structures

LEAST_POINTS = 1 << 14
"""Points for each thread, a few microseconds: less is done before threads have met."""
FEW_RESULTS, FEW_VECTORS = 4, 8
"""Results for each thread that are reduced along vectors, and vectors of other results, that are enough to share."""
PARTS = (1, 4)
"""Parts for each thread."""
IDLE = 1.15
"""How much longer the thread with most to do may take than if all had as much."""

WARP_RESULTS = (512, 2048)
"""Results for each compute unit that keep a device busy which runs items in step."""
SHORTEST_PART = 8
"""Steps of a part there, at least."""

Cut = tuple[int, int]
"""An axis of the reduction, by number, and the points of a part."""


def shared_reductions(anchors: Sequence[Anchor], target: Target) -> list[tuple[int, Mapping[str, Cut]]]:
    """Numbers of parts that are worth a trial, each with how blocks of reductions are cut in about so many."""
    if target.warp > 1:
        return _for_warps(anchors, target)
    if target.kind != "cpu" or target.threads < 2:
        return []
    long = [a for a in anchors if _is_long(a, target)]
    found: dict[tuple[tuple[str, Cut], ...], int] = {}
    for each in PARTS:
        cuts = {a.block: cut for a in long if (cut := _cut(a, each * target.threads, target)) is not None}
        if cuts:
            found.setdefault(tuple(cuts.items()), each * target.threads)
    return [(count, dict(cuts)) for cuts, count in found.items()]


def _for_warps(anchors: Sequence[Anchor], target: Target) -> list[tuple[int, Mapping[str, Cut]]]:
    """The same where results are to be so many that all compute units have work."""
    found: dict[int, Mapping[str, Cut]] = {}
    for each in WARP_RESULTS:
        cuts = {a: cut for a in anchors if a.op and (cut := _cut_for_warps(a, each * target.units)) is not None}
        if cuts:
            count = max(-(-anchor.axes[axis].extent // size) for anchor, (axis, size) in cuts.items())
            found.setdefault(count, {anchor.block: cut for anchor, cut in cuts.items()})
    return list(found.items())


def _cut_for_warps(anchor: Anchor, wanted: int) -> Cut | None:
    """The outermost axis in memory that splits into parts for about `wanted` results; None where none does."""
    parts = wanted // prod(anchor.axes[a].extent for a in anchor.spatial)
    steps = prod(anchor.axes[a].extent for a in anchor.reduce)
    for axis in _outermost_first(anchor):
        extent = anchor.axes[axis].extent
        most = min(parts, extent, steps // SHORTEST_PART, isqrt(steps))  # of which one item adds up all
        even = [d for d in range(2, most + 1) if extent % d == 0 and 2 * d > most]
        if most >= 2 and (even or extent >= 2 * most):
            return axis, extent // max(even) if even else -(-extent // most)
    return None


def _outermost_first(anchor: Anchor) -> list[int]:
    """The axes of a reduction in the order in which they lie in memory."""
    return sorted(anchor.reduce, key=lambda a: max((o.stride(a) for o in anchor.inputs), default=0), reverse=True)


def _is_long(anchor: Anchor, target: Target) -> bool:
    """Whether threads find too few results to share, and much to do for them."""
    points = prod(axis.extent for axis in anchor.axes)
    results = prod(anchor.axes[a].extent for a in anchor.spatial)
    along = any(structure.factored for structure in structures(anchor, target))
    few = FEW_RESULTS if along else FEW_VECTORS * target.vector_lanes(anchor.output.dtype)
    return bool(anchor.op) and points >= LEAST_POINTS * target.threads and results < few * target.threads


def _cut(anchor: Anchor, wanted: int, target: Target) -> Cut | None:
    """The outermost axis in memory that splits evenly into about `wanted` parts, else unevenly; None without any."""
    axes = _outermost_first(anchor)
    for axis in axes:
        extent = anchor.axes[axis].extent
        least, most = max(target.threads, wanted // 2 + 1), min(extent, 2 * wanted - 1)
        near = [d for d in range(least, most + 1) if extent % d == 0 and _is_busy(d, d, target)]
        if near:
            return axis, extent // min(near, key=lambda d: (abs(d - wanted), d))
    for axis in axes:
        extent = anchor.axes[axis].extent
        size = -(-extent // wanted)
        if extent % size >= size // 2 and _is_busy(-(-extent // size), extent / size, target):
            return axis, size
    return None


def _is_busy(parts: int, work: float, target: Target) -> bool:
    """Whether the thread with most parts has not much more to do than if all had as much of the `work`, in parts."""
    return -(-parts // target.threads) * target.threads <= IDLE * work


def in_parts(schedule: Schedule, anchors: Sequence[Anchor], cuts: Mapping[str, Cut]) -> Schedule | None:
    """The schedule with reductions cut; None where a primitive refuses."""
    cut = schedule.copy()
    try:
        for anchor in anchors:
            if anchor.block in cuts:
                axis, size = cuts[anchor.block]
                parts = loop_of(cut, anchor.block, anchor.axes[axis])
                if size > 1:
                    parts, _ = cut.split(parts, [None, size])
                cut.rfactor(parts, 0)
    except ScheduleError:
        return None
    return cut


def along_results(anchor: Anchor, found: Sequence[Structure], known: Sequence[str]) -> tuple[Structure, ...]:
    """The structures of a block that is not among those `known` before, whose vectors do not run along its parts."""
    parts = -1 if anchor.block in known else anchor.spatial[0]
    return tuple(s for s in found if s.vec != parts) or tuple(found)
