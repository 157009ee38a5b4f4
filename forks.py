"""Forks: a child has the memory of its parent, and of its threads the one that forked.

What another thread held or was amid stays so in the child for ever.  So a fork waits for what may not be cut in two,
the calls of libraries that keep state of their own (`Calls`, `held_at_forks`), and a child begins anew with locks that
only order the calls of one object (`renewed_in_children`).
"""

from __future__ import annotations

import os
import threading
import time
from threading import get_ident
from types import TracebackType
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

PATIENCE = 30.0
"""Seconds for which a fork waits: what computes so long may never end."""

SPAWN = "start processes that do not share memory, as multiprocessing's contexts `spawn` and `forkserver` do"


class Lock(Protocol):
    """What `threading.Lock` and `threading.RLock` make."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> None: ...


class Locked(Protocol):
    """An object with a lock of its own."""

    _lock: Any


L = TypeVar("L", bound=Lock)


def held_at_forks(lock: L) -> L:
    """A reentrant lock that no other thread holds while the process forks, so that a child finds it free."""
    taken: list[bool] = []

    def let_go() -> None:
        if taken and taken.pop():
            lock.release()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lambda: taken.append(lock.acquire(timeout=PATIENCE)), after_in_parent=let_go, after_in_child=let_go
        )
    return lock


_locked: WeakSet[Any] = WeakSet()


def renewed_in_children(owner: Locked) -> None:
    """Let the lock of an object, which orders its calls, be free in a child, where nobody calls it."""
    _locked.add(owner)


def _renew() -> None:
    for owner in list(_locked):
        owner._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


class Calls:
    """Calls of a library, of which none may be under way when the process forks: ``with calls: ...``.

    A fork waits for those that are, for `PATIENCE` at most, and later ones wait for it.  In a child that was made amid
    one, the library `is_lost`.
    """

    def __init__(self) -> None:
        self.is_lost = False
        self._running: list[int] = []  # threads, as often as they are inside; appending and removing are atomic
        self._fork = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._wait, after_in_parent=self._fork.release, after_in_child=self._begin)

    def __enter__(self) -> None:
        mine = get_ident()
        self._running.append(mine)
        while self._fork.locked() and self._running.count(mine) == 1:
            self._running.remove(mine)
            with self._fork:
                pass
            self._running.append(mine)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.remove(get_ident())

    def _others(self) -> bool:
        return len(self._running) > self._running.count(get_ident())

    def _wait(self) -> None:
        self._fork.acquire()
        until = time.monotonic() + PATIENCE
        while self._others() and time.monotonic() < until:
            time.sleep(1e-4)

    def _begin(self) -> None:
        """Forget the other threads in a child after a fork, and remember if one was inside of a protected call."""
        self.is_lost |= self._others()
        mine = get_ident()
        self._running[:] = [thread for thread in self._running if thread == mine]
        self._fork.release()
