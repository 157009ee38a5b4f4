"""Seconds since a run began, what they were spent on, and what is left of them.

A command's clock starts with its process.  A run has one clock, by which everything in it ends in time: `Clock.left` is
what there is for everything but the end of the process, and `Clock.deadline` turns any part of it into a deadline.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ACTIVITIES = ("startup", "asking", "building", "measuring", "baseline", "race", "other")
"""What a run's seconds are spent on; each second counts once.

``startup`` lasts until the first candidates are built, and is whatever Ray's start is waited for later;
``asking`` is training and proposing while nothing is built; ``building`` and ``measuring`` are
the candidates'; ``race`` is the end; ``other`` is what no name fits, such as storing.
"""

YOUNG_SECONDS = 5.0  # of a process whose start still counts as the start of its run
CLOSING_SECONDS, CLOSING_SHARE = 1.2, 0.1
"""What is left when the last event has been sent, since workers, Ray and the interpreter end: at most this share."""


class Clock:
    """Monotonic seconds since `start` (a `time.monotonic()` value, now by default), by activity.

    `limit` is how many there may be, None for any number.
    """

    def __init__(self, start: float | None = None, limit: float | None = None) -> None:
        now = time.monotonic()
        self.limit = limit
        self._start = now if start is None else start
        self._spent = dict.fromkeys(ACTIVITIES, 0.0)
        self._activity, self._since = "startup", self._start
        self._changes: list[tuple[str, float]] = [("startup", self._start)]

    @property
    def start(self) -> float:
        """When it began, as a `time.monotonic()` value."""
        return self._start

    @property
    def history(self) -> list[tuple[str, float, float]]:
        """Each activity with its begin and end, in order; the last one ends now."""
        ends = [*(start for _, start in self._changes[1:]), time.monotonic()]
        return [(name, start, end) for (name, start), end in zip(self._changes, ends, strict=True)]

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    @property
    def left(self) -> float | None:
        """Seconds until the last event is to be sent; None without a limit."""
        if self.limit is None:
            return None
        return self.limit - min(CLOSING_SECONDS, CLOSING_SHARE * self.limit) - self.seconds

    def deadline(self, share: float = 1.0, least: float = 0.0) -> float | None:
        """When this share of what is left will be over (`time.monotonic`), `least` seconds from now at the earliest."""
        left = self.left
        return None if left is None else time.monotonic() + max(share * left, least)

    @property
    def spent(self) -> dict[str, float]:
        """Seconds by activity so far, all of `ACTIVITIES`; their sum is `seconds`."""
        self.enter(self._activity)
        return dict(self._spent)

    def enter(self, activity: str) -> None:
        """From here on time is spent on `activity`, one of `ACTIVITIES`."""
        if activity not in self._spent:
            raise ValueError(f"unknown activity `{activity}`; there are {', '.join(ACTIVITIES)}")
        now = time.monotonic()
        self._spent[self._activity] += now - self._since
        if activity != self._activity:
            self._changes.append((activity, now))
        self._activity, self._since = activity, now

    def share_out(self, spent: Mapping[str, float]) -> None:
        """Count what another clock has counted for its own activities, all of it within the one under way here."""
        self.enter(self._activity)
        for activity, seconds in spent.items():
            self._spent[activity] += seconds
            self._spent[self._activity] -= seconds

    @contextmanager
    def during(self, activity: str) -> Iterator[None]:
        """Spend the block's time on `activity`, and go on with what was before."""
        before = self._activity
        self.enter(activity)
        try:
            yield
        finally:
            self.enter(before)


def crowding() -> float:
    """How many times as long as alone what computes here is likely to take: processes that want a core, by cores."""
    try:
        return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    except OSError:  # the system does not tell
        return 1.0


def process_start() -> float:
    """When this process began, as a `time.monotonic()` value.

    It is now where the system does not tell, and in a process that did other things before: an
    interpreter needs less than `YOUNG_SECONDS` from its start to a command.
    """
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # field 22 of proc(5), in ticks since boot
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, ValueError, IndexError, AttributeError):
        age = 0.0
    return time.monotonic() - (age if 0 <= age < YOUNG_SECONDS else 0.0)
