"""Memory of a kernel's own: aligned, zeroed, and its blocks apart from each other."""

from __future__ import annotations

import gc
import itertools
import mmap

import numpy as np
import pytest

from stridesmith.backends.memory import ALIGNMENT, HUGE_PAGE, LARGE, zeros


@pytest.mark.parametrize("nbytes", [0, 1, 63, LARGE - 1, LARGE, HUGE_PAGE - 1, HUGE_PAGE + 1, 3 * HUGE_PAGE])
def test_blocks_are_zeroed_and_aligned(nbytes: int) -> None:
    """A block has the bytes that were asked for, one at least, all of which can be written."""
    block = zeros(nbytes)
    assert block.shape == (max(1, nbytes),) and block.dtype == np.uint8
    assert block.ctypes.data % ALIGNMENT == 0
    assert not block.any()
    block[:] = 7
    assert block.min() == 7


def test_large_blocks_begin_at_different_places_of_their_pages() -> None:
    """Sixteen large blocks in a row share no offset, so that they do not meet in one set of a cache."""
    blocks = [zeros(LARGE) for _ in range(16)]
    assert len({block.ctypes.data % HUGE_PAGE for block in blocks}) == 16
    starts = sorted((block.ctypes.data, block.ctypes.data + block.size) for block in blocks)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(starts))


def test_a_system_without_huge_pages_gives_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system refuses to advise is memory all the same."""
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 12345, raising=False)
    block = zeros(LARGE)
    assert block.size == LARGE and block.ctypes.data % ALIGNMENT == 0 and not block.any()


def test_a_part_of_a_block_keeps_its_memory() -> None:
    """The memory lives as long as any array in it."""
    part = zeros(HUGE_PAGE)[100:200].view(np.float32)
    part[:] = 2
    gc.collect()
    assert (part == 2).all()
