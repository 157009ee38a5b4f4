"""Limits of a run: how many candidates a round may have, and when the run is over."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .settings import DEFAULT_TRIALS

if TYPE_CHECKING:
    from .run import Run

FIRST_SLOW = 8  # candidates of the first round where a driver compiles: each takes about a second
HELD_SHARE = 0.25  # of a batch, built while the next one is asked for
FRESH_SECONDS = 0.4  # what a race takes beside builds and racing: fresh data
ROOF_SECONDS = 1.2  # what the device's limits take
LONG_SECONDS = 16.0  # what must be left for the start of more workers, a quarter of it, to pay
SHORT_SECONDS = 15.0  # of a run, in which candidates and their race are not to be lost to what is measured beside them
RACE_SHARE, END_SHARE = 0.1, 0.25  # of the seconds of a run, at most
ASKING_SHARE, LEAST_ASKING = 0.1, 0.1  # of what is left, and seconds, for the choice of a batch
FIRST_SHARE = 0.75  # of what is left, for builds of which none has been measured yet
BASELINE_SHARE = 0.1  # of the seconds of a run, for the untuned program


class Budget:
    """The trials and seconds of a run.

    `per_trial` are the seconds that building and measuring a candidate takes, None before the first round, and
    `asking` those that the last batch was asked for.  Rounds end when the clock shows `until`, where it is given,
    else in time for what comes at the end of a run.
    """

    def __init__(self, run: Run, until: float | None = None) -> None:
        self._run, self._until = run, until
        self.per_trial: float | None = None
        self.asking = 0.0

    @property
    def trial_limit(self) -> int | None:
        """How many candidates there may be, None for no limit.

        Where a share of the roof alone would end the run, and the roof is not known, it is the default.
        """
        settings = self._run.settings
        if settings.trial_limit is not None or settings.seconds is not None or self._run.results.roof is not None:
            return settings.trial_limit
        return None if settings.stop_at is None else DEFAULT_TRIALS

    def reached(self) -> str | None:
        """Which limit has been reached."""
        settings, results = self._run.settings, self._run.results
        if (limit := self.trial_limit) is not None and results.trials >= limit:
            return "trials"
        if (left := self.left()) is not None and left <= 0:
            return "seconds"
        if settings.stop_at is not None and results.best_us is not None and results.roof is not None:
            return "target" if results.roof.fraction(self._run.task, results.best_us) >= settings.stop_at else None
        return None

    def left(self) -> float | None:
        """Seconds that rounds may still use, None without a limit; the end of the run has its own share."""
        if self._until is not None:
            return self._until - self._run.clock.seconds
        left = self._run.clock.left
        return None if left is None else left - self.ending

    @property
    def ending(self) -> float:
        """Seconds for what comes after the rounds of a run with a limit; none before there is anything to race."""
        run, limit = self._run, self._run.settings.seconds
        if limit is None or run.results.best_us is None:
            return 0.0
        build = run.settings.finalists * (self.per_trial or 0.0)
        roof = 0.0 if limit < SHORT_SECONDS else ROOF_SECONDS
        return min(race_seconds(run) + build + FRESH_SECONDS + roof, END_SHARE * limit)

    def patience(self) -> float | None:
        """The time (`time.monotonic`) at which a round is given up; half of the seconds for the end are left then."""
        left = self.left()
        return None if left is None else time.monotonic() + left + 0.5 * self.ending

    def building_until(self) -> float | None:
        """The time (`time.monotonic`) by which builds must end; the first ones leave time to measure a result."""
        left, share = self.left(), 1.0 if self._run.results.best_us is not None else FIRST_SHARE
        return None if left is None else time.monotonic() + share * left + 0.5 * self.ending

    def asking_until(self) -> float | None:
        """The time (`time.monotonic`) by which a batch that is asked for now must be chosen."""
        left = self.left()
        return None if left is None else time.monotonic() + max(ASKING_SHARE * left, LEAST_ASKING)

    def is_long(self) -> bool:
        """Whether more is left to do than starting more workers takes: more than a batch, and seconds enough."""
        limit, left = self.trial_limit, self.left()
        more = limit is None or limit - self._run.results.trials > self._run.settings.batch
        return more and (left is None or left > LONG_SECONDS)

    def size(self, left: float | None, held: int) -> int:
        """Candidates for the next round: a batch, cut to the trials and to the seconds (`left`) that remain.

        `held` of them are known already, so that nothing is asked for them.
        """
        size = self._run.settings.batch
        if (limit := self.trial_limit) is not None:
            size = min(size, limit - self._run.results.trials)
        if self.per_trial is None and self._run.task.target.kind == "opencl":
            size = min(size, FIRST_SLOW)  # so that the first result is there soon
        if left is not None:
            if self.per_trial is None:
                size = min(size, 4) if left < 10 else size
            elif (asked := left - self.asking) < size * self.per_trial:
                size = max(int(asked / self.per_trial), min(size, held, int(left / self.per_trial)))
        return max(0, size)

    def hold(self, size: int) -> int:
        """How many more than `size` to ask for, which are built in the round after; none after a short one."""
        held = int(HELD_SHARE * size) if size == self._run.settings.batch else 0
        limit = self.trial_limit
        return held if limit is None else max(0, min(held, limit - self._run.results.trials - size))

    def spent(self, seconds: float, trials: int) -> None:
        """A round with so many new trials took so long."""
        took = seconds / max(1, trials)
        self.per_trial = took if self.per_trial is None else 0.5 * (took + self.per_trial)


def race_seconds(run: Run) -> float:
    """How long the kernels of the final race are timed."""
    limit, asked = run.settings.seconds, run.settings.race_seconds
    return asked if limit is None else min(asked, RACE_SHARE * limit)


def has_time_for_race(run: Run) -> bool:
    """Whether a race that begins now would end in time."""
    left = run.clock.left
    return left is None or left > race_seconds(run) + FRESH_SECONDS


def has_time_for_roof(run: Run) -> bool:
    """Whether there is time to measure the device's limits."""
    left = run.clock.left
    return left is None or left > ROOF_SECONDS
