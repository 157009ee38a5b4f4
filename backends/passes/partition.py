"""Loops annotated ``peel``: whole tiles run without conditions, the ragged edge apart.

::

    for io in n: for ii in t {peel}: if io*t + ii < N: S
        ->  for io in n: if io*t + t-1 < N: { for ii in t: S }
                         else:              { for ii in N - io*t: S }

The test stands as far outside as the variables of the strengthened condition
allow, but within the loops over work-items that share memory: no barrier stands in
a condition, and no reduction of a subgroup in one that its items disagree about.  In
the edge, what it says about outer variables often fixes them, and the extents become
constants.  A loop over which a condition ranges alone is split in two or three loops
instead, unless its lanes are masked.  Conditions inside of values stay: they choose a
value, they do not skip work.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.arith.intervals import Facts, Interval, nothing_known
from ...ir.arith.linear import variables_of
from ...ir.arith.simplifier import simplifier_for
from ...ir.arith.statements import NOTHING, simplify_stmt
from ...ir.context import map_with_facts
from ...ir.expr import TRUE, Const, Expr, Load, Var, as_int
from ...ir.node import children, rebuild, remembered, walk
from ...ir.passes.loop_extents import is_masked, restrict, trim_loops
from ...ir.stmt import For, If, Stmt, Store, seq
from .edges import Edge, edges, strengthen

SPLITTABLE = ("serial", "unrolled", "vectorized")


def partition_loops(stmt: Stmt, strict: bool = False) -> Stmt:
    """Peel the annotated loops; the annotation goes."""
    facts = nothing_known(strict)
    return _clean(_partition(trim_loops(stmt, facts), facts, None, frozenset()))


@remembered
def _peels(stmt: Stmt) -> bool:
    """Whether there is a loop to peel at or below `stmt`."""
    if isinstance(stmt, For) and is_peeled(stmt):
        return True
    return any(_peels(child) for child in children(stmt) if isinstance(child, Stmt))


def is_peeled(loop: For) -> bool:
    return dict(loop.annotations).get("peel") is True


def _partition(stmt: Stmt, facts: Facts, around: For | None, late: frozenset[Var]) -> Stmt:
    """`stmt` is the body of the loop `around`, or the whole; conditions over `late` have not been looked at yet."""
    if around is not None:
        late |= {around.var}
        if _meets(stmt) or around.reduces:
            return _descend(stmt, facts, late)
    cond = None if around is None or is_masked(around) else _choose(stmt, facts, around, late)
    if cond is not None:
        versions = []
        for truth in (True, False):
            inside = facts.assuming(cond, truth)
            version = trim_loops(simplify_stmt(stmt, inside), inside)
            versions.append(_partition(version, inside, around, late))
        return If(cond, *versions)
    return _descend(stmt, facts, frozenset())


@remembered
def _meets(stmt: Stmt) -> bool:
    """Whether loops over work-items in `stmt` use memory that they share."""
    if isinstance(stmt, For) and stmt.has_items:
        return any(isinstance(n, (Load, Store)) and n.buffer.scope == "shared" for n in walk(stmt))
    return any(_meets(child) for child in children(stmt) if isinstance(child, Stmt))


def _descend(stmt: Stmt, facts: Facts, late: frozenset[Var]) -> Stmt:
    if isinstance(stmt, For):
        return _loop(stmt, facts, late)
    return map_with_facts(stmt, facts, lambda child, inside: _descend(child, inside, late))


def _choose(stmt: Stmt, facts: Facts, around: For, late: frozenset[Var]) -> Expr | None:
    """The first strengthened condition over a variable of `late` that decides something in `stmt`."""
    if not is_peeled(around) and not _peels(stmt):
        return None
    for edge in edges(stmt, facts):
        if not edge.guards_statement or late.isdisjoint(variables_of(edge.cond)):
            continue
        strong = _strong(edge, around)
        if strong is None or late.isdisjoint(variables_of(strong)):
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


def _loop(loop: For, facts: Facts, late: frozenset[Var]) -> Stmt:
    inside = facts.looping(loop.var, loop.extent)
    splits = is_peeled(loop) and loop.kind in SPLITTABLE and not is_masked(loop)
    pieces = _pieces(loop, inside) if splits else None
    if pieces is None:
        return replace(loop, body=_partition(loop.body, inside, loop, late))
    parts = [trim_loops(simplify_stmt(restrict(loop, piece), facts), facts) for piece in pieces]
    return seq([_descend(p, facts, late) for p in parts if p != NOTHING])


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


def _clean(stmt: Stmt) -> Stmt:
    """Without the annotation, and without loops of one iteration."""
    if isinstance(stmt, For) and is_peeled(stmt):
        kept = tuple(a for a in stmt.annotations if a[0] != "peel")
        return replace(stmt, body=_clean(stmt.body), annotations=kept)
    result: Stmt = rebuild(stmt, lambda child: _clean(child) if isinstance(child, Stmt) else child)
    return result


def split_ranges(stmt: Stmt, strict: bool = False) -> Stmt:
    """``for v in n: if v < c: A else: B -> for v in c: A; for v in n - c: B``, for loops that run in order."""
    return _split_ranges(stmt, nothing_known(strict))


def _split_ranges(stmt: Stmt, facts: Facts) -> Stmt:
    stmt = map_with_facts(stmt, facts, _split_ranges)
    if not isinstance(stmt, For) or stmt.kind not in ("serial", "unrolled") or not isinstance(stmt.extent, Const):
        return stmt
    body = stmt.body
    if not isinstance(body, If) or body.orelse is None or variables_of(body.cond) != {stmt.var}:
        return stmt
    low, high = facts.looping(stmt.var, stmt.extent).assuming(body.cond).interval(stmt.var)
    last = as_int(stmt.extent) - 1
    exact = simplifier_for(facts.with_bounds({stmt.var: (low, high)})).expr(body.cond) == TRUE
    if not exact or low > high:
        return stmt
    pieces = [p for p in ((0, low - 1), (low, high), (high + 1, last)) if p[0] <= p[1]]
    return seq([simplify_stmt(restrict(stmt, piece), facts) for piece in pieces])
