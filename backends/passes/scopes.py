"""Walking lowered statements with the loops, conditions and facts around each access."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...ir import dtypes
from ...ir.arith.intervals import Facts, negate
from ...ir.expr import Buffer, Call, Expr, Load, Var, reads_memory
from ...ir.node import children
from ...ir.passes.loop_extents import loop_facts as loop_facts
from ...ir.stmt import For, If, Let, Seq, Stmt, Store

Step = For | tuple[Seq | If, int]


@dataclass(frozen=True)
class Access:
    """One load or store below some statement.

    `path` lists what encloses it, outermost first: loops, the branch of each If,
    and the position in each sequence.  `conditions` are those of If and if_then_else.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    is_write: bool
    path: tuple[Step, ...]
    conditions: tuple[Expr, ...]
    facts: Facts
    lets: frozenset[Var] = frozenset()

    def bound_below(self, depth: int) -> set[Var]:
        """Variables bound by the path from step `depth` on, and by let."""
        return {p.var for p in self.path[depth:] if isinstance(p, For)} | self.lets

    @property
    def loops(self) -> tuple[For, ...]:
        return tuple(p for p in self.path if isinstance(p, For))


@dataclass(frozen=True)
class _Place:
    facts: Facts
    path: tuple[Step, ...] = ()
    conditions: tuple[Expr, ...] = ()
    lets: frozenset[Var] = frozenset()

    def access(self, buffer: Buffer, indices: tuple[Expr, ...], is_write: bool) -> Access:
        return Access(buffer, indices, is_write, self.path, self.conditions, self.facts, self.lets)

    def where(self, cond: Expr, truth: bool = True) -> _Place:
        kept = cond if truth else negate(cond)
        return replace(self, facts=self.facts.assuming(kept), conditions=(*self.conditions, kept))


def accesses(stmt: Stmt, buffers: frozenset[Buffer], facts: Facts) -> Iterator[Access]:
    """Every access of `buffers` in program order; a statement's loads come before its store."""
    return _statement(stmt, buffers, _Place(facts))


def _statement(stmt: Stmt, buffers: frozenset[Buffer], place: _Place) -> Iterator[Access]:
    if isinstance(stmt, Seq):
        for position, item in enumerate(stmt.stmts):
            yield from _statement(item, buffers, replace(place, path=(*place.path, (stmt, position))))
    elif isinstance(stmt, For):
        inside = replace(place, facts=loop_facts(place.facts, stmt), path=(*place.path, stmt))
        yield from _statement(stmt.body, buffers, inside)
    elif isinstance(stmt, If):
        yield from _expression(stmt.cond, buffers, place)
        then = replace(place, path=(*place.path, (stmt, 1)))
        yield from _statement(stmt.then, buffers, then.where(stmt.cond))
        if stmt.orelse is not None:
            other = replace(place, path=(*place.path, (stmt, 0)))
            yield from _statement(stmt.orelse, buffers, other.where(stmt.cond, False))
    elif isinstance(stmt, Store):
        yield from _expression(stmt.value, buffers, place)
        for index in stmt.indices:
            yield from _expression(index, buffers, place)
        if stmt.buffer in buffers:
            yield place.access(stmt.buffer, stmt.indices, True)
    elif isinstance(stmt, Let):
        yield from _expression(stmt.value, buffers, place)
        facts = place.facts
        if dtypes.is_int(stmt.var.dtype):
            facts = facts.with_bounds({stmt.var: facts.interval(stmt.value)})
        yield from _statement(stmt.body, buffers, replace(place, facts=facts, lets=place.lets | {stmt.var}))
    else:
        for child in children(stmt):
            if isinstance(child, Stmt):
                yield from _statement(child, buffers, place)
            elif isinstance(child, Expr):
                yield from _expression(child, buffers, place)


def _expression(expr: Expr, buffers: frozenset[Buffer], place: _Place) -> Iterator[Access]:
    if not reads_memory(expr):
        return
    if isinstance(expr, Call) and expr.name == "if_then_else":
        cond, a, b = expr.args
        yield from _expression(cond, buffers, place)
        yield from _expression(a, buffers, place.where(cond))
        yield from _expression(b, buffers, place.where(cond, False))
        return
    for child in children(expr):
        if isinstance(child, Expr):
            yield from _expression(child, buffers, place)
    if isinstance(expr, Load) and expr.buffer in buffers:
        yield place.access(expr.buffer, expr.indices, False)
