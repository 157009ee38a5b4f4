"""Waiting until what was enqueued is complete.

A process that sleeps until a kernel ends is woken up late: on two processors of an AMD EPYC (Zen 4) PoCL 3.0 took 83 to
94 us for a kernel of 40 us, and 61 to 64 when the waiting thread kept asking instead, giving its processor to PoCL's
threads after each question.  Kernels of 1 ms and more take the same time in either way.  Intel's runtime lets the
waiting thread compute, and is left to it, as are the drivers of GPUs.
"""

from __future__ import annotations

import os
import time
from typing import Any

import pyopencl as cl

from ...ir.target import POCL

PATIENCE = 2e-3
"""Seconds of asking, after which the thread sleeps: what it saves is little beside them."""


def wait(queue: Any, last: Any | None, platform: str) -> None:
    """Return when all that an in-order `queue` of the platform got is complete; `last` is the last kernel's event."""
    if last is not None and platform == POCL:
        queue.flush()
        complete, until = cl.command_execution_status.COMPLETE, time.perf_counter() + PATIENCE
        while last.command_execution_status > complete and time.perf_counter() < until:
            os.sched_yield()
    queue.finish()
