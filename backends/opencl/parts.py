"""What a statement asks of the kernel that runs it: work-items, memory, and how long it is written out."""

from __future__ import annotations

from math import prod

from ...ir.expr import Buffer, Const, as_int
from ...ir.node import walk
from ...ir.stmt import (
    SUBGROUP,
    Allocate,
    Declare,
    For,
    If,
    Let,
    Seq,
    Stmt,
    memories_read,
    memories_written,
    read_buffers,
    written_buffers,
)
from ...ir.target import Target
from ..llvm.types import CodegenError

AXES = "xyz"
OFFSETS = 1 << 15


def statements_at_top(stmt: Stmt) -> list[Stmt]:
    """The statements at the top, in order."""
    return [part for item in stmt.stmts for part in statements_at_top(item)] if isinstance(stmt, Seq) else [stmt]


def writes(stmt: Stmt, buffer: Buffer) -> bool:
    return buffer.name in memories_written(stmt)


def touches(stmt: Stmt, buffer: Buffer) -> bool:
    return buffer.name in memories_written(stmt) | memories_read(stmt)


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


def place_of(loop: For) -> tuple[str, str]:
    """``blockIdx`` or ``threadIdx``, and the axis, that a bound loop runs over: a subgroup stands along x."""
    if loop.thread == SUBGROUP:
        return "threadIdx", "x"
    where, _, axis = loop.thread.partition(".")
    if where not in ("blockIdx", "threadIdx") or axis not in AXES:
        raise CodegenError(f"loop `{loop.var.name}` is bound to the unknown axis `{loop.thread}`")
    return where, axis


def is_serial(loop: For) -> bool:
    """Whether a loop that is bound to ``blockIdx`` shall run on one thread, and so in one work-group."""
    return loop.thread.startswith("blockIdx") and ("threads", 1) in loop.annotations


def most_threads(body: Stmt) -> int:
    """On how many threads the loops over work-groups shall run at most, by their annotations; 0 for any number."""
    loops = (node for node in walk(body) if isinstance(node, For) and node.thread.startswith("blockIdx"))
    return min((value for loop in loops for key, value in loop.annotations if key == "threads"), default=0)


def sizes(body: Stmt) -> tuple[dict[str, int], dict[str, int]]:
    """``(groups, items)`` by axis: the largest extent of the loops that are bound to it."""
    groups: dict[str, int] = {}
    items: dict[str, int] = {}
    for node in walk(body):
        if isinstance(node, For) and node.kind == "thread_binding" and not is_serial(node):
            where, axis = place_of(node)
            table = groups if where == "blockIdx" else items
            try:
                extent = as_int(node.extent)
            except ValueError:
                name = node.var.name
                raise CodegenError(f"loop `{name}` is bound to {node.thread}; its extent must be constant") from None
            table[axis] = max(extent, table.get(axis, 1))
    return groups, items


NUMBERED = f"(long)(get_group_id(0) + get_global_offset(0) + get_global_offset(1) * {OFFSETS})"
"""The number of a work-group among all of a program.

A launch may have a range of them.  Its offset tells where that begins, in groups instead of items, since no kernel asks
for global ids; along y it counts runs of `OFFSETS`, since PoCL takes an offset for less than 2 ** 16.
"""


def along(axis: str, groups: dict[str, int], number: str) -> str:
    """Where a work-group with a number among all of them stands along an axis; x is the fastest."""
    before = prod(groups.get(a, 1) for a in AXES[: AXES.index(axis)])
    behind = any(groups.get(a, 1) > 1 for a in AXES[AXES.index(axis) + 1 :])
    text = number if before == 1 else f"{number} / {before}"
    return f"{text} % {groups[axis]}" if behind else text


def check_work_group(kernel: str, items: int, target: Target) -> None:
    """Raises CodegenError where a group has more items than the device allows."""
    if items > max(target.max_work_group, 1):
        raise CodegenError(
            f"kernel `{kernel}` needs a work-group of {items} items, but `{target.name}` allows {target.max_work_group}"
        )
