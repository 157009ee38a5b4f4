"""The loops of an anchor: every axis split, in the order ``outer.. | reduce.. | rows.. | vectors | lanes``."""

from __future__ import annotations

from ...ir.expr import variables
from ..errors import ScheduleError
from ..schedule import Schedule
from ..tree import find_block
from .anatomy import Axis
from .fused_rows import fuse_iterators
from .plan import Plan


def loop_of(sch: Schedule, block: str, axis: Axis) -> str:
    """The loop that an axis of an anchor is bound to: of a chunk's and that inside of it the inner one.

    With a single row in a chunk no index depends on the inner one, and it is the chunk's.
    """
    for item in find_block(sch.func, block).iters:
        if item.var.name == axis.var:
            used = {var.name for var in variables(item.binding)}
            return str([loop for loop in sch.get_loops(block) if loop in used][-1])
    raise ScheduleError("block `{block}` has no iterator `{axis}`", block=block, axis=axis.var)


def cut_panels(plan: Plan) -> None:
    """Reduce in panels, whose loop stands between the shared loops and the others (see `panels`)."""
    if plan.part.panel is None:
        return
    axis, number = plan.part.panel
    size = int(plan.values[number])
    plan.parts = plan.anchor.axes[axis].extent // size
    if plan.parts > 1:
        plan.panel_loop, plan.loops[axis] = plan.sch.split(plan.loops[axis], [None, size])
        plan.block = plan.sch.rfactor(plan.panel_loop, 0)


def tile(plan: Plan) -> None:
    """Split each axis and bring the loops into their order."""
    part, sch = plan.part, plan.sch
    vec, loops = part.structure.vec, plan.loops
    alone = [a for a in plan.anchor.spatial if a in part.tile]
    if plan.fused:
        _fuse_rows(plan, *plan.fused)
        alone.remove(plan.fused[0])
    plan.single = [loops[a] for a in plan.anchor.spatial if a not in part.outer_axes() and a != vec]
    outer: dict[int, str] = {}
    blocks: list[str] = []
    for axis in alone:
        size, count = plan.cover(axis), plan.block_of(axis)
        if axis != vec and size == count == 1:
            outer[axis] = loops[axis]
            continue
        block = [count] if count > 1 else []
        inner = plan.vector_shape() if axis == vec else [size]
        outer[axis], *within = sch.split(loops[axis], [None, *block, *inner])
        blocks += within[: len(block)]
        plan.tile_loops[axis] = within[len(block) :]
        if axis == vec:
            plan.vectors, plan.lanes = within[-2:-1], within[-1:]
        else:
            plan.rows += within[-1:]
    _tile_reductions(plan)
    order = [a for a in plan.value(part.order, tuple(outer)) if a in outer]
    order = [*order, *(a for a in outer if a not in order)]
    plan.shared = shared = min(plan.value(part.parallel, 1), len(order))
    plan.items = _items(plan, outer)
    ordered = [outer[a] for a in order]
    panels, items = [plan.panel_loop] if plan.panel_loop else [], list(plan.items.values())
    inside = [*panels, *items] if plan.locals else [*items, *panels]
    plan.outer = [*plan.single, *ordered[:shared], *inside, *ordered[shared:], *blocks]
    sch.reorder(*plan.outer, *plan.reduce_outer, *plan.reduce_inner, *plan.rows, *plan.vectors, *plan.lanes)


def _fuse_rows(plan: Plan, high: int, low: int) -> None:
    """One iterator and one loop for the points along both axes, in the place of the outer one's."""
    names = {loop: axis for axis, loop in plan.loops.items()}
    order = [names.get(str(item.binding), -1) for item in find_block(plan.sch.func, plan.block).iters]
    made = fuse_iterators(plan.sch, plan.block, order.index(high), order.index(low), plan.anchor.axes[low].extent)
    order.remove(low)
    for axis, loop in zip(order, made, strict=True):
        if axis < 0:
            plan.panel_loop = loop
        else:
            plan.loops[low if axis == high else axis] = loop


def _items(plan: Plan, outer: dict[int, str]) -> dict[str, str]:
    """The loops over the work-items of a grid, rows along ``y``, vectors along ``x``; `outer` then has groups."""
    items = {}
    structure, group = plan.part.structure, plan.group
    for name, axis, side in (("y", structure.row, group.y), ("x", structure.vec, group.x)):
        if axis is not None and side > 1:
            outer[axis], items[name] = plan.sch.split(outer[axis], [None, side])
    return items


def _tile_reductions(plan: Plan) -> None:
    """Split the reductions into what is unrolled inside the tile and the rest."""
    part, sch, loops = plan.part, plan.sch, plan.loops
    first = [a for a in plan.anchor.reduce if plan.anchor.axes[a].extent == 1]
    order = [*first, *plan.value(part.reduce_order, tuple(a for a in plan.anchor.reduce if a not in first))]
    for axis in order:
        if part.structure.factored and axis == part.structure.vec:
            continue
        size = plan.cover(axis)
        if size == 1:
            plan.reduce_outer.append(loops[axis])
        elif size == plan.anchor.axes[axis].extent:
            plan.reduce_inner.append(loops[axis])
        else:
            rest, inner = sch.split(loops[axis], [None, size])
            plan.reduce_outer.append(rest)
            plan.reduce_inner.append(inner)
            plan.tile_loops[axis] = [inner]
