"""rfactor: a reduction in independent parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir import dtypes
from ...ir.affine.sets import NotAffine, Unknown, implies, points
from ...ir.arith.constants import neutral
from ...ir.arith.simplify import simplify
from ...ir.dataflow.order import combined
from ...ir.expr import (
    TRUE,
    Buffer,
    Expr,
    Extent,
    Load,
    Var,
    as_expr,
    conjuncts,
    free_variables,
    in_type,
    substitute,
)
from ...ir.extents import as_extent
from ...ir.stmt import (
    Block,
    For,
    Iter,
    PrimFunc,
    Stmt,
    Store,
    fresh,
    loops,
    memories_read,
    memories_written,
    names,
    stmt_children,
)
from ..errors import ScheduleError
from ..nest import check_once
from ..primitive import Result, primitive
from ..tree import (
    blocks_below,
    find_block,
    find_loop,
    insert_after,
    limit_of,
    loop_bounds,
    loops_above,
    nest_of,
    parameters,
    running,
    scope_of,
    with_stmt,
)
from .reduction import renamed_iters, update_of


@primitive
def rfactor(func: PrimFunc, loop: str, factor_axis: int) -> Result:
    """Reduce in independent parts: ``C[s] = sum_{r, q} e`` -> ``P[s, q] = sum_r e``, then ``C[s] = sum_q P[s, q]``.

    `loop` runs over ``q``; `factor_axis` is the place of ``q`` in ``P`` (negative from the
    end).  Parts begin with the neutral element, the final sum with the block's own init.
    Conditions: (1) one block below, alone in its nest, an associative update ``C[s] = C[s] op e``
    with an init, which writes nothing that e reads, and with s free of the reduction;
    (2) the loop is part of the reduction alone, and no other is part of both;
    (3) for each q the first point of the rest is executed, so every part is initialised;
    (4) every spatial point is executed, since the final sum covers all; (5) each point of the
    reduction is added once.  Returns the block of the parts; the final block keeps its name.
    Source: Suriana et al., "Parallel associative reductions in Halide", CGO 2017.
    """
    plan = _plan(func, find_loop(func, loop), factor_axis)
    part = plan.part_block()
    final = plan.final_nest(names(func) | names(part))
    scope = scope_of(func, plan.block)
    func = with_stmt(func, plan.block, part)
    func = insert_after(func, nest_of(func, part), final)
    scope = find_block(func, scope.name)
    return with_stmt(func, scope, replace(scope, allocs=(*scope.allocs, plan.partial))), part.name


@dataclass(frozen=True)
class _Plan:
    """What is reduced, the loop over the parts, and the buffer of parts with its names."""

    block: Block
    above: tuple[For, ...]
    outer: For
    store: Store
    op: str
    rest: Expr
    place: int
    partial: Buffer
    taken: frozenset[str]

    @property
    def count(self) -> Extent:
        """The number of parts."""
        return as_extent(self.outer.extent)

    def at_part(self, index: Expr) -> tuple[Expr, ...]:
        """The element of the part `index` at the block's spatial point."""
        indices = list(self.store.indices)
        indices.insert(self.place, index)
        return tuple(indices)

    def part_block(self) -> Block:
        """``P[s, q] = sum_r e`` in the loops of the original block; without an ``r`` just ``P[s, q] = e``."""
        taken = set(self.taken)
        name = fresh(f"{self.block.name}_rf", taken)
        own = Iter(Var(fresh("vq", taken), self.outer.var.dtype), self.count, "spatial", self.outer.var)
        taken |= {name, own.var.name}
        bound = {v for i in self.block.reduce for v in free_variables(i.binding)}
        rest = [item for item in self.above if item is not self.outer and item.var in bound]
        reduce = tuple(
            Iter(Var(fresh(f"v_{item.var.name}", taken), item.var.dtype), as_extent(item.extent), "reduce", item.var)
            for item in rest
        )
        back: dict[Var, Expr] = {i.binding: i.var for i in (own, *reduce) if isinstance(i.binding, Var)}
        term = substitute(self.rest, {i.var: substitute(i.binding, back) for i in self.block.reduce})
        point = self.at_part(own.var)
        iters = (*self.block.spatial, own, *reduce)
        if not reduce:
            return Block(name, iters, Store(self.partial, point, term), self.block.predicate)
        value = combined(self.op, Load(self.partial, point), term)
        init = Store(self.partial, point, neutral(self.op, self.partial.dtype))
        return Block(name, iters, Store(self.partial, point, value), self.block.predicate, init)

    def final_nest(self, taken: set[str]) -> Stmt:
        """``C[s] = sum_q P[s, q]`` over the whole spatial domain."""
        new_loops: list[tuple[Var, Extent]] = []
        iters: list[Iter] = []
        for item in self.block.spatial:
            dtype = item.var.dtype if item.span[1] < dtypes.int_range(item.var.dtype)[1] else dtypes.INDEX
            var = Var(fresh(f"{self.block.name}_ax{len(new_loops)}", taken), dtype)
            taken.add(var.name)
            new_loops.append((var, item.limit))
            iters.append(replace(item, binding=in_type(var, item.var.dtype)))
        last = Var(fresh(f"{self.outer.var.name}_rf", taken), self.outer.var.dtype)
        part = Iter(Var(fresh("vq", taken), last.dtype), self.count, "reduce", last)
        taken |= {last.name, part.var.name}
        value = combined(
            self.op, Load(self.store.buffer, self.store.indices), Load(self.partial, self.at_part(part.var))
        )
        body = Store(self.store.buffer, self.store.indices, value)
        final = Block(self.block.name, (*iters, part), body, TRUE, self.block.init)
        return loops([*new_loops, (last, self.outer.extent)], renamed_iters(final, "sum", taken))


def _plan(func: PrimFunc, outer: For, axis: int) -> _Plan:
    """The conditions, and what is done."""
    block = _only_block(func, outer)
    store, op, rest = update_of(block)
    assert block.init is not None
    begun = memories_written(block.init)
    if not all(memories_read(e).isdisjoint(begun) for e in (rest, *store.indices)):
        raise ScheduleError("(1) the init of block `{block}` writes what its terms read", block=block.name)
    reduce_vars = {v for i in block.reduce for v in free_variables(i.binding)}
    spatial_vars = {v for i in block.spatial for v in free_variables(i.binding)}
    if outer.var not in reduce_vars or outer.var in spatial_vars:
        raise ScheduleError("(2) loop `{loop}` is not part of the reduction alone", loop=outer.var.name)
    if mixed := reduce_vars & spatial_vars:
        both = min(v.name for v in mixed)
        raise ScheduleError("(2) loop `{both}` is part of the reduction and of the result", both=both)
    above = loops_above(func, block)
    limit_of(func, outer)
    _check_parts_initialised(func, block, outer, reduce_vars)
    check_all_points(func, block, above)
    check_once(block, above, "5")
    rank = len(store.indices) + 1
    place = axis + rank if axis < 0 else axis
    if not 0 <= place < rank:
        raise ScheduleError("factor_axis must lie in [{low}, {high}), but got {axis}", low=-rank, high=rank, axis=axis)
    taken = names(func)
    shape = list(store.buffer.extents)
    shape.insert(place, limit_of(func, outer))
    partial = Buffer(fresh(f"{store.buffer.name}_rf", taken), tuple(shape), store.buffer.dtype)
    return _Plan(block, above, outer, store, op, rest, place, partial, frozenset(taken | {partial.name}))


def _only_block(func: PrimFunc, loop: For) -> Block:
    """Condition (1): the block below, whose nest holds nothing else."""
    found = blocks_below(loop)
    if len(found) != 1 or found[0].init is None or any(i.kind == "opaque" for i in found[0].iters):
        raise ScheduleError("(1) there must be one block with an init below `{loop}`", loop=loop.var.name)
    stmt = nest_of(func, loop)
    while stmt is not found[0]:
        below = stmt_children(stmt)
        if len(below) != 1 or not isinstance(stmt, For):
            raise ScheduleError("(1) block `{block}` is not alone in its loop nest", block=found[0].name)
        (stmt,) = below
    return found[0]


def _check_parts_initialised(func: PrimFunc, block: Block, outer: For, reduce_vars: set[Var]) -> None:
    """Condition (3): with the other reduce loops at 0, every q passes the conditions on reduce loops."""
    mapping: dict[Var, Expr] = {v: as_expr(0, v) for v in reduce_vars if v != outer.var}
    above = loops_above(func, block)
    for cond in conjuncts(block.predicate):
        if free_variables(cond).isdisjoint(reduce_vars):
            continue
        first = substitute(cond, mapping)
        holds = simplify(first, loop_bounds(above, func)) == TRUE
        if not holds and not (func.stated and implies(running(func, above), first)):
            raise ScheduleError(
                "(3) some part of `{loop}` may have no first element", hint="use a smaller factor", loop=outer.var.name
            )


def check_all_points(func: PrimFunc, block: Block, above: Sequence[For]) -> None:
    """Raises ScheduleError (4) unless the bindings of the spatial iterators take every value under the predicate."""
    marks, own = [Var(f"{i.var.name}.s") for i in block.spatial], parameters(func)
    wanted = points(running(func, (), (), [(m, i.limit) for m, i in zip(marks, block.spatial, strict=True)]))
    try:
        run = points(running(func, above, conjuncts(block.predicate)))
        missing = wanted.subtract(run.image([*own, *(i.binding for i in block.spatial)], [*own, *marks])).first()
    except (NotAffine, Unknown) as error:
        raise ScheduleError("(4) the points that run are unknown: {error}", error=str(error)) from None
    if missing is not None:
        names_of = {m.name: i.var.name for i, m in zip(block.spatial, marks, strict=True)}
        point = {names_of.get(name, name): value for name, value in missing.items()}
        raise ScheduleError("(4) block `{block}` does not run at {point}", block=block.name, point=point)
