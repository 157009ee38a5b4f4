"""What a function leaves in a buffer when it ends, proven by exact dataflow.

An element holds a value at the end if the last store to it, which surely runs, stores that
value.  A store of ``if c: a else: b`` is two, under their conditions.  An assumption that
another function makes about the buffer is proven from this (RFC 0077, "Points of
Communication"); what is not proven is not assumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..affine.sets import Domain, IntSet, NotAffine, Unknown, box, points
from ..arith.intervals import negate
from ..dataflow.accesses import Access
from ..dataflow.dependence import Event, LastWriters, end_event, event, last_writers
from ..dataflow.instances import Statement, instances
from ..expr import Buffer, Call, Const, Expr, Load, Undef, Var, substitute
from ..node import walk
from ..stmt import PrimFunc, Store


def constants_left(func: PrimFunc, buffer: Buffer, axes: Sequence[Var]) -> list[tuple[IntSet, Const | Undef]]:
    """The sets of elements (over `axes`) that surely hold a constant, or undef, when `func` ends.

    Raises Unknown where the dataflow is too large to decide.
    """
    found: dict[Const | Undef, IntSet] = {}
    flow, end, stored = _flow(func, buffer, box(axes, buffer.shape))
    for statement, access, written in stored:
        for conds, leaf in _leaves(_value(access)):
            if isinstance(leaf, (Const, Undef)):
                held = _elements(flow, end, written, statement, conds)
                if held is not None and not held.is_empty():
                    found[leaf] = held if leaf not in found else found[leaf].union(held)
    return [(held, leaf) for leaf, held in found.items()]


def not_left(func: PrimFunc, buffer: Buffer, axes: Sequence[Var], elements: IntSet, value: Expr) -> IntSet:
    """The part of `elements` that is not proven to hold ``value(axes)`` when `func` ends.  Raises Unknown."""
    flow, end, stored = _flow(func, buffer, elements)
    reads = any(isinstance(n, Load) for n in walk(value))
    missing = elements
    for statement, access, written in stored:
        here = statement.resolve(substitute(value, dict(zip(axes, access.node.indices, strict=True))), strict=True)
        settled = not reads or statement is stored[-1][0]
        for conds, leaf in _leaves(_value(access)):
            if settled and statement.resolve(leaf, strict=True) == here:
                held = _elements(flow, end, written, statement, conds)
                missing = missing if held is None else missing.subtract(held)
    return missing


def _flow(
    func: PrimFunc, buffer: Buffer, elements: IntSet
) -> tuple[LastWriters, Event, list[tuple[Statement, Access, Event]]]:
    """The last writers of `elements` before the function's end, among the stores to the buffer."""
    stored = [
        (statement, access, event(statement, access))
        for statement in instances(func).touching(buffer)
        for access in statement.accesses
        if access.is_write and access.buffer == buffer
    ]
    end = end_event(buffer, elements)
    return last_writers([end], [written for _, _, written in stored]), end, stored


def _elements(
    flow: LastWriters, end: Event, written: Event, statement: Statement, conds: Sequence[Expr]
) -> IntSet | None:
    """The elements whose last store is one of these instances; None where the conditions are not affine."""
    relation = flow.of(end, written, certain=True)
    if relation is None:
        return None
    try:
        domain = Domain(statement.domain.dims, (*statement.domain.conditions, *map(statement.resolve, conds)))
        return relation.into(points(domain))
    except NotAffine:
        return None


def _value(access: Access) -> Expr:
    assert isinstance(access.node, Store)
    return access.node.value


def _leaves(value: Expr, conds: tuple[Expr, ...] = ()) -> Iterator[tuple[tuple[Expr, ...], Expr]]:
    """The values between which a stored value chooses, under their conditions."""
    if isinstance(value, Call) and value.name == "if_then_else":
        cond, then, orelse = value.args
        yield from _leaves(then, (*conds, cond))
        yield from _leaves(orelse, (*conds, negate(cond)))
    else:
        yield conds, value


__all__ = ["Unknown", "constants_left", "not_left"]
