"""decompose_padding: a border of numbers and what it is around are written by nests of their own."""

from __future__ import annotations

import numpy as np
import pytest
from draws import func_of
from goldens.execute import same_results

import stridesmith as ss
from stridesmith.ir.verify.rules import verify
from stridesmith.space.schedule import Schedule, ScheduleError, Trace

PADDED = """
@T.prim_func
def main(x: T.Buffer((14, 14), "float32"), y: T.Buffer((16, 16), "float32"), z: T.Buffer((16,), "float32")):
    for i, j in T.grid(16, 16):
        with T.block("pad"):
            vi, vj = T.axis.remap("SS", [i, j])
            {store}
{beside}    for k in range(16):
        with T.block("row"):
            vk = T.axis.spatial(16, k)
            z[vk] = y[vk, 3]
"""
STORE = "y[vi, vj] = T.if_then_else(1 <= vi and vi < 15 and 1 <= vj and vj < 15, x[vi - 1, vj - 1], T.float32(0))"


def padded(store: str = STORE, beside: str = "") -> ss.PrimFunc:
    return func_of(PADDED.format(store=store, beside=beside))


@pytest.mark.parametrize("loop", ["i", "j"])
def test_a_border_is_written_by_a_nest_of_its_own(loop: str) -> None:
    """From either loop on; the trace replays, and loops shrink to what is inside."""
    func = padded()
    sch = Schedule(func)
    assert sch.decompose_padding("pad", loop) == "pad_pad_const"
    verify(sch.func)
    same_results(func, sch.func)
    assert Trace.from_json(sch.trace.to_json()).replay(func).func == sch.func
    sch.reduce_loop_extents("pad")
    same_results(func, sch.func)
    x = np.arange(196, dtype="float32").reshape(14, 14)
    y, z = np.zeros((16, 16), "float32"), np.zeros(16, "float32")
    ss.interpret(sch.func, x, y, z)
    np.testing.assert_array_equal(y, np.pad(x, 1))


@pytest.mark.parametrize(
    ("store", "beside", "loop", "reason"),
    [("y[vi, vj] = x[vi % 14, vj % 14]", "", "i", "(1) block `pad` is not one store"),
     ("y[vi, vj] = T.if_then_else(vi < 14 and vj < 14, x[vi, vj], x[0, 0])", "", "i",
      "(1) block `pad` is not one store"),
     (STORE, "        z[i] = 0.0\n", "i", "(2) block `pad` does not stand alone below loop `i`"),
     (STORE, "", "k", "(2) block `pad` does not stand alone below loop `k`"),
     ("y[vi, 0] = T.if_then_else(vj < 14 and vi < 14, x[vi, vj], T.float32(0))", "", "i",
      "(3) block `pad` may store twice to one element of `y`"),
     ("y[vi, vj] = T.if_then_else(vi > 0 and vj < 14, y[vi - 1, vj], T.float32(0))", "", "i",
      "(4) `y` is loaded below loop `i`")],
)  # fmt: skip
def test_each_condition_is_asked_for(store: str, beside: str, loop: str, reason: str) -> None:
    """With its number and its reason."""
    with pytest.raises(ScheduleError) as caught:
        Schedule(padded(store, beside)).decompose_padding("pad", loop)
    assert reason in str(caught.value)
