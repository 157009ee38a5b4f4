"""When a vectorized loop may run statement by statement for all of its lanes."""

from __future__ import annotations

import numpy as np
import pytest

from stridesmith.backends.lower import lower
from stridesmith.ir.expr import Ramp
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.node import walk
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc, Store
from stridesmith.ir.target import Target

CPU = Target(threads=1, vector_bits=256, registers=16)

INDEPENDENT = {
    "each lane its own element": "B[i, v] = A[v, i] + B[i, v]",
    "tiles of each lane, over a loop inside": "for k in range(4):\n                B[v // 1, k] = A[v, k]",
    "rows that differ by the lane": "B[v, i] = B[v, 7 - i] * T.float32(2)",
    "what is read lies outside of what is written": "C[v] = C[v + 8]",
    "two statements on one element": "B[i, v] = A[i, v]\n            B[i, v] = B[i, v] + A[v, i]",
}
DEPENDENT = {
    "the next lane reads what this one writes": "C[v + 1] = C[v] + T.float32(1)",
    "this lane reads what an earlier one wrote": "C[8 - v] = C[v]",
    "two lanes write one element": "C[v + i] = A[i, v]\n            C[v] = A[v, i]",
    "a view of what is written": "D = T.decl_buffer((32,), data=C.data)\n            C[v] = D[v + 1]",
    "what is read later is written by a later lane": "C[v] = A[i, v]\n            B[i, v] = C[7 - v]",
}


def function(body: str) -> PrimFunc:
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer((8, 8)), B: T.Buffer((8, 8)), C: T.Buffer((32,))):
    for i in range(8):
        for v in T.vectorized(8):
            {body}
""")
    assert isinstance(func, PrimFunc)
    return func


def vectors(func: PrimFunc) -> int:
    """Stores to several elements at once."""
    stores = [n for n in walk(lower(func, CPU).body) if isinstance(n, Store)]
    return sum(any(isinstance(i, Ramp) for i in store.indices) for store in stores)


@pytest.mark.parametrize("case", INDEPENDENT)
def test_independent_lanes_become_vectors(case: str) -> None:
    """Where no lane meets what another one writes, every store is a vector."""
    assert vectors(function(INDEPENDENT[case]))


@pytest.mark.parametrize("case", DEPENDENT)
def test_dependent_lanes_run_one_by_one(case: str) -> None:
    """Where the order of the lanes may matter, there is no vector, and the program keeps its serial meaning."""
    func = function(DEPENDENT[case])
    assert not vectors(func)
    arrays = [np.random.default_rng(4).integers(-9, 9, b.shape).astype(np.float32) for b in func.buffers]
    expected = [a.copy() for a in arrays]
    interpret(func, *expected, strict_state=False)
    lowered = lower(func, CPU)
    from stridesmith.backends.kernel import compile_lowered, load_artifact

    bound = load_artifact(compile_lowered(lowered, CPU)).bind()
    for number, array in enumerate(arrays):
        bound.write(number, array)
    bound.run()
    for number, array in enumerate(expected):
        np.testing.assert_array_equal(bound.read(number).reshape(array.shape), array)
