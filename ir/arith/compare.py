"""Comparisons of index expressions in one form: ``i*6 + j < 127``, ``i >= 1``, ``i <= j``, ``i == 3``.

The two sides become one linear form and a constant, ``terms op right`` with op one of
``<=``, ``==``, ``!=``.  Then intervals decide it, common factors are divided out, and it is
written with positive terms on the left and the constant on the right.
"""

from __future__ import annotations

from ..expr import Binary, Const, Expr, const
from .intervals import Facts
from .laws import law
from .linear import Linear, add, build, scale
from .quotients import Quotients


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
    terms, constant = quotients.combine(add(a, b, -1))
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
    return _write(*reduced)


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


def _write(op: str, terms: dict[Expr, int], right: int) -> Expr:
    """``terms op right`` with positive terms on the left: ``i*6 + j < 127``, ``i >= 1``, ``i <= j``."""
    positive = {a: k for a, k in terms.items() if k > 0}
    negative = {a: -k for a, k in terms.items() if k < 0}
    if op == "<=":
        if not positive:
            return Binary(">=", build((negative, 0)), Const(-right))
        if negative and right == 0:
            return Binary("<=", build((positive, 0)), build((negative, 0)))
        op, right = "<", right + 1
    elif not positive or (negative and _leads(negative, positive)):
        positive, negative, right = negative, positive, -right
    return Binary(op, build((positive, 0)), build((negative, right)))


def _leads(a: dict[Expr, int], b: dict[Expr, int]) -> bool:
    """Whether form `a` comes before `b`, to give ``x == y`` and ``y == x`` one shape."""
    return repr(build((a, 0))) < repr(build((b, 0)))
