"""Conditions of loop nests: finding them, and strengthening them for whole tiles.

A condition over outer and inner loops, ``io*6 + ii < 127`` with ``ii < 6``, holds
for every inner iteration exactly if its strengthened form ``io*6 + 5 < 127`` holds.
That form is tested above the statement in which the condition was found, so the
condition may read neither what the statement binds or writes, nor, where another
condition stands above it, anything that only this one keeps in bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...ir import dtypes
from ...ir.arith.intervals import Facts
from ...ir.arith.linear import add, build, shared_form, variables_of
from ...ir.arith.simplifier import simplifier_for
from ...ir.expr import FALSE, TRUE, Binary, Buffer, Call, Const, Expr, LetExpr, Load, Var, binary, conjuncts
from ...ir.node import Node, children, remembered, walk
from ...ir.stmt import For, If, Let, Stmt, Store
from .scopes import loop_facts


@dataclass(frozen=True)
class Edge:
    """One conjunct of a condition, with the loops around it below some statement, outermost first.

    `may_move` says whether it could be tested above the statement, but for these loops.
    """

    cond: Expr
    loops: tuple[For, ...]
    facts: Facts
    guards_statement: bool
    may_move: bool


def edges(stmt: Stmt, facts: Facts) -> Iterator[Edge]:
    """Every conjunct that is tested below `stmt`, by If and by if_then_else."""
    return _below(stmt, facts, _Place(_written(stmt)))


@dataclass(frozen=True)
class _Place:
    """What stands between a statement that writes `written` and a node below it."""

    written: frozenset[Buffer]
    loops: tuple[For, ...] = ()
    bound: frozenset[Var] = frozenset()
    is_guarded: bool = False

    def lets_move(self, cond: Expr) -> bool:
        """Whether a condition that is tested here could be tested above the statement, but for the loops."""
        if not self.bound.isdisjoint(variables_of(cond)):
            return False
        if is_index_condition(cond):
            return True
        return not self.is_guarded and self.written.isdisjoint(n.buffer for n in walk(cond) if isinstance(n, Load))


@remembered
def _written(node: Node) -> frozenset[Buffer]:
    own = [node.buffer] if isinstance(node, Store) else []
    return frozenset(own).union(*map(_written, children(node)))


@remembered
def _tests(node: Node) -> bool:
    """Whether there is an If or an if_then_else in `node`."""
    return isinstance(node, If) or (isinstance(node, Call) and node.name == "if_then_else") or any(
        map(_tests, children(node))
    )  # fmt: skip


def _below(node: Stmt | Expr, facts: Facts, place: _Place) -> Iterator[Edge]:
    if not _tests(node):
        return
    if isinstance(node, For):
        yield from _below(node.body, loop_facts(facts, node), replace(place, loops=(*place.loops, node)))
        return
    if isinstance(node, If) or (isinstance(node, Call) and node.name == "if_then_else"):
        cond, then, other = (node.cond, node.then, node.orelse) if isinstance(node, If) else node.args
        for part in conjuncts(cond):
            yield Edge(part, place.loops, facts, isinstance(node, If), place.lets_move(part))
        inside = replace(place, is_guarded=True)
        yield from _below(then, facts.assuming(cond), inside)
        if other is not None:
            yield from _below(other, facts.assuming(cond, False), inside)
        return
    if isinstance(node, (Let, LetExpr)):
        place = replace(place, bound=place.bound | {node.var})
    for child in children(node):
        if isinstance(child, (Stmt, Expr)):
            yield from _below(child, facts, place)


def strengthen(edge: Edge, inner: set[Var]) -> Expr | None:
    """The weakest comparison free of `inner` that implies the edge's condition, or None if there is none.

    ``outer + inner op 0`` becomes ``outer + extreme(inner) op 0``.  Only what settles the edge counts: a version of
    the statement that still had the condition would be cut in two for ever.
    """
    cond = edge.cond
    if not edge.may_move or not isinstance(cond, Binary) or cond.op not in ("<", "<=", ">", ">="):
        return None
    if cond.a.dtype != dtypes.INDEX:
        return None
    terms, constant = add(shared_form(cond.a), shared_form(cond.b), -1)
    own = {a: k for a, k in terms.items() if not variables_of(a).isdisjoint(inner)}
    outer = {a: k for a, k in terms.items() if a not in own}
    low, high = edge.facts.of_form((own, constant))
    worst = high if cond.op in ("<", "<=") else low
    plain: Expr = binary(cond.op, build((outer, worst)), 0)
    simple: Expr = simplifier_for(edge.facts).expr(plain)
    if isinstance(simple, Const):
        return None
    return next((form for form in (simple, plain) if _settles(form, edge)), None)


def _settles(form: Expr, edge: Edge) -> bool:
    """Whether nothing of the edge's condition is left where `form` holds, and nothing of `form` where it does not."""
    holds, fails = edge.facts.assuming(form), edge.facts.assuming(form, False)
    return bool(simplifier_for(holds).expr(edge.cond) == TRUE and simplifier_for(fails).expr(form) == FALSE)


def is_index_condition(cond: Expr) -> bool:
    """Whether a condition is over variables alone, so that no store changes it."""
    return not any(isinstance(n, (Load, Call)) for n in walk(cond))
