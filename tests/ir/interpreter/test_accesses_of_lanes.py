"""Loads of what lies within a buffer, and fences: what they mean, how they are written, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import stridesmith as ss
from stridesmith.ir.expr import Buffer, Call, Load, Ramp, const
from stridesmith.ir.functions import LOAD_WITHIN, SIGNAL_FENCE
from stridesmith.ir.node import walk
from stridesmith.ir.stmt import Evaluate, PrimFunc
from stridesmith.ir.type_check import TypeFault, check_types
from stridesmith.ir.verify.bounds import OutOfBounds, check_in_bounds

SHIFTED = """
@T.prim_func
def f(A: T.Buffer((6,), "float32"), B: T.Buffer((8,), "float32"), s: T.int64):
    T.evaluate(T.signal_fence())
    B[T.Ramp(0, 1, 4)] = T.load_within(A[T.Ramp(s, 1, 4)])
    for i in range(4):
        B[i + 4] = T.load_within(A[i * 3 - 2])
"""


def program() -> PrimFunc:
    func = ss.parse(SHIFTED)
    assert isinstance(func, PrimFunc)
    return func


@pytest.mark.parametrize("start", [-9, -2, 0, 2, 4, 6, 2**62])
def test_lanes_that_are_not_in_the_buffer_are_zero(start: int) -> None:
    """Wherever a vector begins, and of single elements as well; nothing outside is read."""
    a, b = np.arange(1, 7, dtype=np.float32), np.full(8, np.nan, np.float32)
    ss.interpret(program(), a, b, start)
    lanes = [a[n] if 0 <= n < 6 else 0 for n in range(start, start + 4)]
    np.testing.assert_array_equal(b, [*lanes, 0, a[1], a[4], 0])


def test_they_are_written_as_they_are_read() -> None:
    """The script is invertible, and has both."""
    func = program()
    assert ss.parse(func.script()) == func
    assert "T.evaluate(T.signal_fence())" in func.script() and "T.load_within(A[i * 3 - 2])" in func.script()
    names = [n.name for n in walk(func) if isinstance(n, Call)]
    assert names.count(LOAD_WITHIN) == 2 and names.count(SIGNAL_FENCE) == 1


def test_no_index_of_theirs_needs_a_proof() -> None:
    """A plain load at the same place is out of bounds."""
    check_in_bounds(program())
    plain = ss.parse(SHIFTED.replace("T.load_within(A[i * 3 - 2])", "A[i * 3 - 2]"))
    assert isinstance(plain, PrimFunc)
    with pytest.raises(OutOfBounds, match="is outside at i = 0"):
        check_in_bounds(plain)


def test_elements_of_several_lanes_are_refused() -> None:
    """Of such it would not be said which lanes lie within."""
    wide = Load(Buffer("V", (4,), "float32x4"), (const(1),))
    with pytest.raises(TypeFault, match="elements of several lanes, which lie within a buffer or not"):
        check_types(Call(LOAD_WITHIN, (wide,), wide.dtype))


def test_what_is_no_load_is_refused() -> None:
    """And a load of another type than the call's."""
    load = Load(Buffer("A", (8,)), (Ramp(const(0), const(1), 4),))
    for call in (Call(LOAD_WITHIN, (const(1.0),), "float32"), Call(LOAD_WITHIN, (load,), "float32")):
        with pytest.raises(TypeFault, match="must have one load of its own type"):
            check_types(call)


def test_a_fence_takes_no_arguments() -> None:
    """It is a statement, as a barrier is."""
    with pytest.raises(TypeFault, match="`signal_fence` takes no arguments"):
        check_types(Call(SIGNAL_FENCE, (const(1),), "int32"))
    assert Evaluate(Call(SIGNAL_FENCE, (), "int32")).value.dtype == "int32"
