"""Rows of a population that are alike are found as NumPy finds them, many times as fast."""

from __future__ import annotations

import numpy as np
import pytest

from stridesmith.space.design.candidates import distinct_rows


@pytest.mark.parametrize(("columns", "below"), [(1, 3), (3, 4), (15, 8), (40, 30), (2, 2**40)])
def test_rows_are_distinguished_as_by_comparing_them(columns: int, below: int) -> None:
    """First positions in the order of rows, and which one each row is, also where their digits exceed 64 bits."""
    rng = np.random.default_rng(columns)
    table = rng.integers(0, below, size=(200, columns))
    table[100:150] = table[:50]
    _, first, which = np.unique(table, axis=0, return_index=True, return_inverse=True)
    found = distinct_rows(table)
    np.testing.assert_array_equal(found[0], first)
    np.testing.assert_array_equal(found[1], which.reshape(-1))


def test_rows_without_columns_are_all_alike_and_no_rows_are_none() -> None:
    """A sketch without decisions has one candidate, an empty population none."""
    assert distinct_rows(np.zeros((5, 0), np.int64))[0].tolist() == [0]
    assert distinct_rows(np.zeros((0, 3), np.int64))[0].tolist() == []
