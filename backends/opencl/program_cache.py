"""Compiled programs of earlier builds, by source and driver, so that no process compiles one a second time.

A race builds the best candidates of a run again, a replay the best of all, and another run some of the same: what an
OpenCL driver takes a second for is read in a millisecond.  A file is what `binary.export_binary` gave.  Its name is a
digest of the source, the options, PoCL's settings, the device with its driver and processor, and the environment whose
packages the driver may be one of: another version of a driver never meets it, nor the same one installed elsewhere,
since PoCL takes only what it has compiled itself.  Whoever loads it verifies the kernel as ever.  The folder is the
user's cache; the files used least recently go when it has grown beyond `MOST_BYTES`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from pathlib import Path

from ...ir.target import Target
from ..host import host_cpu

MOST_BYTES = 256 << 20
LEFT_SHARE = 0.75  # of these, after some had to go
CHECK_EVERY = 32  # files that a process writes, until it looks how large the folder is

_written = 0


def stored(source: str, options: tuple[str, ...], target: Target) -> str | None:
    """The compiled form of a source for a device, if it was kept."""
    path = _path(source, options, target)
    try:
        text = path.read_text(encoding="ascii")
        os.utime(path)
    except (OSError, UnicodeDecodeError):
        return None
    return text or None


def store(source: str, options: tuple[str, ...], target: Target, binary: str) -> None:
    """Keep the compiled form of a source; where nothing can be written, it is not kept."""
    global _written
    if not binary:
        return
    path = _path(source, options, target)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        partial.write_text(binary, encoding="ascii")
        partial.replace(path)
        if _written % CHECK_EVERY == 0:
            _shrink(path.parent)
        _written += 1


def _path(source: str, options: tuple[str, ...], target: Target) -> Path:
    import platformdirs

    # Two machines may share a home folder: a binary for one processor may crash on another of the same name.
    processor = host_cpu().features if target.is_cpu_device else ""
    settings = sorted((k, v) for k, v in os.environ.items() if k.startswith("POCL_") and k != "POCL_CACHE_DIR")
    named = (source, options, sorted(target.to_json().items()), processor, settings, sys.prefix)
    digest = hashlib.sha256(repr(named).encode()).hexdigest()
    return Path(platformdirs.user_cache_dir("stridesmith")) / "opencl-programs" / digest


def _shrink(folder: Path) -> None:
    """Remove the files that nobody has used for longest, if all together are too many."""
    found = sorted(((entry.stat(), entry.path) for entry in os.scandir(folder)), key=lambda item: item[0].st_mtime)
    size = sum(stat.st_size for stat, _ in found)
    if size <= MOST_BYTES:
        return
    for stat, path in found:
        if size <= LEFT_SHARE * MOST_BYTES:
            return
        with contextlib.suppress(OSError):
            os.unlink(path)
        size -= stat.st_size
