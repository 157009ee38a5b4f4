"""Neighbouring conditionals with equal conditions are merged, and those with equal branches go.

::

    if c: A  else: B                                ->  B                               A is B where c holds
    if c: A  else: B;   if d: C  else: D            ->  if c: { A; C }  else: { B; D }     c == d
    if c: A  else: B;   if d: C  else: D            ->  if c: { A; D }  else: { B; C }     c == not d
    if c and d: A                                   ->  if d: A                            c always holds

Conditions are equal where each implies the other at every point of the loops around; they
need not look alike.  Conditions of a merge: (1) the two are neighbours; (2) the conditions
are provably equal, or provably opposite; (3) A and B store to nothing that `d` loads;
(4) reductions in C and D still provably begin with their init.
Source: RFC 0077, "Enhancement - Simplify".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..arith.intervals import negate
from ..arith.statements import NOTHING, is_empty, simplify_stmt
from ..context import Context, has_init, nowhere, rewrite
from ..expr import FALSE, TRUE, Expr, Not, all_of, conjuncts
from ..stmt import Block, If, Seq, Stmt, memories_read, memories_written, seq
from ..verify.init import starts
from .renaming import same_statement

Relation = Callable[[If, If], bool | None]


def merge_conditionals(stmt: Stmt, place: Context | None = None) -> Stmt:
    """`stmt` with neighbouring conditionals merged and pointless ones gone, wherever that is proven."""
    return rewrite(stmt, place or nowhere(), _merge)


def _merge(stmt: Stmt, place: Context) -> Stmt:
    if isinstance(stmt, If):
        return _without_choice(stmt, place)
    if isinstance(stmt, Seq):
        return merge_neighbours(stmt, lambda first, second: _related(first, second, place))
    return stmt


def _without_choice(stmt: If, place: Context) -> Stmt:
    """The statement without its condition where both branches do the same, and without empty branches."""
    if stmt.orelse is None:
        return stmt.then if is_empty(stmt.then) else stmt
    for truth, kept in ((True, stmt.orelse), (False, stmt.then)):
        if _agree(stmt.then, stmt.orelse, place.where(stmt.cond, truth)) and starts(kept, place):
            return kept
    if is_empty(stmt.orelse):
        return If(stmt.cond, stmt.then)
    return If(negate(stmt.cond), stmt.orelse) if is_empty(stmt.then) else stmt


def _agree(a: Stmt, b: Stmt, place: Context) -> bool:
    """Whether the statements do the same at `place`."""
    return same_statement(a, b) or same_statement(simplify_stmt(a, place.facts), simplify_stmt(b, place.facts))


def _related(first: If, second: If, place: Context) -> bool | None:
    same = relation(first.cond, second.cond, place)
    if same is not None and has_init(second):
        moved = [s for s in (second.then, second.orelse) if s is not None]
        truths = (same, not same)
        if not all(starts(s, place.where(first.cond, t)) for t, s in zip(truths, moved, strict=False)):
            return None
    return same


def relation(c: Expr, d: Expr, place: Context) -> bool | None:
    """True if `c` and `d` are equal at `place`, False if each is the opposite of the other, None if unknown."""
    one, other = place.simplify(c), place.simplify(d)
    if one == other:
        return True
    if one == place.simplify(negate(other)):
        return False
    if place.excludes(c, Not(d)):
        return True if place.excludes(Not(c), d) else None
    if place.excludes(c, d):
        return False if place.excludes(Not(c), Not(d)) else None
    return None


def merge_neighbours(stmt: Seq, related: Relation) -> Stmt:
    """A sequence whose neighbouring conditionals are merged where `related` says that they belong together."""
    merged: list[Stmt] = []
    for item in stmt.stmts:
        joined = _joined(merged[-1], item, related) if merged else None
        if joined is None:
            merged.append(item)
        else:
            merged[-1] = joined
    return stmt if len(merged) == len(stmt.stmts) else seq(merged)


def _joined(first: Stmt, second: Stmt, related: Relation) -> Stmt | None:
    """The two conditionals as one; None where a condition fails."""
    if not isinstance(first, If) or not isinstance(second, If):
        return None
    read = memories_read(second.cond)
    if read and not read.isdisjoint(memories_written(first)):
        return None
    same = related(first, second)
    if same is None:
        return None
    yes, no = (second.then, second.orelse) if same else (second.orelse, second.then)
    then, other = _both(first.then, yes, related), _both(first.orelse, no, related)
    assert then is not None
    return If(first.cond, then, other)


def _both(a: Stmt | None, b: Stmt | None, related: Relation) -> Stmt | None:
    """Branch `a`, then `b`; conditionals that become neighbours are merged, too."""
    if a is None or b is None:
        return a if b is None else b
    both = seq([a, b])
    return merge_neighbours(both, related) if isinstance(both, Seq) else both


def decide_conditions(stmt: Stmt, place: Context | None = None) -> Stmt:
    """`stmt` with every condition decided that always, or never, holds where it stands."""
    return rewrite(stmt, place or nowhere(), _decide)


def _decide(stmt: Stmt, place: Context) -> Stmt:
    if isinstance(stmt, If):
        kept = undecided(stmt.cond, place)
        if kept is None:
            return NOTHING if stmt.orelse is None else stmt.orelse
        if kept == TRUE:
            return stmt.then
        return stmt if kept is stmt.cond else If(kept, stmt.then, stmt.orelse)
    if isinstance(stmt, Block):
        kept = undecided(stmt.predicate, place)
        if kept is None:
            return NOTHING
        new = replace(stmt, predicate=kept)
        return stmt if kept is stmt.predicate or not starts(new, place) else new
    return stmt


def undecided(cond: Expr, place: Context) -> Expr | None:
    """What is left of `cond` where the place and its other conjuncts are known; None if it never holds."""
    simple = place.simplify(cond)
    if simple == FALSE or place.excludes(cond):
        return None
    parts = list(conjuncts(simple))
    for part in list(parts):
        others = [p for p in parts if p is not part]
        if place.excludes(*others, Not(part)):
            parts = others
    return cond if tuple(parts) == conjuncts(cond) else all_of(parts)
