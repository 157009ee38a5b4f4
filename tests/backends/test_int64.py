"""Kernels of int64 at the ends of its range: what NumPy computes, from memory and from scalar arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from opencl_programs import needs_device

import stridesmith as ss
from stridesmith.ir.stmt import PrimFunc

TARGETS = ["cpu", pytest.param("opencl", marks=needs_device)]
LOW, HIGH = -(2**63), 2**63 - 1
SCALARS = (3, -1, HIGH, HIGH - 1, LOW, LOW + 5)
DATA = np.array(
    [1, 2, 3, 4, HIGH, HIGH - 1, LOW, LOW + 1, 0, -1, 2**62, -(2**62), 2**61, 5, 7, -6364136223846793005], np.int64
)
Reference = Callable[[NDArray[Any], np.int64], Any]


CASES: list[tuple[str, Reference]] = [
    ("(A[i] * 6364136223846793005 + 1442695040888963407) // 8589934592",
     lambda a, _: (a * 6364136223846793005 + 1442695040888963407) // 8589934592),
    ("A[i] * 4 // 4", lambda a, _: a * 4 // 4),
    ("A[i] * 4 % 12 + A[i] // 2 * 2", lambda a, _: a * 4 % 12 + a // 2 * 2),
    ("A[i] + 1 > A[i]", lambda a, _: a + 1 > a),
    ("A[i] - 5 < 0", lambda a, _: a - 5 < 0),
    ("T.max(A[i], A[i] + 1)", lambda a, _: np.maximum(a, a + 1)),
    ("T.min(A[i] * 3 + 1, A[i] * 3 + 2)", lambda a, _: np.minimum(a * 3 + 1, a * 3 + 2)),
    ("0 - A[i] == A[i]", lambda a, _: -a == a),
    ("A[i] * 2 == n * 2", lambda a, n: a * 2 == n * 2),
    ("T.Select(n + 1 > n, A[i], -7)", lambda a, n: a if n + np.int64(1) > n else np.full(16, -7)),
    ("T.if_then_else(n - 1 < n, A[i] + n, 7)", lambda a, n: a + n if n - np.int64(1) < n else np.full(16, 7)),
    ("(A[i] + n) // 2 - (A[i] * 2 + n) % 5", lambda a, n: (a + n) // 2 - (a * 2 + n) % 5),
    ("T.Cast('int32', A[i] * 8 + n) // T.int32(8)", lambda a, n: (a * 8 + n).astype(np.int32) // 8),
    ("T.Cast('float32', (A[i] * 3 - n) // 1000)", lambda a, n: ((a * 3 - n) // 1000).astype(np.float32)),
    ("n * 4 // 4 + i", lambda a, n: n * np.int64(4) // 4 + np.arange(16)),
]  # fmt: skip


@pytest.mark.parametrize("loop", ["range(16)", "T.vectorized(16)"])
@pytest.mark.parametrize("target", TARGETS)
def test_kernels_wrap_around_as_numpy_does(target: str, loop: str) -> None:
    """Loaded and passed numbers have every value of int64, in scalar code and in vectors."""
    stores = "\n".join(f"        B[{k}, i] = T.Cast('int64', {value})" for k, (value, _) in enumerate(CASES))
    func = ss.parse(f"""
@T.prim_func
def f(A: T.Buffer((16,), "int64"), n: T.int64, B: T.Buffer(({len(CASES)}, 16), "int64")):
    for i in {loop}:
{stores}
""")
    kernel = ss.build(func, target)
    for scalar in SCALARS:
        for found, (value, reference) in zip(kernel(DATA, scalar), CASES, strict=True):
            with np.errstate(over="ignore"):
                right = np.asarray(reference(DATA, np.int64(scalar))).astype(np.int64)
            np.testing.assert_array_equal(found, right, err_msg=f"{value}, n = {scalar}")


@pytest.mark.parametrize("target", TARGETS)
def test_conditions_and_loops_over_sums_that_wrap_around(target: str) -> None:
    """Statements that arguments guard run as NumPy says, and a loop of ``n + 1`` steps not at all."""
    func = ss.parse("""
@T.prim_func
def f(A: T.Buffer((8,), "int64"), n: T.int64, B: T.Buffer((8,), "int64")):
    for i in range(8):
        B[i] = 0
    for i in range(8):
        if n + i > n - 1:
            if A[i] + 1 > A[i]:
                B[i] = B[i] + 1
    for k in range(T.min(n + 1, 8)):
        B[k] = B[k] + 10
""")
    kernel = ss.build(func, target)
    a, i = DATA[:8], np.arange(8)
    for scalar in SCALARS:
        n = np.int64(scalar)
        with np.errstate(over="ignore"):
            right = ((n + i > n - np.int64(1)) & (a + 1 > a)).astype(np.int64) + 10 * (i < n + np.int64(1))
        np.testing.assert_array_equal(kernel(a, scalar), right, err_msg=str(scalar))


@needs_device
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32"])
def test_signed_vectors_wrap_around_in_opencl(dtype: str) -> None:
    """Sums of signed vectors are written as unsigned ones: C leaves open what signed ones do that overflow."""
    func = ss.parse(f'''
@T.prim_func
def f(A: T.Buffer((16,), "{dtype}"), B: T.Buffer((16,), "{dtype}")):
    for i in T.vectorized(16):
        B[i] = A[i] * A[i] + A[i]
''')
    assert isinstance(func, PrimFunc)
    limits = np.iinfo(dtype)
    a = np.array([limits.min, limits.max, 3, -3] * 4, dtype)
    np.testing.assert_array_equal(ss.build(func, "opencl")(a), a * a + a)
