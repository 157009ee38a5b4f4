"""Comparisons of index expressions in one form: ``i*6 + j < 127``, ``i >= 1``, ``i <= j``, ``i == 3``.

The two sides become one linear form and a constant, ``terms op right`` with op one of
``<=``, ``==``, ``!=``.  Then intervals decide it, common factors are divided out, and it is
written with positive terms on the left and the constant on the right.  That needs sides that
are exact, before and after (`Facts.is_exact`); others are compared as they stand, for
``x + 1 > x`` does not hold where ``x + 1`` wraps around.
"""

from __future__ import annotations

from .. import dtypes
from ..expr import Binary, Expr, const
from .intervals import Facts
from .laws import law
from .linear import Linear, add, build, scale
from .quotients import MayWrap, Quotients


@law("""
    x > y            -> y < x
    x >= y           -> y <= x
    x + k < m        -> x < m - k
    x - y < k        -> x < y + k
    x <= k           -> x < k + 1
    k < x            -> x >= k + 1
    x + z == y + z   -> x == y
    k - x != m       -> x != k - m
""")
def compare(op: str, a: Linear, b: Linear, facts: Facts, quotients: Quotients) -> Expr:
    """``a op b`` in its one form."""
    if facts.is_exact(a) and facts.is_exact(b):
        try:
            return _as_one_form(op, quotients.combine(add(a, b, -1)), facts, quotients)
        except MayWrap:
            pass
    return _as_it_stands(op, a, b, facts)


def _as_one_form(op: str, difference: Linear, facts: Facts, quotients: Quotients) -> Expr:
    """``difference op 0`` over the integers.  Raises MayWrap."""
    terms, constant = difference
    if op in (">", ">="):
        terms, constant = scale((terms, constant), -1)
        op = "<" if op == ">" else "<="
    right = -constant
    if op == "<":
        op, right = "<=", right - 1
    decided = decide(op, *facts.of_form((terms, 0)), right)
    if decided is not None:
        return const(decided)
    reduced = quotients.reduce_comparison(op, terms, right)
    if isinstance(reduced, bool):
        return const(reduced)
    return _write(*reduced, facts)


def _as_it_stands(op: str, a: Linear, b: Linear, facts: Facts) -> Expr:
    """``a op b`` of values that may wrap around: sides of one form are equal, and intervals of values decide.

    ``x + 1 == x`` never holds, whatever wraps around.
    """
    left, right = build(a), build(b)
    if left == right:
        return const(op in ("==", "<=", ">="))
    terms, distance = add(a, b, -1)
    if op in ("==", "!=") and not terms:
        return const((distance % (1 << dtypes.bits(left.dtype)) == 0) == (op == "=="))
    (lo, hi), (low, high) = facts.interval(left), facts.interval(right)
    decided = decide_zero(op, lo - high, hi - low)
    decided = facts.related(op, left, right) if decided is None else decided
    return Binary(op, left, right) if decided is None else const(decided)


@law("""
    x <= y -> True     if x <= y
    x <= y -> False    if x > y
    x == y -> False    if x < y
    x == y -> True     if x >= y and x <= y
    x != y -> True     if x > y
    x != y -> False    if x >= y and x <= y
""")
def decide(op: str, lo: int, hi: int, right: int) -> bool | None:
    """The truth of ``x op right`` for every x in [lo, hi], or None; op is ``<=``, ``==`` or ``!=``."""
    if op == "<=":
        return True if hi <= right else False if lo > right else None
    if right < lo or right > hi:
        return op == "!="
    if lo == hi:
        return op == "=="
    return None


def decide_zero(op: str, lo: int, hi: int) -> bool | None:
    """The truth of ``x op 0`` for every x in [lo, hi] and any comparison, or None."""
    if op in (">", ">="):
        op, lo, hi = ("<" if op == ">" else "<="), -hi, -lo
    return decide("<=", lo, hi, -1) if op == "<" else decide(op, lo, hi, 0)


def _write(op: str, terms: dict[Expr, int], right: int, facts: Facts) -> Expr:
    """``terms op right`` with positive terms on the left: ``i*6 + j < 127``, ``i >= 1``, ``i <= j``.

    Raises MayWrap where a side may leave 64 bits.
    """
    left: Linear = {a: k for a, k in terms.items() if k > 0}, 0
    other: Linear = {a: -k for a, k in terms.items() if k < 0}, right
    if op == "<=":
        if not left[0]:
            op, left, other = ">=", (other[0], 0), ({}, -right)
        elif not other[0] or right:
            op, other = "<", (other[0], right + 1)
    elif not left[0] or (other[0] and repr(build((other[0], 0))) < repr(build((left[0], 0)))):
        # ``x == y`` and ``y == x`` get one shape
        left, other = (other[0], 0), (left[0], -right)
    if not facts.is_exact(left) or not facts.is_exact(other):
        raise MayWrap
    one, two = build(left), build(other)
    decided = facts.related(op, one, two)
    return Binary(op, one, two) if decided is None else const(decided)
