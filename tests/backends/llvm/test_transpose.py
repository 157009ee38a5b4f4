"""Copies that turn columns into rows: squares of vectors are transposed in registers, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_programs import lowered, run

from stridesmith.backends.cpu import compile_cpu, load_cpu
from stridesmith.backends.host import host_cpu
from stridesmith.backends.lower import lower
from stridesmith.backends.render.llvm_module import generate
from stridesmith.ir.expr import Buffer, Load, Ramp, Var, const
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import For, Seq, Store
from stridesmith.ir.target import Target
from stridesmith.space.design.contiguity import square_side
from stridesmith.space.design.stages import schedule_stage
from stridesmith.space.schedule import Schedule

LANES = 8
TARGET = Target(kind="cpu", vector_bits=256, registers=16, threads=2)
A, OUT = Buffer("a", (LANES * 40,)), Buffer("out", (LANES * LANES,))
DATA = np.random.default_rng(0).standard_normal(LANES * 40).astype(np.float32)
k = Var("k")


def copy(source: Buffer, base: int, stride: int, step: int = 1, extent: int = LANES) -> For:
    """``for k: out[8 k : 8 k + 8] = source[base + step k : : stride]``, unrolled."""
    read = Load(source, (Ramp(k * step + base, const(stride), LANES),))
    return For(k, const(extent), Store(OUT, (Ramp(k * LANES, const(1), LANES),), read), "unrolled")


@pytest.mark.parametrize("stride", [LANES, 13, 40, 2])
def test_a_square_is_transposed(stride: int) -> None:
    """Each element comes to its place, read by a vector for each lane."""
    body = copy(A, 3, stride)
    got = run(body, {A: DATA}, OUT).reshape(LANES, LANES)
    want = [[DATA[3 + row * stride + column] for row in range(LANES)] for column in range(LANES)]
    np.testing.assert_array_equal(got, want)
    text = generate(lowered(body, A, OUT), TARGET)
    assert text.count(f"load <{LANES} x float>") == LANES and text.count("shufflevector") == 3 * LANES
    assert "load float" not in text


@pytest.mark.parametrize(
    "body",
    [copy(A, 0, 16, step=2), copy(A, 0, 16, extent=4), copy(OUT, 0, 1, step=8)],
    ids=["no neighbours", "no square", "no transposition"],
)
def test_what_is_no_square_is_copied_as_it_stands(body: For) -> None:
    """Lanes whose neighbours are no next iteration's, fewer iterations than lanes, and plain vectors."""
    assert "shufflevector" not in generate(lowered(body, A, OUT), TARGET)


def test_a_square_within_one_memory_keeps_the_order_of_its_loop() -> None:
    """Where an iteration may read what an earlier one wrote, the iterations run one after the other."""
    j = Var("j")
    fill = For(j, const(LANES * LANES), Store(OUT, (j,), A[j]))
    body = For(k, const(LANES), Store(OUT, (Ramp(k * LANES, const(1), LANES),),
               Load(OUT, (Ramp(k, const(LANES), LANES),))), "unrolled")  # fmt: skip
    want = DATA[: LANES * LANES].copy()
    for number in range(LANES):
        want[number * LANES : (number + 1) * LANES] = want[number::LANES].copy()
    np.testing.assert_array_equal(run(Seq((fill, body)), {A: DATA}, OUT), want)


PROGRAM = """
@T.prim_func
def f(x: T.Buffer(({rows}, {columns}), "float32"), y: T.Buffer(({columns}, {rows}), "float32")):
    for i, j in T.grid({columns}, {rows}):
        with T.block("copy"):
            a, b = T.axis.remap("SS", [i, j])
            y[a, b] = {value}
"""


def test_the_side_of_squares() -> None:
    """All lanes where they divide or the row is long, else what divides, four where nothing does, or what fits."""
    written = np.array([3, 4, 6, 8, 12, 14, 16, 24, 30, 48, 63, 65])
    assert square_side(100, written, 16).tolist() == [0, 4, 4, 8, 4, 4, 16, 8, 4, 16, 4, 16]
    assert square_side(np.array([3, 4, 7, 9, 16]), 64, 16).tolist() == [0, 4, 4, 8, 16]
    assert int(square_side(8, 8, 2)) == 0


@pytest.mark.parametrize(("rows", "columns"), [(16, 24), (37, 29), (8, 8), (100, 3)])
def test_a_transposing_stage_runs_in_squares(rows: int, columns: int) -> None:
    """Its nest is cut in squares where one fits, ragged edges apart, and the result is the transposed input."""
    schedule = Schedule(parse(PROGRAM.format(rows=rows, columns=columns, value="x[b, a]")))
    schedule_stage(schedule, "copy", TARGET)
    small = lower(schedule.func, TARGET)
    assert ("shufflevector" in generate(small, TARGET)) is (min(rows, columns) > 3)
    bound = load_cpu(compile_cpu(lower(schedule.func, host_cpu()), host_cpu())).bind()
    data = np.random.default_rng(1).standard_normal((rows, columns)).astype(np.float32)
    bound.write(0, data)
    bound.time(1)
    np.testing.assert_array_equal(bound.read(1).reshape(columns, rows), data.T)


def test_a_stage_that_computes_is_not_cut() -> None:
    """What is no plain copy, or already contiguous, has no squares."""
    for value in ("x[b, a] * T.float32(2)", "x[a % 16, b % 24]"):
        schedule = Schedule(parse(PROGRAM.format(rows=24, columns=24, value=value)))
        schedule_stage(schedule, "copy", TARGET)
        assert not any(step.name == "unroll" for step in schedule.trace)
