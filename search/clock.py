"""Seconds since a run began.  A command's clock starts with its process."""

from __future__ import annotations

import os
import time
from pathlib import Path


class Clock:
    """Monotonic seconds since `start` (a `time.monotonic()` value, now by default)."""

    def __init__(self, start: float | None = None) -> None:
        self._start = time.monotonic() if start is None else start

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start


def process_start() -> float:
    """The `time.monotonic()` value at which this process was started.

    Read from /proc where there is one; elsewhere the time that this process has
    used of its CPU stands in for its age.
    """
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        age = uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        age = time.process_time()
    return time.monotonic() - max(0.0, age)
