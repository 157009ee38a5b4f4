"""Loops annotated ``peel``: whole tiles run without conditions, the ragged edge apart.

::

    for io in n: for ii in t {peel}: if io*t + ii < N: S
        ->  for io in n: if io*t + t-1 < N: { for ii in t: S }
                         else:              { for ii in N - io*t: S }

The test stands as far outside as the variables of the strengthened condition
allow.  In the edge, what it says about outer variables often fixes them, and the
extents become constants.  A loop over which a condition ranges alone is split in
two or three loops instead.  Conditions inside of values stay: they choose a value,
they do not skip work.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.arith.intervals import Facts, Interval, nothing_known
from ...ir.arith.linear import variables_of
from ...ir.arith.simplify import simplifier_for
from ...ir.arith.statements import NOTHING, simplify_stmt
from ...ir.expr import TRUE, Const, Expr, Var, as_int, binary, substitute
from ...ir.node import rebuild
from ...ir.stmt import Allocate, Declare, Evaluate, For, If, Let, Seq, Stmt, Store, seq
from .edges import Edge, edges, strengthen
from .scopes import loop_facts

SPLITTABLE = ("serial", "unrolled", "vectorized")


def partition_loops(stmt: Stmt) -> Stmt:
    """Peel the annotated loops; the annotation goes."""
    return _clean(_partition(trim_loops(stmt, nothing_known()), nothing_known(), None))


def is_peeled(loop: For) -> bool:
    return dict(loop.annotations).get("peel") is True


def _partition(stmt: Stmt, facts: Facts, around: For | None) -> Stmt:
    """`stmt` is the body of the loop `around`, or the whole."""
    cond = None if around is None else _choose(stmt, facts, around)
    if cond is not None:
        versions = []
        for truth in (True, False):
            inside = facts.assuming(cond, truth)
            version = trim_loops(simplify_stmt(stmt, inside), inside)
            versions.append(_partition(version, inside, around))
        return If(cond, *versions)
    return _descend(stmt, facts)


def _descend(stmt: Stmt, facts: Facts) -> Stmt:
    if isinstance(stmt, For):
        return _loop(stmt, facts)
    if isinstance(stmt, If):
        then = _descend(stmt.then, facts.assuming(stmt.cond))
        other = None if stmt.orelse is None else _descend(stmt.orelse, facts.assuming(stmt.cond, False))
        return If(stmt.cond, then, other)
    result: Stmt = rebuild(stmt, lambda child: _descend(child, facts) if isinstance(child, Stmt) else child)
    return result


def _choose(stmt: Stmt, facts: Facts, around: For) -> Expr | None:
    """The first strengthened condition over `around` that decides something in `stmt`."""
    for edge in edges(stmt, facts):
        if not edge.guards_statement or around.var not in variables_of(edge.cond):
            continue
        strong = _strong(edge, around)
        if strong is None or around.var not in variables_of(strong):
            continue
        decided = simplifier_for(facts).expr(strong)
        if not isinstance(decided, Const):
            return decided
    return None


def _strong(edge: Edge, around: For) -> Expr | None:
    """The condition for all iterations of the outermost peeled loop that it depends on, and of those inside."""
    used = variables_of(edge.cond)
    first = next((n for n, loop in enumerate(edge.loops) if is_peeled(loop) and loop.var in used), None)
    if first is None:
        if not is_peeled(around):
            return None
        first = 0
    inner = {loop.var for loop in edge.loops[first:]}
    strong = strengthen(edge, inner)
    if strong is None or not variables_of(strong).isdisjoint(loop.var for loop in edge.loops):
        return None
    return strong


def _loop(loop: For, facts: Facts) -> Stmt:
    inside = loop_facts(facts, loop)
    pieces = _pieces(loop, inside) if is_peeled(loop) and loop.kind in SPLITTABLE else None
    if pieces is None:
        return replace(loop, body=_partition(loop.body, inside, loop))
    parts = [_piece(loop, piece, facts) for piece in pieces]
    return seq([_descend(p, facts) for p in parts if p != NOTHING])


def _pieces(loop: For, inside: Facts) -> list[Interval] | None:
    """The range of `loop` before, where, and after the conditions that range over it alone hold."""
    low, high = 0, inside.interval(loop.var)[1]
    last = high
    if not isinstance(loop.extent, Const):
        return None
    for edge in edges(loop.body, inside):
        if not edge.guards_statement or loop.var not in variables_of(edge.cond):
            continue
        strong = strengthen(edge, {item.var for item in edge.loops})
        if strong is None or variables_of(strong) != {loop.var}:
            continue
        lo, hi = inside.assuming(strong).interval(loop.var)
        if max(lo, low) <= min(hi, high):
            low, high = max(lo, low), min(hi, high)
    if (low, high) == (0, last):
        return None
    return [p for p in ((0, low - 1), (low, high), (high + 1, last)) if p[0] <= p[1]]


def _piece(loop: For, piece: Interval, facts: Facts) -> Stmt:
    return trim_loops(simplify_stmt(restrict(loop, piece), facts), facts)


def restrict(loop: For, piece: Interval) -> For:
    """The iterations of `loop` in the inclusive interval, counted from 0."""
    low, high = piece
    body = loop.body if low == 0 else substitute(loop.body, {loop.var: binary("+", loop.var, low)})
    return replace(loop, extent=Const(high - low + 1), body=body)


def _clean(stmt: Stmt) -> Stmt:
    """Without the annotation, and without loops of one iteration."""
    if isinstance(stmt, For) and is_peeled(stmt):
        kept = tuple(a for a in stmt.annotations if a[0] != "peel")
        return replace(stmt, body=_clean(stmt.body), annotations=kept)
    result: Stmt = rebuild(stmt, lambda child: _clean(child) if isinstance(child, Stmt) else child)
    return result


# Extents


def trim_loops(stmt: Stmt, facts: Facts | None = None) -> Stmt:
    """``for j in 16: if j < c: S -> for j in c: S``, for every loop of constant extent."""
    facts = facts or nothing_known()
    if isinstance(stmt, For):
        return _trim(stmt, facts)
    if isinstance(stmt, If):
        then = trim_loops(stmt.then, facts.assuming(stmt.cond))
        other = None if stmt.orelse is None else trim_loops(stmt.orelse, facts.assuming(stmt.cond, False))
        return stmt if then is stmt.then and other is stmt.orelse else If(stmt.cond, then, other)
    if isinstance(stmt, (Seq, Allocate, Declare, Let)):
        result: Stmt = rebuild(stmt, lambda c: trim_loops(c, facts) if isinstance(c, Stmt) else c)
        return result
    return stmt


def _trim(loop: For, facts: Facts) -> Stmt:
    inside = loop_facts(facts, loop)
    if isinstance(loop.extent, Const) and loop.kind != "thread_binding" and _is_tested(loop.body, loop.var):
        low, high = _needed(loop.body, loop.var, inside)
        if low > high:
            return NOTHING
        if (low, high) != (0, as_int(loop.extent) - 1):
            smaller = simplify_stmt(restrict(loop, (low, high)), facts)
            return trim_loops(smaller, facts)
    body = trim_loops(loop.body, inside)
    return loop if body is loop.body else replace(loop, body=body)


def _is_tested(stmt: Stmt, var: Var) -> bool:
    """Whether some If below may leave iterations of `var` without work."""
    if isinstance(stmt, If):
        return var in variables_of(stmt.cond) or any(_is_tested(s, var) for s in (stmt.then, stmt.orelse) if s)
    if isinstance(stmt, (For, Allocate, Declare, Let)):
        return _is_tested(stmt.body, var)
    return isinstance(stmt, Seq) and all(_is_tested(s, var) for s in stmt.stmts)


def _needed(stmt: Stmt, var: Var, facts: Facts) -> Interval:
    """The values of `var` for which `stmt` does anything, as an interval; (1, 0) is none."""
    if facts.impossible:
        return 1, 0
    if isinstance(stmt, If):
        then = _needed(stmt.then, var, facts.assuming(stmt.cond))
        other = (1, 0) if stmt.orelse is None else _needed(stmt.orelse, var, facts.assuming(stmt.cond, False))
        return _hull(then, other)
    if isinstance(stmt, For):
        return _needed(stmt.body, var, loop_facts(facts, stmt))
    if isinstance(stmt, (Allocate, Declare, Let)):
        return _needed(stmt.body, var, facts)
    if isinstance(stmt, Seq):
        result = (1, 0)
        for item in stmt.stmts:
            result = _hull(result, _needed(item, var, facts))
        return result
    assert isinstance(stmt, (Store, Evaluate))
    return facts.interval(var)


def _hull(a: Interval, b: Interval) -> Interval:
    if a[0] > a[1]:
        return b
    if b[0] > b[1]:
        return a
    return min(a[0], b[0]), max(a[1], b[1])


def split_ranges(stmt: Stmt) -> Stmt:
    """``for v in n: if v < c: A else: B -> for v in c: A; for v in n - c: B``, for loops that run in order."""
    return _split_ranges(stmt, nothing_known())


def _split_ranges(stmt: Stmt, facts: Facts) -> Stmt:
    inside = loop_facts(facts, stmt) if isinstance(stmt, For) else facts
    stmt = rebuild(stmt, lambda child: _split_ranges(child, inside) if isinstance(child, Stmt) else child)
    if not isinstance(stmt, For) or stmt.kind not in ("serial", "unrolled") or not isinstance(stmt.extent, Const):
        return stmt
    body = stmt.body
    if not isinstance(body, If) or body.orelse is None or variables_of(body.cond) != {stmt.var}:
        return stmt
    low, high = inside.assuming(body.cond).interval(stmt.var)
    last = as_int(stmt.extent) - 1
    exact = simplifier_for(facts.with_bounds({stmt.var: (low, high)})).expr(body.cond) == TRUE
    if not exact or low > high:
        return stmt
    pieces = [p for p in ((0, low - 1), (low, high), (high + 1, last)) if p[0] <= p[1]]
    return seq([simplify_stmt(restrict(stmt, piece), facts) for piece in pieces])


def fold_single_loops(stmt: Stmt) -> Stmt:
    """``for i in 1: S(i) -> S(0)``, except loops over threads, which give a kernel its shape."""
    result: Stmt = rebuild(stmt, lambda child: fold_single_loops(child) if isinstance(child, Stmt) else child)
    if isinstance(result, For) and result.extent == Const(1) and result.kind != "thread_binding":
        folded: Stmt = substitute(result.body, {result.var: Const(0)})
        return folded
    return result
