"""Statements that hold nothing go: loops, conditions, blocks; bindings and allocations that nothing uses.

Sequences in sequences become one.
"""

from __future__ import annotations

from dataclasses import replace

from ..arith.intervals import negate
from ..arith.statements import NOTHING, is_empty
from ..expr import Buffer
from ..node import Node, children, rebuild, walk
from ..stmt import (
    Allocate,
    Attr,
    Block,
    Declare,
    For,
    If,
    Let,
    Opaque,
    PrimFunc,
    Seq,
    Stmt,
    seq,
    stmt_children,
    transform_statements,
    walk_stmts,
)


def without_empty(func: PrimFunc) -> PrimFunc:
    """The function without statements that hold nothing; its root block stays."""
    body = pruned(func.body)
    if is_empty(body):
        body = replace(func.body, body=NOTHING, init=None, allocs=())
    assert isinstance(body, Block)
    return func if body is func.body else func.with_body(body)


def pruned(stmt: Stmt) -> Stmt:
    """`stmt` without statements that hold nothing."""
    new: Stmt = rebuild(stmt, lambda child: pruned(child) if isinstance(child, Stmt) else child)
    if isinstance(new, Seq):
        kept = seq(new.stmts)  # without sequences inside
        return new if kept == new else kept
    if isinstance(new, If):
        return _pruned_if(new)
    if isinstance(new, Block):
        return _pruned_block(new)
    if isinstance(new, (For, Attr)):
        return NOTHING if is_empty(new.body) else new
    if isinstance(new, Let):
        return new if any(n == new.var for n in walk(new.body)) else new.body
    if isinstance(new, Allocate):
        new = _without_results(new)
    if isinstance(new, (Allocate, Declare)):
        return new if uses_memory(new.body, new.buffer) else new.body
    return new


def _without_results(stmt: Allocate) -> Allocate:
    """The statement, whose calls of what is not known give no value where memory of its own takes it for nobody."""
    name = stmt.buffer.name

    def names_it(node: Node) -> bool:
        return any(isinstance(n, Buffer) and name in (n.name, n.data) for n in walk(node))

    uses = [s for s in walk_stmts(stmt.body) if not stmt_children(s) and names_it(s)]
    taken = [s for s in uses if isinstance(s, Opaque) and s.target is not None and s.target.buffer == stmt.buffer]
    around = (e for s in walk_stmts(stmt.body) if stmt_children(s) for e in children(s) if not isinstance(e, Stmt))
    if len(taken) < len(uses) or any(map(names_it, around)) or any(names_it(n) for s in taken for n in s.args):
        return stmt

    def forgotten(item: Stmt) -> Stmt:
        known = isinstance(item, Opaque) and any(item is s for s in taken)
        return item.without_result() if known and isinstance(item, Opaque) else item

    return replace(stmt, body=transform_statements(stmt.body, forgotten)) if taken else stmt


def _pruned_if(stmt: If) -> Stmt:
    if stmt.orelse is not None and is_empty(stmt.orelse):
        stmt = If(stmt.cond, stmt.then)
    if not is_empty(stmt.then):
        return stmt
    return NOTHING if stmt.orelse is None else If(negate(stmt.cond), stmt.orelse)


def _pruned_block(block: Block) -> Stmt:
    if block.init is not None and is_empty(block.init):
        block = replace(block, init=None)
    if is_empty(block.body) and block.init is None:
        return NOTHING
    used = tuple(b for b in block.allocs if any(uses_memory(s, b) for s in (block.init, block.body) if s is not None))
    return block if used == block.allocs else replace(block, allocs=used)


def uses_memory(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether a statement names a buffer, or memory that it is."""
    return any(isinstance(n, Buffer) and buffer.name in (n.name, n.data) for n in walk(stmt))
