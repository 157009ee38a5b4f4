"""Conditions that do not depend on a loop move out of it.

::

    for i: if c: A else: B          ->  if c: { for i: A } else: { for i: B }
    for i: if c and d(i): A         ->  if c: for i: if d(i): A
    if c: A;  if c: B               ->  if c: { A; B }

Only conditions over loop variables move: no store changes them.  Loops over
threads keep their place at the top of a kernel.

`ir.passes.hoist` moves more: bindings, conditions that read memory, and those inside of blocks, which takes exact sets.
It is a step of a schedule.  This pass runs on every candidate that is lowered, where no block is left, and asks for
variables alone.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.arith.linear import variables_of
from ...ir.expr import Expr, all_of, conjuncts
from ...ir.node import rebuild
from ...ir.passes.conditionals import merge_neighbours
from ...ir.stmt import Allocate, For, If, Seq, Stmt
from .edges import is_index_condition


def hoist_conditions(stmt: Stmt) -> Stmt:
    """Each condition as far outside as it is invariant."""
    return _hoist(rebuild(stmt, lambda child: hoist_conditions(child) if isinstance(child, Stmt) else child))


def _hoist(new: Stmt) -> Stmt:
    """The statement with the conditions directly inside of it moved out; its parts are done."""
    if isinstance(new, For) and new.kind not in ("parallel", "thread_binding") and isinstance(new.body, If):
        return _out_of_loop(new, new.body)
    if isinstance(new, Allocate) and isinstance(new.body, If) and is_index_condition(new.body.cond):
        branch = new.body
        other = None if branch.orelse is None else Allocate(new.buffer, branch.orelse)
        return If(branch.cond, Allocate(new.buffer, branch.then), other)
    if isinstance(new, Seq):
        return merge_neighbours(new, _same_condition)
    if isinstance(new, If) and new.orelse is None and isinstance(new.then, If) and new.then.orelse is None:
        inner = new.then
        if not is_index_condition(inner.cond):  # what it reads may be in bounds where the outer condition holds alone
            return new
        return If(all_of([*conjuncts(new.cond), *conjuncts(inner.cond)]), inner.then)
    return new


def _out_of_loop(loop: For, branch: If) -> Stmt:
    parts = conjuncts(branch.cond)
    free = [c for c in parts if loop.var not in variables_of(c) and is_index_condition(c)]
    if not free or (branch.orelse is not None and len(free) < len(parts)):
        return loop
    rest: list[Expr] = [c for c in parts if c not in free]
    then = _hoist(replace(loop, body=If(all_of(rest), branch.then) if rest else branch.then))
    other = None if branch.orelse is None else _hoist(replace(loop, body=branch.orelse))
    return _hoist(If(all_of(free), then, other))


def _same_condition(first: If, second: If) -> bool | None:
    return True if first.cond == second.cond and is_index_condition(second.cond) else None
