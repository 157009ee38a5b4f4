"""Which expressions are what they are over the integers, as the functions and sets of isl take them.

isl counts without limit, and an int64 wraps around.  Before an expression becomes a set, `never_wraps` proves by
intervals that no value of it does.  A part is asked where it counts::

    c and d       each part where the others hold          if_then_else(c, a, b)     a where c holds, b where not
    c or d        each part where the others do not        let x = e in f            f where x is in the interval of e

Together the parts are right by induction: facts are learned of comparisons that were exact before (`Facts.assuming`).
"""

from __future__ import annotations

from .. import dtypes
from ..arith.intervals import Facts
from ..arith.linear import UndefTerm, shared_form
from ..expr import Binary, Call, Expr, LetExpr, Select
from ..node import children


def never_wraps(expr: Expr, facts: Facts) -> bool:
    """Whether no int64 that `expr` computes wraps around under `facts`; narrower types may, which sets describe."""
    known = facts.exact.get(expr)
    if known is None:
        known = facts.exact[expr] = _never_wraps(expr, facts)
    return known


def _never_wraps(expr: Expr, facts: Facts) -> bool:
    if isinstance(expr, Binary):
        if expr.op in ("and", "or"):
            inside = facts.assuming(expr, expr.op == "and")
            return never_wraps(expr.a, inside) and never_wraps(expr.b, inside)
        if expr.op in ("+", "-", "*") and dtypes.element(expr.dtype) == dtypes.INDEX:
            return _sum_never_wraps(expr, facts)
    if isinstance(expr, Select) or (isinstance(expr, Call) and expr.name == "if_then_else"):
        cond, a, b = (expr.cond, expr.a, expr.b) if isinstance(expr, Select) else expr.args
        sides = never_wraps(a, facts.assuming(cond)) and never_wraps(b, facts.assuming(cond, False))
        return sides and never_wraps(cond, facts)
    if isinstance(expr, LetExpr):
        return never_wraps(expr.value, facts) and never_wraps(expr.body, facts.binding(expr.var, expr.value))
    return all(never_wraps(child, facts) for child in children(expr) if isinstance(child, Expr))


def _sum_never_wraps(expr: Binary, facts: Facts) -> bool:
    """A sum as a whole: its terms may wrap around in between; a product of two variables by itself."""
    try:
        form = shared_form(expr)
    except UndefTerm:
        return False
    if expr in form[0]:
        return facts.stays(expr) and never_wraps(expr.a, facts) and never_wraps(expr.b, facts)
    return facts.is_exact(form) and all(never_wraps(atom, facts) for atom in form[0])
