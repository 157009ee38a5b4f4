"""Parts of ``and``, ``or``, ``min`` and ``max``: each of these pairs is a distributive lattice.

An expression is taken apart into the operands of one operation, ``p1 op p2 op ...``,
and each of them into the operands of the dual one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..expr import Binary, Expr
from .laws import law
from .linear import contains_undef

DUAL = {"and": "or", "or": "and", "min": "max", "max": "min"}


def parts(expr: Expr, op: str) -> list[Expr]:
    """``p1 op p2 op ...`` -> ``[p1, p2, ...]``."""
    if isinstance(expr, Binary) and expr.op == op:
        return parts(expr.a, op) + parts(expr.b, op)
    return [expr]


def join(op: str, items: Sequence[Expr]) -> Expr:
    """The inverse of `parts`, for at least one item."""
    result = items[0]
    for item in items[1:]:
        result = Binary(op, result, item)
    return result


def nested(op: str, items: Sequence[Expr]) -> bool:
    """Whether an item has parts of its own by the dual operation."""
    dual = DUAL[op]
    return any(type(p) is Binary and p.op == dual for p in items)


@law("""
    a and (a or b)      -> a
    a or (a and b)      -> a
    min(x, max(x, y))   -> x
    max(x, min(x, y))   -> x
    min(x, min(x, y))   -> min(x, y)
    max(max(y, x), x)   -> max(x, y)
""")
def absorb(op: str, items: Sequence[Expr]) -> list[Expr]:
    """The items that no other one absorbs: ``p op (p dual q) = p``, parts in any number and order."""
    members = [frozenset(parts(p, DUAL[op])) for p in items]
    open_ = [not contains_undef(p) for p in items]
    kept = []
    for i, item in enumerate(items):
        absorbed = open_[i] and any(
            members[j] < members[i] or (j < i and members[j] == members[i]) for j in range(len(items)) if open_[j]
        )
        if not absorbed:
            kept.append(item)
    return kept


@law("""
    a and (not a or b)         -> a and b
    a or (not a and b)         -> a or b
    (a or b) and (a or not b)  -> a
    (a and b) or (a and not b) -> a
    a and not a                -> False
    a or not a                 -> True
""")
def resolve(op: str, items: Sequence[Expr], negated: Callable[[Expr], Expr]) -> list[Expr] | None:
    """Literals that another item denies are left out; None if nothing of an item is left, which decides the whole.

    For ``and``: ``(p or r) and (q or not r)`` with every literal of ``p`` in ``q`` is ``(p or r) and q``.
    """
    dual = DUAL[op]
    clauses = [dict.fromkeys(parts(p, dual)) for p in items]
    result = []
    for i, clause in enumerate(clauses):
        for literal in list(clause):
            denied = negated(literal)
            if contains_undef(literal):
                continue
            rest = clause.keys() - {literal}
            if any(j != i and denied in c and c.keys() - {denied} <= rest for j, c in enumerate(clauses)):
                del clause[literal]
        if not clause:
            return None
        result.append(join(dual, list(clause)))
    return result
