"""``parse(script(f)) == f`` and the interpreter's meaning, on random programs."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from ir.interpreter.naive_interpreter import Misuse, run
from ir.random_programs import programs

from stridesmith.ir.interpreter.interpret import InterpreterError, interpret
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.verify.rules import verify

FEW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@FEW
@given(programs(strange=True))
def test_random_programs_survive_the_script(func: PrimFunc) -> None:
    """Printing and parsing gives an equal program, in both dialects, and it is valid."""
    verify(func)
    assert parse(func.script()) == func
    assert parse(func.script("tvm")) == func


@FEW
@given(programs())
def test_vectorised_execution_is_serial_execution(func: PrimFunc) -> None:
    """Arrays over iteration points compute what the statements compute one by one, and refuse the same misuse."""
    arrays = [np.full(b.shape, -99, np.int32) for b in func.buffers]
    try:
        expected = run(func, -99)
    except Misuse:
        try:
            interpret(func, *arrays)
        except InterpreterError:
            return
        raise AssertionError("the naive interpreter refuses what the real one runs") from None
    interpret(func, *arrays)
    for buffer, array in zip(func.buffers, arrays, strict=True):
        for point in np.ndindex(*buffer.shape):
            assert array[point] == expected[buffer.name].get(point, -99), (buffer.name, point)
