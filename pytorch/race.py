"""Two ways to compute the same, timed in turns: which one stays."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

ROUNDS, LONGEST = 15, 2.0
"""Rounds of a race, and the seconds after which it ends with those that it has."""

SHORTEST = 0.002
"""Seconds of one sample at least, so that a short call is repeated."""

MARGIN = 0.98
"""What is not faster by so much may be slower: the one that was there stays."""


@dataclass(frozen=True)
class Race:
    """Seconds of a call of each, the median of rounds that took turns."""

    ours: float
    theirs: float

    @property
    def won(self) -> bool:
        """Whether ours is faster, and not only by noise."""
        return self.ours < MARGIN * self.theirs


def overall(races: Sequence[Race]) -> Race:
    """Races at several sizes as one, by the geometric mean."""
    return Race(*(statistics.geometric_mean(times) for times in zip(*((r.ours, r.theirs) for r in races), strict=True)))


def race(ours: Callable[[], Any], theirs: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> Race:
    """Time two functions in turns."""
    pace = [max(_sample(each, 1, clock), 1e-9) for each in (ours, theirs) for _ in range(2)]
    repeats = [max(1, int(SHORTEST / found)) for found in (pace[1], pace[3])]
    samples: list[tuple[float, float]] = []
    start = clock()
    while len(samples) < 3 or (len(samples) < ROUNDS and clock() - start < LONGEST):
        samples.append((_sample(ours, repeats[0], clock), _sample(theirs, repeats[1], clock)))
    return Race(*(statistics.median(column) for column in zip(*samples, strict=True)))


def _sample(call: Callable[[], Any], repeats: int, clock: Callable[[], float]) -> float:
    call()  # threads of the other one may still be awake, and caches hold what it touched
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats
