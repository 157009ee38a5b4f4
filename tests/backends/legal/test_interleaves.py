"""Copies that lay rows side by side: vectors and shuffles that mean what the copy means; other copies stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stridesmith import configs
from stridesmith.backends.cpu import compile_cpu, load_cpu
from stridesmith.backends.host import host_cpu
from stridesmith.backends.legal.program import as_function, legal
from stridesmith.backends.lower import Lowered, lower
from stridesmith.ir.expr import Buffer, Const, Expr, Load, Ramp, Shuffle, Var, const
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.node import walk
from stridesmith.ir.numbers import bfloat16_bits
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import For, PrimFunc, Seq, Store
from stridesmith.space.design.stages import schedule_stage
from stridesmith.space.schedule import Schedule

CPU = configs.target("cpu-avx512")
TYPES = {"bfloat16": "uint16", "int8": "int8", "float32": "float32", "uint8": "uint8"}
Q = Var("q")


def copy(count: int, lanes: int, dtype: str, row: Expr | None = None, step: int | None = None) -> Lowered:
    """``B[q + count * l] = A[row(q) + l]``: `count` rows of 70 elements side by side."""
    a, b = Buffer("a", (70 * count,), dtype), Buffer("b", (lanes * count + 8,), dtype)
    read = Load(a, (Ramp(Q * 70 + 3 if row is None else row, const(1), lanes),))
    write = Store(b, (Ramp(Q + 5, const(count if step is None else step), lanes),), read)
    return Lowered("program", (a, b), (), For(Q, const(count), write, "unrolled"))


def shuffles(lowered: Lowered) -> int:
    return sum(isinstance(n, Shuffle) for n in walk(lowered.body))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("count", "lanes"), [(2, 4), (2, 16), (2, 32), (4, 4), (4, 16), (8, 8)])
def test_rows_side_by_side_are_shuffles(count: int, lanes: int, dtype: str) -> None:
    """The legal program, and its code here, copy what the lowered one does, by log2(count) shuffles for each vector."""
    lowered = copy(count, lanes, dtype)
    made = legal(lowered, CPU)
    assert shuffles(made) == count * (count.bit_length() - 1) and shuffles(lowered) == 0
    rng = np.random.default_rng(0)
    data = rng.integers(0, 100, lowered.params[0].shape).astype(TYPES[dtype])
    rows = data.reshape(count, 70)[:, 3 : 3 + lanes]
    want = np.zeros(lowered.params[1].shape, TYPES[dtype])
    want[5 : 5 + lanes * count] = rows.T.reshape(-1)
    for program in (lowered, made):
        got = np.zeros_like(want)
        interpret(as_function(program), data, got, strict_state=False)
        np.testing.assert_array_equal(got, want)
    bound = load_cpu(compile_cpu(lowered, host_cpu())).bind()
    bound.write(0, data)
    bound.write(1, np.zeros_like(want))
    bound.run()
    np.testing.assert_array_equal(bound.read(1), want)


@pytest.mark.parametrize(
    "lowered",
    [copy(3, 8, "int8"), copy(2, 8, "int8", step=3), copy(2, 8, "int8", step=1), copy(4, 8, "int8", step=2)],
    ids=["three rows", "a gap", "one behind the other", "fewer steps than rows"],
)
def test_other_copies_stay(lowered: Lowered) -> None:
    assert shuffles(legal(lowered, CPU)) == 0


def test_a_copy_within_one_memory_stays() -> None:
    """What a row has written may be read by the next."""
    lowered = copy(2, 8, "int8")
    a = lowered.params[0]
    loop = lowered.body
    assert isinstance(loop, For) and isinstance(loop.body, Store)
    within = replace(lowered, params=(a,), body=replace(loop, body=replace(loop.body, buffer=a)))
    assert shuffles(legal(within, CPU)) == 0


@pytest.mark.parametrize("steps", [2, 4])
def test_a_stage_of_a_dot_product_is_scheduled_so(steps: int) -> None:
    """Rows of a matrix go side by side in vectors, on all threads: two of bfloat16, or four of bytes, fill a word."""
    kind = {2: "bfloat16", 4: "int8"}[steps]
    func = parse(f"""
@T.prim_func
def pack(b: T.Buffer((24, 96), "{kind}"), p: T.Buffer((2, {24 // steps}, 48, {steps}), "{kind}")):
    for j, k, i, r in T.grid(2, {24 // steps}, 48, {steps}):
        with T.block("pack"):
            vj, vk, vi, vr = T.axis.remap("SSSS", [j, k, i, r])
            p[vj, vk, vi, vr] = b[vk * {steps} + vr, vj * 48 + vi]
""")
    assert isinstance(func, PrimFunc)
    sch = Schedule(func)
    schedule_stage(sch, "pack", CPU, inside=2)
    made = legal(lower(sch.func, CPU), CPU)
    assert shuffles(made) and not any(isinstance(n, Ramp) and n.stride != Const(1) for n in walk(made.body))
    data = np.random.default_rng(0).integers(0, 128, (24, 96)).astype(TYPES[kind])
    got = np.zeros(made.params[1].shape, TYPES[kind])
    interpret(as_function(made), data.reshape(-1), got, strict_state=False)
    want = data.reshape(24 // steps, steps, 2, 48).transpose(2, 0, 3, 1)
    np.testing.assert_array_equal(got, want.reshape(-1))


BORDER = """
@T.prim_func
def main(x: T.Buffer((8, 5, {w}), "{dtype}"), y: T.Buffer(({groups}, 7, {padded}, {count}), "{made}")):
    for c, h, w, q in T.grid({groups}, 7, {padded}, {count}):
        with T.block("copy"):
            vc, vh, vw, vq = T.axis.remap("SSSS", [c, h, w, q])
            y[vc, vh, vw, vq] = T.Cast("{made}", T.if_then_else(
                1 <= vh and vh < 6 and {pad} <= vw and vw < {end}, x[vc * {count} + vq, vh - 1, vw - {pad}],
                T.{dtype}({number})))
"""


@pytest.mark.parametrize(("width", "pad"), [(26, 1), (13, 3), (64, 1), (45, 0), (18, 8)])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "bfloat16", "float32"])
def test_rows_with_a_border_are_laid_side_by_side(dtype: str, width: int, pad: int) -> None:
    """A stage around an image is of vectors and shuffles but for elements of the border; no other element changes.

    Floats become bfloat16.
    """
    count, number = (4, 7) if dtype.endswith("int8") else (2, 0)
    made_of = "bfloat16" if dtype == "float32" else dtype
    text = BORDER.format(
        w=width, padded=width + 2 * pad, pad=pad, end=width + pad, dtype=dtype, made=made_of, count=count,
        groups=8 // count, number=number,
    )  # fmt: skip
    func = parse(text)
    assert isinstance(func, PrimFunc)
    schedule = Schedule(func)
    schedule_stage(schedule, "copy", CPU, inside=2)
    lowered = lower(schedule.func, CPU)
    made = legal(lowered, CPU)
    assert shuffles(made)
    scattered = [n for n in walk(made.body) if isinstance(n, Store) and isinstance(n.indices[0], Ramp)
                 and n.indices[0].stride != const(1)]  # fmt: skip
    assert not scattered
    x = np.random.default_rng(width).integers(0, 100, (8, 5, width)).astype(TYPES[dtype])
    padded = np.pad(x, ((0, 0), (1, 1), (pad, pad)), constant_values=number)
    want = padded.reshape(8 // count, count, 7, width + 2 * pad).transpose(0, 2, 3, 1)
    want = bfloat16_bits(want) if dtype == "float32" else want
    got = np.zeros(want.size, want.dtype)
    interpret(as_function(made), x.reshape(-1), got, strict_state=False)
    np.testing.assert_array_equal(got.reshape(want.shape), want)
    bound = load_cpu(compile_cpu(lower(schedule.func, host_cpu()), host_cpu())).bind()
    bound.write(0, x)
    bound.run()
    np.testing.assert_array_equal(bound.read(1).reshape(want.shape), want)


def test_stores_to_one_place_stay_in_their_order() -> None:
    """Of two stores that may meet in an element the second one wins, as in the loop."""
    a, b = Buffer("a", (300,), "int8"), Buffer("b", (80,), "int8")

    def row(start: int) -> Store:
        return Store(b, (Ramp(Q + start, const(4), 4),), Load(a, (Ramp(Q * 70 + start, const(1), 4),)))

    for starts, count in (((0, 16), 8 * 2), ((0, 8), 0)):
        loop = For(Q, const(4), Seq(tuple(row(start) for start in starts)), "unrolled")
        assert shuffles(legal(Lowered("program", (a, b), (), loop), CPU)) == count


QUANTISED = """
@T.prim_func
def main(x: T.Buffer((3, 9, 37), "float32"), s: T.Buffer((1,), "float32"), y: T.Buffer((11, 39, 4), "uint8")):
    for h, w, q in T.grid(11, 39, 4):
        with T.block("copy"):
            vh, vw, vq = T.axis.remap("SSS", [h, w, q])
            y[vh, vw, vq] = T.if_then_else(
                1 <= vh and vh < 10 and 1 <= vw and vw < 38 and vq < 3,
                T.Cast("uint8", T.round_to_int32(T.max(T.min(x[vq, vh - 1, vw - 1] * s[0], T.float32(255)),
                T.float32(0)))), T.uint8(9))
"""


def test_rows_are_quantised_on_their_way() -> None:
    """Three channels of floats become the bytes of a pixel, and a number the fourth, in vectors of floats."""
    func = parse(QUANTISED)
    assert isinstance(func, PrimFunc)
    schedule = Schedule(func)
    schedule_stage(schedule, "copy", CPU, inside=2)
    lowered = lower(schedule.func, CPU)
    made = legal(lowered, CPU)
    assert shuffles(made)
    assert not [n for n in walk(made.body) if isinstance(n, Store) and isinstance(n.indices[0], Ramp)
                and n.indices[0].stride != const(1)]  # fmt: skip
    x = np.random.default_rng(0).uniform(-3, 30, (3, 9, 37)).astype(np.float32)
    want = np.full((11, 39, 4), 9, np.uint8)
    want[1:10, 1:38, :3] = np.rint(np.clip(x * np.float32(10), 0, 255)).astype(np.uint8).transpose(1, 2, 0)
    got = np.zeros(want.size, np.uint8)
    interpret(as_function(made), x.reshape(-1), np.full(1, 10, np.float32), got, strict_state=False)
    np.testing.assert_array_equal(got.reshape(want.shape), want)
    bound = load_cpu(compile_cpu(lower(schedule.func, host_cpu()), host_cpu())).bind()
    bound.write(0, x)
    bound.write(1, np.full(1, 10, np.float32))
    bound.run()
    np.testing.assert_array_equal(bound.read(2).reshape(want.shape), want)
