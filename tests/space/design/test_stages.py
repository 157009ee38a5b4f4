"""Element-wise blocks in nests of their own."""

from __future__ import annotations

import pytest
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


BYTES = """
@T.prim_func
def main(x: T.Buffer((6, {n}), "int32"), f: T.Buffer((6,), "float32"), y: T.Buffer((6, {n}), "uint8")):
    for i, j in T.grid(6, {n}):
        with T.block("finish"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = T.Cast("uint8", T.round_to_int32(T.Cast("float32", x[vi, vj]) * f[vi]))
"""


@pytest.mark.parametrize(("columns", "wanted"), [(32, [8]), (13, [8]), (7, [4]), (4, [4]), (3, [])])
def test_what_becomes_bytes_is_in_vectors_of_what_it_is_computed_in(columns: int, wanted: list[int]) -> None:
    """A register of bytes is longer than most rows; sums become bytes in lanes of 32 bits, in short rows as well."""
    schedule = Schedule(func_of(BYTES.format(n=columns)))
    schedule_stage(schedule, "finish", CPU)
    above = loops_above(schedule.func, find_block(schedule.func, "finish"))
    assert [extent_of(loop) for loop in above if loop.kind == "vectorized"] == wanted


PIXELS = """
@T.prim_func
def main(x: T.Buffer((9, 9, {n}), "{dtype}"), y: T.Buffer((11, 11, {n}), "{dtype}")):
    for h, w, c in T.grid(11, 11, {n}):
        with T.block("pad"):
            vh, vw, vc = T.axis.remap("SSS", [h, w, c])
            y[vh, vw, vc] = T.if_then_else(
                1 <= vh and vh < 10 and 1 <= vw and vw < 10, x[vh - 1, vw - 1, vc], T.{dtype}(0))
"""


@pytest.mark.parametrize(
    ("dtype", "channels", "wanted"),
    [
        ("bfloat16", 64, [16]), ("bfloat16", 12, [8]), ("bfloat16", 2, [2]), ("bfloat16", 1, []),
        ("uint8", 16, [16]), ("uint8", 3, []), ("float32", 4, []),
    ],
)  # fmt: skip
def test_pixels_of_few_narrow_channels_are_vectors(dtype: str, channels: int, wanted: list[int]) -> None:
    """A register holds more bytes than many images have channels; those are copied as one shorter vector, or a word."""
    schedule = Schedule(func_of(PIXELS.format(n=channels, dtype=dtype)))
    schedule_stage(schedule, "pad", CPU)
    above = loops_above(schedule.func, find_block(schedule.func, "pad"))
    assert [extent_of(loop) for loop in above if loop.kind == "vectorized"] == wanted
