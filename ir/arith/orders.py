"""How integers compare, as far as conditions on the way told: ``a < b and b <= c`` says that ``a < c``.

A set of orders is a number: `LESS`, `EQUAL` and `GREATER` are its members.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..expr import Expr

LESS, EQUAL, GREATER = 1, 2, 4
ANY = LESS | EQUAL | GREATER
ORDERS: Mapping[str, int] = {
    "<": LESS, "<=": LESS | EQUAL, ">": GREATER, ">=": GREATER | EQUAL, "==": EQUAL, "!=": LESS | GREATER,
}  # fmt: skip
"""The orders in which a comparison holds."""
Orders = Mapping[tuple[Expr, Expr], int]
"""The orders that are possible of two expressions; each pair is there both ways round."""


def mirrored(orders: int) -> int:
    """The orders of the pair the other way round."""
    return (orders & EQUAL) | (GREATER if orders & LESS else 0) | (LESS if orders & GREATER else 0)


def compared(known: Orders, a: Expr, b: Expr) -> int:
    """The orders that are possible of `a` and `b`, also through expressions between them.

    ``a < b, b < c -> a < c``        ``a <= b, b <= c -> a <= c``        ``a == b, b != c -> a != c``
    """
    if a == b:
        return EQUAL
    found = known.get((a, b), ANY)
    for (first, other), orders in known.items():
        if orders == EQUAL and first in (a, b):
            found &= known.get((other, b) if first == a else (a, other), ANY)
    found &= _upwards(known, a, b)
    return found & mirrored(_upwards(known, b, a))


def _upwards(known: Orders, a: Expr, b: Expr) -> int:
    """The orders that a chain from `a` of steps that never go down leaves, where it reaches `b`."""
    reached: dict[Expr, bool] = {a: False}  # and whether a step on the way went up
    left = [a]
    while left:
        at = left.pop()
        for (first, other), orders in known.items():
            if first != at or orders & GREATER or not orders:
                continue
            rises = reached[at] or orders == LESS
            if other not in reached or (rises and not reached[other]):
                reached[other] = rises
                left.append(other)
    return ANY if b not in reached else LESS if reached[b] else LESS | EQUAL
