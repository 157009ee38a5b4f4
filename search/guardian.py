"""Ends what a killed process leaves behind: ``python -m stridesmith.search.guardian TOKEN FOLDER``.

A private Ray has agents that outlive a driver that was killed with SIGKILL.
All of them, and our workers below them, carry ``STRIDESMITH_SESSION=TOKEN`` in
their environment; the guardian waits until the driver's end of its stdin closes
and then ends every process that does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

VARIABLE = "STRIDESMITH_SESSION"
PATIENCE_SECONDS = 5.0


def main() -> None:
    """Wait for the end of stdin, then clean up."""
    token, folder = sys.argv[1], sys.argv[2]
    sys.stdin.buffer.read()
    end_session(token)
    remove_folder(folder)


def remove_folder(folder: str) -> None:
    """Remove `folder`, into which a process that is being killed may still write."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while os.path.exists(folder) and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


def end_session(token: str) -> int:
    """Kill all processes of the session, also those that appear meanwhile; how many there were."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    seen: set[int] = set()
    while time.monotonic() < deadline:
        found = members(token)
        if not found:
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        seen.update(found)
        time.sleep(0.05)
    return len(seen)


def members(token: str) -> list[int]:
    """Live processes, other than this one and its parent, that were started with the token.

    Linux only; elsewhere none are found.
    """
    mark = f"{VARIABLE}={token}".encode()
    own = {os.getpid(), os.getppid()}
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(entry.name) not in own and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


if __name__ == "__main__":
    main()
