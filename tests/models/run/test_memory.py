"""The arena of a network: nothing overlaps that is alive together, and gaps are used."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from stridesmith.models.run.memory import Span, best_fit


def test_a_chain_needs_two_of_its_tensors() -> None:
    """Each step reads one tensor and writes the next: the third takes the place of the first."""
    arena = best_fit([Span(str(n), 100, n, n + 1) for n in range(10)], 64)
    assert arena.nbytes == 2 * 128
    assert {offset % 64 for offset in arena.offsets.values()} == {0}


def test_the_smallest_gap_that_fits_is_taken() -> None:
    """Two dead tensors leave gaps of 960 and of 640 bytes: 512 bytes take the second, 704 the first."""
    lasting = [Span("a", 1024, 0, 9), Span("c", 896, 0, 9), Span("e", 576, 0, 9)]
    dead = [Span("b", 960, 0, 1), Span("d", 640, 0, 1)]
    arena = best_fit([*lasting, *dead, Span("f", 512, 5, 6)], 64)
    assert arena.offsets == {"a": 0, "b": 1024, "c": 1984, "d": 2880, "e": 3520, "f": 2880}
    assert best_fit([*lasting, *dead, Span("f", 704, 5, 6)], 64).offsets["f"] == 1024


def test_random_spans_never_overlap() -> None:
    """Over a hundred drawn plans: contemporaries are apart, and an arena is never larger than the sum."""
    rng = np.random.default_rng(3)
    for _ in range(100):
        first = rng.integers(0, 20, 24)
        spans = [
            Span(str(n), int(rng.integers(0, 5000)), int(f), int(f + rng.integers(0, 6))) for n, f in enumerate(first)
        ]
        arena = best_fit(spans, 64)
        for one, other in combinations(spans, 2):
            if one.meets(other) and one.nbytes and other.nbytes:
                a, b = arena.offsets[one.name], arena.offsets[other.name]
                assert a + one.nbytes <= b or b + other.nbytes <= a
        assert arena.nbytes <= sum(-(-max(s.nbytes, 1) // 64) * 64 for s in spans)
