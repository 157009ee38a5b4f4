"""A time by which work has to be over, at which the work looks while it goes on.

::

    with until(time.monotonic() + 2.0):
        space = generate(func, target)      # raises OutOfTime, two seconds later at about the next sketch

A deadline holds in its block and in all that the block calls, in this thread.  One that holds already stays where it is
earlier.  Code that may take long calls `look`, between steps that each take milliseconds; whoever can use what has been
done so far catches `OutOfTime`, and nobody else.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from contextvars import ContextVar

_DEADLINE: ContextVar[float] = ContextVar("deadline", default=math.inf)


class OutOfTime(BaseException):
    """A deadline has passed.  Like KeyboardInterrupt it is no Exception, so that handlers of errors let it pass."""


@contextlib.contextmanager
def until(deadline: float | None) -> Iterator[None]:
    """Have the block end by `deadline` (`time.monotonic`); None sets none."""
    before = _DEADLINE.get()
    token = _DEADLINE.set(before if deadline is None else min(before, deadline))
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def has_deadline() -> bool:
    """Whether there is any here."""
    return _DEADLINE.get() < math.inf


def is_over() -> bool:
    """Whether the deadline has passed."""
    return time.monotonic() > _DEADLINE.get()


def look() -> None:
    """Raise OutOfTime after the deadline."""
    if is_over():
        raise OutOfTime
