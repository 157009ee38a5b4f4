"""The accesses of a lowered program, each with the loops, conditions and intervals around it.

What a statement or expression loads is asked of `ir.dataflow.accesses`, what holds there of `ir.context`; here they
are put together with the path that leads to each access.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ...ir.arith.intervals import Facts, negate
from ...ir.context import facts_below
from ...ir.dataflow.accesses import loads_of, own_expressions
from ...ir.expr import Buffer, Expr, Var, reads_memory
from ...ir.stmt import For, If, Let, Seq, Stmt, Store

Step = For | tuple[Seq | If, int]


def loop_facts(facts: Facts, loop: For) -> Facts:
    """The facts inside a loop."""
    return facts.looping(loop.var, loop.extent)


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


class _Place(NamedTuple):
    facts: Facts
    path: tuple[Step, ...] = ()
    conditions: tuple[Expr, ...] = ()
    lets: frozenset[Var] = frozenset()

    def access(self, buffer: Buffer, indices: tuple[Expr, ...], is_write: bool) -> Access:
        return Access(buffer, indices, is_write, self.path, self.conditions, self.facts, self.lets)


def accesses(stmt: Stmt, buffers: frozenset[Buffer], facts: Facts) -> Iterator[Access]:
    """Every access of `buffers` in program order; a statement's loads come before its store."""
    return _statement(stmt, buffers, _Place(facts))


def _statement(stmt: Stmt, buffers: frozenset[Buffer], place: _Place) -> Iterator[Access]:
    for expr, _ in own_expressions(stmt):
        if reads_memory(expr):
            yield from _loads(expr, buffers, place)
    if isinstance(stmt, Store) and stmt.buffer in buffers:
        yield place.access(stmt.buffer, stmt.indices, True)
    lets = place.lets | {stmt.var} if isinstance(stmt, Let) else place.lets
    for number, (child, facts) in enumerate(facts_below(stmt, place.facts)):
        path, conditions = place.path, place.conditions
        if isinstance(stmt, For):
            path = (*path, stmt)
        elif isinstance(stmt, Seq):
            path = (*path, (stmt, number))
        elif isinstance(stmt, If):
            path = (*path, (stmt, 1 - number))
            conditions = (*conditions, stmt.cond if number == 0 else negate(stmt.cond))
        yield from _statement(child, buffers, _Place(facts, path, conditions, lets))


def _loads(expr: Expr, buffers: frozenset[Buffer], place: _Place) -> Iterator[Access]:
    for load, guards, _ in loads_of(expr):
        if load.buffer in buffers:
            facts = place.facts
            for guard in guards:
                facts = facts.assuming(guard)
            here = _Place(facts, place.path, (*place.conditions, *guards), place.lets)
            yield here.access(load.buffer, load.indices, False)
