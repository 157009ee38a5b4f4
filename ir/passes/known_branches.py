"""What is known inside of a branch whose condition reads memory.

Nobody else knows at which iterations such a branch runs.  Seen alone, it is a program that runs once, at whose start
its condition holds::

    if A[0] == n: A[0] = A[0] + 1; B[0] = A[0]        ->  if A[0] == n: A[0] = n + 1; B[0] = n + 1
    if X[i] > 3: A[i] = 5; B[i] = A[i]                ->  if X[i] > 3: A[i] = 5; B[i] = 5

What stands before the branch has run, and what stands behind it has not; so the writer that comes last inside is the
last of all.  Of the condition those parts are believed that say what an element is equal to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .. import dtypes
from ..arith.intervals import negate
from ..expr import Binary, Buffer, Expr, Load, Var, all_of, conjuncts, let_variables, reads_memory
from ..node import rebuild, walk
from ..stmt import Allocate, Assume, Block, Declare, For, If, Let, PrimFunc, Seq, Stmt, memories_read, walk_stmts
from .known_loads import with_known_loads
from .positions import at, position, with_statement


def with_known_branches(func: PrimFunc, within: Stmt) -> PrimFunc:
    """The function with loads, in branches at or below `within`, replaced by what is known of them there.

    A function with views of memory stays as it is.
    """
    if not any(isinstance(s, If) and reads_memory(s.cond) for s in walk_stmts(within)):
        return func
    if any(isinstance(s, Declare) for s in walk_stmts(func.body)):
        return func
    root = position(func.body, within)
    new = _below(func, within, ())
    return func if new is within else with_statement(func, root, new)


def _below(func: PrimFunc, stmt: Stmt, around: tuple[Expr, ...]) -> Stmt:
    """The statement with branches in it rewritten; `around` are conditions over variables that hold there."""
    if isinstance(stmt, If):
        then = _branch(func, stmt.then, stmt.cond, around)
        orelse = None if stmt.orelse is None else _branch(func, stmt.orelse, negate(stmt.cond), around)
        return stmt if then is stmt.then and orelse is stmt.orelse else If(stmt.cond, then, orelse)
    if isinstance(stmt, For) and not reads_memory(stmt.extent):
        around = (*around, stmt.var >= 0, stmt.var < stmt.extent)
    if isinstance(stmt, Block):
        around = (*around, *(c for i in stmt.iters for c in (i.var >= 0, i.var < i.limit)))
    result: Stmt = rebuild(stmt, lambda child: _below(func, child, around) if isinstance(child, Stmt) else child)
    return result


def _branch(func: PrimFunc, branch: Stmt, cond: Expr, around: tuple[Expr, ...]) -> Stmt:
    """A branch where `cond` holds, and those in it."""
    parts = [c for c in conjuncts(cond) if dtypes.lanes(c.dtype) == 1]
    inside = (*around, *(c for c in parts if not reads_memory(c)))
    branch = _below(func, branch, inside)
    return _alone(func, branch, parts, inside) if reads_memory(cond) else branch


def _alone(func: PrimFunc, branch: Stmt, parts: Sequence[Expr], around: tuple[Expr, ...]) -> Stmt:
    """A branch as a program of its own, which starts where the conditions `parts` hold."""
    if not memories_read(branch):
        return branch
    # What is believed says what one element is equal to.
    equal = (p for p in parts if isinstance(p, Binary) and p.op == "==")
    given = [Assume(p) for p in equal if sum(isinstance(n, Load) for n in walk(p)) == 1]
    body: Stmt = If(all_of(around), Seq((*given, branch)) if given else branch)
    bound = {b for s in walk_stmts(branch) for b in _bound(s)} | let_variables(body)
    free = dict.fromkeys(n for n in walk(body) if isinstance(n, (Buffer, Var)) and n not in bound)
    part = replace(func, params=tuple(free), layouts=(), body=Block("root", (), body))
    new = with_known_loads(part, branch, is_whole=False)
    return branch if new is part else at(new.body, position(part.body, branch))


def _bound(stmt: Stmt) -> tuple[Buffer | Var, ...]:
    """What a statement gives to those in it."""
    if isinstance(stmt, Allocate):
        return (stmt.buffer,)
    if isinstance(stmt, Block):
        return (*stmt.allocs, *(i.var for i in stmt.iters))
    return (stmt.var,) if isinstance(stmt, (For, Let)) else ()
