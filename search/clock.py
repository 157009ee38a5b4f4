"""Seconds since a run began.  A command's clock starts with its process."""

from __future__ import annotations

import time


class Clock:
    """Monotonic seconds since `start` (a `time.monotonic()` value, now by default)."""

    def __init__(self, start: float | None = None) -> None:
        self._start = time.monotonic() if start is None else start

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start
