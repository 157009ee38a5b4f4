"""Measuring is exclusive on a host: locks that all processes of all users share.

A device is a piece of hardware, not a Ray node or a tuner, and the CPU is the
device of the ``cpu`` target and of CPU OpenCL drivers alike.  Builders hold the
lock shared, a measurement holds it alone.  The second file is a turnstile:
without it, builders that overlap would keep a measurement waiting for ever.
What is measured on a GPU with memory and a clock of its own is not disturbed by
builds: such measurements hold the first lock shared, and a third one alone.
Where a deadline holds (`ir.deadline`), what has no lock by then raises OutOfTime.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from ...ir.deadline import has_deadline, look

FOLDER, PROC = Path("/tmp"), Path("/proc")
RETRY_SECONDS = 0.02  # between two attempts


def _open(name: str) -> int:
    """A descriptor of a lock file that every user of this host may lock.

    A file that exists is opened without ``O_CREAT``: in a sticky folder Linux
    may refuse that flag on other users' files.
    """
    path = FOLDER / f"stridesmith-host.{name}.lock"
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        descriptor = os.open(path, flags | os.O_CREAT, 0o666)
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, 0o666)
        return descriptor


@contextlib.contextmanager
def _locked(name: str, mode: int) -> Iterator[None]:
    descriptor = _open(name)
    try:
        while not _is_ours(descriptor, mode):
            look()
            time.sleep(RETRY_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _is_ours(descriptor: int, mode: int) -> bool:
    """Lock a file, in any time that it takes where no deadline holds here; whether it is locked."""
    if not has_deadline():
        fcntl.flock(descriptor, mode)
        return True
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def shared() -> Iterator[None]:
    """Hold off measurements on this host, beside others who do."""
    with contextlib.ExitStack() as held:
        with _locked("turnstile", fcntl.LOCK_SH):
            held.enter_context(_locked("device", fcntl.LOCK_SH))
        yield


@contextlib.contextmanager
def beside_builds() -> Iterator[None]:
    """Have all devices alone but the host's CPU, on which builds go on; measurements there wait, and are waited for."""
    with shared(), _locked("accelerators", fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Have this host's devices alone: builds and measurements of others wait."""
    with _locked("turnstile", fcntl.LOCK_EX), _locked("device", fcntl.LOCK_EX):
        yield


def stopped_holders() -> str:
    """Which processes hold these locks and are stopped, as a sentence; empty without one, or where Linux does not tell.

    Such a process, suspended by Ctrl-Z for example, keeps all others on this host from measuring until it goes on.
    """
    held = set[int]()
    for path in FOLDER.glob("stridesmith-host.*.lock"):
        with contextlib.suppress(OSError):
            held.add(path.stat().st_ino)
    found = {}
    for pid in _lockers(held):
        with contextlib.suppress(OSError, IndexError):
            name, _, rest = (PROC / str(pid) / "stat").read_text().partition("(")[2].rpartition(")")
            if rest.split()[0] in ("T", "t"):
                found[pid] = name
    if not found:
        return ""
    named = " and ".join(f"process {pid} ({name})" for pid, name in sorted(found.items()))
    goes_on = "kill -CONT " + " ".join(map(str, sorted(found)))
    return f"stopped while holding this host's lock for measurements: {named}; nothing is measured until `{goes_on}`"


def _lockers(inodes: set[int]) -> Iterator[int]:
    """The processes that hold a lock of `flock` on one of some files, by the lines of ``/proc/locks``.

    A line is ``1: FLOCK ADVISORY WRITE pid major:minor:inode start end``; one that waits has ``->`` after its number.
    """
    try:
        lines = (PROC / "locks").read_text().splitlines()
    except OSError:
        return
    for words in map(str.split, lines):
        if len(words) > 5 and words[1] == "FLOCK" and int(words[5].rpartition(":")[2]) in inodes:
            yield int(words[4])
