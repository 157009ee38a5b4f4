"""Whether another order of a program's statement instances keeps its meaning.

An order is given by a time stamp for each statement: a tuple of integers and expressions
over the statement's variables, compared lexicographically.  With the program's own
stamps ``t`` and others ``u``, over every two instances that clash (touch one element, one
of them writing):

    kept   <=>   t(x) < t(y)  =>  u(x) < u(y)

Two updates ``B[e] = B[e] op v`` and ``B[f] = B[f] op w`` with the same associative and
commutative ``op``, where neither ``v`` nor ``w`` reads ``B``, may change places: reductions
may be added up in any order.

Reordering, distribution and any affine change of loops are such orders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..affine.sets import points
from ..expr import FALSE, TRUE, Binary, Buffer, Call, Expr, ExprLike, Load, Var, binary, if_then_else, substitute
from ..functions import BIT_CALLS
from ..stmt import Assume, Evaluate, Store, memories_read
from ..text import expr_text
from .accesses import Access
from .dependence import Clash, Point, clashes
from .instances import Statement

Time = tuple[ExprLike, ...]
COMMUTATIVE = ("+", "*", "min", "max")
"""Operations of a `Binary` that are associative and commutative; so are those on bits (`functions.BIT_CALLS`)."""


@dataclass(frozen=True)
class Reversal:
    """Two instances that clash, in program order, and the accesses by which they do."""

    clash: Clash
    points: tuple[Point, Point]

    def __str__(self) -> str:
        clash, (p, q) = self.clash, self.points
        one, other = _touches(clash.first, clash.a, p), _touches(clash.second, clash.b, q)
        return f"{one}, and later {other}; the order of the two would change"


def _touches(statement: Statement, access: Access, point: Point) -> str:
    indices = ", ".join(expr_text(i) for i in access.node.indices)
    where = ", ".join(f"{k}={v}" for k, v in point.items())
    at = f" at {where}" if where else ""
    return f"{statement.label} {'writes' if access.is_write else 'reads'} `{access.node.buffer.name}[{indices}]`{at}"


def find_reversal(
    statements: Sequence[Statement], time: Callable[[Statement], Time], common: Sequence[Var] = ()
) -> Reversal | None:
    """Two dependent instances that `time` puts in the other order, or at the same time; None if there are none.

    Compared are instances that agree in the variables `common`.  What is not affine counts
    as any value.  Raises Unknown where a set is too large to decide.
    """
    known = [knowing(s) for s in statements]
    times = {s.number: time(s) for s in known}
    for first in known:
        for second in known:
            # When `first` comes before `second` in the program, and when it does not in the other order.
            primes: dict[Var, Expr] = {v: _primed(v) for v in second.variables}
            before = _before(first.schedule, _renamed(second.schedule, primes), FALSE)
            turned = before, _before(_renamed(times[second.number], primes), times[first.number], TRUE)
            if FALSE in turned:
                continue
            for clash in clashes(first, second, common):
                if _commute(first, second, clash.buffer):
                    continue
                found = _example(clash, turned)
                if found is not None:
                    return Reversal(clash, found)
    return None


def knowing(statement: Statement) -> Statement:
    """The statement; an assumption as an evaluation of its condition, whose reads keep its place among the writers."""
    stmt = statement.stmt
    return replace(statement, stmt=Evaluate(_lazy(stmt.cond))) if isinstance(stmt, Assume) else statement


def _lazy(cond: Expr) -> Expr:
    """An assumption's ``and`` and ``or`` as conditionals: what decides the whole protects the rest."""
    if not isinstance(cond, Binary) or cond.op not in ("and", "or"):
        return cond
    first, second = cond.a, _lazy(cond.b)
    return if_then_else(first, second, FALSE) if cond.op == "and" else if_then_else(first, TRUE, second)


def _example(clash: Clash, turned: tuple[Expr, Expr]) -> tuple[Point, Point] | None:
    found = points(clash.domain.where(*turned).relaxed()).first()
    if found is None:
        return None
    mine = {v.name: found[v.name] for v in clash.first.variables}
    return mine, {v.name: found[_primed(v).name] for v in clash.second.variables}


def _primed(var: Var) -> Var:
    return replace(var, name=f"{var.name}'")


def _renamed(time: Time, primes: dict[Var, Expr]) -> Time:
    return tuple(substitute(t, primes) if isinstance(t, Expr) else t for t in time)


def _before(a: Time, b: Time, equal: Expr) -> Expr:
    """``a < b`` lexicographically, up to the shorter one; `equal` is the answer for equal stamps."""
    result = equal
    for x, y in reversed(list(zip(a, b, strict=False))):
        result = binary("or", binary("<", x, y), binary("and", binary("==", x, y), result))
    return result


def operands(value: Expr) -> tuple[str, Expr, Expr] | None:
    """``a op b`` as (op, a, b), for the operations in which reductions may be done in any order; None for others."""
    if isinstance(value, Binary) and value.op in COMMUTATIVE:
        return value.op, value.a, value.b
    if isinstance(value, Call) and value.name in BIT_CALLS:
        a, b = value.args
        return value.name, a, b
    return None


def combined(op: str, a: Expr, b: Expr) -> Expr:
    """``a op b`` of an operation that `operands` knows."""
    return Call(op, (a, b), a.dtype) if op in BIT_CALLS else Binary(op, a, b)


def update_op(store: Store) -> str | None:
    """The operation of an update ``B[e] = B[e] op v`` in which neither ``e`` nor ``v`` reads ``B``; None for others."""
    found = operands(store.value)
    if found is None:
        return None
    op, a, b = found
    own = Load(store.buffer, store.indices)
    for one, rest in ((a, b), (b, a)):
        if one == own and not any(store.buffer.memory in memories_read(e) for e in (*store.indices, rest)):
            return op
    return None


def _commute(first: Statement, second: Statement, memory: Buffer) -> bool:
    """Whether both are updates of `memory` by one operation."""
    a, b = first.stmt, second.stmt
    if not isinstance(a, Store) or not isinstance(b, Store):
        return False
    op = update_op(a)
    same = op is not None and op == update_op(b) and a.value.dtype == b.value.dtype
    return same and a.buffer.memory == b.buffer.memory == memory.name
