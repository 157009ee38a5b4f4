"""Reads of what nothing has written, compared with the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from stridesmith.ir.dataflow.instances import instances
from stridesmith.ir.dataflow.unwritten import unwritten_read
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.interpreter.memory import InterpreterError
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc

HEAD = """
@T.prim_func
def f(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8,), "float32")):
    t = T.alloc_buffer((8,), "float32")
"""

SUM = """
    for i, k in T.grid(8, 8):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            {init}
            B[vi] = B[vi] + A[vi, vk]
"""
COPY = """
    for i in range({to}):
        t[i] = A[i, 0]
    for i in range(8):
        B[i] = t[{index}]
"""
SCAN = """
    for i in range(8):
        B[i] = {value}
"""

PROGRAMS = {
    SUM.format(init="pass"): "B[0]",
    SUM.format(init="with T.init():\n                B[vi] = T.float32(0)"): None,
    COPY.format(to=8, index="7 - i"): None,
    COPY.format(to=7, index="7 - i"): "t[7]",
    COPY.format(to=4, index="i // 2"): None,
    COPY.format(to=3, index="i // 2"): "t[3]",
    SCAN.format(value="T.if_then_else(i > 0, B[i - 1], A[0, 0])"): None,
    SCAN.format(value="T.if_then_else(i > 0, B[7 - i], A[0, 0])"): "B[6]",
    SCAN.format(value="T.if_then_else(A[i, 0] > T.float32(2), B[i], A[0, 0])"): None,
}
"""Bodies, with the element whose read has no writer; in the last one what is read depends on numbers."""


@pytest.mark.parametrize(("body", "element"), PROGRAMS.items())
def test_what_is_read_before_it_is_written_is_found(body: str, element: str | None) -> None:
    """Where the interpreter fails, and nowhere else."""
    func = parse(HEAD + body)
    assert isinstance(func, PrimFunc)
    harm = unwritten_read(instances(func))
    given, result = np.ones((8, 8), np.float32), np.zeros(8, np.float32)
    if element is None:
        assert harm is None
        interpret(func, given, result)
        return
    assert harm is not None and f"`{element}` is read" in harm.reason
    with pytest.raises(InterpreterError, match="never written"):
        interpret(func, given, result)
