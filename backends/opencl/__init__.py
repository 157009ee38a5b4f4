"""OpenCL C source, and what runs it."""

from __future__ import annotations

import os
from pathlib import Path


def _is_newer_than_pocl() -> bool:
    """Whether PoCL 3.0 takes this processor for an older one without AVX-512, but its built-in functions use that."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "AuthenticAMD" in text and " avx512f " in text


# There PoCL 3.0 finds no kernel in a program that it takes from its cache.  It reads the variable when it is loaded.
if _is_newer_than_pocl():
    os.environ.setdefault("POCL_KERNEL_CACHE", "0")
