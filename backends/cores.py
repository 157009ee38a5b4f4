"""Waiting until every thread of a kernel has a core of its own.

A virtual machine's processors are threads of its host, which may put two of them on one core.  On one such machine
this was so in a quarter of all moments, for milliseconds to seconds: two threads that compute took twice as long then,
and threads that wait for memory did not, so that of two kernels now one and now the other was faster.  A processor that
has been idle is placed anew: after sleeps of a millisecond the cores were back within 9 ms in the median and 110 at
most, while under work it took up to 2.6 seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import lru_cache

from ..ir.target import Target

ENOUGH = 0.75  # of the best burst: two of two threads on one core reach half of it
BURST_SECONDS = 150e-6  # a choice: short beside the milliseconds for which a core is shared (above)
BURSTS = 3  # of which the best one counts
TRIALS = 10  # to learn what a burst can reach
PAUSE_SECONDS = 1e-3  # of sleep: a processor that was idle so long is placed anew (above)
PATIENCE_SECONDS = 0.1  # a choice, about the longest that cores were seen to take to come back after sleeps (above)
FRESH_SECONDS = 5e-3  # for which what was seen is believed


class Cores:
    """What a short burst of multiply-adds on all threads reaches now, against the best that one ever did.

    `burst` runs one and returns its rate.
    """

    def __init__(self, burst: Callable[[], float]) -> None:
        self._burst = burst
        self._best = 0.0
        self._seen = -math.inf
        for _ in range(TRIALS):
            self._best = max(self._best, self._rate())
            time.sleep(PAUSE_SECONDS)

    def settle(self) -> None:
        """Return when all threads are at full speed, after `PATIENCE_SECONDS` in any case.

        A machine that does not come back within these has become a slower one, and is taken as it is.
        """
        now = time.monotonic()
        if now - self._seen < FRESH_SECONDS:
            return
        rate = self._rate()
        while rate < ENOUGH * self._best and time.monotonic() - now < PATIENCE_SECONDS:
            time.sleep(PAUSE_SECONDS)
            rate = self._rate()
        self._best = rate if rate < ENOUGH * self._best else max(self._best, rate)
        self._seen = time.monotonic()

    def whole(self) -> bool:
        """Whether all threads are at full speed at this moment."""
        rate = self._rate()
        self._best = max(self._best, rate)
        return rate >= ENOUGH * self._best

    def _rate(self) -> float:
        return max(self._burst() for _ in range(BURSTS))


def settler(target: Target) -> Callable[[], None]:
    """What to call before a kernel of `target` is timed; it does nothing for one thread, or a device of its own.

    A driver that makes an OpenCL device of the CPU has a thread on each of its processors.
    """
    return cores(target.threads).settle if target.execution.runs_on_the_host and target.threads > 1 else _at_once


def _at_once() -> None:
    """Nothing to wait for."""


@lru_cache(maxsize=4)
def cores(threads: int) -> Cores:
    """The cores under so many threads of this process."""
    from .host import host_cpu
    from .peak import Burst

    burst = Burst(host_cpu(), "float32")
    rounds = burst.rounds(BURST_SECONDS, threads)
    return Cores(lambda: burst.run(rounds, threads))
