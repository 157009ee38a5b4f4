"""Memory that is a kernel's own: packed constants, workspaces, and what is measured on.

Large blocks ask for huge pages.  Which lines of the second cache a block of small pages shares is chance, and differs
from one process to the next: a convolution with 2 MB of packed weights was seen to take 1,570 us in one and 2,140 in
another.  A huge page lies in one piece.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64  # a cache line, and the widest vector register
HUGE_PAGE = 2 << 20  # of Linux on x86-64 and AArch64
LARGE = 1 << 17  # bytes of a block that is worth a page of its own
SHIFTS = 16
SHIFT = 4096 + ALIGNMENT

_blocks = itertools.count()


def zeros(nbytes: int) -> NDArray[np.uint8]:
    """Zeroed bytes (nbytes,) at an address that is a multiple of `ALIGNMENT`; at least one byte of memory.

    Large blocks lie in huge pages where the system has them, each some lines further into its first page than the one
    before, since blocks that begin at one offset would compete for the same sets of every cache.  None of these begins
    a page, so that what lies close to it is there: an AMD Zen 4 takes 130 ns for a masked access of no lanes to a page
    that is missing.
    """
    room = room_for(nbytes)
    if nbytes < LARGE:
        return placed(np.zeros(room, np.uint8), nbytes)
    return placed(np.frombuffer(mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8), nbytes)


def room_for(nbytes: int) -> int:
    """How many bytes `placed` has to choose from for a block of so many."""
    if nbytes < LARGE:
        return max(1, nbytes) + ALIGNMENT
    return -(-(nbytes + (SHIFTS + 1) * SHIFT) // HUGE_PAGE) * HUGE_PAGE + HUGE_PAGE


def placed(storage: NDArray[np.uint8], nbytes: int) -> NDArray[np.uint8]:
    """The bytes of a block in memory of `room_for` so many, as `zeros` places it; what they hold is kept."""
    size = max(1, nbytes)
    if nbytes < LARGE:
        return storage[-storage.ctypes.data % ALIGNMENT :][:size]
    shift = (1 + next(_blocks) % SHIFTS) * SHIFT
    pages = storage[-storage.ctypes.data % HUGE_PAGE :]
    _ask_for_huge_pages(pages[: len(pages) // HUGE_PAGE * HUGE_PAGE])
    return pages[shift:][:size]


def _ask_for_huge_pages(pages: NDArray[np.uint8]) -> None:
    """Tell the system, which may have been built without them."""
    if hasattr(mmap, "MADV_HUGEPAGE"):
        advise = ctypes.CDLL(None).madvise
        advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        advise(pages.ctypes.data, len(pages), mmap.MADV_HUGEPAGE)
