"""Folders of workers: what they print, and what an OpenCL driver compiles for them and then loads as a program.

They lie in the folder for temporary files, or in the user's cache where no program may be run from that one (a file
system mounted ``noexec``): PoCL could load nothing there.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from pathlib import Path


def new_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder of this process; those of processes that were killed are removed first."""
    parent = place()
    _sweep_once(parent)
    return tempfile.TemporaryDirectory(prefix=f"{_prefix()}{os.getpid()}-", dir=parent, ignore_cleanup_errors=True)


def place() -> Path:
    """Where these folders lie."""
    temporary = Path(tempfile.gettempdir())
    if runs_programs(temporary):
        return temporary
    import platformdirs

    cache = Path(platformdirs.user_cache_dir("stridesmith")) / "workers"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return temporary
    return cache if runs_programs(cache) and os.access(cache, os.W_OK) else temporary


def problem() -> str:
    """Why a driver cannot load compiled code from this folder; empty where it can."""
    if runs_programs(place()):
        return ""
    return f"no program may be run from {place()} (noexec), so that PoCL cannot load its kernels; set TMPDIR elsewhere"


def runs_programs(folder: Path) -> bool:
    """Whether the file system of a folder lets programs be run."""
    return not os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0)


@functools.cache
def _prefix() -> str:
    """Names the process-id namespace, as ids of another container mean nothing here."""
    try:
        space = "".join(filter(str.isdigit, os.readlink("/proc/self/ns/pid")))
    except OSError:
        space = "0"
    return f"stridesmith-{os.getuid()}-{space}-"


@functools.cache
def _sweep_once(parent: Path) -> None:
    sweep(parent)


def sweep(parent: Path | None = None) -> None:
    """Remove the folders that processes of ours left when they were killed, by default those in `place`."""
    for folder in (place() if parent is None else parent).glob(f"{_prefix()}*-*"):
        owner = folder.name.removeprefix(_prefix()).partition("-")[0]
        if owner.isdigit() and not _alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
