"""Memory of intermediates: of the whole call, of a work-group, or of each concurrent iteration.

What a work-group allocates outside of the loops over its items is one memory for all of them::

    for g {blockIdx.x}: alloc B: for i {threadIdx.x}: S(B)   ->   B in scope shared

Registers that hold the same for all items of a subgroup stay those of each item (`subgroups`).
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.expr import Buffer, Const
from ...ir.node import Node, rebuild, transform, walk
from ...ir.stmt import SUBGROUP, Allocate, For, Stmt
from .compact import CONCURRENT
from .errors import LoweringError
from .subgroups import is_same_for_all

MAX_PRIVATE_BYTES = 1 << 20  # a choice: a quarter of what a thread's stack may hold (`render.llvm.MAX_STACK_BYTES`)


def place_workspaces(stmt: Stmt) -> tuple[Stmt, tuple[Buffer, ...]]:
    """The statement without the allocations that live for the whole call, and their buffers.

    Those are the global ones outside of concurrent loops, and registers that would
    span such loops.  Raises LoweringError where one iteration needs more than
    1 MiB of its own.
    """
    found: dict[str, Buffer] = {}
    body = _visit(stmt, frozenset(), found)
    for old, new in [(b, replace(b, scope="global")) for b in found.values() if not _is_global(b)]:
        body = _rename(body, old, new)
        found[old.name] = new
    return body, tuple(found.values())


def _visit(stmt: Stmt, around: frozenset[str], found: dict[str, Buffer]) -> Stmt:
    """`around` has the kinds of concurrent loops that the statement stands in."""
    if isinstance(stmt, Allocate):
        stmt = _of_group(stmt, around) if around else stmt
        buffer = stmt.buffer
        if around or buffer.scope == "shared":
            if buffer.nbytes > MAX_PRIVATE_BYTES:
                raise LoweringError(
                    f"buffer `{buffer.name}` needs {buffer.nbytes} bytes in each concurrent iteration, more than "
                    f"{MAX_PRIVATE_BYTES}; compute it outside of the concurrent loop, or for a smaller tile"
                )
        elif _is_global(buffer) or _spans_threads(stmt) or buffer.nbytes > MAX_PRIVATE_BYTES:
            found[buffer.name] = buffer
            return _visit(stmt.body, around, found)
    if isinstance(stmt, For) and stmt.kind in CONCURRENT:
        around |= {"threadIdx" if stmt.has_items else stmt.thread.partition(".")[0]}
    result: Stmt = rebuild(stmt, lambda child: _visit(child, around, found) if isinstance(child, Stmt) else child)
    return result


def _of_group(stmt: Allocate, around: frozenset[str]) -> Allocate:
    """An allocation inside of a concurrent loop; in local memory if loops over work-items stand inside of it."""
    items = [n for n in walk(stmt.body) if isinstance(n, For) and n.has_items]
    if stmt.buffer.scope == "shared" and "threadIdx" in around and not items:  # it is one work-item's own
        own = replace(stmt.buffer, scope="local")
        return Allocate(own, _rename(stmt.body, stmt.buffer, own))
    if stmt.buffer.scope == "shared" or all(loop.extent == Const(1) for loop in items) or is_same_for_all(stmt):
        return stmt
    if "threadIdx" in around:
        raise LoweringError(
            f"buffer `{stmt.buffer.name}` belongs to one iteration of a loop over work-items, but is used by those of "
            f"`{items[0].var.name}` inside of it; compute it inside of that loop, or outside of both"
        )
    made = replace(stmt.buffer, scope="shared")
    return Allocate(made, _rename(stmt.body, stmt.buffer, made))


def _is_global(buffer: Buffer) -> bool:
    """Whether all work-items see the buffer: global memory, textures included."""
    return buffer.scope.split(".")[0] == "global"


def _spans_threads(stmt: Allocate) -> bool:
    inside = {n.thread for n in walk(stmt.body) if isinstance(n, For) and n.kind in CONCURRENT}
    return bool(inside) and not (SUBGROUP in inside and is_same_for_all(stmt))


def _rename(stmt: Stmt, old: Buffer, new: Buffer) -> Stmt:
    """`old` as `new`, and its views in the scope of `new`."""

    def swap(item: Node) -> Node:
        if not isinstance(item, Buffer) or item.memory != old.name:
            return item
        return new if item == old else replace(item, scope=new.scope)

    result: Stmt = transform(stmt, swap)
    return result
