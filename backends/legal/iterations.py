"""Conditions of which facts tell the outcome in some iterations of unrolled loops, but not in all.

::

    if io*14 + 13 < n: for i in unrolled(14): for k in unrolled(3): if io*14 + i + k <= n: S
        ->  .. if i + k <= 14 or io*14 + i + k <= n: S

Where the loops are written out, ``i + k <= 14`` is a constant: the one iteration that may lie outside alone is tested.
Condition: both sides are exact, so that the comparison is one of integers.  What follows from the bounds of loops alone
is left to the code generator, which knows these.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir import dtypes
from ...ir.arith.intervals import Facts, nothing_known
from ...ir.arith.linear import Linear, UndefTerm, add, build, scale, shared_form, variables_of
from ...ir.context import facts_below
from ...ir.expr import Binary, Const, Expr, Var, const, reads_memory
from ...ir.node import Node, children, rebuild, remembered
from ...ir.stmt import For, Stmt
from ...ir.target import Target

ORDERED = ("<", "<=", ">", ">=")


def known_iterations(stmt: Stmt, target: Target) -> Stmt:
    """The statement, for a CPU, with conditions tested only in iterations where facts leave them open."""
    if target.kind != "cpu":
        return stmt
    return _statement(stmt, _Place(nothing_known(), nothing_known(), frozenset()))


@dataclass(frozen=True)
class _Place:
    """What is known at a statement, what its loops alone say, and the variables of the unrolled ones."""

    facts: Facts
    bounds: Facts
    unrolled: frozenset[Var]


@remembered
def _compares(node: Node) -> bool:
    """Whether indices are compared in `node`."""
    return _is_comparison(node) or any(map(_compares, children(node)))


def _is_comparison(node: Node) -> bool:
    return isinstance(node, Binary) and node.op in ORDERED and node.a.dtype == dtypes.INDEX


def _statement(stmt: Stmt, at: _Place) -> Stmt:
    if not _compares(stmt):
        return stmt
    bounds, unrolled = at.bounds, at.unrolled
    if isinstance(stmt, For):
        bounds = bounds.looping(stmt.var, stmt.extent)
        if stmt.kind == "unrolled" and isinstance(stmt.extent, Const):
            unrolled |= {stmt.var}
    inside = iter([facts for _, facts in facts_below(stmt, at.facts)])

    def visit(child: Node) -> Node:
        if isinstance(child, Stmt):
            return _statement(child, _Place(next(inside), bounds, unrolled))
        return _expression(child, at) if isinstance(child, Expr) and at.unrolled else child

    result: Stmt = rebuild(stmt, visit)
    return result


def _expression(expr: Expr, at: _Place) -> Expr:
    if not _compares(expr):
        return expr
    if isinstance(expr, Binary) and _is_comparison(expr):
        return _tested(expr, at)
    made: Expr = rebuild(expr, lambda child: _expression(child, at) if isinstance(child, Expr) else child)
    return made


def _tested(cond: Binary, at: _Place) -> Expr:
    """A comparison that is made only where its outcome is not known."""
    if at.unrolled.isdisjoint(variables_of(cond)) or reads_memory(cond):
        return cond
    try:
        sides = shared_form(cond.a), shared_form(cond.b)
    except UndefTerm:
        return cond
    if not all(map(at.facts.is_exact, sides)):
        return cond
    form = add(*sides, -1)
    form = scale(form, -1) if cond.op in (">", ">=") else form
    limit = -form[1] - (cond.op in ("<", ">"))  # own + outer <= limit
    own: Linear = ({a: k for a, k in form[0].items() if isinstance(a, Var) and a in at.unrolled}, 0)
    outer: Linear = ({a: k for a, k in form[0].items() if a not in own[0]}, 0)
    if not own[0] or any(not at.unrolled.isdisjoint(variables_of(atom)) for atom in outer[0]):
        return cond
    (least, most), (low, high) = at.facts.of_form(own), at.facts.of_form(outer)
    known, sum_of_own = at.bounds.of_form(outer), build(own)
    tested: Expr = cond
    if high < known[1] and least <= limit - high < most:
        holds = Binary("<=", sum_of_own, const(limit - high))
        tested = holds if low == high else Binary("or", holds, cond)
    if low != high and low > known[0] and least <= limit - low < most:
        tested = Binary("and", Binary("<=", sum_of_own, const(limit - low)), tested)
    return tested
