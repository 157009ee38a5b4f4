"""Ends what a killed process leaves behind: ``python -m stridesmith.search.workers.guardian TOKEN FOLDER``.

A private Ray has agents that outlive a driver that was killed with SIGKILL.
All of them, and our workers below them, carry ``STRIDESMITH_SESSION=TOKEN`` in
their environment, or have a log open in the session's folder: an agent that sets
its title overwrites what the system shows of its environment.  The guardian waits
until the driver's end of its stdin closes and then ends every such process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from . import scratch

VARIABLE = "STRIDESMITH_SESSION"
PATIENCE_SECONDS = 5.0  # between asking a process to end and killing it
PREFIX = "ss-ray-"
OWNER = ".owner"


def main() -> None:
    """Wait for the end of stdin, then clean up."""
    token, folder = sys.argv[1], sys.argv[2]
    sys.stdin.buffer.read()
    end_session(token, folder)
    remove_folder(folder)
    scratch.sweep()  # of the workers that were killed


def own(folder: str, token: str) -> int:
    """Mark a session's folder as that of this process: its token in a file beside it, locked until the process ends.

    Beside it and not in it, since whoever has a file open in the folder belongs to the session.
    """
    descriptor = os.open(folder + OWNER, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, token.encode())
    return descriptor


def sweep(parent: str) -> list[str]:
    """End sessions of ours whose owners are dead, where their guardians could not, and remove their folders."""
    gone = []
    for mark in Path(parent).glob(f"{PREFIX}*{OWNER}"):
        with contextlib.suppress(OSError), open(mark, "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                continue
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            token, folder = file.read().decode(errors="replace"), str(mark).removesuffix(OWNER)
            if token.isalnum():
                end_session(token, folder)
            remove_folder(folder)
            gone.append(folder)
    return gone


def remove_folder(folder: str) -> None:
    """Remove `folder`, into which a process that is being killed may still write, and the mark of its owner."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while os.path.exists(folder) and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)
    if not os.path.exists(folder):
        Path(folder + OWNER).unlink(missing_ok=True)


def end_session(token: str, folder: str = "") -> int:
    """Kill all processes of the session, also those that appear meanwhile; how many there were."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    seen: set[int] = set()
    while time.monotonic() < deadline:
        found = members(token, folder)
        if not found:
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        seen.update(found)
        time.sleep(0.05)
    return len(seen)


def members(token: str, folder: str = "") -> list[int]:
    """Live processes, other than this one and its parent, with the token or with an open file in `folder`.

    Linux only; elsewhere none are found.
    """
    mark = f"{VARIABLE}={token}".encode()
    own = {os.getpid(), os.getppid()}
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(entry.name) in own:
                continue
            marked = mark in (entry / "environ").read_bytes().split(b"\0")
            if marked or (folder and _has_open(entry, folder)):
                found.append(int(entry.name))
    return found


def import_path() -> str:
    """``PYTHONPATH`` for a child that imports what this process does; folders with its separator are left out."""
    return os.pathsep.join(path for path in sys.path if path and os.pathsep not in path)


def name_of(pid: int) -> str:
    """The command of a process, at most 15 characters; empty where the system does not tell."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _has_open(process: Path, folder: str) -> bool:
    """Whether a process, given by its folder in /proc, has a file below `folder` open, deleted or not."""
    for link in (process / "fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(link).startswith(folder + "/"):
                return True
    return False


if __name__ == "__main__":
    main()
