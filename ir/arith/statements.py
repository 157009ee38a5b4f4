"""Simplification of statements: loops, iterators, bindings and conditions become facts."""

from __future__ import annotations

from typing import Any

from ..expr import TRUE, Const, Expr, Load, Undef, conjuncts, free_variables
from ..node import rebuild, walk
from ..statements import (
    Allocate,
    Assert,
    Assume,
    Attr,
    Block,
    Declare,
    Evaluate,
    For,
    If,
    Let,
    Opaque,
    Seq,
    Stmt,
    Store,
    While,
    seq,
)
from .intervals import Facts, negate
from .simplifier import Simplifier, simplifier_for

NOTHING = Seq(())


def simplify_stmt(stmt: Stmt, facts: Facts) -> Stmt:
    """`stmt` with every expression simplified under `facts` and what is around it.

    Loops without iterations, conditions that are decided, and what is left
    without a body go; loops of one iteration stay.
    """
    simplifier = simplifier_for(facts)
    known = simplifier.statements.get(id(stmt))
    if known is not None and known[0] is stmt:
        return known[1]
    new: Stmt = _SIMPLIFY[type(stmt)](stmt, simplifier)
    simplifier.statements[id(stmt)] = stmt, new
    simplifier.statements[id(new)] = new, new
    return new


def is_empty(stmt: Stmt) -> bool:
    return isinstance(stmt, Seq) and not stmt.stmts


def assumed(stmt: Stmt) -> tuple[Expr, ...]:
    """Conditions over variables that `stmt` assumes whenever it runs; what it says about memory is left out."""
    if isinstance(stmt, Assume):
        return tuple(c for c in conjuncts(stmt.cond) if not any(isinstance(n, (Load, Undef)) for n in walk(c)))
    if isinstance(stmt, Seq):
        return tuple(c for s in stmt.stmts for c in assumed(s))
    if isinstance(stmt, Block) and not stmt.iters and stmt.predicate == TRUE:
        return assumed(stmt.body)
    return ()


def _seq(stmt: Seq, s: Simplifier) -> Stmt:
    parts, facts = [], s.facts
    for part in stmt.stmts:
        parts.append(simplify_stmt(part, facts))
        for cond in assumed(part):
            facts = facts.assuming(cond)
    # Sharing must not show in the result: nested sequences are spliced in, whether anything else changed or not.
    same = len(parts) > 1 and all(a is b and not isinstance(a, Seq) for a, b in zip(parts, stmt.stmts, strict=True))
    return stmt if same else seq([p for p in parts if not is_empty(p)])


def _for(stmt: For, s: Simplifier) -> Stmt:
    extent = s.expr(stmt.extent)
    if s.facts.interval(extent)[1] <= 0:
        return NOTHING
    body = simplify_stmt(stmt.body, s.facts.looping(stmt.var, extent))
    if is_empty(body):
        return NOTHING
    if extent is stmt.extent and body is stmt.body:
        return stmt
    return For(stmt.var, extent, body, stmt.kind, stmt.thread, stmt.annotations)


def _if(stmt: If, s: Simplifier) -> Stmt:
    cond = s.expr(stmt.cond)
    yes, no = s.facts.assuming(cond), s.facts.assuming(cond, False)
    if cond == TRUE or no.impossible:
        return simplify_stmt(stmt.then, s.facts)
    other = None if stmt.orelse is None else simplify_stmt(stmt.orelse, no)
    if isinstance(cond, Const) or yes.impossible:
        return NOTHING if other is None else other
    then = simplify_stmt(stmt.then, yes)
    if other is None or is_empty(other):
        if is_empty(then):
            return NOTHING
        return stmt if _same(stmt, cond, then, None) else If(cond, then)
    if is_empty(then):
        return If(s.expr(negate(cond)), other)
    return stmt if _same(stmt, cond, then, other) else If(cond, then, other)


def _let(stmt: Let, s: Simplifier) -> Stmt:
    value = s.expr(stmt.value)
    body = simplify_stmt(stmt.body, s.facts.binding(stmt.var, value))
    if is_empty(body):
        return NOTHING
    if stmt.var not in free_variables(body):
        return body
    return stmt if value is stmt.value and body is stmt.body else Let(stmt.var, value, body)


def _block(stmt: Block, s: Simplifier) -> Stmt:
    predicate = s.expr(stmt.predicate)
    facts = s.facts.assuming(predicate)
    if facts.impossible:
        return NOTHING
    iters = tuple(rebuild(i, lambda e: simplifier_for(facts).expr(e) if isinstance(e, Expr) else e) for i in stmt.iters)
    spans = ((i, facts.interval(i.binding), facts.within(i.limit)) for i in iters)
    inside = facts.with_bounds({i.var: (max(low, 0), min(high, last)) for i, (low, high), (_, last) in spans})
    body = simplify_stmt(stmt.body, inside)
    init = None if stmt.init is None else simplify_stmt(stmt.init, inside)
    return Block(stmt.name, iters, body, predicate, init, stmt.allocs, stmt.annotations)


def _leaf(stmt: Stmt, s: Simplifier) -> Stmt:
    new: Stmt = rebuild(stmt, lambda e: s.expr(e) if isinstance(e, Expr) else e)
    return new


def _store(stmt: Store, s: Simplifier) -> Stmt:
    """A value that is stored where it was loaded from, in one statement, changes nothing."""
    new = _leaf(stmt, s)
    assert isinstance(new, Store)
    value = new.value
    return NOTHING if isinstance(value, Load) and (value.buffer, value.indices) == (new.buffer, new.indices) else new


def _around(stmt: Allocate | Declare, s: Simplifier) -> Stmt:
    body = simplify_stmt(stmt.body, s.facts)
    if is_empty(body):
        return NOTHING
    return stmt if body is stmt.body else type(stmt)(stmt.buffer, body)


def _while(stmt: While, s: Simplifier) -> Stmt:
    """What the condition says does not last: the body may change what it reads."""
    cond = s.expr(stmt.cond)
    if isinstance(cond, Const) and not cond.value:
        return NOTHING
    body = simplify_stmt(stmt.body, s.facts)
    return stmt if cond is stmt.cond and body is stmt.body else While(cond, body)


def _attr(stmt: Attr, s: Simplifier) -> Stmt:
    value = s.expr(stmt.value) if isinstance(stmt.value, Expr) else stmt.value
    body = simplify_stmt(stmt.body, s.facts)
    if is_empty(body):
        return NOTHING
    return stmt if value is stmt.value and body is stmt.body else Attr(stmt.key, value, body)


def _same(stmt: If, cond: Expr, then: Stmt, other: Stmt | None) -> bool:
    """Whether nothing changed, so that what is shared stays shared."""
    return cond is stmt.cond and then is stmt.then and other is stmt.orelse


_SIMPLIFY: dict[type[Stmt], Any] = {
    Seq: _seq,
    For: _for,
    If: _if,
    Let: _let,
    Attr: _attr,
    Block: _block,
    Store: _store,
    Evaluate: _leaf,
    Assume: lambda stmt, _: stmt,  # what is assumed stays as it was written, for those who look for it
    Allocate: _around,
    Declare: _around,
    While: _while,
    Assert: _leaf,
    Opaque: _leaf,
}
