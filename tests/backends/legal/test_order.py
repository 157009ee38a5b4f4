"""Which unrolled loop is written outermost, and when nothing may move."""

import numpy as np
import pytest
from cpu_programs import matmul_tile, run

from stridesmith.backends import cpu
from stridesmith.backends.legal.order import best_order
from stridesmith.ir.expr import Broadcast, Buffer, Load, Ramp, Var, const
from stridesmith.ir.stmt import For, If, Seq, Store, loops
from stridesmith.ir.target import Target

i, j, k = Var("i"), Var("j"), Var("k")
TILE, A, B = Buffer("tile", (512,), scope="local"), Buffer("a", (512,)), Buffer("b", (512,))


def nest(rows, vectors, index=None, value=None):
    """``tile[i, j] += a[i] * b[j]`` unrolled, j a vector of 8."""
    index = Ramp(i * (vectors * 8) + j * 8, const(1), 8) if index is None else index
    if value is None:
        value = Load(TILE, (index,)) + Broadcast(A[i], 8) * Load(B, (Ramp(j * 8, const(1), 8),))
    return loops([(i, rows), (j, vectors)], Store(TILE, (index,), value), "unrolled")


def order(stmt):
    names = []
    while isinstance(stmt, For):
        names.append(stmt.var.name)
        stmt = stmt.body
    return names


@pytest.mark.parametrize(
    ("rows", "vectors", "expected"),
    [(6, 2, "ij"), (3, 4, "ji"), (2, 6, "ji"), (4, 4, "ij"), (1, 9, "ji"), (14, 2, "ij")],
)
def test_fewest_values_alive(rows, vectors, expected):
    """The loop with more iterations goes outermost; on a tie the program's order stays."""
    assert "".join(order(best_order(nest(rows, vectors)))) == expected


def test_three_loops_count_what_each_value_depends_on():
    """Rows in two loops of 2 and 3 are six values: four vectors stay alive rather than them."""
    index = Ramp((i * 3 + k) * 32 + j * 8, const(1), 8)
    value = Load(TILE, (index,)) + Broadcast(A[i * 3 + k], 8) * Load(B, (Ramp(j * 8, const(1), 8),))
    stmt = loops([(i, 2), (k, 3), (j, 4)], Store(TILE, (index,), value), "unrolled")
    assert best_order(stmt) == stmt


def test_nothing_moves_where_order_may_matter():
    """Overlapping stores, a read of a neighbour, a second statement, a serial loop: the order stays."""
    vector = Load(B, (Ramp(j * 8, const(1), 8),)) * Broadcast(A[i], 8)
    overlapping = nest(3, 4, index=Ramp(i * 8 + j * 8, const(1), 8), value=vector)
    half = nest(3, 4, index=Ramp(i * 32 + j * 4, const(1), 8), value=vector)
    neighbour = nest(3, 4, value=Load(TILE, (Ramp(i * 32 + j * 8 - 8, const(1), 8),)) + vector)
    one = Store(TILE, (Ramp(i * 32 + j * 8, const(1), 8),), vector)
    two = loops([(i, 3), (j, 4)], Seq((one, one)), "unrolled")
    serial = For(i, const(3), For(j, const(4), one), "unrolled")
    quotient = nest(3, 4, index=Ramp(i * 32 + (j // 2) * 8, const(1), 8), value=vector)
    for stmt in (overlapping, half, neighbour, two, serial, quotient):
        assert best_order(stmt) is stmt


def test_a_condition_is_tested_once_for_what_it_does_not_depend_on():
    """``for i: for j: if c(j): S`` becomes ``for j: if c(j): for i: S``; a condition on both loops stays inside."""
    store = Store(B, (i * 4 + j,), A[i])
    guarded = loops([(i, 3), (j, 4)], If(k + j < 7, store), "unrolled")
    assert best_order(guarded) == loops([(j, 4)], If(k + j < 7, loops([(i, 3)], store, "unrolled")), "unrolled")
    both = loops([(i, 3), (j, 4)], If(i + j < 4, store), "unrolled")
    loaded = loops([(i, 3), (j, 4)], If(A[j] < 4.0, store), "unrolled")
    assert best_order(both) is both and best_order(loaded) is loaded
    out = run(For(k, const(6), guarded), {A: np.arange(512)}, B)
    assert np.isnan(out[12:]).all()
    np.testing.assert_array_equal(out[:12], np.repeat(np.arange(3), 4))


@pytest.mark.parametrize(("rows", "columns"), [(3, 32), (2, 48), (1, 64), (6, 16)])
def test_reordered_tiles_compute_the_same(rows, columns):
    """A tile that is written in the other order gives the same product."""
    program = matmul_tile(rows, columns, 19, 8)
    bound = cpu.load_cpu(cpu.compile_cpu(program, Target())).bind()
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (4 * rows, 19)).astype(np.float32)
    b = rng.integers(-4, 5, (19, 4 * columns)).astype(np.float32)
    bound.write(0, a)
    bound.write(1, b.reshape(19, 4, columns).transpose(1, 0, 2))
    bound.run()
    np.testing.assert_array_equal(bound.read(2).reshape(4 * rows, 4 * columns), a @ b)


def test_dependent_stores_keep_the_programs_order():
    """Where iterations overwrite each other, the last one of the program wins."""
    out = Buffer("out", (8,))
    body = loops([(i, 3), (j, 4)], Store(out, (i + j,), A[i * 4 + j]), "unrolled")
    data = np.arange(512, dtype=np.float32)
    expected = np.full(8, np.nan, np.float32)
    for x in range(3):
        for y in range(4):
            expected[x + y] = x * 4 + y
    np.testing.assert_array_equal(run(body, {A: data}, out), expected)
