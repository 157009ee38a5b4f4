"""Lanes that do not lie next to each other, out of a few vectors of neighbours that hold them.

Lane n of a vector is wanted from ``base + distances[n]``.  A vector load gives neighbours, and to pick lanes out of two
of them is one instruction: both together cost less than a load for each lane, where each vector serves two of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LANES_PER_VECTOR = 2
"""Lanes that a vector must serve, at the least, for picking to beat loading one by one."""


@dataclass(frozen=True)
class Picks:
    """Vectors of `length` elements from ``base + starts[k]`` on; lane n is element ``inside[n]`` of ``holder[n]``."""

    starts: tuple[int, ...]
    length: int
    holder: tuple[int, ...]
    inside: tuple[int, ...]


def picks(distances: Sequence[int]) -> Picks | None:
    """How to pick lanes at these distances out of vectors, or None where loading them one by one costs less.

    Nothing is read before the least of the distances or behind the greatest.
    """
    starts, length = _vectors(distances)
    if length == 1 or len(starts) * LANES_PER_VECTOR > len(distances):
        return None
    holder = [max(k for k, first in enumerate(starts) if first <= d) for d in distances]
    inside = [d - starts[k] for d, k in zip(distances, holder, strict=True)]
    return Picks(tuple(starts), length, tuple(holder), tuple(inside))


def _vectors(distances: Sequence[int]) -> tuple[list[int], int]:
    """The starts of vectors of one length that together hold all `distances`, and that length, the greatest possible.

    Each begins and ends between the least and the greatest distance of a group without large gaps: between two elements
    that are asked for a buffer has elements, too.
    """
    places = sorted(set(distances))
    count = len(distances)
    for length in (count, *(1 << n for n in reversed(range((count - 1).bit_length())))):
        groups: list[list[int]] = []
        for place in places:
            if groups and place - groups[-1][-1] <= length:
                groups[-1].append(place)
            else:
                groups.append([place])
        if all(group[-1] - group[0] >= length - 1 for group in groups):
            break
    starts: list[int] = []
    for group in groups:
        reached = group[0] - 1
        for place in group:
            if place > reached:
                starts.append(min(place, group[-1] - length + 1))
                reached = starts[-1] + length - 1
    return starts, length
