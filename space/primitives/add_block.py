"""add_block: a bare loop nest around one store becomes a nest around a block."""

from __future__ import annotations

from dataclasses import replace

from ...ir.dataflow.order import update_op
from ...ir.expr import Var, all_of, free_variables, reads_memory, substitute
from ...ir.stmt import Block, For, If, Iter, Let, PrimFunc, Stmt, Store, fresh, names
from ..concurrency import check_concurrent
from ..errors import ScheduleError
from ..nest import perfect_nest
from ..primitive import Result, primitive
from ..tree import extent_of, find_loop, loops_above, with_stmt


@primitive
def add_block(func: PrimFunc, loop: str) -> Result:
    """``for i: for k: C[i] += e(i, k)`` -> ``for i: for k: block(vi = i spatial, vk = k reduce): C[vi] += e(vi, vk)``.

    The conditions between the loops become the block's predicate.
    Conditions: (1) `loop` is the outermost of a perfect nest of constant extents, none of them 0, around one store,
    under conditions that read no memory; (2) no two iterations of a loop that the store's indices move along touch one
    element; (3) the other loops are those of a reduction, ``C[s] = C[s] op e``.  Returns the block.
    """
    outer = find_loop(func, loop)
    nest = perfect_nest(func, _loops_down(outer))
    if loops_above(func, outer) or not isinstance(nest.body, Store) or any(map(reads_memory, nest.conditions)):
        raise ScheduleError("(1) loop `{loop}` is not the outermost of a nest around one store", loop=loop)
    for item in nest.loops:
        if extent_of(item) == 0:
            raise ScheduleError("(1) loop `{loop}` has no iterations", loop=item.var.name)
    taken = names(func)
    moving = {v for index in nest.body.indices for v in free_variables(index)}
    iters: list[Iter] = []
    for item in nest.loops:
        kind = "spatial" if item.var in moving else "reduce"
        if kind == "reduce" and update_op(nest.body) is None:
            raise ScheduleError("(3) loop `{loop}` is no part of a reduction", loop=item.var.name)
        if kind == "spatial":
            try:
                check_concurrent(func, item, private=False)
            except ScheduleError as error:
                raise ScheduleError("(2) {error}", error=str(error)) from None
        var = Var(fresh(f"v{item.var.name}", taken), item.var.dtype)
        taken.add(var.name)
        iters.append(Iter(var, extent_of(item), kind, item.var))
    name = fresh(nest.body.buffer.name, taken)
    values = {item.binding: item.var for item in iters if isinstance(item.binding, Var)}
    body: Stmt = Block(name, tuple(iters), substitute(nest.body, values), all_of(nest.conditions))
    for item in reversed(nest.loops):
        body = replace(item, body=body)
    return with_stmt(func, outer, body), name


def _loops_down(stmt: Stmt) -> list[str]:
    """The loops from one down to what the innermost runs."""
    found: list[str] = []
    while isinstance(stmt, (For, If, Let)):
        if isinstance(stmt, For):
            found.append(stmt.var.name)
        stmt = stmt.then if isinstance(stmt, If) else stmt.body
    return found
