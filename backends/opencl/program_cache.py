"""Compiled programs of earlier builds, by source and driver, so that no process compiles one a second time.

A race builds the best candidates of a run again, a replay the best of all, and another run some of the same: what an
OpenCL driver takes a second for is read in a millisecond.  A text is what `binary.export_binary` gave.  Its key is the
source, the options, PoCL's settings, the device with its driver and processor, and the environment whose packages the
driver may be one of: another version of a driver never meets it, nor the same one installed elsewhere, since PoCL takes
only what it has compiled itself.  Whoever loads it verifies the kernel as ever.
"""

from __future__ import annotations

import os
import sys

from ...ir.target import Target
from ..file_cache import FileCache
from ..host import host_cpu

CACHE = FileCache("opencl-programs", 256 << 20)


def stored(source: str, options: tuple[str, ...], target: Target) -> str | None:
    """The compiled form of a source for a device, if it was kept."""
    return CACHE.read(_key(source, options, target))


def store(source: str, options: tuple[str, ...], target: Target, binary: str) -> None:
    """Keep the compiled form of a source, if there is one."""
    if binary:
        CACHE.write(_key(source, options, target), binary)


def _key(source: str, options: tuple[str, ...], target: Target) -> str:
    # Two machines may share a home folder: a binary for one processor may crash on another of the same name.
    processor = host_cpu().features if target.execution.runs_on_the_host else ""
    settings = sorted((k, v) for k, v in os.environ.items() if k.startswith("POCL_") and k != "POCL_CACHE_DIR")
    return repr((source, options, sorted(target.to_json().items()), processor, settings, sys.prefix))
