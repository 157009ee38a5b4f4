"""decompose_reduction: an initialisation with loops of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from ...ir.affine.sets import Domain, NotAffine, Unknown, implies, points
from ...ir.arith.intervals import negate
from ...ir.arith.simplify import simplify
from ...ir.dataflow.instances import Statement
from ...ir.dataflow.order import Time, operands, update_op
from ...ir.expr import (
    TRUE,
    Expr,
    Extent,
    Load,
    Var,
    all_of,
    as_expr,
    binary,
    conjuncts,
    free_variables,
    substitute,
)
from ...ir.node import Node, children, walk
from ...ir.stmt import (
    Allocate,
    Block,
    Declare,
    For,
    If,
    Iter,
    Let,
    PrimFunc,
    Stmt,
    Store,
    fresh,
    loops,
    memories_read,
    memories_written,
    names,
    path_to,
    seq,
    span_of,
    stores,
)
from ..errors import ScheduleError
from ..nest import check_order, check_runs_once
from ..primitive import Result, primitive
from ..tree import find_block, find_loop, limit_of, loop_bounds, loops_above, parameters, running, with_stmt
from .nests import chain_to_sequence, separate


@primitive
def decompose_reduction(func: PrimFunc, block: str, loop: str) -> Result:
    """``for r: {init if r is first; C[s] += e}`` -> ``C[s] = init`` for the points below, then ``for r: C[s] += e``.

    The init stands before `loop`, with a copy of the spatial loops below it.
    Conditions: (1) the block has an init, or statements before its first update; (2) `loop` is
    above it, and no loop outside `loop` is part of a reduction; (3) wherever some point of the
    reduction is executed, its first one is, and `loop` and those inside of it reach no point
    twice, since each time would begin with the init; (4) nothing else below `loop` needs its
    order with the init.  The init keeps the conditions around it.  Returns the block that
    initialises.

    In bare loops, ``for i: {B[i] = 0; for f: B[i] += e}`` -> ``for i: B[i] = 0``, then
    ``for i: for f: B[i] += e``: what stands before the first update is distributed, from
    `loop` on, and a block without iterators around it becomes two.  Conditions: (2) no
    instance of the one part needs the order of the other's, and nothing on the way to both reads
    what they write; (3) concurrent loops may still be so.  Returns the block ``init_<block>``,
    or the init's outermost loop where the block goes on around both.
    """
    target, outer = find_block(func, block), find_loop(func, loop)
    if target.init is None:
        return _separate_init(func, target, outer)
    above = loops_above(func, target)
    if outer not in above:
        raise ScheduleError("(2) loop `{loop}` is not above block `{block}`", loop=loop, block=block)
    way = _way_down(outer, target)
    _check_first_point(func, way, above)
    reduce_vars = frozenset(v for i in way.block.reduce for v in free_variables(i.binding))
    position = above.index(outer)
    for item in above[:position]:
        if item.var in reduce_vars and limit_of(func, item) != 1:
            raise ScheduleError("(2) loop `{loop}` outside is part of the reduction", loop=item.var.name)
    check_runs_once(way.block, above[position:], "3", way.all_conditions)
    spatial_vars = {v for i in way.block.spatial for v in free_variables(i.binding)}
    spatial = [item for item in above[position:] if item.var in spatial_vars or item.var not in reduce_vars]
    _check_init_alone(func, outer, way)
    init, name = _init_nest(func, way, spatial, reduce_vars - spatial_vars, above)
    func = with_stmt(func, target, replace(target, init=None))
    outer = find_loop(func, loop)
    return with_stmt(func, outer, seq([init, outer])), name


@dataclass(frozen=True)
class _Way:
    """What stands between a loop and a block below it, with the values of bindings for their variables.

    `block` is the block so written, `target` the block of the program; `conditions` are those around it.
    """

    target: Block
    block: Block
    conditions: tuple[Expr, ...]
    bound: tuple[Expr, ...]
    beside: tuple[Node, ...]

    @property
    def all_conditions(self) -> tuple[Expr, ...]:
        """The conditions under which the block runs, those of its predicate included."""
        return (*(part for cond in self.conditions for part in conjuncts(cond)), *conjuncts(self.block.predicate))


def _way_down(outer: For, target: Block) -> _Way:
    """The way from `outer` to the block below.  Raises ScheduleError (4)."""
    path = path_to(outer, target)
    assert path is not None
    values: dict[Var, Expr] = {}
    conditions: list[Expr] = []
    beside: list[Node] = []
    for stmt, inner in pairwise(path):
        if isinstance(stmt, If):
            cond = substitute(stmt.cond, values)
            conditions.append(cond if inner is stmt.then else negate(cond))
        elif isinstance(stmt, Let):
            values[stmt.var] = substitute(stmt.value, values)
        elif isinstance(stmt, (Allocate, Declare)) and stmt.buffer.name in names(target):
            raise ScheduleError("(4) `{buffer}` of block `{block}` is declared below loop `{loop}`",
                                buffer=stmt.buffer.name, block=target.name, loop=outer.var.name)  # fmt: skip
        beside += [child for child in children(stmt) if child is not inner]
    block = substitute(target, values) if values else target
    return _Way(target, block, tuple(conditions), tuple(values.values()), tuple(beside))


def _check_init_alone(func: PrimFunc, outer: For, way: _Way) -> None:
    """Condition (4) of `decompose_reduction`.

    Blocks are compared with the init by the memories that they touch, and by instances where these meet.
    """
    block = way.block
    assert block.init is not None
    written = memories_written(outer)
    for expr in (*way.conditions, *way.bound, block.predicate, *(i.binding for i in block.iters)):
        for name in sorted(memories_read(expr) & written):
            raise ScheduleError("(4) whether the init of block `{block}` runs depends on `{buffer}`, which is written "
                                "below loop `{loop}`", block=block.name, buffer=name, loop=outer.var.name)  # fmt: skip
    opaque = [i.var for i in block.iters if i.kind == "opaque"]
    for var in opaque:
        if var in free_variables(block.init):
            raise ScheduleError("(4) the init of block `{block}` needs the opaque iterator `{var}`",
                                block=block.name, var=var.name)  # fmt: skip
    stored, read = memories_written(block.init), memories_read(block.init)
    touched = [memories_written(other) & (stored | read) or memories_read(other) & stored for other in way.beside]
    if not opaque and not any(touched):
        return

    def time(statement: Statement) -> Time:
        return (0 if statement.is_init and statement.block is way.target else 1, *statement.schedule)

    check_order(func, outer, time, 4)


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


def _check_first_point(func: PrimFunc, way: _Way, above: tuple[For, ...]) -> None:
    """Condition (3) of `decompose_reduction`: every spatial point that runs has its first point of the reduction run.

    Where each condition on reduce loops holds at their start, this is so; else the sets of points decide.
    """
    block = way.block
    spatial_vars = {v for i in block.spatial for v in free_variables(i.binding)}
    reduce_vars = {v for i in block.reduce for v in free_variables(i.binding)}
    start: dict[Var, Expr] = {v: as_expr(0, v) for v in reduce_vars}
    domain = _executed(func, way, above)
    for cond in domain.conditions:
        if free_variables(cond).isdisjoint(reduce_vars):
            continue
        first = simplify(substitute(cond, start), loop_bounds(above, func))
        plain = free_variables(cond).isdisjoint(spatial_vars & reduce_vars)
        if not plain or (first != TRUE and not implies(domain, first)):
            _check_first_points(block, domain, parameters(func))
            return


def _executed(func: PrimFunc, way: _Way, above: tuple[For, ...]) -> Domain:
    return running(func, above, way.all_conditions)


def _check_first_points(block: Block, domain: Domain, own: tuple[Var, ...]) -> None:
    start = [binary("==", i.binding, 0) for i in block.reduce]
    spatial = [*own, *(i.binding for i in block.spatial)]
    try:
        first = points(domain.where(*start)).image(spatial)
        missing = points(domain).image(spatial).subtract(first).first()
    except (NotAffine, Unknown) as error:
        raise ScheduleError("(3) whether the first point of the reduction of block `{block}` runs is unknown: {error}",
                            block=block.name, error=str(error)) from None  # fmt: skip
    if missing is not None:
        raise ScheduleError(
            "(3) the first point of the reduction of block `{block}` may be skipped where others run, at {point}",
            block=block.name,
            point=dict(zip((v.name for v in (*own, *(i.var for i in block.spatial))), missing.values(), strict=True)),
        )


def _init_nest(
    func: PrimFunc, way: _Way, spatial: list[For], reduce_vars: frozenset[Var], above: tuple[For, ...]
) -> tuple[Stmt, str]:
    """The init over the `spatial` loops, at the first point of the reduction, where the loops `reduce_vars` are 0.

    A loop that is fused of both kinds is spatial, and the init runs where its reduce part is 0.
    """
    block, conditions = way.block, way.conditions
    taken = names(func)
    name = fresh(f"{block.name}_init", taken)
    taken.add(name)
    mapping: dict[Var, Expr] = {v: as_expr(0, v) for v in reduce_vars}
    new_loops: list[tuple[Var, Extent]] = []
    ranges = loop_bounds(above, func)
    for item in spatial:
        var = Var(fresh(f"{item.var.name}_init", taken), item.var.dtype)
        taken.add(var.name)
        mapping[item.var] = var
        ranges[var] = span_of(limit_of(func, item))
        new_loops.append((var, item.extent))
    iters = tuple(replace(i, binding=simplify(substitute(i.binding, mapping), ranges)) for i in block.spatial)
    first = all_of([binary("==", i.binding, 0) for i in block.reduce])
    moved = [i.binding for i in block.reduce if not free_variables(i.binding).isdisjoint(reduce_vars)]
    starts = [simplify(substitute(binding, mapping), ranges) for binding in moved]
    if all(start == as_expr(0, start) for start in starts) and _holds_at_zeros(func, way, reduce_vars, above):
        predicate = simplify(substitute(binary("and", block.predicate, first), mapping), ranges)
    else:
        predicate = _somewhere(func, way, first, mapping, reduce_vars, above)
        conditions = ()
    assert block.init is not None
    init: Stmt = renamed_iters(Block(name, iters, substitute(block.init, mapping), predicate), "init", taken)
    for cond in reversed([simplify(substitute(c, mapping), ranges) for c in conditions]):
        init = init if cond == TRUE else If(cond, init)
    return loops(new_loops, init), name


def _holds_at_zeros(func: PrimFunc, way: _Way, reduce_vars: frozenset[Var], above: tuple[For, ...]) -> bool:
    """Whether each condition on the loops `reduce_vars` holds at their zeros where it holds at all."""
    zeros: dict[Var, Expr] = {v: as_expr(0, v) for v in reduce_vars}
    domain = _executed(func, way, above)
    for cond in domain.conditions:
        if not free_variables(cond).isdisjoint(reduce_vars):
            first = simplify(substitute(cond, zeros), loop_bounds(above, func))
            if first != TRUE and not implies(domain, first):
                return False
    return True


def _somewhere(
    func: PrimFunc,
    way: _Way,
    first: Expr,
    mapping: dict[Var, Expr],
    reduce_vars: frozenset[Var],
    above: tuple[For, ...],
) -> Expr:
    """Where, over the other loops, the first point of a reduction runs that is not at the loops' zeros."""
    renamed = {v: e for v, e in mapping.items() if v not in reduce_vars}
    loops = []
    for loop in above:
        var = renamed.get(loop.var, loop.var)
        assert isinstance(var, Var)
        loops.append(replace(loop, var=var))
    every = running(func, loops)
    conditions = [substitute(c, renamed) for c in (*way.all_conditions, *conjuncts(first))]
    gone = [v for v in every.variables if v in reduce_vars]
    try:
        rest = points(every).project_out(gone)
        return points(every.where(*conditions)).project_out(gone).condition(rest)
    except (NotAffine, Unknown) as error:
        raise ScheduleError("(3) where the first point of the reduction of block `{block}` runs is unknown: {error}",
                            block=way.block.name, error=str(error)) from None  # fmt: skip


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


def update_of(block: Block) -> tuple[Store, str, Expr]:
    """``C[s] = C[s] op e`` as (store, op, e), s free of reduce iterators.  Raises ScheduleError for anything else."""
    store, reduce = block.body, {i.var for i in block.reduce}
    found = None
    if isinstance(store, Store) and all(free_variables(e).isdisjoint(reduce) for e in store.indices):
        found = operands(store.value) if update_op(store) else None
    if found is None:
        raise ScheduleError("(1) block `{block}` is not an update `C[s] = C[s] op e`", block=block.name)
    assert isinstance(store, Store)
    op, a, b = found
    return store, op, b if a == Load(store.buffer, store.indices) else a
