"""One process at a time, of all that share a database, for what all of them would do alike.

The ranks of a job ask for the same kernel at the same moment; where that takes measuring, the first one measures and
the others find its result.  On a server it is an advisory lock, which ends with its connection; a file is used by one
machine and mostly one user, so that a lock of theirs will do.  Whoever has waited too long goes on without.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .database import Database

PATIENCE_SECONDS = 60.0  # that a process waits for its turn, a choice
LOOK_SECONDS = 0.05  # between two looks


@contextmanager
def turn(database: Database, name: str) -> Iterator[None]:
    """Wait until no other process is inside with this `name`."""
    place = database.path or ""  # the locks of a server are those of one database anyway
    digest = hashlib.sha256(f"{place}|{name}".encode()).digest()
    with ExitStack() as held:
        if database.path is None:
            number = int.from_bytes(digest[:7], "big")
            acquired: Callable[[], bool] = held.enter_context(database.advisory_lock(number))
        else:
            # A few files for all names: those that share one wait for each other, and nothing piles up.
            name = f"stridesmith-turn.{os.getuid()}.{digest.hex()[0]}.lock"
            path = Path(tempfile.gettempdir()) / name
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            held.callback(os.close, descriptor)

            def acquired() -> bool:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return False
                return True

        end = time.monotonic() + PATIENCE_SECONDS
        while not acquired() and time.monotonic() < end:
            time.sleep(LOOK_SECONDS)
        yield
