"""Programs whose parameters have their dimensions in another order go along them in that order."""

from __future__ import annotations

import numpy as np

import stridesmith as ss
from stridesmith.ir.stmt import PrimFunc
from stridesmith.models.ranges.reordering import reordered

BORDERED = """
@T.prim_func
def sums(x_handle: T.handle, y_handle: T.handle):
    n = T.int64()
    x = T.match_buffer(x_handle, ({x}), "float32")
    y = T.match_buffer(y_handle, ({y}), "float32")
    padded = T.alloc_buffer(({padded}), "float32")
    total = T.alloc_buffer(({y}), "float32")
    for {ij} in T.grid({padded}):
        with T.block("padded"):
            {vij} = T.axis.remap("SS", [{ij}])
            padded[{vij}] = T.if_then_else(1 <= vj and vj < n + 1, x[{xij}], T.float32(0))
    for {kl}, r in T.grid({y}, 3):
        with T.block("total"):
            {vkl}, vr = T.axis.remap("SSR", [{kl}, r])
            with T.init():
                total[{vkl}] = T.float32(0)
            total[{vkl}] = total[{vkl}] + padded[{pkl}]
    for {kl} in T.grid({y}):
        with T.block("y"):
            {vkl} = T.axis.remap("SS", [{kl}])
            y[{vkl}] = T.max(total[{vkl}], T.float32(0))
"""


def program(turned: bool) -> PrimFunc:
    """Sums of three neighbours of 5 rows, below 0 at 0; rows last where it is `turned`."""

    def both(first: str, second: str) -> str:
        return f"{second}, {first}" if turned else f"{first}, {second}"

    func = ss.parse(BORDERED.format(
        x=both("5", "n"), y=both("5", "n"), padded=both("5", "n + 2"), ij=both("i", "j"), vij=both("vi", "vj"),
        xij=both("vi", "vj - 1"), kl=both("k", "l"), vkl=both("vk", "vl"), pkl=both("vk", "vl + vr"),
    ))  # fmt: skip
    assert isinstance(func, PrimFunc)
    return func


def test_blocks_temporaries_and_loops_follow_the_parameters() -> None:
    """Borders lie as what they are read from, sums as what is made of them, and loops go along what they store."""
    plain, turned = program(False), program(True)
    assert reordered(plain, ((1, 0), (1, 0))) == turned
    assert reordered(plain, (None, None)) == plain
    half = reordered(plain, (None, (1, 0)))
    x = np.random.default_rng(0).integers(-4, 5, (5, 7)).astype(np.float32)
    results = [np.zeros(shape, np.float32) for shape in ((5, 7), (7, 5), (7, 5))]
    for func, given, result in zip((plain, turned, half), (x, np.ascontiguousarray(x.T), x), results, strict=True):
        ss.interpret(func, given, result)
    np.testing.assert_array_equal(results[0], results[1].T)
    np.testing.assert_array_equal(results[0], results[2].T)
