"""Programs whose extents are expressions, read and run for tests."""

from __future__ import annotations

import numpy as np

import stridesmith as ss
from stridesmith.ir.stmt import PrimFunc

MATMUL = """
@T.prim_func
def matmul(a: T.handle, m: T.int64, B: T.Buffer((m * 4, 32), "float32"), c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 32), "float32")
    C = T.match_buffer(c, (n, m * 4), "float32")
    T.assume(n <= 64 and m <= 8)
    for i, j, k in T.grid(n, m * 4, 32):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]
"""


def program(text: str = MATMUL) -> PrimFunc:
    """The program of a text."""
    func = ss.parse(text)
    assert isinstance(func, PrimFunc)
    return func


def product(func: PrimFunc, n: int, m: int) -> None:
    """Compare what the interpreter makes of `MATMUL`, or of a schedule of it, with NumPy."""
    a, b, expected = operands(n, m)
    c = np.zeros_like(expected)
    ss.interpret(func, a, m, b, c)
    np.testing.assert_array_equal(c, expected)


def operands(n: int, m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs of `MATMUL` with sums that are exact, and its result by NumPy."""
    rng = np.random.default_rng(n * 1000 + m)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((n, 32), (m * 4, 32)))
    return a, b, a @ b.T
