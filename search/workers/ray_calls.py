"""The one place where Ray is called once it runs, and where its own failures become values of ours.

A call of Ray's may wait for ever: for a raylet that was killed or stopped, for a GCS behind a link that is cut.  While
it waits it is deaf to signals.  So all calls are made in a daemon thread, and whoever asks waits for a bounded time and
can be interrupted.  Ray is lost once a call does not come back, or a process that it cannot do without has ended or
stands still; nothing is asked of it any more then.
"""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ...errors import InternalError
from . import guardian
from .protocol import Failed
from .threads import DaemonThread

T = TypeVar("T")

ANSWER_SECONDS = 10.0  # for a call that should take milliseconds
STOPPED_SECONDS = 3.0  # for a process that a debugger, say, has stopped
LOOK_SECONDS = 0.5  # between two looks whether Ray is still there


class RayLost(InternalError):
    """Ray does not answer, or has ended: the text says what was seen."""


class RayCalls:
    """Calls of Ray's in a thread of their own; `core` are the processes of this host that Ray cannot do without."""

    def __init__(self, ray: Any, core: Sequence[int] = ()) -> None:
        self.ray = ray
        self.lost = ""
        self._core = {pid: guardian.name_of(pid) for pid in core}
        self._stopped = Stopped()
        self._thread = DaemonThread("stridesmith-ray-calls")

    def call(self, function: Callable[..., T], *arguments: Any, seconds: float = 0.0, **options: Any) -> T:
        """``function(*arguments, **options)``, which may take `seconds` by itself.  Raises RayLost."""
        future = self._submit(function, *arguments, **options)
        deadline = time.monotonic() + seconds + ANSWER_SECONDS
        while not future.done():
            concurrent.futures.wait([future], LOOK_SECONDS)
            if not future.done():
                self.look()
                if time.monotonic() > deadline:
                    self._lose(f"it did not answer within {seconds + ANSWER_SECONDS:g} s")
        try:
            return future.result()
        except Exception as error:
            self._lose(f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}")
            raise AssertionError from error  # not reached

    def send(self, function: Callable[..., object], *arguments: Any, seconds: float = 0.0, **options: Any) -> None:
        """Call a function whose result is not needed, and wait for its end at most `seconds`."""
        if not self.lost:
            concurrent.futures.wait([self._thread.submit(lambda: function(*arguments, **options))], seconds)

    def reply(self, task: Any) -> str | Failed:
        """What a finished task of an actor gave, or that the actor was lost."""

        def get() -> str | Failed:
            from ray.exceptions import RayError

            try:
                return str(self.ray.get(task))
            except RayError as error:
                return Failed(status="infrastructure", message=f"a Ray actor was lost: {type(error).__name__}")

        return self.call(get)

    def look(self) -> None:
        """Raise RayLost if a core process has ended or stands still."""
        if self.lost:
            raise RayLost(self.lost)
        for pid, name in self._core.items():
            if _state(pid) in ("", "Z", "X"):
                self._lose(f"its process {name} has ended")
            if self._stopped.stands_still(pid):
                self._lose(f"its process {name} stands still")

    def _submit(self, function: Callable[..., T], *arguments: Any, **options: Any) -> concurrent.futures.Future[T]:
        if self.lost:
            raise RayLost(self.lost)
        return self._thread.submit(lambda: function(*arguments, **options))

    def _lose(self, reason: str) -> None:
        self.lost = reason
        raise RayLost(reason)


class Stopped:
    """Recognises processes of this host that have stood still for `STOPPED_SECONDS`, by SIGSTOP or a debugger."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def stands_still(self, pid: int) -> bool:
        """Whether it was stopped each time it was looked at, the first time long enough ago."""
        if _state(pid) not in ("T", "t"):
            self._since.pop(pid, None)
            return False
        return time.monotonic() - self._since.setdefault(pid, time.monotonic()) > STOPPED_SECONDS


def _state(pid: int) -> str:
    """The letter of proc(5) for what a process does; empty if there is none, ``?`` where the system does not say."""
    if not Path("/proc/self/stat").exists():
        return "?"
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
