"""Execution over arrays of iteration points against execution statement by statement."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from ir.interpreter.integer_programs import integer_programs
from ir.interpreter.naive_interpreter import Misuse, run
from scale import scaled

from stridesmith.ir.interpreter.interpret import InterpreterError, interpret
from stridesmith.ir.stmt import PrimFunc


@settings(max_examples=scaled(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(integer_programs())
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
