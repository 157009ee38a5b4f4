"""Fences stand where more has been loaded than registers hold beside a tile, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from legal_programs import agree

from stridesmith.backends.legal.reliefs import reliefs
from stridesmith.backends.legal.written_out import FENCE
from stridesmith.backends.lower import Lowered
from stridesmith.backends.render.llvm_module import generate
from stridesmith.ir.expr import Binary, Broadcast, Buffer, Call, Expr, Load, Ramp, Var, binary, const, if_then_else
from stridesmith.ir.functions import MASKED_LOAD
from stridesmith.ir.stmt import Allocate, Evaluate, For, If, Seq, Stmt, Store, loops, seq, walk_stmts
from stridesmith.ir.target import Target

K, KH, I, P = Var("k"), Var("kh"), Var("i"), Var("p")  # noqa: E741
LANES, ROWS, STEPS, TAPS = 4, 5, 6, 3
CPU = Target(isa="sse2", vector_bits=128, registers=8)
X, W = Buffer("x", ((ROWS + TAPS - 1) * STEPS,)), Buffer("w", (TAPS * STEPS * LANES,))
Y = Buffer("y", (ROWS * LANES,))
FENCED = 'fence syncscope("singlethread") seq_cst'


def pixel() -> Expr:
    return X[(I + KH) * STEPS + K]


def convolution(value: Expr, taps: str = "unrolled", cond: Expr | None = None) -> Stmt:
    """``y[i, 0:4] = sum(x[i + kh, k] * w[kh, k, 0:4])`` in a tile of five registers, three of eight left."""
    tile = Buffer("tile", (ROWS * LANES,), scope="local")
    place = (Ramp(I * LANES, const(1), LANES),)
    weights = (Ramp(KH * (STEPS * LANES) + K * LANES, const(1), LANES),)
    product = Broadcast(value, LANES) * Load(W, weights)
    update: Stmt = Store(tile, place, Load(tile, place) + product)
    update = loops([(I, ROWS)], update if cond is None else If(cond, update), "unrolled")
    clear = loops([(I, ROWS)], Store(tile, place, Broadcast(const(0.0), LANES)), "unrolled")
    copy = loops([(I, ROWS)], Store(Y, place, Load(tile, place)), "unrolled")
    return Allocate(tile, seq([clear, For(K, const(STEPS), For(KH, const(TAPS), update, taps)), copy]))


def program(body: Stmt, *params: Buffer) -> Lowered:
    return Lowered("program", params or (X, W, Y), (), body)


def fences(body: Stmt, target: Target = CPU, *params: Buffer) -> int:
    """The fences of the code, each loop written out."""
    return generate(program(body, *params), target).count(FENCED)


def test_a_fence_stands_between_iterations_that_load_more_than_fits() -> None:
    """Between the taps, of which each loads five pixels and a vector; none behind the last one."""
    made = reliefs(convolution(pixel()), CPU)
    assert [s.cond for s in walk_stmts(made) if isinstance(s, If) and s.then == Evaluate(FENCE)] == [KH > 0]
    assert fences(convolution(pixel())) == TAPS - 1


@pytest.mark.parametrize("pairs", [True, False])
def test_words_of_dot_products_are_loaded_again_as_floats_are(pairs: bool) -> None:
    """They are in vectors; integers that nobody multiplies so are not counted."""
    words, weights = Buffer("x", X.shape, "int32"), Buffer("w", W.shape, "int32")
    tile = Buffer("tile", (ROWS * LANES,), "float32" if pairs else "int32", scope="local")
    place = (Ramp(I * LANES, const(1), LANES),)
    a = Broadcast(Load(words, ((I + KH) * STEPS + K,)), LANES)
    b = Load(weights, (Ramp(KH * (STEPS * LANES) + K * LANES, const(1), LANES),))
    own = Load(tile, place)
    value = Call("dot_2x16packed_bf", (a, b, own), own.dtype) if pairs else own + a * b
    update = For(
        K, const(STEPS), For(KH, const(TAPS), loops([(I, ROWS)], Store(tile, place, value), "unrolled"), "unrolled")
    )
    made = reliefs(Allocate(tile, update), CPU)
    fenced = [s.cond for s in walk_stmts(made) if isinstance(s, If) and s.then == Evaluate(FENCE)]
    assert fenced == ([KH > 0] if pairs else [])


@pytest.mark.parametrize(
    ("body", "target"),
    [
        (convolution(pixel()), replace(CPU, registers=32)),
        (convolution(pixel(), "serial"), CPU),
        (convolution(X[KH]), replace(CPU, registers=9)),
        (convolution(pixel(), cond=K < 3), CPU),
        (convolution(if_then_else(K > 2, pixel(), const(0.0))), CPU),
        (convolution(pixel()), replace(CPU, kind="opencl")),
    ],
    ids=["all fits", "a loop of its own", "one pixel", "known in a branch", "known in a side", "not a CPU"],
)
def test_there_is_none_where_it_does_not_help(body: Stmt, target: Target) -> None:
    """The program stays as it is: nothing is kept over a loop, nor out of a condition."""
    assert reliefs(body, target) is body


@pytest.mark.parametrize("cond", [K * I < 30, K + I >= 0], ids=["less", "not less"])
def test_a_condition_that_loops_decide_hides_nothing(cond: Expr) -> None:
    """What is loaded below it counts, as there is no branch in the code."""
    assert fences(convolution(pixel(), cond=cond)) == TAPS - 1


def test_a_store_forgets_what_was_loaded_before() -> None:
    """Each iteration loads from memory that it then writes: the next one finds nothing there."""
    tile, out = Buffer("tile", (LANES,), scope="local"), Buffer("y", (64,))
    reads = [Store(tile, (const(n),), out[KH * 16 + n]) for n in range(LANES)]
    writes = Store(out, (KH * 16,), const(0.0))
    body = Allocate(tile, For(KH, const(TAPS), Seq((*reads, writes)), "unrolled"))
    keeps = Allocate(tile, For(KH, const(TAPS), Seq(tuple(reads)), "unrolled"))
    small = replace(CPU, registers=3)
    assert fences(keeps, small, out) == TAPS - 1 and fences(body, small, out) == 0


def test_a_tile_that_is_gone_takes_no_registers() -> None:
    """What was read of it last is not loaded: it was in registers, which are free again."""
    first, second, out = Buffer("a", (12,), scope="local"), Buffer("b", (12,), scope="local"), Buffer("y", (12,))
    fill = loops([(I, 12)], Store(first, (I,), const(1.0)), "unrolled")
    copy = loops([(I, 12)], Store(out, (I,), first[I]), "unrolled")
    update = For(KH, const(TAPS), Store(second, (const(0),), second[0] + out[KH]), "unrolled")
    body = seq([Allocate(first, seq([fill, copy])), Allocate(second, update)])
    assert fences(body, replace(CPU, registers=8), out) == 0
    assert fences(body, replace(CPU, registers=4), out) == 1


def test_they_change_no_meaning() -> None:
    """What the loops were they are with fences."""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, b.shape).astype(np.float32) for b in (X, W, Y)]
    assert agree(program(convolution(pixel())), CPU, arrays)


@pytest.mark.parametrize(("cond", "registers"), [(None, ROWS + 7 + 3), (I + KH >= 1, ROWS + 6 + 3)])
def test_masked_loads_of_one_place_count_once(cond: Expr | None, registers: int) -> None:
    """Rows that several taps read count once, and one that is outside of the input by the loops alone does not count.

    Three taps read seven rows, or six, and three weights beside a tile of five; before the last tap one row and one
    weight are still missing.
    """
    column = Binary("<", Ramp(const(0), const(1), LANES), Broadcast(const(3), LANES))
    mask: Expr = column if cond is None else Binary("and", Broadcast(cond, LANES), column)
    row = Load(X, (Ramp((I + KH) * STEPS, const(1), LANES),))
    value = Call(MASKED_LOAD, (mask, row, Broadcast(const(0.0), LANES)), row.dtype)
    tile = Buffer("tile", (ROWS * LANES,), scope="local")
    place = (Ramp(I * LANES, const(1), LANES),)
    update = Store(tile, place, Load(tile, place) + value * Broadcast(W[KH * STEPS + K], LANES))
    taps = For(KH, const(TAPS), loops([(I, ROWS)], update, "unrolled"), "unrolled")
    body = Allocate(tile, For(K, const(STEPS), taps))
    target = replace(CPU, registers=registers - 2)
    assert reliefs(body, target) is body
    made = reliefs(body, replace(target, registers=target.registers - 1))
    fenced = [s.cond for s in walk_stmts(made) if isinstance(s, If) and s.then == Evaluate(FENCE)]
    assert fenced == [binary("==", KH, 2)]
