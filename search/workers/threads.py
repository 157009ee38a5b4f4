"""Daemon threads that live as long as the process.

Linux sends the parent-death signal when the *thread* that forked ends, so a
child started from a short-lived thread would be killed with that thread.
Workers and Ray are therefore started from threads of this kind.  They are
daemons: an interpreter that exits does not wait for them, and they end with it.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401  its fork hooks release a lock, which is an error in a fork they came amid
import contextlib
import functools
import os
import queue
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

LEAVE_SECONDS = 1.0  # for a thread that was asked to end

cannot_end = threading.Event()
"""Set once a library's own threads go on that nobody can end: Ray's, where it does not answer."""


class DaemonThread:
    """Runs functions one after the other in one daemon thread, until `close`."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run ``function()`` there; the future has its result or exception."""
        future: Future[T] = Future()
        self._queue.put((future, function))
        return future

    def close(self) -> None:
        """End the thread after what was submitted; nothing may be submitted any more."""
        self._queue.put(None)

    def _serve(self) -> None:
        while (item := self._queue.get()) is not None:
            future, function = item
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)


@functools.cache
def daemon_thread(name: str) -> DaemonThread:
    """The process's thread of that name."""
    return DaemonThread(name)


if hasattr(os, "register_at_fork"):  # threads are not in a child
    os.register_at_fork(after_in_child=daemon_thread.cache_clear)


def leave(code: int, at_once: bool = False) -> None:
    """End the process now, with this exit code, if it is to end `at_once` or threads `cannot_end`; else go on.

    Such threads would crash, and the process with them, when the C library takes down what they use.  And an
    interpreter that ends by itself takes apart all that a run has made, which for a large network takes seconds.  What
    is registered for the exit runs in any case; beside such threads it has `LEAVE_SECONDS`, since it may be of the same
    library, and wait for them.
    """
    if not at_once and not cannot_end.is_set():
        return
    _flush()
    if cannot_end.is_set():
        late = threading.Timer(LEAVE_SECONDS, os._exit, (code,))
        late.daemon = True
        late.start()
    atexit._run_exitfuncs()
    _flush()
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
