"""Which schedule runs for which extents: a tree of thresholds over measured times.

Each leaf has the schedule with the least mean of the logarithm of its times; a leaf is cut in two where that makes the
mean less by more than measurements differ by chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ...ir.size_ranges import Range
from .sizes import Point

LEAVES = 4  # at most, a choice
WORTH = 0.02  # of the mean of the logarithm over all sizes, by which another leaf must make it less

Times = Mapping[int, Mapping[Point, float]]
"""By the number of a schedule the seconds at points; a schedule runs where it has a time."""


@dataclass(frozen=True)
class Leaf:
    """A part of the ranges, the points in it, and the number of the schedule that runs there."""

    box: Mapping[str, Range]
    points: tuple[Point, ...]
    choice: int
    cost: float


def chosen(times: Times, ranges: Mapping[str, Range], points: Sequence[Point], general: Sequence[int]) -> list[Leaf]:
    """Leaves that cover the ranges, each with one of the `general` schedules or one of its single point's own.

    There is none where no general schedule runs at all points.
    """
    first = _leaf(times, ranges, tuple(points), general)
    leaves = [first] if math.isfinite(first.cost) else []
    while leaves and len(leaves) < LEAVES:
        cuts = [(leaf, parts) for leaf in leaves for parts in _cuts(times, leaf, general)]
        gains = [leaf.cost - sum(part.cost for part in parts) for leaf, parts in cuts]
        if not gains or max(gains) < WORTH:
            break
        leaf, parts = cuts[gains.index(max(gains))]
        at = leaves.index(leaf)
        leaves[at : at + 1] = parts
    return leaves


def _leaf(times: Times, box: Mapping[str, Range], points: tuple[Point, ...], general: Sequence[int]) -> Leaf:
    """The leaf with the best schedule; one of a single shape may have any that runs at this shape."""
    single = all(numbers.low == numbers.high for numbers in box.values())
    best = Leaf(box, points, -1, math.inf)
    for number in times if single else general:
        cost = sum(p.weight * math.log(times[number].get(p, math.inf)) for p in points)
        best = replace(best, choice=number, cost=cost) if cost < best.cost else best
    return best


def _cuts(times: Times, leaf: Leaf, general: Sequence[int]) -> Iterator[list[Leaf]]:
    """The leaf in parts: at each threshold between its points, and around those that have schedules of their own."""
    for name, numbers in leaf.box.items():
        values = sorted({p.values[name] for p in leaf.points})
        for low, high in pairwise(values):
            middle = (low + high) // 2 // numbers.step * numbers.step
            yield _parts(times, leaf, general, name, [(numbers.low, middle), (middle + numbers.step, numbers.high)])
        own = {p.values[name] for number, at in times.items() if number not in general for p in at}
        for value in (v for v in values if v in own):
            before, after = (numbers.low, value - numbers.step), (value + numbers.step, numbers.high)
            ends = [end for end in (before, (value, value), after) if end[0] <= end[1]]
            if len(ends) > 1:
                yield _parts(times, leaf, general, name, ends)


def _parts(
    times: Times, leaf: Leaf, general: Sequence[int], name: str, ends: Sequence[tuple[int, int]]
) -> list[Leaf]:
    parts: list[Leaf] = []
    for low, high in ends:
        box = {**leaf.box, name: replace(leaf.box[name], low=low, high=high)}
        inside = tuple(p for p in leaf.points if low <= p.values[name] <= high)
        parts.append(_leaf(times, box, inside, general) if inside else replace(leaf, box=box, points=(), cost=0.0))
    return parts
