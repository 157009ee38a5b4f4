"""Regions of buffers, as a lower corner and constant extents.

For an access ``A[e(outer, inner)]`` with inner loops in known ranges, the region
touched by one iteration of the outer loops is ``lo(outer) + [0, extent)`` in each
dimension, where ``lo`` keeps the outer terms of the linear form of ``e``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..ir.arith.linear import build, linear_form
from ..ir.arith.simplify import simplify
from ..ir.arith.widening import linear_index
from ..ir.dataflow.accesses import Access
from ..ir.dataflow.instances import statements
from ..ir.expr import Binary, Buffer, Const, Expr, Var, as_expr, as_index, can_fail, free_variables
from ..ir.stmt import For, Stmt

Bounds = dict[Var, tuple[int, int]]


@dataclass(frozen=True)
class Interval:
    """``[lo, lo + extent)`` in one dimension; `lo` is over outer loops, in the index type."""

    lo: Expr
    extent: int


def accesses_below(stmt: Stmt, buffer: Buffer) -> tuple[tuple[Access, tuple[For, ...]], ...]:
    """Every access of a buffer below `stmt`, with the loops between `stmt` and it, outermost first."""
    return tuple((a, s.loops) for s in statements(stmt) for a in s.accesses if a.node.buffer == buffer)


def region(
    points: Iterable[tuple[tuple[Expr, ...], Bounds]], outer: frozenset[Var], shape: Sequence[int], bounds: Bounds
) -> tuple[Interval, ...]:
    """The box that holds every access, for one iteration of the `outer` loops.

    `points` are pairs of indices and ranges of the inner loops; `bounds` are the
    ranges of the outer loops.  A dimension in which the accesses have no common
    outer part is taken whole, and so is one whose outer part reads memory or may divide by
    0: the box is computed where the conditions around an access may not hold.
    """
    result: list[Interval | None] = [None] * len(shape)
    whole = [False] * len(shape)
    for indices, inner in points:
        for dim, index in enumerate(indices):
            if whole[dim]:
                continue
            part = interval_of(simplify(index, {**bounds, **inner}), outer, inner, bounds)
            merged = part if result[dim] is None else _merge(result[dim], part)
            if merged is None:
                whole[dim] = True
            result[dim] = merged
    zero = as_expr(0)
    return tuple(
        Interval(zero, extent) if whole[d] or part is None or part.extent >= extent or can_fail(part.lo) else part
        for d, (part, extent) in enumerate(zip(result, shape, strict=True))
    )


def interval_of(index: Expr, outer: frozenset[Var], inner: Bounds, bounds: Bounds) -> Interval | None:
    """``index`` as ``lo(outer) + [0, extent)``; None when the parts do not separate."""
    terms, constant = linear_index(index, {**bounds, **inner})
    lo_terms: dict[Expr, int] = {}
    low = high = constant
    for atom, coefficient in terms.items():
        free = free_variables(atom)
        if free <= outer:
            lo_terms[as_index(atom)] = coefficient
            continue
        spread = _spread(atom, outer, inner, bounds)
        if spread is None:
            return None
        base, first, last = spread
        if base is not None:
            lo_terms[base] = lo_terms.get(base, 0) + coefficient
        ends = sorted((coefficient * first, coefficient * last))
        low, high = low + ends[0], high + ends[1]
    lo = simplify(build((lo_terms, low)), bounds)
    return Interval(lo, high - low + 1)


def _spread(atom: Expr, outer: frozenset[Var], inner: Bounds, bounds: Bounds) -> tuple[Expr | None, int, int] | None:
    """An atom over inner loops as ``base(outer) + [first, last]``."""
    if isinstance(atom, Var):
        return (None, *inner[atom]) if atom in inner else None
    if isinstance(atom, Binary) and atom.op in ("//", "%") and isinstance(atom.b, Const):
        divisor = int(atom.b.value)
        part = interval_of(atom.a, outer, inner, bounds)
        if part is None:
            return (None, 0, divisor - 1) if atom.op == "%" else None
        if isinstance(part.lo, Const):
            first, last = int(part.lo.value), int(part.lo.value) + part.extent - 1
            if atom.op == "//":
                return None, first // divisor, last // divisor
            if first // divisor == last // divisor:
                return None, first % divisor, last % divisor
            return None, 0, divisor - 1
        if atom.op == "%":
            return None, 0, divisor - 1
        base = simplify(part.lo // divisor, bounds)
        return base, 0, (part.extent + divisor - 2) // divisor
    return None


def _merge(a: Interval | None, b: Interval | None) -> Interval | None:
    """The hull of two intervals whose lower ends differ by a constant."""
    if a is None or b is None:
        return None
    terms, offset = linear_form(b.lo - a.lo)
    if terms:
        return None
    low = min(0, offset)
    high = max(a.extent, offset + b.extent)
    lo = a.lo if low == 0 else b.lo
    return Interval(lo, high - low)
