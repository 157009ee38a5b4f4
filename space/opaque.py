"""Schedules around calls of what is not known: which primitives may touch the statements near them.

Primitives in `AROUND` move whole statement instances, or only say how a loop runs, by proofs over what statements read
and write; regions are enough for them.  Others rewrite what a block computes, or where its values lie.  They refuse
where a call is below a loop or block that they are given, or shares memory with what that block or loop writes, or with
a buffer that they are given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..ir.stmt import Block, For, Opaque, PrimFunc, Stmt, memories_read, memories_written, walk_stmts
from .errors import ScheduleError

AROUND = frozenset({
    "split", "fuse", "reorder", "parallel", "vectorize", "unroll", "bind", "annotate", "unannotate", "blockize",
    "add_unit_loop", "reorder_block_iter_var",
})  # fmt: skip


def refuse_calls(func: PrimFunc, primitive: str, arguments: Mapping[str, Any]) -> None:
    """Raise ScheduleError where a primitive would rewrite what a call of what is not known takes part in."""
    if primitive in AROUND:
        return
    given = set(_names(list(arguments.values())))
    calls = [s for s in walk_stmts(func.body) if isinstance(s, Opaque)]
    for stmt in walk_stmts(func.body):
        if _name(stmt) in given:
            below = next((s for s in walk_stmts(stmt) if isinstance(s, Opaque)), None)
            _refuse(below, primitive, f"which stands in `{_name(stmt)}`")
            for call in calls:
                shared = (memories_read(call) | memories_written(call)) & memories_written(stmt)
                _refuse(call if shared else None, primitive, f"which touches what `{_name(stmt)}` writes")
    for call in calls:
        named = (memories_read(call) | memories_written(call)) & given
        _refuse(call if named else None, primitive, f"which touches `{min(named, default='')}`")


def _refuse(call: Opaque | None, primitive: str, why: str) -> None:
    if call is not None:
        raise ScheduleError("`{primitive}` would rewrite a part of a program in which `{callee}` is called, {why}: "
                            "only the regions are known that it reads and writes",
                            primitive=primitive, callee=call.callee, why=why)  # fmt: skip


def _name(stmt: Stmt) -> str:
    return stmt.name if isinstance(stmt, Block) else stmt.var.name if isinstance(stmt, For) else ""


def _names(values: list[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _names(list(value))
