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

FOLDER = Path("/tmp")
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
