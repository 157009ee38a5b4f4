"""Where work-items meet in local memory, so that a barrier has to stand.

::

    S1; S2                  a barrier between, if one writes what the other touches
    for i: S                a barrier after S, if an iteration writes what another one touches

No barrier is needed between iterations that only write, each an element of its own.  Local memory that is
allocated inside of a loop is the same in every iteration.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import dtypes
from ...ir.arith.intervals import nothing_known
from ...ir.arith.linear import shared_form, variables_of
from ...ir.expr import Buffer, Expr, Load, Ramp, Var, const
from ...ir.node import children, walk
from ...ir.stmt import Allocate, For, Seq, Stmt, Store, read_buffers
from ..passes.scopes import Access, accesses
from .parts import touches, writes


def meet(before: Stmt, after: Stmt, shared: Sequence[Buffer]) -> bool:
    """Whether work-items meet in local memory that one of two statements writes."""
    met = [b for b in shared if touches(before, b) and touches(after, b)]
    return any(writes(before, b) or writes(after, b) for b in met)


def needs_barrier(stmt: Stmt, shared: Sequence[Buffer]) -> bool:
    """Whether a barrier has to stand somewhere in a statement."""
    if isinstance(stmt, Allocate) and stmt.buffer.scope == "shared":
        shared = (*shared, stmt.buffer)
    if isinstance(stmt, Seq) and any(
        meet(before, after, shared) for k, after in enumerate(stmt.stmts) for before in stmt.stmts[:k]
    ):
        return True
    if isinstance(stmt, For) and not stmt.thread and iterations_meet(stmt, shared):
        return True
    return any(needs_barrier(child, shared) for child in children(stmt) if isinstance(child, Stmt))


def iterations_meet(loop: For, shared: Sequence[Buffer]) -> bool:
    """Whether work-items in different iterations of a loop meet in local memory."""
    own = [n.buffer for n in walk(loop.body) if isinstance(n, Allocate) and n.buffer.scope == "shared"]
    written = [b for b in (*shared, *own) if writes(loop.body, b)]
    read = {b.memory for b in read_buffers(loop.body)}
    return any(b.name in read or not _stores_apart(loop, b) for b in written)


def _stores_apart(loop: For, buffer: Buffer) -> bool:
    """Whether a single store writes another element for each value of the loop and of those inside."""
    touching = [n for n in walk(loop) if isinstance(n, (Load, Store)) and n.buffer.memory == buffer.name]
    found = list(accesses(loop, frozenset((buffer,)), nothing_known()))
    if len(touching) != 1 or len(found) != 1 or len(found[0].indices) != 1:
        return False
    return _determines(found[0])


def _determines(access: Access) -> bool:
    """Whether the index of an access determines all loops around it.

    With steps ``c1 < c2 < ...`` it does if each is larger than what the sum of the terms
    before can span, under the conditions around the access.
    """
    (index,) = access.indices
    lanes = 1
    if isinstance(index, Ramp) and index.stride == const(1):
        lanes, index = index.lanes, index.base
    if dtypes.lanes(index.dtype) > 1:
        return False
    terms, _ = shared_form(index)
    own = {loop.var for loop in access.loops}
    if any(not isinstance(atom, Var) and not variables_of(atom).isdisjoint(own) for atom in terms):
        return False
    moving = [var for var in own if access.facts.interval(var)[0] < access.facts.interval(var)[1]]
    before: dict[Expr, int] = {}
    for var in sorted(moving, key=lambda v: abs(terms.get(v, 0))):
        low, high = access.facts.of_form((before, 0))
        if abs(terms.get(var, 0)) <= high - low + lanes - 1:
            return False
        before[var] = terms[var]
    return True
