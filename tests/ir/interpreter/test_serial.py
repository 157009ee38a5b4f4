"""Execution over arrays of iteration points against execution statement by statement."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from ir.interpreter.integer_programs import integer_programs
from ir.interpreter.naive_interpreter import Misuse, run
from scale import scaled

from stridesmith.ir.interpreter.interpret import InterpreterError, interpret
from stridesmith.ir.interpreter.stores import Stores
from stridesmith.ir.script.parser import parse
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


SCAN = """
@T.prim_func
def main(y: T.Buffer((12, 9), "int32")):
    for i in range(12):
        for j in range(9):
            y[i, j] = i * 100 + j * j
    for i in range({rows}):
        for j in range(9):
            y[{target}] = {value}
"""


@pytest.mark.parametrize(
    ("target", "value", "rows", "steps"),
    [
        ("i, j", "y[i, j] * 3 + T.if_then_else(j > 0, y[i, j - 1], 0) * 5", 12, 9),
        ("i, j", "y[i, j] * 3 + T.if_then_else(i > 0, y[i - 1, j], 0) * 5", 12, 12),
        ("i, j", "y[i, j] + T.if_then_else(i > 0 and j > 0, y[i - 1, j - 1], 7) * 2", 12, 12),
        ("i, j", "y[i, j] + T.if_then_else(j < 8, y[i, j + 1], 1) + T.if_then_else(i > 0, y[i - 1, j], 2)", 12, 20),
        ("11 - i, 8 - j", "y[11 - i, 8 - j] * 2 + T.if_then_else(j > 0, y[11 - i, 9 - j], 4) * 3", 12, 9),
        ("i // 2, j", "y[i // 2, j] * 2 + T.if_then_else(j > 0, y[i // 2, j - 1], 0) * 3", 8, 8 * 9),
    ],
)
def test_recurrences_run_in_steps(
    target: str, value: str, rows: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What needs earlier lanes waits for them, what others still read is not overwritten, all else runs at once."""
    func = parse(SCAN.format(target=target, value=value, rows=rows))
    assert isinstance(func, PrimFunc)
    written: list[int] = []
    write = Stores._write
    monkeypatch.setattr(Stores, "_write", lambda self, nest, stmt: (written.append(nest.n), write(self, nest, stmt)))
    y = np.full((12, 9), -99, np.int32)
    interpret(func, y)
    expected = run(func, -99)["y"]
    assert {point: int(y[point]) for point in np.ndindex(y.shape)} == expected
    assert len(written) == 1 + steps and sum(written) == 12 * 9 + rows * 9
