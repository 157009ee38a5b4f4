"""Statements that hold nothing go: loops, conditions, blocks; bindings and allocations that nothing uses.

Sequences in sequences become one.
"""

from __future__ import annotations

from dataclasses import replace

from ..arith.intervals import negate
from ..arith.statements import NOTHING, is_empty
from ..expr import Buffer
from ..node import rebuild, walk
from ..stmt import Allocate, Attr, Block, Declare, For, If, Let, PrimFunc, Seq, Stmt, seq


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
    if isinstance(new, (Allocate, Declare)):
        return new if _uses_memory(new.body, new.buffer) else new.body
    return new


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
    used = tuple(b for b in block.allocs if any(_uses_memory(s, b) for s in (block.init, block.body) if s is not None))
    return block if used == block.allocs else replace(block, allocs=used)


def _uses_memory(stmt: Stmt, buffer: Buffer) -> bool:
    return any(isinstance(n, Buffer) and buffer.name in (n.name, n.data) for n in walk(stmt))
