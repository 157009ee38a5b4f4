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

Box = Mapping[str, Range]


@dataclass(frozen=True)
class Leaf:
    """A part of the ranges, the points in it, and the number of the schedule that runs there."""

    box: Box
    points: tuple[Point, ...]
    choice: int
    cost: float


def chosen(times: Times, whole: Box, points: Sequence[Point], boxes: Mapping[int, Box]) -> list[Leaf]:
    """Leaves that cover the ranges, each with one of the schedules that run in all of it, by their `boxes`.

    There is none where no schedule runs at all points.
    """
    first = _leaf(times, whole, tuple(points), boxes)
    leaves = [first] if math.isfinite(first.cost) else []
    while leaves and len(leaves) < LEAVES:
        cuts = [(leaf, parts) for leaf in leaves for parts in _cuts(times, leaf, boxes)]
        gains = [leaf.cost - sum(part.cost for part in parts) for leaf, parts in cuts]
        if not gains or max(gains) < WORTH:
            break
        leaf, parts = cuts[gains.index(max(gains))]
        at = leaves.index(leaf)
        leaves[at : at + 1] = parts
    return leaves


def ends_of(box: Box, whole: Box) -> dict[str, list[int]]:
    """The ranges of a case as `specialize` takes them: those that are not whole."""
    return {name: [own.low, own.high] for name, own in box.items() if own != whole[name]}


def _leaf(times: Times, box: Box, points: tuple[Point, ...], boxes: Mapping[int, Box]) -> Leaf:
    """The leaf with the best schedule of those that run in all of it."""
    best = Leaf(box, points, -1, math.inf)
    for number, own in boxes.items():
        if all(own[name].low <= part.low and part.high <= own[name].high for name, part in box.items()):
            cost = sum(p.weight * math.log(times[number].get(p, math.inf)) for p in points)
            best = replace(best, choice=number, cost=cost) if cost < best.cost else best
    return best


def _cuts(times: Times, leaf: Leaf, boxes: Mapping[int, Box]) -> Iterator[list[Leaf]]:
    """The leaf in parts: at each threshold between its points, and around the boxes of schedules that end inside."""
    for name, numbers in leaf.box.items():
        for low, high in pairwise(sorted({p.values[name] for p in leaf.points})):
            middle = (low + high) // 2 // numbers.step * numbers.step
            yield _parts(times, leaf, boxes, name, [(numbers.low, middle), (middle + numbers.step, numbers.high)])
        for own in {box[name] for box in boxes.values()}:
            low, high = max(own.low, numbers.low), min(own.high, numbers.high)
            ends = [(numbers.low, low - numbers.step), (low, high), (high + numbers.step, numbers.high)]
            inside = [end for end in ends if end[0] <= end[1]]
            if low <= high and len(inside) > 1:
                yield _parts(times, leaf, boxes, name, inside)


def _parts(
    times: Times, leaf: Leaf, boxes: Mapping[int, Box], name: str, ends: Sequence[tuple[int, int]]
) -> list[Leaf]:
    parts: list[Leaf] = []
    for low, high in ends:
        box = {**leaf.box, name: replace(leaf.box[name], low=low, high=high)}
        inside = tuple(p for p in leaf.points if low <= p.values[name] <= high)
        parts.append(_leaf(times, box, inside, boxes) if inside else replace(leaf, box=box, points=(), cost=0.0))
    return parts
