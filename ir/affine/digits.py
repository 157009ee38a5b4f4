"""Index maps that write each variable in a mixed radix, decided by arithmetic alone.

Most layouts are products of such pieces: ``v`` itself, ``(v + k) // c``,
``(v + k) % c``, ``(v + k) // c % d``.  Each is one `Digit` of ``v + k``: its value
divided by `low`, modulo ``high // low``.  Digits that chain from 1 upwards determine ``v``::

    v + k  =  sum(low * digit)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..arith.linear import shared_form
from ..expr import Binary, Const, Expr, Var, variables


@dataclass(frozen=True)
class Digit:
    """``(var + offset) // low % (high // low)``; no modulo if `high` is None."""

    var: Var
    offset: int
    low: int = 1
    high: int | None = None

    def interval(self, extent: int) -> tuple[int, int]:
        """The least and largest value for ``0 <= var < extent``; both are taken."""
        first, last = self.offset // self.low, (self.offset + extent - 1) // self.low
        if self.high is None:
            return first, last
        radix = self.high // self.low
        if first // radix != last // radix:
            return 0, radix - 1
        return first % radix, last % radix


def digit(index: Expr) -> Digit | None:
    """`index` as a digit of one variable, or None."""
    if isinstance(index, Binary) and index.op in ("//", "%") and isinstance(index.b, Const):
        inner, c = digit(index.a), int(index.b.value)
        if inner is None or c <= 0:
            return None
        return _divided(inner, c) if index.op == "//" else _reduced(inner, c)
    terms, offset = shared_form(index)
    if len(terms) == 1:
        (atom, factor), = terms.items()
        if isinstance(atom, Var) and factor == 1:
            return Digit(atom, offset)
    return None


def _divided(inner: Digit, c: int) -> Digit | None:
    if inner.high is not None and (inner.high // inner.low) % c:
        return None
    return replace(inner, low=inner.low * c)


def _reduced(inner: Digit, c: int) -> Digit | None:
    if inner.high is not None and (inner.high // inner.low) % c:
        return None
    return replace(inner, high=inner.low * c)


def chain(digits: Sequence[Digit], extent: int) -> int | None:
    """The offset ``k`` if the digits of one variable determine it, else None.

    With one `extent`, they do when they chain without gap from 1 to beyond every
    value of ``var + k``.
    """
    offset = digits[0].offset
    if any(d.offset != offset for d in digits):
        return None
    reach: int | None = 1
    for d in sorted(digits, key=lambda d: d.low):
        if reach is None or d.low != reach:
            return None
        reach = d.high
    fits = reach is None or (offset >= 0 and offset + extent <= reach)
    return offset if fits else None


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
