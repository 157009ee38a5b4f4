"""compose_reduction: a nest that initialises and one that reduces become a block with an init."""

from __future__ import annotations

from dataclasses import replace

from ...ir.expr import Const, Expr, Var, conjuncts, free_variables, substitute
from ...ir.stmt import Block, For, PrimFunc, Seq, Stmt, Store, memories_read, memories_written
from ...ir.verify.rules import VerifyError, verify
from ..errors import ScheduleError
from ..nest import check_runs_once
from ..primitive import Result, primitive
from ..tree import find_block, loops_above, nest_of, remove_stmt, scope_of, with_stmt
from .reduction import update_of
from .rfactor import check_all_points


@primitive
def compose_reduction(func: PrimFunc, block: str, init_block: str) -> Result:
    """``for s: C[s] = v(s)``, then ``for s, r: C[s] += e`` -> ``for s, r: {C[s] = v(s) if r is first; C[s] += e}``.

    What `decompose_reduction` separates, and what many programs write apart, put together: `init_block` goes, and what
    it stores becomes the init of `block`.
    Conditions: (1) `block` is an update ``C[s] = C[s] op e`` without an init, alone in its nest; (2) `init_block` only
    stores to C, alone in its nest; (3) both store at the same elements: each dimension of C is an iterator of each
    block, of one extent, or one place; (4) both run at every point of their spatial iterators, whatever the point of
    the reduction; (5) `init_block` comes first in the same sequence, and nothing after it and before the end of the
    other nest touches C besides, or writes what v reads; (6) the reduction begins where its iterators are 0, and
    reaches no point twice.
    """
    target, first = find_block(func, block), find_block(func, init_block)
    values = _same_elements(target, first)
    for own in (first, target):
        check_all_points(func, own, loops_above(func, own))
    summed = {v for item in target.reduce for v in free_variables(item.binding)}
    if not summed.isdisjoint(free_variables(target.predicate)):
        raise ScheduleError("(4) a condition leaves out points of the reduction of block `{block}`", block=block)
    check_runs_once(target, loops_above(func, target), "6", conjuncts(target.predicate))
    nest, begin = nest_of(func, target), nest_of(func, first)
    _check_alone(nest, target, 1)
    _check_alone(begin, first, 2)
    _check_order(func, begin, nest, target, first)
    assert isinstance(first.body, Store) and isinstance(target.body, Store)
    init = Store(target.body.buffer, target.body.indices, substitute(first.body.value, values))
    result = remove_stmt(with_stmt(func, target, replace(target, init=init)), begin)
    try:
        verify(result)
    except VerifyError as error:
        raise ScheduleError("(6) {error}", error=str(error)) from None
    return result, None


def _same_elements(target: Block, first: Block) -> dict[Var, Expr]:
    """The iterators of the first block as those of the other.  Raises ScheduleError (1) to (3)."""
    store, _, _ = update_of(target)
    if target.init is not None:
        raise ScheduleError("(1) block `{block}` has an init", block=target.name)
    begin = first.body
    if not isinstance(begin, Store) or begin.buffer != store.buffer or first.init is not None or first.reduce:
        raise ScheduleError("(2) block `{block}` does more than store to `{buffer}`, or something else",
                            block=first.name, buffer=store.buffer.name)  # fmt: skip
    extents = {item.var: item.extent for item in (*first.iters, *target.spatial)}
    values: dict[Var, Expr] = {}
    for own, other in zip(begin.indices, store.indices, strict=True):
        if isinstance(own, Var) and isinstance(other, Var) and extents.get(own, 0) == extents.get(other, 1):
            values[own] = other
        elif not (isinstance(own, Const) and own == other):
            values = {}
            break
    everywhere = {item.var for item in (*first.iters, *target.spatial)} <= {*values, *values.values()}
    if not everywhere or len(set(values.values())) != sum(isinstance(i, Var) for i in begin.indices):
        raise ScheduleError("(3) blocks `{first}` and `{block}` may not store at the same elements",
                            first=first.name, block=target.name)  # fmt: skip
    return values


def _check_alone(nest: Stmt, block: Block, number: int) -> None:
    while isinstance(nest, For):
        nest = nest.body
    if nest is not block:
        raise ScheduleError("({number}) block `{block}` is not alone in its nest", number=number, block=block.name)


def _check_order(func: PrimFunc, begin: Stmt, nest: Stmt, target: Block, first: Block) -> None:
    """Condition (5)."""
    body = scope_of(func, target).body
    items = list(body.stmts) if isinstance(body, Seq) else [body]
    start, end = (next((k for k, item in enumerate(items) if item is own), -1) for own in (begin, nest))
    if not 0 <= start < end:
        raise ScheduleError("(5) block `{first}` does not come before block `{block}` in one sequence",
                            first=first.name, block=target.name)  # fmt: skip
    assert isinstance(first.body, Store)
    memory = first.body.buffer.memory
    for item in items[start + 1 : end]:
        if memory in memories_read(item) | memories_written(item):
            raise ScheduleError("(5) a nest between the blocks touches `{buffer}`", buffer=memory)
    for item in items[start + 1 : end + 1]:
        for name in sorted(memories_read(first.body.value) & memories_written(item)):
            raise ScheduleError("(5) what block `{first}` reads of `{buffer}` is written before it would be read",
                                first=first.name, buffer=name)  # fmt: skip
