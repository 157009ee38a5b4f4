"""Loops run only over the values for which they do something.

::

    for v in N: if low <= v <= high and d: S     ->  for v in high - low + 1: if d: S(v + low)
    for v in N: if v == k: S                     ->  S(k)

`low` and `high` are the least and greatest value at which some statement of the body runs,
at any point of the loops around.  Conditions: (1) the loop is serial, parallel or unrolled
and its extent is constant; (2) every statement of the body is under a condition; what such
a condition loads from memory may have any value; (3) a reduction still provably begins with
its init.  Source: RFC 0077, "New Transform - Reduce Loop Extents".

`trim_loops` does the same with intervals alone, which is what lowering has time for.
"""

from __future__ import annotations

from dataclasses import replace

from ..arith.intervals import Facts, Interval, nothing_known
from ..arith.linear import variables_of
from ..arith.statements import NOTHING, simplify_stmt
from ..context import Context, contexts, facts_below, map_below, map_with_facts
from ..expr import TRUE, Const, Var, as_int, binary, const, substitute
from ..node import rebuild
from ..stmt import Allocate, Assume, Attr, Block, Declare, Evaluate, For, If, Let, Seq, Stmt, Store
from ..verify.init import starts
from .conditionals import decide_conditions

KINDS = ("serial", "parallel", "unrolled")


def reduce_extents(stmt: Stmt, place: Context) -> Stmt:
    """Every loop at or below `stmt` with the values for which it does something, the outermost first."""
    if isinstance(stmt, For):
        smaller = reduce_extent(stmt, place)
        if smaller is not stmt:
            return reduce_extents(smaller, place)
    return map_below(stmt, place, reduce_extents)


def reduce_extent(loop: For, place: Context) -> Stmt:
    """One loop over the values for which it does something; the loop itself where all do or that is unknown."""
    if _obstacle(loop):
        return loop
    needed = needed_values(loop, place)
    if needed is None:
        return NOTHING
    if needed == (0, as_int(loop.extent) - 1):
        return loop
    smaller: Stmt = restrict(loop, needed)
    if needed[0] == needed[1]:
        smaller = substitute(loop.body, {loop.var: const(needed[0], loop.var.dtype)})
    result = decide_conditions(simplify_stmt(smaller, place.facts), place)
    return result if starts(result, place) else loop


def whole_reason(loop: For, place: Context) -> str:
    """Why the loop keeps all its iterations; empty if it need not."""
    last = as_int(loop.extent) - 1 if isinstance(loop.extent, Const) else 0
    reason = _obstacle(loop)
    if reason or needed_values(loop, place) != (0, last):
        return reason
    name = loop.var.name
    return f"(2) the conditions in loop `{name}` may hold for {name}=0 and for {name}={last}"


def _obstacle(loop: For) -> str:
    """Which of conditions 1 and 2 the form of the loop breaks; empty if none."""
    name = loop.var.name
    if loop.kind not in KINDS:
        return f"(1) loop `{name}` is {loop.kind}"
    if not isinstance(loop.extent, Const) or as_int(loop.extent) < 1:
        return f"(1) the extent of loop `{name}` is not a positive constant"
    return "" if _is_guarded(loop.body) else f"(2) something in loop `{name}` is under no condition"


def _is_guarded(stmt: Stmt) -> bool:
    """Whether every statement below is under a condition."""
    if isinstance(stmt, If):
        return True
    if isinstance(stmt, Block) and (stmt.predicate != TRUE or stmt.init is not None):
        return stmt.predicate != TRUE
    if isinstance(stmt, (For, Allocate, Declare, Let, Attr, Block)):
        return _is_guarded(stmt.body)
    return isinstance(stmt, Seq) and all(map(_is_guarded, stmt.stmts))


def needed_values(loop: For, place: Context) -> Interval | None:
    """The least and greatest value of the loop's variable at which a statement of the body runs; None if none does.

    What isl cannot decide counts as needed.
    """
    from ..affine.guard import NotAffine, Unknown

    everything = (0, as_int(loop.extent) - 1)
    found: Interval | None = None
    for stmt, here in contexts(loop, place):
        if not isinstance(stmt, (Store, Evaluate, Assume)):
            continue
        try:
            points = here.points()
            if points.is_empty():
                continue
            dim = points.variables.index(loop.var)
            own = points.minimum(dim), points.maximum(dim)
        except (NotAffine, Unknown):
            return everything
        found = own if found is None else _hull(found, own)
        if found == everything:
            break
    return found


def restrict(loop: For, piece: Interval) -> For:
    """The iterations of `loop` in the inclusive interval, counted from 0."""
    low, high = piece
    body = loop.body if low == 0 else substitute(loop.body, {loop.var: binary("+", loop.var, low)})
    return replace(loop, extent=Const(high - low + 1, loop.var.dtype), body=body)


def fold_single_loops(stmt: Stmt) -> Stmt:
    """``for i in 1: S(i) -> S(0)``, except loops over threads, which give a kernel its shape."""
    result: Stmt = rebuild(stmt, lambda child: fold_single_loops(child) if isinstance(child, Stmt) else child)
    if isinstance(result, For) and result.extent == Const(1) and result.kind != "thread_binding":
        folded: Stmt = substitute(result.body, {result.var: Const(0)})
        return folded
    return result


# ---------------------------------------------------------------- by intervals alone


def is_masked(loop: For) -> bool:
    """Whether conditions on the lanes of a vectorized loop become masks, so that it keeps all of its lanes."""
    return loop.kind == "vectorized" and dict(loop.annotations).get("mask") is True


def is_dot(loop: For) -> bool:
    """Whether the four steps of a loop are to be one dot product of bytes."""
    return dict(loop.annotations).get("dot") is True


def trim_loops(stmt: Stmt, facts: Facts | None = None) -> Stmt:
    """``for j in 16: if j < c: S -> for j in c: S``, for every loop of constant extent in a program without blocks."""
    facts = facts or nothing_known()
    return _trim(stmt, facts) if isinstance(stmt, For) else map_with_facts(stmt, facts, trim_loops)


def _trim(loop: For, facts: Facts) -> Stmt:
    inside = facts.looping(loop.var, loop.extent)
    if isinstance(loop.extent, Const) and loop.kind != "thread_binding" and _is_tested(loop.body, loop.var):
        low, high = _needed(loop.body, loop.var, inside)
        if low > high:
            return NOTHING
        if (low, high) != (0, as_int(loop.extent) - 1) and not is_masked(loop):
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
    if isinstance(stmt, (Store, Evaluate)):
        return facts.interval(var)
    result = (1, 0)
    for child, inside in facts_below(stmt, facts):
        result = _hull(result, _needed(child, var, inside))
    return result


def _hull(a: Interval, b: Interval) -> Interval:
    if a[0] > a[1]:
        return b
    if b[0] > b[1]:
        return a
    return min(a[0], b[0]), max(a[1], b[1])
