"""Reductions of the work-items of a subgroup, marked as such.

::

    for l in N {subgroup}: C[s] = C[s] + e(l)      ->  for l in N {subgroup}: C[s] = C[s] + subgroup_add(e(l))

for every store that `passes.subgroups.reductions` gives, with `subgroup_min` and `subgroup_max` for these operations.
A printer adds up what all items have, once; where they come one after the other, each adds its own.
"""

from __future__ import annotations

from collections.abc import Set

from ...ir.dataflow.order import update_op
from ...ir.expr import Binary, Call, Load
from ...ir.functions import SUBGROUP_CALLS
from ...ir.node import rebuild
from ...ir.stmt import For, Stmt, Store
from ..passes.subgroups import reductions


def mark_reductions(stmt: Stmt) -> Stmt:
    """The statement with every such store marked.  Raises LoweringError where items cannot do together what they do."""
    return _visit(stmt, frozenset())


def _visit(stmt: Stmt, together: Set[Store]) -> Stmt:
    if isinstance(stmt, Store):
        return _marked(stmt) if stmt in together else stmt
    if isinstance(stmt, For) and stmt.reduces:
        together = reductions(stmt)
    result: Stmt = rebuild(stmt, lambda child: _visit(child, together) if isinstance(child, Stmt) else child)
    return result


def _marked(store: Store) -> Store:
    own, value, op = Load(store.buffer, store.indices), store.value, update_op(store)
    assert isinstance(value, Binary) and op is not None
    part = value.b if value.a == own else value.a
    return Store(store.buffer, store.indices, Binary(op, own, Call(SUBGROUP_CALLS[op], (part,), part.dtype)))
