"""How long a call takes.

A sample is the mean of as many back-to-back calls as fill `MIN_SAMPLE_SECONDS`;
buffers are warm, dispatch is included and Python is not.  All times are seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Protocol

MIN_SAMPLE_SECONDS = 300e-6
MIN_SAMPLES = 3
MAX_SAMPLES = 50
HOPELESS = 3.0


class Timed(Protocol):
    """The part of `kernel.Bound` that timing needs."""

    def time(self, calls: int) -> float: ...


def measure(bound: Timed, seconds: float, best: float | None = None) -> list[float]:
    """Samples of seconds per call, taken for about `seconds`.

    A candidate that takes more than `HOPELESS` times `best` gets a single sample,
    one whose single call takes longer than `seconds` gets two.
    """
    probes = [bound.time(1), bound.time(1)]
    first = min(probes)
    if best is not None and first > HOPELESS * best:
        return [first]
    if first > seconds:
        return probes
    calls = calls_for(first, MIN_SAMPLE_SECONDS)
    deadline = time.monotonic() + seconds
    samples: list[float] = []
    while len(samples) < MIN_SAMPLES or (len(samples) < MAX_SAMPLES and time.monotonic() < deadline):
        samples.append(bound.time(calls))
    return samples


def interleave(bounds: Sequence[Timed], rounds: int, seconds: float) -> list[list[float]]:
    """Samples of each of `bounds`, taken in turns, so that slow drifts of the machine meet all alike.

    Ends after `rounds`, or after `seconds` once each has `MIN_SAMPLES`.  Every
    round starts with another entry.
    """
    calls = [calls_for(min(b.time(1), b.time(1)), MIN_SAMPLE_SECONDS) for b in bounds]
    samples: list[list[float]] = [[] for _ in bounds]
    deadline = time.monotonic() + seconds
    for turn in range(rounds):
        if turn >= MIN_SAMPLES and time.monotonic() > deadline:
            break
        for step in range(len(bounds)):
            entry = (turn + step) % len(bounds)
            samples[entry].append(bounds[entry].time(calls[entry]))
    return samples


def calls_for(seconds_per_call: float, sample_seconds: float) -> int:
    """How many calls fill a sample, at least 1."""
    return max(1, math.ceil(sample_seconds / max(seconds_per_call, 1e-9)))
