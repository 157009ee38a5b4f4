"""rfactor: parts and final sum give what the reduction gave, whatever its init, and refuse what they cannot cover."""

from __future__ import annotations

import numpy as np
import pytest

from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.verify.rules import verify
from stridesmith.space.schedule import Schedule, ScheduleError

REDUCTION = """
@T.prim_func
def main(x: T.Buffer((6, 9), "{dtype}"), y: T.Buffer((6,), "{dtype}")):
    for i, k in T.grid(6, 9):
        with T.block("reduce"):
            vi, vk = T.axis.remap("SR", [i, k])
            {where}
            with T.init():
                y[vi] = T.{dtype}({init})
            y[vi] = {update}
"""
SUM = "y[vi] + x[vi, vk]"


def text(update: str = SUM, init: str = "0", dtype: str = "float32", where: str = "T.where(i < 6)") -> str:
    return REDUCTION.format(update=update, init=init, dtype=dtype, where=where)


def schedule(source: str) -> Schedule:
    func = parse(source)
    assert isinstance(func, PrimFunc)
    return Schedule(func)


def result(func: PrimFunc) -> np.ndarray:
    rng = np.random.default_rng(5)
    x, y = (rng.integers(-4, 5, b.shape).astype(b.dtype) for b in func.buffers)
    interpret(func, x, y)
    return y


@pytest.mark.parametrize("factor", [None, 2, 4, 9])
@pytest.mark.parametrize(
    "source",
    [
        text(),
        text(init="3"),
        text("y[vi] * x[vi, vk]", "2"),
        text("T.max(y[vi], x[vi, vk])", "-1"),
        text("T.min(y[vi], x[vi, vk])", "7", "int32"),
        text("T.max(y[vi], x[vi, vk])", "0", "int8"),
    ],
)
def test_parts_begin_with_the_neutral_element(source: str, factor: int | None) -> None:
    """The init counts once, also when every part is a single element."""
    sch = schedule(source)
    part = "k" if factor is None else sch.split("k", [None, factor])[1]
    assert sch.rfactor(part, -1) == "reduce_rf"
    verify(sch.func)
    np.testing.assert_array_equal(result(sch.func), result(schedule(source).func))


def test_a_point_that_does_not_run_is_not_written() -> None:
    """Condition (4): the final sum would store where the program left the element alone."""
    sch = schedule(text(where="T.where(i < 5)"))
    with pytest.raises(ScheduleError, match=r"\(4\) block `reduce` does not run at {'vi': 5}"):
        sch.rfactor("k", 0)


def test_a_reduction_that_shares_its_nest_stays() -> None:
    """Condition (1): a later block of the nest needs the result in the same iteration."""
    source = (
        text()
        + """        with T.block("use"):
            vi = T.axis.spatial(6, i)
            y[vi] = y[vi] * T.float32(2)
"""
    )
    with pytest.raises(ScheduleError, match=r"\(1\)"):
        schedule(source).rfactor("k", 0)


def test_factor_axis_is_a_place() -> None:
    """The axis of the parts lies in the buffer of parts."""
    with pytest.raises(ScheduleError, match=r"factor_axis must lie in \[-2, 2\), but got 2"):
        schedule(text()).rfactor("k", 2)


@pytest.mark.parametrize(("name", "start"), [("and", -1), ("or", 0), ("xor", 0)])
def test_operations_on_bits_are_reductions(name: str, start: int) -> None:
    """Their parts begin with what leaves everything as it is, and are combined by the operation itself."""
    source = text(f"T.bitwise_{name}(y[vi], x[vi, vk])", str(start), "int32", "T.where(T.bool(True))")
    sch = schedule(source)
    outer, _ = sch.split("k", [3, None])
    part = sch.rfactor(outer, 0)
    verify(sch.func)
    assert sch.func.script().count(f"= T.int32({start})") == 2 and part != "reduce"
    np.testing.assert_array_equal(result(sch.func), result(schedule(source).func))
