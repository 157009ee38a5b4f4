"""Element-wise blocks in nests of their own."""

from __future__ import annotations

from draws import func_of
from expected_space import CPU

from stridesmith.space.design.stages import schedule_stage
from stridesmith.space.schedule import Schedule
from stridesmith.space.tree import extent_of, find_block, loops_above

COPIES = """
@T.prim_func
def main(a: T.Buffer((5, 32), "float64"), x: T.Buffer((5, 32), "float32"), y: T.Buffer((5, 32), "float32"),
         z: T.Buffer((5, 32), "float64")):
    for i, j in T.grid(5, 32):
        with T.block("single"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = x[vi, vj]
    for i, j in T.grid(5, 32):
        with T.block("double"):
            vi, vj = T.axis.remap("SS", [i, j])
            z[vi, vj] = a[vi, vj]
"""


def test_vectors_are_of_what_is_stored() -> None:
    """A copy fills a register with its own elements, whatever type the program's first argument has."""
    schedule, lanes = Schedule(func_of(COPIES)), []
    for block in ("single", "double"):
        schedule_stage(schedule, block, CPU)
        above = loops_above(schedule.func, find_block(schedule.func, block))
        lanes += [extent_of(loop) for loop in above if loop.kind == "vectorized"]
    assert lanes == [8, 4]
