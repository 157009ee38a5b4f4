"""Signals that end a run: Ctrl-C, SIGTERM (sent before a job is evicted), SIGHUP (the terminal has been closed).

All three arrive as KeyboardInterrupt in the main thread, wherever that is, and the run ends as after Ctrl-C: with the
best so far, and the exit code of the signal.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from ...errors import HungUp, Interrupted, Terminated

ENDING: dict[int, type[Interrupted]] = {signal.SIGTERM: Terminated, signal.SIGHUP: HungUp}
HEARD = (signal.SIGINT, *ENDING)


class Ended(KeyboardInterrupt):
    """Another signal than Ctrl-C's has come; `error` is what the run ends with."""

    def __init__(self, error: type[Interrupted]) -> None:
        super().__init__(error.kind)
        self.error = error


def error_of(interrupt: KeyboardInterrupt) -> type[Interrupted]:
    """What a run that was interrupted so ends with."""
    return interrupt.error if isinstance(interrupt, Ended) else Interrupted


def _raise(number: int, _: FrameType | None) -> None:
    raise Ended(ENDING[number])


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Let SIGTERM and SIGHUP interrupt the main thread, unless somebody else handles or ignores them (`nohup`)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [number for number in ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """All three wait, and are forgotten: what was found is being stored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in HEARD}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
