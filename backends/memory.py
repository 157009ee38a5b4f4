"""Memory that is a kernel's own: packed constants, workspaces, and what is measured on.

Large blocks ask for huge pages.  Which lines of the second cache a block of small pages shares is chance, and differs
from one process to the next: a convolution with 2 MB of packed weights was seen to take 1,570 us in one and 2,140 in
another.  A huge page lies in one piece.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64
HUGE_PAGE = 2 << 20
LARGE = 1 << 17  # bytes of a block that is worth a page of its own

_blocks = itertools.count()


def zeros(nbytes: int) -> NDArray[np.uint8]:
    """Zeroed bytes (nbytes,) at an address that is a multiple of `ALIGNMENT`; at least one byte of memory.

    Large blocks lie in huge pages where the system has them, each some lines further into its first page than the one
    before, since blocks that begin at one offset would compete for the same sets of every cache.
    """
    size = max(1, nbytes)
    if size < LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        storage = np.zeros(size + ALIGNMENT, np.uint8)
        return storage[-storage.ctypes.data % ALIGNMENT :][:size]
    shift = next(_blocks) % 16 * (4096 + ALIGNMENT)
    pages = -(-(size + shift) // HUGE_PAGE) + 1
    region = mmap.mmap(-1, pages * HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel that was built without huge pages
        region.madvise(mmap.MADV_HUGEPAGE)
    storage = np.frombuffer(region, np.uint8)
    return storage[-storage.ctypes.data % HUGE_PAGE + shift :][:size]
