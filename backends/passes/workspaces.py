"""Memory of intermediates: of the whole call, or of each concurrent iteration."""

from __future__ import annotations

from dataclasses import replace

from ...ir.expr import Buffer
from ...ir.node import Node, rebuild, transform, walk
from ...ir.stmt import Allocate, For, Stmt
from .compact import CONCURRENT
from .errors import LoweringError

MAX_PRIVATE_BYTES = 1 << 20


def place_workspaces(stmt: Stmt) -> tuple[Stmt, tuple[Buffer, ...]]:
    """The statement without the allocations that live for the whole call, and their buffers.

    Those are the global ones outside of concurrent loops, and registers that would
    span such loops.  Raises LoweringError where one iteration needs more than
    1 MiB of its own.
    """
    found: dict[str, Buffer] = {}
    body = _visit(stmt, False, found)
    for old, new in [(b, replace(b, scope="global")) for b in found.values() if not _is_global(b)]:
        body = _rename(body, old, new)
        found[old.name] = new
    return body, tuple(found.values())


def _visit(stmt: Stmt, concurrent: bool, found: dict[str, Buffer]) -> Stmt:
    if isinstance(stmt, Allocate):
        buffer = stmt.buffer
        if concurrent or buffer.scope == "shared":
            _check_size(buffer)
        elif _is_global(buffer) or _spans_threads(stmt.body) or buffer.nbytes > MAX_PRIVATE_BYTES:
            found[buffer.name] = buffer
            return _visit(stmt.body, concurrent, found)
    inside = concurrent or (isinstance(stmt, For) and stmt.kind in CONCURRENT)
    result: Stmt = rebuild(stmt, lambda child: _visit(child, inside, found) if isinstance(child, Stmt) else child)
    return result


def _is_global(buffer: Buffer) -> bool:
    """Whether all work-items see the buffer: global memory, textures included."""
    return buffer.scope.split(".")[0] == "global"


def _spans_threads(stmt: Stmt) -> bool:
    return any(isinstance(n, For) and n.kind in CONCURRENT for n in walk(stmt))


def _check_size(buffer: Buffer) -> None:
    if buffer.nbytes > MAX_PRIVATE_BYTES:
        raise LoweringError(
            f"buffer `{buffer.name}` needs {buffer.nbytes} bytes in each concurrent iteration, more than "
            f"{MAX_PRIVATE_BYTES}; compute it outside of the concurrent loop, or for a smaller tile"
        )


def _rename(stmt: Stmt, old: Buffer, new: Buffer) -> Stmt:
    """`old` as `new`, and its views in the scope of `new`."""

    def swap(item: Node) -> Node:
        if not isinstance(item, Buffer) or item.memory != old.name:
            return item
        return new if item == old else replace(item, scope=new.scope)

    result: Stmt = transform(stmt, swap)
    return result
