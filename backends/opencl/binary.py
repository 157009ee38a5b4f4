"""The compiled form of an OpenCL program, so that the process that measures it compiles nothing.

A GPU's driver hands out its binary.  PoCL would compile every kernel a second time for that, and
the result still lacks the form for the kernel's work-group size; but its cache holds all there is
after the first launch.  Kernel names end in a digest of their source, so that the files of one
program are found by name, and another process with another cache takes them over.
Whatever goes wrong here only means that the source is compiled again.
"""

from __future__ import annotations

import base64
import binascii
import io
import os
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...ir.target import POCL
from ..file_cache import put

MAX_BYTES = 64 << 20  # of a compiled program, a choice

_FILE = re.compile(r"[A-Z]{2}/[A-Z]{16,64}/(?:program\.bc|(\w+)/\d+-\d+-\d+(?:-[a-z0-9]+)*/\1\.so)")


def export_binary(program: Any, platform: str, kernels: Sequence[str]) -> str:
    """What `import_binary` takes, as text; empty if there is nothing to hand on."""
    if platform == POCL:
        data = _pack(cache_folder(), kernels)
    else:
        import pyopencl as cl

        data = bytes(program.get_info(cl.program_info.BINARIES)[0])
    return base64.b64encode(data).decode("ascii")


def import_binary(text: str, platform: str) -> bytes | None:
    """Take over what `export_binary` gave: a binary to build from; None if the source is to be built.

    For PoCL, its cache knows the source afterwards.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    if platform != POCL:
        return data or None
    _unpack(data, cache_folder())
    return None


def cache_folder() -> Path:
    """Where PoCL keeps what it compiles, for this process."""
    if os.environ.get("POCL_CACHE_DIR"):
        return Path(os.environ["POCL_CACHE_DIR"])
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pocl" / "kcache"


def _pack(folder: Path, kernels: Sequence[str]) -> bytes:
    programs = {path.parents[2] for name in kernels for path in folder.glob(f"*/*/{name}/*/{name}.so")}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for program in sorted(programs):
            for path in sorted(program.rglob("*")):
                name = path.relative_to(folder).as_posix()
                if _FILE.fullmatch(name):
                    archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return out.getvalue() if programs else b""


def _unpack(data: bytes, folder: Path) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [e for e in archive.infolist() if _FILE.fullmatch(e.filename)]
            if sum(e.file_size for e in entries) > MAX_BYTES:
                return
            # The program itself last: PoCL looks for it first, and then finds its kernels.
            for entry in sorted(entries, key=lambda e: e.filename.endswith("program.bc")):
                _place(folder / entry.filename, archive.read(entry))
    except (zipfile.BadZipFile, OSError, RuntimeError):
        return


def _place(path: Path, content: bytes) -> None:
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    put(path, content, 0o700)
