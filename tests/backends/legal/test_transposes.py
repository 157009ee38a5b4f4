"""Squares of as many lanes as the widest vectors of bytes have are compiled, and right."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import stridesmith as ss
from stridesmith.backends.diagnosis import explain
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc

TEXT = """
@T.prim_func
def main(a: T.Buffer(({lanes}, {lanes}), "{dtype}"), b: T.Buffer(({lanes}, {lanes}), "{dtype}")):
    for i in T.unroll({lanes}):
        for j in T.vectorized({lanes}):
            b[i, j] = a[j, i]
"""


@pytest.mark.parametrize(("dtype", "lanes"), [("int8", 64), ("uint8", 64), ("int8", 32), ("float32", 16)])
def test_a_square_of_the_widest_vectors_is_transposed(dtype: str, lanes: int) -> None:
    """Its many bindings fit the depth that calls may have, whose limit is what it was before afterwards."""
    func = parse(TEXT.format(dtype=dtype, lanes=lanes))
    assert isinstance(func, PrimFunc)
    limit = sys.getrecursionlimit()
    a = np.random.default_rng(0).integers(0, 100, (lanes, lanes)).astype(dtype)
    np.testing.assert_array_equal(ss.build(func)(a), a.T)
    facts = explain(ss.lower(func, "cpu"), ss.Target("cpu"), compiled=False)
    assert sys.getrecursionlimit() == limit
    assert "T.Shuffle(" in facts["lowered"] or "shuffle" not in facts["source"]
