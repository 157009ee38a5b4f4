"""Reductions: decompose_reduction and rfactor."""

from __future__ import annotations

from dataclasses import replace

from ...ir.affine.order import update_op
from ...ir.affine.sets import Domain, implies
from ...ir.arith.simplify import simplify
from ...ir.expr import TRUE, Binary, Buffer, Expr, Load, Var, as_expr, conjuncts, substitute
from ...ir.node import transform, walk
from ...ir.stmt import Block, For, Iter, PrimFunc, Stmt, Store, fresh, loops, names, seq, stores
from ..errors import ScheduleError
from ..primitive import Result, primitive
from ..tree import (
    block_stores,
    extent_of,
    find_block,
    find_loop,
    free_variables,
    insert_after,
    loop_bounds,
    loops_above,
    nest_of,
    path_to,
    with_alloc,
    with_stmt,
)
from .nests import chain_to_sequence, separate


@primitive
def decompose_reduction(func: PrimFunc, block: str, loop: str) -> Result:
    """``for r: {init if r is first; C[s] += e}`` -> ``C[s] = init`` for the points below, then ``for r: C[s] += e``.

    The init stands before `loop`, with a copy of the spatial loops below it.
    Conditions: (1) the block has an init, or statements before its first update; (2) `loop` is
    above it, and no loop outside `loop` is part of a reduction; (3) wherever some point of the
    reduction is executed, its first one is.  Returns the block that initialises.

    In bare loops, ``for i: {B[i] = 0; for f: B[i] += e}`` -> ``for i: B[i] = 0``, then
    ``for i: for f: B[i] += e``: what stands before the first update is distributed, from
    `loop` on, and a block without iterators around it becomes two.  Condition: (2) no
    instance of the one part needs the order of the other's.  Returns the block ``init_<block>``,
    or the init's outermost loop where the block goes on around both.
    """
    target, outer = find_block(func, block), find_loop(func, loop)
    if target.init is None:
        return _separate_init(func, target, outer)
    above = loops_above(func, target)
    _check_first_point(target, above)
    if outer not in above:
        raise ScheduleError("(2) loop `{loop}` is not above block `{block}`", loop=loop, block=block)
    reduce_vars = frozenset(v for i in target.reduce for v in free_variables(i.binding))
    position = above.index(outer)
    for item in above[:position]:
        if item.var in reduce_vars and extent_of(item) > 1:
            raise ScheduleError("(2) loop `{loop}` outside is part of the reduction", loop=item.var.name)
    spatial = [item for item in above[position:] if item.var not in reduce_vars]
    init, name = _init_nest(func, target, spatial, reduce_vars, above)
    func = with_stmt(func, target, replace(target, init=None))
    outer = find_loop(func, loop)
    return with_stmt(func, outer, seq([init, outer])), name


def _separate_init(func: PrimFunc, block: Block, outer: For) -> Result:
    """`decompose_reduction` of bare loops."""
    path = path_to(func.body, outer)
    assert path is not None
    if block not in path and path_to(outer, block) is None:
        raise ScheduleError("(2) loop `{loop}` is not around `{block}` or in it", loop=outer.var.name, block=block.name)
    whole = block.body is outer and not block.iters and not block.allocs and block is not func.body
    top: Stmt = block if whole else outer
    cut = chain_to_sequence(top)[1]
    updates = (any(update_op(s) for s in stores(item)) for item in cut.stmts)
    position = next((k for k, found in enumerate(updates) if found), 0)
    if position == 0:
        raise ScheduleError("(1) block `{block}` has nothing that is stored before an update", block=block.name)
    func, first, _ = separate(func, top, position, "init", copy_first=True)
    made = next(s for s in walk(first) if isinstance(s, (Block, For)))
    return func, made.name if isinstance(made, Block) else made.var.name


def _check_first_point(block: Block, above: tuple[For, ...]) -> None:
    """Condition (3) of `decompose_reduction`: where a condition on reduce loops holds, it holds at their start."""
    reduce_vars = {v for i in block.reduce for v in free_variables(i.binding)}
    parts = conjuncts(block.predicate)
    start: dict[Var, Expr] = {v: as_expr(0, v) for v in reduce_vars}
    for cond in parts:
        if free_variables(cond).isdisjoint(reduce_vars):
            continue
        first = simplify(substitute(cond, start), loop_bounds(above))
        domain = Domain(tuple((loop.var, extent_of(loop)) for loop in above), parts)
        if first != TRUE and not implies(domain, first):
            raise ScheduleError(
                "(3) the first point of the reduction of block `{block}` may be skipped where others run",
                block=block.name,
            )


def _init_nest(
    func: PrimFunc, block: Block, spatial: list[For], reduce_vars: frozenset[Var], above: tuple[For, ...]
) -> tuple[Stmt, str]:
    """The init over the spatial points, at the first point of the reduction."""
    taken = names(func)
    name = fresh(f"{block.name}_init", taken)
    taken.add(name)
    mapping: dict[Var, Expr] = {v: as_expr(0, v) for v in reduce_vars}
    new_loops: list[tuple[Var, int]] = []
    for item in spatial:
        var = Var(fresh(f"{item.var.name}_init", taken), item.var.dtype)
        taken.add(var.name)
        mapping[item.var] = var
        new_loops.append((var, extent_of(item)))
    ranges = {**loop_bounds(above), **{v: (0, e - 1) for v, e in new_loops}}
    iters = tuple(replace(i, binding=simplify(substitute(i.binding, mapping), ranges)) for i in block.spatial)
    predicate = simplify(substitute(block.predicate, mapping), ranges)
    assert block.init is not None
    return loops(new_loops, renamed_iters(Block(name, iters, block.init, predicate), "init", taken)), name


def renamed_iters(block: Block, suffix: str, taken: set[str]) -> Block:
    """A copy of a block with iterators of its own; their names are added to `taken`."""
    mapping: dict[Var, Expr] = {}
    iters: list[Iter] = []
    for item in block.iters:
        var = Var(fresh(f"{item.var.name}_{suffix}", taken), item.var.dtype)
        taken.add(var.name)
        mapping[item.var] = var
        iters.append(replace(item, var=var))
    init = None if block.init is None else substitute(block.init, mapping)
    return replace(block, iters=tuple(iters), body=substitute(block.body, mapping), init=init)


@primitive
def rfactor(func: PrimFunc, loop: str, factor_axis: int) -> Result:
    """Reduce in independent parts: ``C[s] = sum_{r, q} e`` -> ``P[s, q] = sum_r e``, then ``C[s] = sum_q P[s, q]``.

    `loop` runs over ``q``; `factor_axis` is the place of ``q`` in ``P`` (negative
    from the end).  Conditions: (1) one block below, an associative update
    ``C[s] = C[s] op e`` with an init; (2) the loop is part of the reduction alone;
    (3) for each q the first point of the rest is executed, so every part is
    initialised.  Returns the block of the parts; the final block keeps its name.
    Source: Suriana et al., "Parallel associative reductions in Halide", CGO 2017.
    """
    outer = find_loop(func, loop)
    block = _only_block(outer)
    store, op, rest = update_of(block)
    reduce_vars = {v for i in block.reduce for v in free_variables(i.binding)}
    spatial_vars = {v for i in block.spatial for v in free_variables(i.binding)}
    if outer.var not in reduce_vars or outer.var in spatial_vars:
        raise ScheduleError("(2) loop `{loop}` is not part of the reduction alone", loop=loop)
    above = loops_above(func, block)
    _check_parts_initialised(block, outer, above, reduce_vars)
    partial, part_block, part_axis = _part_block(func, block, outer, above, store, op, rest, factor_axis)
    final = _final_nest(func, block, outer, store, op, partial, factor_axis)
    func = with_stmt(func, block, part_block)
    func = insert_after(func, nest_of(func, part_block), final)
    assert part_axis >= 0
    return with_alloc(func, partial), part_block.name


def update_of(block: Block) -> tuple[Store, str, Expr]:
    """``C[s] = C[s] op e`` as (store, op, e).  Raises ScheduleError for anything else."""
    stores = block_stores(block)
    store = block.body
    if (
        len(stores) == 1
        and isinstance(store, Store)
        and isinstance(store.value, Binary)
        and store.value.op in ("+", "*", "min", "max")
    ):
        own = Load(store.buffer, store.indices)
        value = store.value
        for one, other in ((value.a, value.b), (value.b, value.a)):
            if one == own and own not in set(_loads(other)):
                return store, value.op, other
    raise ScheduleError("(1) block `{block}` is not an update `C[s] = C[s] op e`", block=block.name)


def _loads(expr: Expr) -> list[Load]:
    from ...ir.stmt import loads

    return list(loads(expr))


def _only_block(loop: For) -> Block:
    from ..tree import blocks_below

    found = blocks_below(loop)
    if len(found) != 1 or found[0].init is None:
        raise ScheduleError("(1) there must be one block with an init below `{loop}`", loop=loop.var.name)
    return found[0]


def _check_parts_initialised(block: Block, outer: For, above: tuple[For, ...], reduce_vars: set[Var]) -> None:
    """Condition (3): with the other reduce loops at 0, every q passes the conditions on reduce loops."""
    mapping: dict[Var, Expr] = {v: as_expr(0, v) for v in reduce_vars if v != outer.var}
    for cond in conjuncts(block.predicate):
        if free_variables(cond).isdisjoint(reduce_vars):
            continue
        if simplify(substitute(cond, mapping), loop_bounds(above)) != TRUE:
            raise ScheduleError(
                "(3) some part of `{loop}` may have no first element", hint="use a smaller factor", loop=outer.var.name
            )


def _part_block(
    func: PrimFunc, block: Block, outer: For, above: tuple[For, ...], store: Store, op: str, rest: Expr, axis: int
) -> tuple[Buffer, Block, int]:
    """``P[s, q] = sum_r e`` in the loops of the original block."""
    taken = names(func)
    name = fresh(f"{block.name}_rf", taken)
    rank = len(store.indices) + 1
    place = axis + rank if axis < 0 else axis
    if not 0 <= place < rank:
        raise ScheduleError("factor_axis must lie in [{low}, {high}), but got {axis}", low=-rank, high=rank, axis=axis)
    shape = list(store.buffer.shape)
    shape.insert(place, extent_of(outer))
    partial = Buffer(fresh(f"{store.buffer.name}_rf", taken | {name}), tuple(shape), store.buffer.dtype)
    part_iter = Iter(Var(fresh("vq", taken)), extent_of(outer), "spatial", outer.var)
    reduce_loops = [
        item for item in above if item is not outer and any(item.var in free_variables(i.binding) for i in block.reduce)
    ]
    taken |= {partial.name, part_iter.var.name}
    reduce_iters = tuple(
        Iter(Var(fresh(f"v_{item.var.name}", taken)), extent_of(item), "reduce", item.var) for item in reduce_loops
    )
    back: dict[Var, Expr] = {i.binding: i.var for i in (part_iter, *reduce_iters) if isinstance(i.binding, Var)}
    inner = {i.var: substitute(i.binding, back) for i in block.reduce}
    indices = list(store.indices)
    indices.insert(place, part_iter.var)
    point = tuple(indices)
    value = Binary(op, Load(partial, point), substitute(rest, inner))
    assert block.init is not None
    init = transform(block.init, lambda n: Store(partial, point, n.value) if isinstance(n, Store) else n)
    iters = (*block.spatial, part_iter, *reduce_iters)
    return partial, Block(name, iters, Store(partial, point, value), block.predicate, init), place


def _final_nest(func: PrimFunc, block: Block, outer: For, store: Store, op: str, partial: Buffer, axis: int) -> Stmt:
    """``C[s] = sum_q P[s, q]`` over the whole spatial domain."""
    taken = names(func) | {partial.name}
    new_loops: list[tuple[Var, int]] = []
    iters: list[Iter] = []
    for item in block.spatial:
        var = Var(fresh(f"{block.name}_ax{len(new_loops)}", taken))
        taken.add(var.name)
        new_loops.append((var, item.extent))
        iters.append(replace(item, binding=var))
    last = Var(fresh(f"{outer.var.name}_rf", taken))
    part = Iter(Var("vq"), extent_of(outer), "reduce", last)
    indices = list(store.indices)
    indices.insert(axis + len(indices) + 1 if axis < 0 else axis, part.var)
    value = Binary(op, Load(store.buffer, store.indices), Load(partial, tuple(indices)))
    final = Block(block.name, (*iters, part), Store(store.buffer, store.indices, value), TRUE, block.init)
    return loops([*new_loops, (last, extent_of(outer))], renamed_iters(final, "sum", taken | {last.name}))
