"""Signals that end a run: Ctrl-C, SIGTERM (sent before a job is evicted), SIGHUP (the terminal has been closed).

All three arrive as KeyboardInterrupt in the main thread, wherever that is, and the run ends as after Ctrl-C: with the
best so far, and the exit code of the signal.  A module that is being loaded has `PATIENCE` before: half of one would
stay, and many say of any exception that meets them that something is not installed.  The second signal does not wait.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

from ...errors import HungUp, Interrupted, Terminated

ENDING: dict[int, type[Interrupted]] = {signal.SIGTERM: Terminated, signal.SIGHUP: HungUp}
HEARD = (signal.SIGINT, *ENDING)
WHOLE = ("<frozen importlib._bootstrap>", "__del__")
"""The file of frames, or the name of functions, that an exception does not leave as it came."""
AGAIN, PATIENCE = 0.02, 2.0
"""Seconds after which a signal that met one of those is looked at again, and for which it waits in all."""

_waiting: list[tuple[int, float]] = []
"""The signal that waits, and until when."""
_raised: list[type[Interrupted]] = []


class Ended(KeyboardInterrupt):
    """Another signal than Ctrl-C's has come; `error` is what the run ends with."""

    def __init__(self, error: type[Interrupted]) -> None:
        super().__init__(error.kind)
        self.error = error


def error_of(interrupt: KeyboardInterrupt) -> type[Interrupted]:
    """What a run that was interrupted so ends with."""
    return interrupt.error if isinstance(interrupt, Ended) else Interrupted


def interrupted_by() -> type[Interrupted] | None:
    """What the last signal that has interrupted this process asks for, whatever has become of the exception."""
    return _raised[-1] if _raised else None


def _raise(number: int, frame: FrameType | None) -> None:
    if not _waiting and signal.getsignal(signal.SIGALRM) is _again:
        _waiting.append((number, time.monotonic() + PATIENCE))
        _again(signal.SIGALRM, frame)
        return
    _waiting.clear()  # the second one
    _interrupt(number)


def _interrupt(number: int) -> None:
    _raised.append(ENDING.get(number, Interrupted))
    raise Ended(ENDING[number]) if number in ENDING else KeyboardInterrupt


def _again(_: int, frame: FrameType | None) -> None:
    """Handle the pending signal once it need not wait any more; drop it where it has become void."""
    if not _waiting:
        return
    number, until = _waiting[0]
    is_heard = signal.getsignal(number) is _raise
    if is_heard and time.monotonic() < until and _is_whole(frame):
        signal.setitimer(signal.ITIMER_REAL, AGAIN)
        return
    _waiting.clear()
    if is_heard:
        _interrupt(number)


def _is_whole(frame: FrameType | None) -> bool:
    """Whether a module is being loaded, or an object taken down."""
    while frame is not None:
        if frame.f_code.co_filename in WHOLE or frame.f_code.co_name in WHOLE:
            return True
        frame = frame.f_back
    return False


def listen() -> list[int]:
    """Let the signals interrupt the main thread that nobody else handles or ignores (`nohup`); those that do now."""
    own = (signal.SIG_DFL, signal.default_int_handler)
    found = [number for number in HEARD if signal.getsignal(number) in own]
    for number in found:
        signal.signal(number, _raise)
    if signal.getsignal(signal.SIGALRM) is signal.SIG_DFL and not signal.getitimer(signal.ITIMER_REAL)[0]:
        signal.signal(signal.SIGALRM, _again)
    return found


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Let the three interrupt the main thread for a while (`listen`)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _raised.clear()
    alarm = signal.getsignal(signal.SIGALRM)
    ours = listen()
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL if number in ENDING else signal.default_int_handler)
        if alarm is not _again and signal.getsignal(signal.SIGALRM) is _again:  # else it is another's
            signal.setitimer(signal.ITIMER_REAL, 0)
            _waiting.clear()
            signal.signal(signal.SIGALRM, alarm)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """A context in which signals are ignored, for storing what was found."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in HEARD}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
