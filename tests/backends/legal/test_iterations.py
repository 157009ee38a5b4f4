"""Conditions that facts decide in some iterations of unrolled loops are tested in the others alone."""

from __future__ import annotations

import numpy as np
import pytest

from stridesmith.backends.legal.iterations import known_iterations
from stridesmith.ir.expr import Buffer, Expr, Var, const
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.stmt import Block, For, If, PrimFunc, Stmt, Store, walk_stmts
from stridesmith.ir.target import Target

io, i, k, n = Var("io"), Var("i"), Var("k"), Var("n")
HITS = Buffer("hits", (64,), "int64")


def tile(outer: Expr, tested: Expr) -> Stmt:
    """``for io in 4: if outer: for i in unrolled(6): for k in unrolled(3): if tested: hits[..] = 1``."""
    store = If(tested, Store(HITS, (i * 3 + k + io,), const(1)))
    return For(io, const(4), If(outer, For(i, const(6), For(k, const(3), store, "unrolled"), "unrolled")))


def conditions(stmt: Stmt) -> list[str]:
    return [repr(s.cond) for s in walk_stmts(stmt) if isinstance(s, If)]


@pytest.mark.parametrize(
    ("outer", "tested", "before"),
    [
        (io * 6 + 5 < n, io * 6 + i + k <= n, "op='or'"),
        (io * 6 + 5 < n, n > io * 6 + i + k - 1, "op='or'"),
        (io * 6 + 2 >= n, io * 6 + i + k < n + 4, "op='and'"),
    ],
)
def test_the_rest_alone_is_tested(outer: Expr, tested: Expr, before: str) -> None:
    """A whole tile leaves its last iteration open; one beyond the end is decided from where no more can hold."""
    stmt = tile(outer, tested)
    made = known_iterations(stmt, Target())
    assert conditions(made)[0] == conditions(stmt)[0] and conditions(made)[1].startswith(f"Binary({before}")
    for number in range(1, 30):
        results = []
        for body in (stmt, made):
            func = PrimFunc("main", (n, HITS), Block("root", (), body))
            hits = np.zeros(64, np.int64)
            interpret(func, number, hits)
            results.append(hits.tolist())
        assert results[0] == results[1]


def test_what_loops_alone_decide_stays() -> None:
    """Code generators know the bounds of loops; other targets write loops out themselves."""
    stmt = tile(io >= 0, io * 6 + i + k >= 1)
    assert known_iterations(stmt, Target()) is stmt
    cut = tile(io * 6 + 5 < n, io * 6 + i + k <= n)
    assert known_iterations(cut, Target(kind="opencl")) is cut


def test_one_value_of_what_is_outside_leaves_no_test() -> None:
    """In the tile that has exactly three rows left it is a condition of the unrolled loops alone."""
    exact = tile(io * 6 - n <= -3, io * 6 + i + k < n)
    (inner,) = [s for s in walk_stmts(exact) if isinstance(s, If) and s.cond == (io * 6 - n <= -3)]
    both = For(io, const(4), If(io * 6 - n >= -3, inner))
    assert conditions(known_iterations(both, Target()))[-1].count("name='n'") == 0
