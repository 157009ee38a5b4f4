"""Primitives keep what programs of many shapes compute, for every value of their parameters."""

from __future__ import annotations

from collections import Counter

from fuzz.ranged import RangedTrial
from scale import scaled


def test_accepted_rewrites_keep_the_results_of_all_shapes() -> None:
    """Each is compared with the programs of fixed shapes of five values, under NaN and under large poison."""
    tally: Counter[tuple[str, bool]] = Counter()
    for number in range(scaled(5)):
        RangedTrial(number, tally).play(6)
    assert sum(count for (_, accepted), count in tally.items() if accepted) >= scaled(5)
