"""Room for programs that are nested some hundred levels deep."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

LEVELS = 10_000
"""Calls within each other, of which a pass takes some for each level: a square of 64 vectors binds 448 of them."""

_lock = threading.Lock()
_inside = 0
_before = 0


@contextlib.contextmanager
def deep() -> Iterator[None]:
    """Let calls nest so deep, in all threads, until the last of those that are in it leaves; a decorator, too."""
    global _inside, _before
    with _lock:
        _inside += 1
        if _inside == 1:
            _before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_before, LEVELS))
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                sys.setrecursionlimit(_before)
