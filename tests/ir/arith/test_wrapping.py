"""int64 that is loaded or passed wraps around; what loops and shapes bound does not."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from ir.arith.expressions import same, values
from random_expressions import ends

from stridesmith.ir import dtypes
from stridesmith.ir.affine import sets
from stridesmith.ir.arith.intervals import ANY_INDEX, Facts, nothing_known
from stridesmith.ir.arith.linear import build, linear_form
from stridesmith.ir.arith.simplify import bound, prove, simplify, simplify_index
from stridesmith.ir.context import start
from stridesmith.ir.expr import (
    Binary,
    Broadcast,
    Cast,
    Const,
    Expr,
    LetExpr,
    Ramp,
    Var,
    all_of,
    const,
    if_then_else,
    maximum,
    minimum,
)
from stridesmith.ir.script.parser import parse
from stridesmith.ir.statements import LONGEST
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.verify.bounds import OutOfBounds, check_in_bounds

LOW, HIGH = dtypes.int_range("int64")
x, y, i = Var("x"), Var("y"), Var("i")
ROWS = np.array(list(product(ends("int64"), repeat=2)), np.int64)
COLUMNS = {x: ROWS[:, 0].copy(), y: ROWS[:, 1].copy()}

FORMS = [
    (x * 6364136223846793005 + 1442695040888963407) // 8589934592, x * 4 // 4, x * 4 % 3,
    (x + 1) // 2 * 2 + (x + 1) % 2, x + 1 > x, x - 5 < 0, x * 2 < x * 2 + 2, x + y < y, x - y < 0, (x - y).equal(0),
    (0 - x).equal(x), (x * 2).equal(y * 2), Binary("!=", x * 4, const(8)), maximum(x, x + 1),
    minimum(x * 3 + 1, x * 3 + 2), maximum(x - y, 0), (x * HIGH + x) // 7, x * LOW // 2, (x + HIGH) % 10, x // LOW,
    x % LOW, x // -1, (0 - x) // -3, x % -1, x * 8 // 2 % 4, (x // 4 + HIGH) // 4, (x % 12 + LOW) // 3,
    x // HIGH * HIGH + x % HIGH, x // 4611686018427387904 // 4, if_then_else(x + 1 < 5, x + 1, 7) // 2,
    all_of([x + 1 > 3, x < HIGH, x + 1 < 10]), LetExpr(y, x + 1, y > x), Ramp(x, const(4), 4) // Broadcast(const(4), 4),
    Ramp(x, const(1), 4) < Broadcast(y, 4), Ramp(x, const(8), 4) % Broadcast(const(3), 4),
]  # fmt: skip


@pytest.mark.parametrize("expr", FORMS, ids=repr)
def test_simplified_data_wraps_around_as_it_did(expr: Expr) -> None:
    """At the ends of int64 the interpreter computes the same before and after, and `bound` holds all of it."""
    found = values(expr, COLUMNS)
    assert same(values(simplify(expr), COLUMNS), found)
    if dtypes.is_int(expr.dtype) and dtypes.lanes(expr.dtype) == 1:
        low, high = bound(expr)
        assert low <= int(found.min()) and int(found.max()) <= high


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
@pytest.mark.parametrize("op", ["+", "-", "*", "//", "%", "<", "max"])
def test_constants_of_every_type_wrap_around(op: str, dtype: str) -> None:
    """Folded numbers at the ends of a type are those of the interpreter."""
    for a, b in product(ends(dtype), repeat=2):
        expr = Binary(op, Const(a, dtype), Const(b, dtype))
        if b or op not in ("//", "%"):
            assert values(simplify(expr), {})[0] == values(expr, {})[0], expr


def test_numbers_of_a_form_stay_int64() -> None:
    """A form whose numbers leave 64 bits is written with those that they wrap around to, and reads as it is written."""
    written = build(({x: 2**63, y: -(2**64) - 3}, 2**63 + 5))
    numbers = [abs(k) for k in (*linear_form(written)[0].values(), linear_form(written)[1])]
    assert max(numbers) <= 2**63 and build(linear_form(written)) == written
    assert same(values(written, COLUMNS), values(x * LOW + y * -3 + (LOW + 5), COLUMNS))
    assert build(({x: 2**64}, 0)) == const(0)


def test_indices_are_exact() -> None:
    """Sums of what loops and shapes bound are compared and divided as integers are."""
    assert simplify((i * 6 + 4) // 2, {i: (0, 99)}) == simplify(i * 3 + 2)
    assert simplify_index((i * 6 + 4) // 2) == simplify(i * 3 + 2) and ANY_INDEX[1] >= 2**32
    assert simplify((x * 6 + 4) // 2) == (x * 6 + 4) // 2
    inside = nothing_known().looping(i, x)
    assert inside.interval(i) == (0, LONGEST - 1) and inside.interval(i * 4 + 3) == (3, LONGEST * 4 - 1)
    assert nothing_known().looping(i, const(2**60)).interval(i) == (0, 2**60 - 1)


def test_sums_that_wrap_around_are_known_where_they_are_compared() -> None:
    """``0 <= x + 1`` leaves out the last x, and then ``x + 1 < 8`` bounds it; alone, it does not."""
    facts = Facts({}).assuming(all_of([Binary("<", x + 1, const(8)), Binary("<=", const(0), x + 1)]))
    assert facts.interval(x) == (-1, 6) and facts.interval(x + 1) == (0, 7)
    alone = Facts({}).assuming(Binary("<", x + 1, const(8)))
    assert alone.interval(x) == (LOW, HIGH) and alone.interval(x + 1) == (LOW, 7)
    assert Facts({}).assuming(Binary(">=", x * 4, const(0))).interval(x * 4) == (0, HIGH)
    assert not prove(Binary(">", x + 1, x)) and prove(Binary(">", x + 1, x), {x: (LOW, HIGH - 1)})


def function(condition: str, index: str) -> PrimFunc:
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer((8,), "int64"), X: T.Buffer((8,)), n: T.int64, B: T.Buffer((8,))):
    for i in range(8):
        B[i] = T.if_then_else({condition}, X[{index}], T.float32(0))
""")
    assert isinstance(func, PrimFunc)
    return func


GUARDED = [
    ("0 <= n + 1 and n + 1 < 8", "n + 1"), ("n + 1 < 8 and 0 <= n + 1", "n + 1"), ("0 <= 4 - n and 4 - n < 8", "4 - n"),
    ("A[i] - 1 >= 0 and A[i] - 1 < 8", "A[i] - 1"), ("n * 4 >= 0 and n * 4 < 8", "n * 4"),
    ("n * 2 + i >= 0 and n * 2 + i < 8", "n * 2 + i"), ("n >= 0 and n < 8 and i < 8 - n", "i + n"),
]  # fmt: skip


@pytest.mark.parametrize("condition, index", GUARDED)
def test_guards_of_the_very_index_are_understood(condition: str, index: str) -> None:
    """What is compared as it is used needs no more than the two comparisons, whatever may wrap around."""
    check_in_bounds(function(condition, index))


@pytest.mark.parametrize("condition, index", [
    ("n >= 0 and i + n < 8", "i + n"), ("n + 1 > n and n + 1 < 8", "n + 1"), ("n >= 0 and n * 2 < 16", "n"),
    ("0 <= A[i] and A[i] + 1 < 9", "A[i]"),
])  # fmt: skip
def test_guards_that_wrap_around_guard_nothing(condition: str, index: str) -> None:
    """A condition that the last int64 meets protects no access."""
    with pytest.raises(OutOfBounds, match="cannot be proven inside"):
        check_in_bounds(function(condition, index))


def test_sets_ask_whether_a_sum_wraps_around() -> None:
    """isl counts without limit, so that a sum of arguments is a set only where intervals keep it inside of 64 bits."""
    anywhere = sets.Domain(((x, None),), (Binary(">", x + 1, x),))
    assert anywhere.relaxed().conditions == ()
    with pytest.raises(sets.NotAffine, match=r"`x \+ 1 > x` may wrap around at 64 bits"):
        sets.points(anywhere)
    with pytest.raises(sets.NotAffine, match=r"`x \+ 1` may wrap around at 64 bits"):
        sets.access_map(sets.Domain(((x, None),)), (x + 1,))
    small = sets.Domain(((x, None),), (Binary(">", x + 1, x), Binary("<", x, const(8)), Binary(">=", x, const(0))))
    assert small.relaxed() == small and sets.violations(small, Binary("<", x + 1, const(9))).is_empty()
    assert sets.implies(sets.Domain(((x, None),)), Binary(">", x + 1, x)) is None
    loop = sets.Domain(((x, None), (i, x)), (Binary("<", i * 4 + 3, const(64)),))
    assert loop.relaxed() == loop


def test_arguments_have_any_value_of_their_type() -> None:
    """At the start of a function its parameters are not indices."""
    here = start(function("n > 0", "0"))
    n = Var("n")
    assert here.facts.interval(n) == (LOW, HIGH) and not here.implies(Binary(">", n + 1, n))
    assert here.where(Binary("<", n, const(5))).implies(Binary(">", n + 1, n))


@pytest.mark.parametrize("op", ["//", "%", "min", "max", "+", "-", "*"])
def test_quotients_of_large_unsigned_numbers_are_no_quotients_of_indices(op: str) -> None:
    """What uint64 holds beyond int64 is negative as an index: only sums and products may be computed there instead."""
    at = np.arange(5, dtype=np.int64)
    large = Binary("+", Binary("*", Cast("uint64", i), const(HIGH, "uint64")), const(1, "uint64"))
    expr = Cast("int64", Binary(op, large, const(5, "uint64")))
    assert same(values(simplify(expr, {i: (0, 4)}), {i: at}), values(expr, {i: at}))
