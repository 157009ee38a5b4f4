"""Pausing Python's cyclic garbage collector.

Programs are trees: reference counts free them.  The collector, which looks for cycles
whenever many objects were made, finds few beside them and walks over all that is
remembered again and again, which is a quarter of the time that a candidate takes.  Where it
has been paused for long, it would walk over all that was made meanwhile, generation by generation.
"""

from __future__ import annotations

import functools
import gc
import itertools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

COLLECT_EVERY = 16
"""Calls of `lasting` functions; one leaves a few megabytes in cycles."""
_CALLS = itertools.count(1)


def uncollected(fn: Callable[P, R]) -> Callable[P, R]:
    """`fn` with the collector paused while it runs; what it leaves in cycles is collected after it."""
    return _paused(fn, lambda: None)


def lasting(fn: Callable[P, R]) -> Callable[P, R]:
    """`fn`, which makes much that lasts, with the collector paused while it runs; what it has made is old then.

    What it leaves in cycles is collected with what is old: by the collector, and after `COLLECT_EVERY` calls.
    """
    return _paused(fn, _age)


def _paused(fn: Callable[P, R], ended: Callable[[], None]) -> Callable[P, R]:
    """`fn` with the collector paused while it runs, and `ended` called before it goes on."""

    @functools.wraps(fn)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if not gc.isenabled():
            return fn(*args, **kwargs)
        gc.disable()
        try:
            return fn(*args, **kwargs)
        finally:
            ended()
            gc.enable()

    return run


def _age() -> None:
    if next(_CALLS) % COLLECT_EVERY == 0:
        gc.collect()
    if not gc.get_freeze_count():  # what a caller has frozen stays so
        gc.freeze()  # all that there is leaves its generation,
        gc.unfreeze()  # and becomes one of the oldest
