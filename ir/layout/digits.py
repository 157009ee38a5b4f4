"""Digits: index expressions that write a number in a mixed radix, decided by arithmetic alone.

Most layouts are made of pieces of one expression ``e``, a variable or a sum: ``e`` itself,
``(e + k) // c``, ``(e + k) % c``, ``(e + k) // c % d``.  Each is one `Digit` of ``e + k``: its value
divided by `low`, modulo ``high // low``.  Digits that chain from 1 upwards determine ``e``::

    e + k  =  sum(low * digit)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..arith.linear import build, shared_form
from ..expr import Binary, Const, Expr, Var, variables


@dataclass(frozen=True)
class Digit:
    """``index = (of + offset) // low % (high // low)``; no modulo if `high` is None."""

    of: Expr
    offset: int
    index: Expr
    low: int = 1
    high: int | None = None

    def interval(self, low: int, high: int) -> tuple[int, int]:
        """The least and largest value for ``low <= of <= high``; both are taken."""
        first, last = (self.offset + low) // self.low, (self.offset + high) // self.low
        if self.high is None:
            return first, last
        radix = self.high // self.low
        if first // radix != last // radix:
            return 0, radix - 1
        return first % radix, last % radix


def digit(index: Expr) -> Digit | None:
    """`index` as a digit of a linear expression, or None."""
    if isinstance(index, Binary) and index.op in ("//", "%") and isinstance(index.b, Const):
        inner, c = digit(index.a), int(index.b.value)
        if inner is None or c <= 0 or (inner.high is not None and inner.high // inner.low % c):
            return None
        if index.op == "//":
            return replace(inner, low=inner.low * c, index=index)
        return replace(inner, high=inner.low * c, index=index)
    terms, offset = shared_form(index)
    return Digit(build((terms, 0)), offset, index) if terms else None


def chain(digits: Sequence[Digit], low: int, high: int) -> bool:
    """Whether digits of one expression determine it, whose value is in [low, high].

    They do when they chain without gap from 1 to beyond every value.
    """
    reach: int | None = 1
    for d in sorted(digits, key=lambda d: d.low):
        if reach is None or d.low != reach:
            return False
        reach = d.high
    return reach is None or (low >= 0 and high < reach)


def components(names: Sequence[Var], indices: Sequence[Expr]) -> list[tuple[list[int], list[int]]]:
    """The finest split into positions of variables and of indices that share none.

    A constant index is a component without variables, an unused variable one without indices.
    """
    used = [{k for k, v in enumerate(names) if v in found} for found in map(variables, indices)]
    groups: list[tuple[set[int], list[int]]] = [({k}, []) for k in range(len(names))]
    groups += [(set(found), [at]) for at, found in enumerate(used)]
    merged: list[tuple[set[int], list[int]]] = []
    for variables_, at in groups:
        touching = [g for g in merged if g[0] & variables_]
        merged = [g for g in merged if not g[0] & variables_]
        whole = variables_.union(*(g[0] for g in touching))
        merged.append((whole, sorted(at + [k for g in touching for k in g[1]])))
    return [(sorted(a), b) for a, b in sorted(merged, key=lambda g: (min(g[1], default=-1), min(g[0], default=-1)))]
