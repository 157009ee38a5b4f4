"""What the work-items of a subgroup reduce together.

::

    for l in N {subgroup}: C[s] = C[s] op e(l)
        ->  C[s] = C[s] op reduce(e(l) of all N items)

That is so for every store below the loop to an element that its items share: one of memory from outside of the loop,
at an index that is the same for all of them.  Conditions: (1) the store is such an update, by +, min or max; (2) all
items of the subgroup come to it: no condition around it, and no extent of a loop, depends on the item or on what it
loads; (3) it is of one number that devices reduce, not of a vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...ir.dataflow.order import update_op
from ...ir.expr import Expr, Var, reads_memory, variables
from ...ir.node import children, remembered
from ...ir.stmt import SUBGROUP, Allocate, For, If, Let, Stmt, Store, walk_stmts
from ...ir.target import SUBGROUP_OPS, SUBGROUP_TYPES
from .errors import LoweringError


class _Place(NamedTuple):
    """What is known of the items at a statement: variables that differ, memories of their own, and who comes there."""

    differing: frozenset[Var]
    own: frozenset[str] = frozenset()
    is_reached_by_all: bool = True

    def differs(self, expr: Expr) -> bool:
        return reads_memory(expr) or not self.differing.isdisjoint(variables(expr))


@remembered
def reductions(loop: For) -> frozenset[Store]:
    """The stores of a subgroup's loop that its items do together.  Raises LoweringError by the conditions."""
    found = []
    for store, place in _stores(loop.body, _Place(frozenset((loop.var,)))):
        if store.buffer.memory in place.own or any(map(place.differs, store.indices)):
            continue
        if update_op(store) not in SUBGROUP_OPS:
            raise _refused(loop, store, f"which is no update `C[i] = C[i] op e` by {', '.join(SUBGROUP_OPS)}")
        if not place.is_reached_by_all:
            raise _refused(loop, store, "under a condition that differs between them; move it into the value")
        if store.value.dtype not in SUBGROUP_TYPES:
            kinds = ", ".join(SUBGROUP_TYPES)
            raise _refused(loop, store, f"of type {store.value.dtype}; subgroups reduce single {kinds}")
        found.append(store)
    return frozenset(found)


def _refused(loop: For, store: Store, why: str) -> LoweringError:
    return LoweringError(
        f"loop `{loop.var.name}` is bound to `{SUBGROUP}`, and its work-items store to one element of "
        f"`{store.buffer.name}`, {why}"
    )


def _stores(stmt: Stmt, place: _Place) -> Iterator[tuple[Store, _Place]]:
    if isinstance(stmt, Store):
        yield stmt, place
        return
    if isinstance(stmt, Let) and place.differs(stmt.value):
        place = place._replace(differing=place.differing | {stmt.var})
    elif isinstance(stmt, Allocate):
        place = place._replace(own=place.own | {stmt.buffer.name})
    elif (isinstance(stmt, If) and place.differs(stmt.cond)) or (isinstance(stmt, For) and place.differs(stmt.extent)):
        place = place._replace(is_reached_by_all=False)
    for child in children(stmt):
        if isinstance(child, Stmt):
            yield from _stores(child, place)


def is_same_for_all(stmt: Allocate) -> bool:
    """Whether work-items may each have the buffer for themselves, since it holds the same for all of them.

    It is one of registers, around loops over the items along x alone, in which nothing but reductions writes it.
    """
    loops = [n for n in walk_stmts(stmt.body) if isinstance(n, For) and n.thread]
    return stmt.buffer.scope == "local" and all(
        loop.thread in (SUBGROUP, "threadIdx.x")
        and all(loop.reduces and store in reductions(loop) for store in _stores_to(stmt.buffer.name, loop))
        for loop in loops
    )


def _stores_to(memory: str, stmt: Stmt) -> Iterator[Store]:
    return (n for n in walk_stmts(stmt) if isinstance(n, Store) and n.buffer.memory == memory)
