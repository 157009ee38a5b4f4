"""Passes that are independent of a target: what they take away, and that the program still means the same."""

from __future__ import annotations

import numpy as np

from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.passes import transform
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.verify.rules import verify

PADDED = """
@T.prim_func
def main(x: T.Buffer((6,), "float32"), y: T.Buffer((6,), "float32")):
    p = T.alloc_buffer((2, 4), "float32")
    for a in range(2):
        for b in range(4):
            with T.block("pack"):
                va, vb = T.axis.remap("SS", [a, b])
                p[va, vb] = T.if_then_else(va * 4 + vb < 6, x[va * 4 + vb], T.undef("float32"))
    for i in range(6):
        with T.block("unpack"):
            vi = T.axis.spatial(6, i)
            T.evaluate(T.assume(y[vi] == T.float32(0)))
    for i in range(6):
        with T.block("out"):
            vi = T.axis.spatial(6, i)
            y[vi] = p[vi // 4, vi % 4] + T.float32(0)
"""


def parsed() -> PrimFunc:
    func = parse(PADDED)
    assert isinstance(func, PrimFunc)
    return func


def result(func: PrimFunc) -> np.ndarray:
    x, y = np.arange(6, dtype="float32"), np.zeros(6, "float32")
    interpret(func, x, y, strict_state=False)
    return y


def test_stores_of_undef_become_a_condition() -> None:
    """What may be anything is not stored; what is defined still is."""
    func = transform.remove_store_undef(parsed())
    verify(func)
    assert "T.undef" not in func.script() and "if " in func.script()
    np.testing.assert_array_equal(result(func), np.arange(6))


def test_assumptions_can_be_removed() -> None:
    """`remove_assume` takes every assumption and nothing else."""
    func = transform.remove_assume(transform.remove_store_undef(parsed()))
    assert "assume" not in func.script()
    np.testing.assert_array_equal(result(func), np.arange(6))


def test_simplify_decides_conditions_inside_domains() -> None:
    """A condition that the iterators' extents imply goes."""
    text = PADDED.replace("va * 4 + vb < 6", "va * 4 + vb < 8")
    func = parse(text)
    assert isinstance(func, PrimFunc)
    assert "if_then_else" not in transform.simplify(func).script()
