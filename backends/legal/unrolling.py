"""Unrolled loops that stay loops, because written out they would be too long.

::

    for i {unrolled}: S     ->  for i {serial, pragma_unroll}: S     of more than MAX_WRITTEN_OUT stores
    for i {unrolled}: S     ->  for i {serial}: S                    of more than MAX_COPIED, none of them to registers

The others are written out by whoever prints the program: so many copies of S, one for each value of i.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.expr import Const, as_int
from ...ir.node import rebuild
from ...ir.stmt import Allocate, Declare, For, If, Let, Seq, Stmt, read_buffers, written_buffers

MAX_WRITTEN_OUT = 1 << 14
"""Statements of one kernel beyond which unrolled loops stay loops, for the compiler to unroll."""
MAX_COPIED = 64
"""Statements beyond which unrolled loops that keep nothing in registers stay loops.

Stores of a starting value that lie apart are as many as a tile has elements: written out, PoCL takes some seconds to
look which of them are neighbours, and they are no faster.
"""
PRAGMA_UNROLL = "pragma_unroll"
"""The annotation of a loop that the device's compiler shall unroll."""


def keep_loops(stmt: Stmt) -> Stmt:
    """The statement with such loops serial."""
    result: Stmt = rebuild(stmt, lambda child: keep_loops(child) if isinstance(child, Stmt) else child)
    if not isinstance(stmt, For) or not isinstance(result, For) or stmt.kind != "unrolled":
        return result
    count = written_out(stmt)
    if count > MAX_WRITTEN_OUT:
        return replace(result, kind="serial", annotations=(*stmt.annotations, (PRAGMA_UNROLL, 1)))
    return replace(result, kind="serial") if count > MAX_COPIED and not uses_registers(stmt) else result


def written_out(stmt: Stmt) -> int:
    """The number of stores that remain when the unrolled loops below are written out."""
    if isinstance(stmt, For):
        times = as_int(stmt.extent) if stmt.kind == "unrolled" and isinstance(stmt.extent, Const) else 1
        return times * written_out(stmt.body)
    if isinstance(stmt, Seq):
        return sum(map(written_out, stmt.stmts))
    if isinstance(stmt, If):
        return written_out(stmt.then) + (0 if stmt.orelse is None else written_out(stmt.orelse))
    if isinstance(stmt, (Let, Allocate, Declare)):
        return written_out(stmt.body)
    return 1


def uses_registers(stmt: Stmt) -> bool:
    """Whether a statement reads or writes private arrays, which live in registers where their indices are constants."""
    return any(buffer.scope == "local" for buffer in (*read_buffers(stmt), *written_buffers(stmt)))
