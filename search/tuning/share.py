"""A task among several that share the seconds of a run: its weight, what its turns found, and what more may gain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..tasks.task import Roof
    from ..workers.protocol import Built, Failed
    from .loop import Loop
    from .run import Run

BATCH, FIRST = 12, 3  # candidates of a turn, and of a task's first one: those of others, then what the estimate likes
LEAST_HOPE = 0.05  # of a latency: what is hoped for of a task that is at its roof already
RECENT = 0.5  # how much of the expected gain is what the last turns gained; the rest is what the roof leaves
CLOSE = 1.05  # how near to the fastest trial the next one is where a race is likely to decide otherwise
LEAST_SECONDS, FIRST_SECONDS = 0.5, 1.0  # what a turn counts as at least, and what a first one does


@dataclass(eq=False)
class Share:
    """A task with its weight, its search, and what its turns have gained.

    `known_us` is what the database had before, `stored` how many turns its candidates are; `gains` are microseconds by
    turn.  `turns` counts in batches those that have begun, `played` those that have ended, which took `seconds`.
    `hoped_us` is what the guide expects of a first turn, for a task that a model would call so often.
    `untuned` is the program as it was written, where it has been compiled, and `is_given_up` says that not even that
    could be measured in time, or that a candidate was built for which there was none.
    `spent` are the seconds of its turns and its race by activity.
    """

    number: int
    run: Run
    weight: int
    known_us: float | None
    loop: Loop | None = None
    gains: list[float] = field(default_factory=list)
    turns: float = 0.0
    played: float = 0.0
    stored: float = 0.0
    seconds: float = 0.0
    spent: dict[str, float] = field(default_factory=dict)
    is_exhausted: bool = False
    is_given_up: bool = False
    untuned: Built | Failed | None = None
    untuned_us: float | None = None
    raced_us: float | None = None
    hoped_us: float = 0.0

    def spend(self, before: Mapping[str, float], after: Mapping[str, float]) -> None:
        """Count what the clock of all tasks shows now beyond `before` as this task's."""
        for activity, seconds in after.items():
            self.spent[activity] = self.spent.get(activity, 0.0) + seconds - before[activity]

    @property
    def best_us(self) -> float | None:
        """The fastest that is known of the task, before or in this run."""
        return self.trial_us if self.raced_us is None else self.raced_us

    @property
    def trial_us(self) -> float | None:
        """The best time by trials alone: times of tasks that have raced and of others are not of one kind.

        The least of several trials is what luck has made least; a race tells what that takes.
        """
        found = (self.known_us, self.untuned_us, self.run.results.best_us)
        return min((us for us in found if us is not None), default=None)

    @property
    def is_playing(self) -> bool:
        """Whether a turn of it is under way."""
        return self.turns > self.played

    @property
    def is_untried(self) -> bool:
        """Whether nothing is known of the task, and it had no turn."""
        return self.best_us is None and not self.turns

    @property
    def is_new(self) -> bool:
        """Whether this run found what is faster than all that the database had."""
        mine = self.run.results.best_us
        return mine is not None and (self.known_us is None or mine < self.known_us)

    @property
    def undecided_us(self) -> float:
        """Microseconds of the model that a race is about: all of the task's where its two fastest are close.

        What the database has from an earlier race counts before a trial, so that without a race the gain is lost.
        """
        found = sorted(record.latency_us or 0.0 for record in self.run.results.valid.values())
        close = len(found) > 1 and found[1] < CLOSE * found[0]
        gained = self.known_us - found[0] if self.known_us is not None and found else 0.0
        return self.weight * max((self.best_us or 0.0) * (1.0 if close else CLOSE - 1.0), gained)

    def expected(self, roof: Roof | None) -> float:
        """Microseconds of the model that a second of this task is expected to gain."""
        best = self.best_us
        if self.is_untried:
            return self.weight * self.hoped_us / FIRST_SECONDS
        if best is None or self.is_exhausted:
            return 0.0
        floor = (
            roof.of(self.run.task.work).seconds(self.run.task) * 1e6 if roof else 0.0
        )  # of memory: what lies in caches may be faster
        hope = max(best - floor, LEAST_HOPE * best) / (self.turns + self.stored + 2.0)
        recent = sum(self.gains[-2:]) / 2 if len(self.gains) > 1 else hope
        gain = RECENT * recent + (1 - RECENT) * hope
        return self.weight * gain / max(self.seconds / max(self.played, FIRST / BATCH), LEAST_SECONDS)
