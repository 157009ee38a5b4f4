"""Blocks around loops: blockize, and loops of one iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ...ir.arith.simplify import simplify
from ...ir.arith.widening import linear_index
from ...ir.expr import Expr, Var, all_of, as_expr, conjuncts, const, free_variables, substitute
from ...ir.stmt import Block, For, Iter, PrimFunc, Stmt, fresh, loops, names
from ...ir.verify.rules import VerifyError, verify
from ..errors import ScheduleError
from ..handles import find_block_or_loop
from ..nest import check_runs_once
from ..primitive import Result, primitive
from ..tree import extent_of, find_block, find_loop, loops_above, with_stmt
from .reduction import renamed_iters


@primitive
def add_unit_loop(func: PrimFunc, block_or_loop: str) -> Result:
    """``S`` -> ``for u in 1: S``.  Always legal.  Returns the loop."""
    stmt = find_block_or_loop(func, block_or_loop)
    var = Var(fresh("u", names(func)))
    return with_stmt(func, stmt, For(var, as_expr(1), stmt)), var.name


@primitive
def reorder_block_iter_var(func: PrimFunc, block: str, new_order: Sequence[int]) -> Result:
    """``block(v0, v1, v2)`` -> ``block(v2, v0, v1)`` for the order ``[2, 0, 1]``.

    The iterators of a block come in another order, which says nothing of the loops.  Condition: (1) the order has
    each number of an iterator once.  Returns nothing.  Source: TensorIR's primitive of this name.
    """
    stmt = find_block(func, block)
    if sorted(new_order) != list(range(len(stmt.iters))):
        raise ScheduleError("(1) {order} is no order of the {count} iterators of `{block}`",
                            order=list(new_order), count=len(stmt.iters), block=block)  # fmt: skip
    return with_stmt(func, stmt, replace(stmt, iters=tuple(stmt.iters[k] for k in new_order))), None


@primitive
def blockize(func: PrimFunc, target: str) -> Result:
    """``for o: for i: block(v = e(o, i)): S`` -> ``for o: block(w = o): for i: block(v = e(w, i)): S``.

    `target` is the outermost of the loops ``i``.  The outer block has an iterator for each
    loop outside that the inner block uses, and the conditions over these alone.  If the
    reduction runs outside as well, the init becomes that of the outer block.  Conditions:
    (1) below `target` is a perfect nest of loops around one block; (2) each loop outside is
    used either by spatial or by reduce iterators, and has iterations; (3) an init that moves
    outside belongs to a block whose conditions are over its spatial loops alone, each of whose
    spatial points is one point of the loops, whose reduction begins where its loops do, and
    which runs once at each of its points; (4) an init that stays inside still comes before what it
    initialises, within each point of the outer block.  Returns the outer block.
    """
    nest = _nest(find_loop(func, target))
    block = nest.block
    outside = loops_above(func, nest.loops[0])
    taken = names(func)
    outer_name = fresh(f"{block.name}_o", taken)
    taken.add(outer_name)
    iters = _outer_iters(block, outside, taken)
    to_iter: dict[Var, Expr] = {i.binding: i.var for i in iters if isinstance(i.binding, Var)}
    inner_vars = {loop.var for loop in nest.loops}
    over: list[Expr] = []
    under: list[Expr] = []
    for cond in conjuncts(block.predicate):
        (over if free_variables(cond).isdisjoint(inner_vars) else under).append(cond)
    init: Stmt | None = None
    rebound = tuple(replace(i, binding=substitute(i.binding, to_iter)) for i in block.iters)
    inner = replace(block, iters=rebound, predicate=substitute(all_of(under), to_iter))
    if block.init is not None and any(i.kind == "reduce" for i in iters):
        _check_init_moves(block, (*outside, *nest.loops))
        init = _init_nest(inner, nest.loops, taken)
        inner = replace(inner, init=None)
    body: Stmt = inner
    for loop in reversed(nest.loops):
        body = replace(loop, body=body)
    outer = Block(outer_name, iters, body, all_of(over), init)
    result = with_stmt(func, nest.loops[0], outer)
    if inner.init is not None:
        try:
            verify(result)
        except VerifyError as error:
            raise ScheduleError("(4) {error}", error=str(error)) from None
    return result, outer_name


class _Nest(NamedTuple):
    loops: tuple[For, ...]
    block: Block


def _nest(loop: For) -> _Nest:
    """Condition (1)."""
    found: list[For] = []
    stmt: Stmt = loop
    while isinstance(stmt, For):
        extent_of(stmt)
        found.append(stmt)
        stmt = stmt.body
    if not isinstance(stmt, Block):
        raise ScheduleError("(1) below `{loop}` there is more than loops around one block", loop=loop.var.name)
    return _Nest(tuple(found), stmt)


def _outer_iters(block: Block, outside: Sequence[For], taken: set[str]) -> tuple[Iter, ...]:
    """An iterator for each loop outside that the block uses; condition (2)."""
    iters = []
    for loop in outside:
        kinds = {i.kind for i in block.iters if loop.var in free_variables(i.binding)}
        if not kinds and loop.var not in free_variables(block.predicate):
            continue
        if len(kinds) != 1:
            raise ScheduleError(
                "(2) loop `{loop}` outside is used by {kinds} iterators of `{block}`",
                loop=loop.var.name, kinds=" and ".join(sorted(kinds)) or "no", block=block.name,
            )  # fmt: skip
        if extent_of(loop) == 0:
            raise ScheduleError("(2) loop `{loop}` outside has no iterations", loop=loop.var.name)
        name = fresh(f"v{loop.var.name}", taken)
        taken.add(name)
        iters.append(Iter(Var(name, loop.var.dtype), extent_of(loop), kinds.pop(), loop.var))
    return tuple(iters)


def _check_init_moves(block: Block, around: Sequence[For]) -> None:
    """Condition (3): the spatial bindings are mixed-radix numbers of loops of their own, and no point runs again."""
    reduce_vars = {v for i in block.reduce for v in free_variables(i.binding)}
    _check_reduction_begins(block, around, reduce_vars)
    extents = {loop.var: extent_of(loop) for loop in around}
    for cond in conjuncts(block.predicate):
        if not free_variables(cond).isdisjoint(reduce_vars):
            raise ScheduleError("(3) a condition of `{block}` is over its reduction",
                                hint="use decompose_reduction first", block=block.name)  # fmt: skip
    seen: set[Var] = set()
    for item in block.spatial:
        terms, _ = linear_index(item.binding, {var: (0, extent - 1) for var, extent in extents.items()})
        radix = 1
        for atom, step in sorted(terms.items(), key=lambda pair: pair[1]):
            if not isinstance(atom, Var) or atom in seen | reduce_vars or step < radix:
                raise ScheduleError("(3) the point `{iter}` of `{block}` may be met by several iterations",
                                    hint="use decompose_reduction first", iter=item.var.name,
                                    block=block.name)  # fmt: skip
            seen.add(atom)
            radix = step * extents.get(atom, 1)
    idle = extents.keys() - {v for i in block.spatial for v in free_variables(i.binding)}
    if not free_variables(block.predicate).isdisjoint(idle):
        raise ScheduleError("(3) a condition of `{block}` is over a loop that its spatial points do not use",
                            hint="use decompose_reduction first", block=block.name)  # fmt: skip


def _check_reduction_begins(block: Block, around: Sequence[For], reduce_vars: set[Var]) -> None:
    """Condition (3): the init runs where all loops of the reduction begin, once in each round of these."""
    for loop in around:
        if extent_of(loop) == 0:
            raise ScheduleError("(3) loop `{loop}` has no iterations", loop=loop.var.name)
    zeros: dict[Var, Expr] = {v: const(0, v.dtype) for v in reduce_vars}
    for item in block.reduce:
        if simplify(substitute(item.binding, zeros), {}) != const(0, item.binding.dtype):
            raise ScheduleError("(3) the reduction `{iter}` of `{block}` does not begin where its loops do",
                                hint="use decompose_reduction first", iter=item.var.name,
                                block=block.name)  # fmt: skip
    first = next((k for k, loop in enumerate(around) if loop.var in reduce_vars), 0)
    check_runs_once(block, around[first:], "3")


def _init_nest(inner: Block, inside: Sequence[For], taken: set[str]) -> Stmt:
    """The init over the spatial points of the inner loops."""
    spatial_vars = {v for i in inner.spatial for v in free_variables(i.binding)}
    mapping: dict[Var, Expr] = {}
    new_loops: list[tuple[Var, int]] = []
    for loop in inside:
        if loop.var in spatial_vars:
            var = Var(fresh(f"{loop.var.name}_init", taken), loop.var.dtype)
            taken.add(var.name)
            mapping[loop.var] = var
            new_loops.append((var, extent_of(loop)))
    iters = tuple(replace(i, binding=substitute(i.binding, mapping)) for i in inner.spatial)
    name = fresh(f"{inner.name}_init", taken)
    taken.add(name)
    assert inner.init is not None
    predicate = substitute(inner.predicate, mapping)
    return loops(new_loops, renamed_iters(Block(name, iters, inner.init, predicate), "init", taken))
