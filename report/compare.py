"""What changed between two databases, logs or runs: the best kernels of each task, and how sure the difference is.

A difference counts where it is certain beyond noise, for all tasks together: of a hundred comparisons of equals, all of
their tasks taken together, one raises an alarm (`ALPHA`, with Holm's correction for many tasks).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from ..backends.host_load import MUCH_BUSY
from ..search.tasks.interface import interface_key
from .interval import Ratio, exp, quantile, ratio, ratio_in_turns

if TYPE_CHECKING:
    from ..search.records.record import Record
    from ..search.records.run_facts import RunFacts

ALPHA = 0.01  # of a difference that is told of equals, a choice
SPREAD = 0.006
"""Standard deviation of the log ratio of two races of one kernel that nothing disturbs, which samples do not show."""
SIDE_BY_SIDE = 0.002
"""The same for kernels that took turns in several processes, beside what these differ by: a few may agree too well."""
TRIAL_SPREAD = 0.03
"""The same where one of the two was never raced: a trial's times are relative to a kernel of its own run."""
DISTURBED = 0.4
"""What a disturbed race is off by, as a part of how far its median lies above its fastest samples (logarithms).

Whatever delays some samples of a race, as a host that is busy for seconds or minutes does, delays all of another one.
`benchmarks/comparing.py --real` measures both."""
FASTEST = 0.05
"""The share of samples that count as the fastest."""
BANDWIDTH_NOISE = 0.25
"""What the measured bandwidths of one machine differ by, as log ratio: 0.1 on a quiet one.

A host that moves the processors of a virtual machine apart, or lets others use its memory, changes it by more, and
kernels that share data with it, though the peak stays what it was."""
SMALL = 0.04
"""What is certainly nearer to 1 than this is the same for people."""

FASTER, SLOWER, SAME, UNCLEAR = "faster", "slower", "same", "unclear"
STORED, TURNS, SCHEDULE = "stored", "turns", "schedule"

Key = tuple[str, str, str]
Races = Sequence[tuple[Sequence[float], Sequence[float]]]
"""Samples of both kernels in races of the two, one process each; none where they are the same kernel."""
NONE: Mapping[Key, Races] = MappingProxyType({})


@dataclass(frozen=True)
class Source:
    """One side: its name, the best record of each task, and what its runs tell."""

    name: str
    best: Mapping[Key, Record]
    runs: Mapping[str, RunFacts] = field(default_factory=dict)

    def caveats(self, key: Key) -> set[str]:
        """Why the stored samples of a task may mislead: a ``trial``, never raced, or a ``busy`` machine."""
        run = self.runs.get(self.best[key].run)
        is_busy = run is not None and (run.busy or 0.0) > MUCH_BUSY
        return {word for word, holds in (("trial", self.best[key].stage != "race"), ("busy", is_busy)) if holds}


@dataclass(frozen=True)
class Compared:
    """A task that both have.  `ratio` is the latency in b over that in a, certain to be between `low` and `high`.

    The `basis` of this are the samples that were `stored`, `races` in which both took `turns`, or that both have one
    `schedule`.  `a_us` and `b_us` are the latencies of both as they were stored or, if there were races, in those.
    `caveats` says why stored samples do not decide: those of `Source.caveats` of either side.
    """

    a: Record
    b: Record
    a_us: float | None
    b_us: float | None
    ratio: Ratio
    low: float
    high: float
    verdict: str
    basis: str
    races: int = 0
    caveats: frozenset[str] = frozenset()

    @property
    def has_same_schedule(self) -> bool:
        return self.a.trace == self.b.trace


@dataclass(frozen=True)
class Comparison:
    """The tasks of both sources, those that changed most first; equal ones may differ by a log ratio of `spread`.

    `ratio` is the geometric mean over the tasks of both, None without any; `control` the ratio by which the device's
    peak and untuned programs changed, as a median, None where that is not known.
    """

    tasks: tuple[Compared, ...]
    only_a: tuple[Record, ...]
    only_b: tuple[Record, ...]
    spread: float
    control: float | None
    ratio: float | None
    low: float | None
    high: float | None

    def count(self, verdict: str) -> int:
        """How many tasks have this verdict."""
        return sum(task.verdict == verdict for task in self.tasks)


def key_of(record: Record) -> Key:
    """What two records have in common that are of one task."""
    return record.script, record.device_key, interface_key(dict(record.interface))


def best_of(records: Sequence[Record]) -> dict[Key, Record]:
    """The best record of each task that was verified where it was measured: raced ones first, then the fastest."""
    found: dict[Key, Record] = {}
    for record in sorted(records, key=lambda r: (r.stage != "race", r.latency_us or math.inf, r.id)):
        if record.ok and record.verified:
            found.setdefault(key_of(record), record)
    return found


def shared_tasks(a: Source, b: Source) -> dict[Key, tuple[Record, Record]]:
    """The best records of each task that both have."""
    return {key: (record, b.best[key]) for key, record in a.best.items() if key in b.best}


def compare(a: Source, b: Source, alpha: float = ALPHA, races: Mapping[Key, Races] = NONE) -> Comparison:
    """Compare the tasks that both have, by `races` of the two kernels where there are any, else by stored samples."""
    shared = [*shared_tasks(a, b)]
    controls = _controls(a, b, shared)
    spread = max([SPREAD, *([1.4826 * statistics.median(map(abs, controls))] if controls else [])])
    found = {key: _ratio(a.best[key], b.best[key], spread, races.get(key)) for key in shared}
    levels = _holm({key: each.p_value for key, each in found.items()}, alpha)
    tasks = [
        _compared(a.best[key], b.best[key], found[key], levels[key], races.get(key), a.caveats(key) | b.caveats(key))
        for key in shared
    ]
    mean, low, high = _mean(list(found.values()), SIDE_BY_SIDE if races.keys() >= set(shared) else spread, alpha)
    return Comparison(
        tuple(sorted(tasks, key=lambda task: -abs(math.log(task.ratio.value)))),
        tuple(record for key, record in a.best.items() if key not in b.best),
        tuple(record for key, record in b.best.items() if key not in a.best),
        spread, math.exp(statistics.median(controls)) if controls else None, mean, low, high,
    )  # fmt: skip


def _ratio(a: Record, b: Record, spread: float, races: Races | None) -> Ratio:
    if (races is not None and not races) or (a.id == b.id and a.samples == b.samples):
        return Ratio(1.0, 0.0, math.inf)
    if races:
        return ratio_in_turns(races, SIDE_BY_SIDE)
    raced = a.stage == b.stage == "race"
    common = spread if raced else max(spread, TRIAL_SPREAD)
    return ratio(a.samples, b.samples, math.hypot(common, _disturbance(a.samples), _disturbance(b.samples)))


def _disturbance(samples: Sequence[float]) -> float:
    """The log ratio by which a whole race may be too slow: a share of that of its median to its fastest sample."""
    if not samples:
        return 0.0
    least, middle = np.quantile(samples, (FASTEST, 0.5))
    return DISTURBED * math.log(middle / least) if least > 0 else 0.0


def _compared(a: Record, b: Record, found: Ratio, level: float, races: Races | None, caveats: set[str]) -> Compared:
    a_us, b_us = a.latency_us, b.latency_us
    if races:
        a_us, b_us = (statistics.median(s for race in races for s in race[side]) * 1e6 for side in (0, 1))
    basis = TURNS if races else STORED if races is None else SCHEDULE
    low, high = found.bounds(level)
    if low > 1.0 or high < 1.0:
        verdict = SLOWER if low > 1.0 else FASTER
    else:
        verdict = SAME if low > 1 / (1 + SMALL) and high < 1 + SMALL else UNCLEAR
    if caveats and basis == STORED and verdict in (SLOWER, FASTER):
        verdict = UNCLEAR
    return Compared(a, b, a_us, b_us, found, low, high, verdict, basis, len(races or ()), frozenset(caveats))


def _holm(p_values: Mapping[Key, float], alpha: float) -> dict[Key, float]:
    """Holm's level for each p-value: `alpha` over how many are left, until the first that does not pass."""
    levels: dict[Key, float] = {}
    left, stopped = len(p_values), 0.0
    for key, p_value in sorted(p_values.items(), key=lambda item: item[1]):
        level = stopped or alpha / left
        if p_value > level:
            stopped = level
        levels[key] = level
        left -= 1
    return levels


def _controls(a: Source, b: Source, shared: Sequence[Key]) -> list[float]:
    """Log ratios of what no schedule changes: the device's limits, and the untuned programs of the same races."""
    found = []
    for key in shared:
        one, two = a.runs.get(a.best[key].run), b.runs.get(b.best[key].run)
        if one is None or two is None or one.name == two.name:
            continue
        if one.peak_gflops and two.peak_gflops:
            found.append(math.log(one.peak_gflops / two.peak_gflops))
        if one.bandwidth and two.bandwidth and abs(math.log(one.bandwidth / two.bandwidth)) > BANDWIDTH_NOISE:
            found.append(math.log(one.bandwidth / two.bandwidth))
        if one.baseline and two.baseline:
            found.append(math.log(statistics.median(two.baseline) / statistics.median(one.baseline)))
    return found


def _mean(found: Sequence[Ratio], spread: float, alpha: float) -> tuple[float | None, float | None, float | None]:
    """The geometric mean with its interval; the spread of two runs is common to all of their tasks."""
    if not found:
        return None, None, None
    count = len(found)
    mean = sum(math.log(each.value) for each in found) / count
    own = sum(max(0.0, each.error**2 - spread**2) for each in found) / count**2
    variance = own + spread**2 if any(each.error for each in found) else 0.0
    pooled = sum(each.error**4 / each.freedom for each in found) / count**4  # as in `ratio`
    reach = quantile(1 - alpha / 2, variance**2 / pooled if pooled else math.inf) * math.sqrt(variance)
    return exp(mean), exp(mean - reach), exp(mean + reach)
