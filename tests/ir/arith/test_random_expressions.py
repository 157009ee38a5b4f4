"""Random expressions of every type keep their values, in one form that is simplified once and for all."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from ir.arith.expressions import cases, same, values
from scale import scaled

from stridesmith.ir import dtypes
from stridesmith.ir.affine import sets
from stridesmith.ir.arith.intervals import Facts
from stridesmith.ir.arith.simplifier import Simplifier
from stridesmith.ir.arith.simplify import bound, simplify
from stridesmith.ir.expr import Binary, Var, variables

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def random(count: int) -> Any:
    return settings(max_examples=scaled(count), deadline=None, suppress_health_check=SLOW, print_blob=True)


@random(500)
@given(cases())
def test_simplified_expressions_keep_their_values(case: Any) -> None:
    """On finite data, the interpreter computes the same from an expression and from what it simplifies to."""
    expr, bounds, columns = case
    assert same(values(simplify(expr, bounds), columns), values(expr, columns))


@random(200)
@given(cases(types=("float32", "bool"), strange=True))
def test_strict_mode_keeps_every_float(case: Any) -> None:
    """NaN, infinities and the sign of zero come out the same when simplification is strict."""
    expr, bounds, columns = case
    assert same(values(simplify(expr, bounds, strict=True), columns), values(expr, columns), signs=True)


@random(500)
@given(cases())
def test_simplifying_again_changes_nothing(case: Any) -> None:
    """`simplify` is idempotent, in both modes."""
    expr, bounds, _ = case
    for strict in (False, True):
        once = simplify(expr, bounds, strict=strict)
        assert Simplifier(Facts(bounds, strict=strict)).expr(once) == once


@random(150)
@given(cases(), cases())
def test_the_result_does_not_depend_on_what_was_simplified_before(one: Any, other: Any) -> None:
    """A simplifier with a memory of other work gives what a fresh one gives."""
    (expr, bounds, _), (before, _, _) = one, other
    used = Simplifier(Facts(bounds))
    used.expr(before)
    used.expr(used.expr(expr))
    for part in (expr, used.expr(expr)):
        assert used.expr(part) == Simplifier(Facts(bounds)).expr(part)


@random(150)
@given(cases(types=("int64", "int8", "uint8", "int32", "uint16", "uint64")))
def test_bounds_hold_every_value(case: Any) -> None:
    """`bound` is an interval around all values."""
    expr, bounds, columns = case
    low, high = bound(expr, bounds)
    found = values(expr, columns)
    assert low <= int(found.min()) and int(found.max()) <= high


@random(150)
@given(cases(types=("int64", "bool"), rows=1, depth=3))
def test_affine_expressions_agree_with_exact_sets(case: Any) -> None:
    """Where an expression is affine, isl finds no point at which the simplified one differs."""
    expr, bounds, _ = case
    result = simplify(expr, bounds)
    names = sorted(variables(expr) | variables(result), key=lambda v: v.name)
    limits = tuple(
        Binary(op, v, limit)
        for v in names if dtypes.is_int(v.dtype)
        for op, limit in zip(("<=", ">="), _limits(v, bounds), strict=True)
    )  # fmt: skip
    domain = sets.Domain(tuple((v, None) for v in names), limits)
    try:
        assert sets.counterexample(domain, Binary("==", expr, result)) is None
    except (sets.NotAffine, sets.Unknown):
        return


def _limits(var: Var, bounds: dict[Var, tuple[int, int]]) -> tuple[Any, Any]:
    from stridesmith.ir.expr import Const

    low, high = bounds.get(var, (-1000, 1000))
    return Const(high, var.dtype), Const(low, var.dtype)
