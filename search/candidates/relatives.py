"""Programs of one form, and candidates of one as candidates of another.

Two programs are of one form where their texts are equal but for whole numbers in them, most of which are extents; the
nearest are those whose numbers have the least ratios.  A candidate is taken over decision by decision: the alternative
of the same name, or that of the nearest numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ...space.design.decision import Decision
    from ...space.design.sketch import Sketch
    from .search_space import Population

FAR = 6.0
"""The distance from which on a relative is none."""
LARGE = 2.0**60
"""Where numbers are no longer told apart."""

_NUMBER = re.compile(r"(?<![\w.])\d+")
"""A whole number, which is no part of a name, a type or a fraction."""


def form(script: str) -> str:
    """The text of a program without its whole numbers."""
    return _NUMBER.sub("#", script)


def distance(script: str, other: str) -> float:
    """The sum of the logarithms of the ratios of numbers, each pair once: an extent stands in many places."""
    pairs = set(zip(map(int, _NUMBER.findall(script)), map(int, _NUMBER.findall(other)), strict=True))
    return sum(abs(math.log2((a + 1) / (b + 1))) for a, b in pairs)


def nearest_before(programs: Sequence[tuple[str, Hashable]]) -> list[str | None]:
    """For each program, a text and what relatives have in common beside their form, the text of a relative before it.

    That is the nearest of those that have none themselves; None where there is none, or it is `FAR`.
    """
    alone: dict[Hashable, list[str]] = {}
    found = list[str | None]()
    for script, common in programs:
        some = alone.setdefault((form(script), common), [])
        near = min(some, key=lambda other: distance(script, other), default=None)
        if near is None or distance(script, near) > FAR:
            some.append(script)
            near = None
        found.append(near)
    return found


def taken_over(source: Sketch, choice: Sequence[int], sketch: Sketch) -> list[int]:
    """A candidate of `sketch` with the decisions of another sketch's; other decisions take their first value."""
    (found,) = all_taken_over(source, np.asarray([choice], np.int64).reshape(1, -1), sketch).tolist()
    return list(map(int, found))


def all_taken_over(source: Sketch, rows: Population, sketch: Sketch) -> Population:
    """Candidates (N, D) of another sketch as those of `sketch`, whose other decisions take their first value.

    A decision of another name decides the same where both have a number of the same name, as the lanes of vectors.
    """
    known = {item.name: number for number, item in enumerate(source.decisions)}
    numbers = {(_anchor(item), name): number for number, item in enumerate(source.decisions) for name in item.table}
    found = np.zeros((len(rows), len(sketch.decisions)), np.int64)
    for column, item in zip(found.T, sketch.decisions, strict=True):
        same = (numbers[_anchor(item), name] for name in item.table if (_anchor(item), name) in numbers)
        number = known[item.name] if item.name in known else next(same, None)
        if number is not None:
            chosen, which = np.unique(rows[:, number], return_inverse=True)
            alike = [_alike(item, source.decisions[number], alternative) for alternative in chosen.tolist()]
            column[:] = np.asarray(alike, np.int64)[which]
    return found


def _anchor(item: Decision) -> str:
    """What a decision is about, without its own name: the sketch and the anchor."""
    return item.name.rpartition("/")[0]


def _alike(item: Decision, source: Decision, chosen: int) -> int:
    """The alternative of the same name, or that of the nearest numbers."""
    label = source.labels[chosen]
    if label in item.labels:
        return item.labels.index(label)
    shared = item.table.keys() & source.table.keys()

    def far(alternative: int) -> float:
        return sum(abs(_scaled(item.table[name][alternative]) - _scaled(source.table[name][chosen])) for name in shared)

    return min(range(len(item)), key=far)


def _scaled(number: float) -> float:
    """A number on a scale of ratios, with its sign."""
    return math.copysign(math.log2(1 + min(abs(number), LARGE)), number)
