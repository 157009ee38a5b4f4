"""Barriers where work-items touch what others wrote.

::

    S1; S2                  ->  S1; barrier; S2              if one writes what the other touches
    for i: S                ->  for i: { S; barrier }        if an iteration writes what another one touches

In local memory items meet wherever both sides touch it, in global memory where one of the sides has loops over items:
what all of them do alike, outside of such loops, each does in order, and so does the first item what it does alone, in
loops of one iteration.  No barrier is needed between iterations that only write, each an element of its own.  Local
memory that is allocated inside of a loop is the same in every iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir import dtypes
from ...ir.arith.intervals import nothing_known
from ...ir.dataflow.meets import are_determined
from ...ir.expr import Buffer, Call, Expr, Load, Ramp, barrier, const
from ...ir.functions import BARRIERS
from ...ir.node import children, rebuild, remembered, walk
from ...ir.stmt import Allocate, Evaluate, For, Seq, Stmt, Store, memories_read, memories_written, seq
from ..passes.scopes import accesses
from .work_items import is_serial

Fence = frozenset[str]
"""The memories that a barrier orders: ``shared``, ``global``, or both."""


@dataclass(frozen=True)
class Memories:
    """Buffers in local memory that are allocated around a statement, and those in global memory that it may write."""

    local: tuple[Buffer, ...]
    everywhere: tuple[Buffer, ...]

    def with_local(self, buffer: Buffer) -> Memories:
        return replace(self, local=(*self.local, buffer))


def is_barrier(stmt: Stmt) -> bool:
    """Whether a statement is a barrier."""
    return isinstance(stmt, Evaluate) and isinstance(stmt.value, Call) and stmt.value.name in BARRIERS


def has_barrier(stmt: Stmt) -> bool:
    """Whether a barrier stands somewhere in a statement."""
    return any(isinstance(node, Call) and node.name in BARRIERS for node in walk(stmt))


def place_barriers(stmt: Stmt, memories: Memories) -> Stmt:
    """A kernel's statement with its barriers; local memory that a sequence allocates is there for the rest of it."""
    if isinstance(stmt, Seq) or (isinstance(stmt, Allocate) and stmt.buffer.scope == "shared"):
        return _Sequence().ordered(stmt, memories)[0]
    result: Stmt = rebuild(stmt, lambda child: place_barriers(child, memories) if isinstance(child, Stmt) else child)
    if isinstance(stmt, For) and isinstance(result, For) and (not stmt.thread or is_serial(stmt)):
        fence = fence_of_loop(stmt, memories)
        return replace(result, body=seq([result.body, _barrier(fence)])) if fence else result
    return result


class _Sequence:
    """Statements that follow each other, in order, and how many of them a barrier of each memory has made visible."""

    def __init__(self) -> None:
        self._before: list[Stmt] = []
        self._visible = dict.fromkeys(("shared", "global"), 0)

    def ordered(self, stmt: Stmt, memories: Memories) -> tuple[Stmt, Memories]:
        """The next statement, after a barrier where it needs one, and the memories behind it."""
        if isinstance(stmt, Allocate) and stmt.buffer.scope == "shared":
            body, memories = self.ordered(stmt.body, memories.with_local(stmt.buffer))
            return replace(stmt, body=body), memories
        if isinstance(stmt, Seq):
            items = []
            for item in stmt.stmts:
                made, memories = self.ordered(item, memories)
                items.append(made)
            return seq(items), memories
        fence = frozenset(
            name
            for at in range(min(self._visible.values()), len(self._before))
            for name in fence_between(self._before[at], stmt, memories)
            if at >= self._visible[name]
        )
        self._visible |= dict.fromkeys(fence, len(self._before))
        self._before.append(stmt)
        placed = place_barriers(stmt, memories)
        return (seq([_barrier(fence), placed]) if fence else placed), memories


def _barrier(fence: Fence) -> Stmt:
    return Evaluate(barrier(fence))


def fence_between(before: Stmt, after: Stmt, memories: Memories) -> Fence:
    """What the barrier between two statements orders; empty if none is needed."""
    apart = _has_items(before) or _has_items(after)
    return _fence(_meet(before, after, memories.local), apart and _meet(before, after, memories.everywhere))


def fence_of_loop(loop: For, memories: Memories) -> Fence:
    """What the barrier after each iteration of a loop orders; empty if none is needed."""
    own = [n.buffer for n in walk(loop.body) if isinstance(n, Allocate) and n.buffer.scope == "shared"]
    local = _iterations_meet(loop, (*memories.local, *own))
    return _fence(local, _has_items(loop.body) and _iterations_meet(loop, memories.everywhere))


def _fence(local: bool, everywhere: bool) -> Fence:
    return frozenset(name for name, meets in (("shared", local), ("global", everywhere)) if meets)


@remembered
def _has_items(stmt: Stmt) -> bool:
    """Whether there is a loop over work-items in a statement."""
    if isinstance(stmt, For) and stmt.has_items:
        return True
    return any(_has_items(child) for child in children(stmt) if isinstance(child, Stmt))


@remembered
def _has_first(stmt: Stmt) -> bool:
    """Whether there is a loop in a statement that the first item along x runs alone."""
    return any(isinstance(n, For) and _is_of_one(n) for n in walk(stmt))


def _is_of_one(loop: For) -> bool:
    return loop.thread == "threadIdx.x" and loop.extent == const(1)


def _is_of_first(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether the first item along x alone touches a buffer in a statement."""
    if not touches(stmt, buffer):
        return True
    if isinstance(stmt, For) and stmt.has_items:
        return _is_of_one(stmt) and not _has_items(stmt.body)
    parts = list(children(stmt))
    reads = any(buffer.name in memories_read(part) for part in parts if isinstance(part, Expr))
    return _has_first(stmt) and not reads and all(_is_of_first(p, buffer) for p in parts if isinstance(p, Stmt))


def writes(stmt: Stmt, buffer: Buffer) -> bool:
    return buffer.name in memories_written(stmt)


def touches(stmt: Stmt, buffer: Buffer) -> bool:
    return buffer.name in memories_written(stmt) | memories_read(stmt)


def _meet(before: Stmt, after: Stmt, buffers: Sequence[Buffer]) -> bool:
    met = [b for b in buffers if touches(before, b) and touches(after, b)]
    met = [b for b in met if not (_is_of_first(before, b) and _is_of_first(after, b))]
    return any(writes(before, b) or writes(after, b) for b in met)


def _iterations_meet(loop: For, buffers: Sequence[Buffer]) -> bool:
    written = [b for b in buffers if writes(loop.body, b) and not _is_of_first(loop.body, b)]
    return any(b.name in memories_read(loop.body) or not stores_apart(loop, b) for b in written)


def stores_apart(loop: For, buffer: Buffer) -> bool:
    """Whether a single store writes another element for each value of the loop and of those inside."""
    touching = [n for n in walk(loop) if isinstance(n, (Load, Store)) and n.buffer.memory == buffer.name]
    found = list(accesses(loop, frozenset((buffer,)), nothing_known()))
    if len(touching) != 1 or len(found) != 1 or len(found[0].indices) != 1:
        return False
    (access,) = found
    (index,) = access.indices
    lanes = 1
    if isinstance(index, Ramp) and index.stride == const(1):
        lanes, index = index.lanes, index.base
    if dtypes.lanes(index.dtype) > 1:
        return False
    touch = replace(access, indices=(index,))
    own = [item.var for item in access.loops]
    return are_determined(own, (touch,), access.lets, access.facts, memories_written(loop), lanes)
