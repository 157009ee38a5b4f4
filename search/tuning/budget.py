"""Limits of a run: how many candidates a round may have, and when the run is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .settings import DEFAULT_TRIALS

if TYPE_CHECKING:
    from .run import Run

FIRST_SLOW = 8  # candidates of the first round where a driver compiles: each takes about a second
HELD_SHARE = 0.25  # of a batch, built while the next one is asked for
ROOF_SECONDS = 1.6  # what a race takes beside builds and racing: fresh data, and the device's limits
LONG_SECONDS = 8.0  # what must be left for the start of more workers, half of it, to pay
LATE_SECONDS = 8.0  # beyond its time that a run waits for builds and measurements, which end by themselves normally
SPARE_SECONDS = 1.4  # what is left when the last event has been sent: Ray and the interpreter end
RACE_SHARE, END_SHARE = 0.1, 0.25  # of the seconds of a run, at most


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
        settings = self._run.settings
        if self._until is not None:
            return self._until - self._run.clock.seconds
        if settings.seconds is None:
            return None
        end = race_seconds(self._run) + settings.finalists * (self.per_trial or 0.0) + ROOF_SECONDS + SPARE_SECONDS
        return settings.seconds - self._run.clock.seconds - min(end, END_SHARE * settings.seconds)

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
