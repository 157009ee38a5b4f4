"""From a choice to a schedule: the steps of one anchor, in order.

1. stage inputs: layouts of constants and free arguments, caches and producers of the others;
2. tile: split every axis, reorder to ``outer.. | reduce.. | rows.. | vectors | lanes``;
3. give the result a register tile (``local``), with the epilogue or a copy as its way out;
4. separate the initialisation, and settle each ragged edge;
5. share the outer loops between threads, unroll and vectorize the tile;
6. place the staged inputs and schedule them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ir.target import Target
from .anatomy import Anchor
from .contiguity import is_contiguous
from .decision import BRANCH, INLINE, INNER, OVERCOMPUTE, PEEL
from .errors import ScheduleError
from .layouts import IDENTITY, LayoutChoice, index_map, logical_extents, physical_shape
from .primitives.cache import read_buffer
from .schedule import Schedule
from .structure import Open
from .tree import extent_of, find_block, find_loop, loops_above


@dataclass
class Plan:
    """One anchor's decisions in values, and the handles that come up on the way."""

    sch: Schedule
    part: Open
    target: Target
    values: dict[int, Any]
    block: str = ""
    loops: dict[int, str] = field(default_factory=dict)
    single: list[str] = field(default_factory=list)
    copy: str = ""
    init: str = ""
    parts: int = 1
    panel_loop: str = ""
    sum_init: str = ""
    outer: list[str] = field(default_factory=list)
    reduce_outer: list[str] = field(default_factory=list)
    reduce_inner: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    vectors: list[str] = field(default_factory=list)
    lanes: list[str] = field(default_factory=list)
    tile_loops: dict[int, list[str]] = field(default_factory=dict)
    staged: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def anchor(self) -> Anchor:
        return self.part.anchor

    def value(self, number: int | None, default: Any = None) -> Any:
        return default if number is None else self.values[number]

    def cover(self, axis: int) -> int:
        """The extent of the register tile along an axis."""
        if axis not in self.part.tile:
            return 1
        size = self.values[self.part.tile[axis]]
        return int(size[0] * size[1]) if isinstance(size, tuple) else int(size)

    def lane(self) -> int:
        return int(self.values[self.part.tile[self.part.structure.vec]][1])

    def boundary(self, axis: int) -> int:
        """The boundary decision of an axis; a tile that divides has no edge."""
        if axis not in self.part.boundary or self.anchor.axes[axis].extent % self.cover(axis) == 0:
            return BRANCH
        return int(self.values[self.part.boundary[axis]])

    def rounded(self, axis: int) -> int:
        """The extent that is computed along an axis."""
        extent, cover = self.anchor.axes[axis].extent, self.cover(axis)
        return -(-extent // cover) * cover if self.boundary(axis) == OVERCOMPUTE else extent


def schedule_anchor(sch: Schedule, part: Open, choice: Sequence[int], target: Target) -> None:
    """Apply one anchor's decisions.  Raises ScheduleError where a primitive refuses."""
    values = {n: d.values[c] for n, (d, c) in enumerate(zip(part.decisions, choice, strict=True))}
    plan = Plan(sch, part, target, values, block=part.anchor.block)
    plan.loops = {axis: _loop_of(plan, axis) for axis in range(len(part.anchor.axes))}
    stage_inputs(plan)
    if part.structure.factored:
        _factor(plan)
    _cut_panels(plan)
    _tile(plan)
    if part.anchor.reduce:
        _register_tile(plan)
        _settle_edges(plan)
    _share(plan)
    _vectorize_tile(plan)
    _place(plan)
    _finish_panels(plan)
    if part.structure.factored:
        _finish_parts(plan)


def stage_inputs(plan: Plan) -> None:
    """Give each input its layout: a parameter's own, a cache's, or a producer's."""
    tiles = {axis: plan.cover(axis) for axis in range(len(plan.anchor.axes))}
    rounded = [plan.rounded(axis) for axis in range(len(plan.anchor.axes))]
    for number, operand in enumerate(plan.anchor.operands):
        choice: LayoutChoice = plan.value(plan.part.layout.get(number), LayoutChoice(IDENTITY))
        place = plan.value(plan.part.place.get(number), None)
        if operand.source == "stage" and place == INLINE:
            plan.sch.compute_inline(operand.producer)
            continue
        if choice.kind == IDENTITY and operand.source in ("fixed", "other", "output"):
            continue
        if not operand.dims:
            plan.staged.append((operand.producer, number, place))
            continue
        logical = logical_extents(operand, rounded)
        text = index_map(operand, choice, tiles)
        shape = physical_shape(operand, choice, tiles, logical)
        pad = plan.value(plan.part.pad.get(number))
        if operand.source in ("constant", "free"):
            if choice.kind != IDENTITY or shape != operand.shape:
                plan.sch.transform_layout(plan.block, operand.buffer.name, text, pad, physical_shape=shape)
            continue
        block = operand.producer or plan.sch.cache_read(plan.block, _read_index(plan, number), "global")
        if operand.source != "stage" or choice.kind != IDENTITY or shape != operand.shape:
            plan.sch.transform_layout(block, ["write", 0], text, pad, physical_shape=shape, rewrite_loops=True)
        plan.staged.append((block, number, place))


def _read_index(plan: Plan, number: int) -> int:
    """The position of an operand's buffer among what the block reads now."""
    block = find_block(plan.sch.func, plan.block)
    wanted = plan.anchor.operands[number].buffer.name
    position = 0
    while read_buffer(block, position).name != wanted:
        position += 1
    return position


def _factor(plan: Plan) -> None:
    """Reduce along the vector axis in as many independent parts as the tile has lanes."""
    vec = plan.part.structure.vec
    outer, plan.loops[vec] = plan.sch.split(plan.loops[vec], [None, plan.cover(vec)])
    plan.block = plan.sch.rfactor(plan.loops[vec], -1)
    plan.reduce_outer.append(outer)


def _cut_panels(plan: Plan) -> None:
    """Reduce in panels, whose loop stands between the shared loops and the others (see `panels`)."""
    if plan.part.panel is None:
        return
    axis, number = plan.part.panel
    size = int(plan.values[number])
    plan.parts = plan.anchor.axes[axis].extent // size
    if plan.parts > 1:
        plan.panel_loop, plan.loops[axis] = plan.sch.split(plan.loops[axis], [None, size])
        plan.block = plan.sch.rfactor(plan.panel_loop, 0)


def _finish_panels(plan: Plan) -> None:
    """The epilogue runs when all panels of a shared iteration are added."""
    epilogue = plan.anchor.epilogue
    if plan.panel_loop and epilogue:
        plan.sch.reverse_compute_at(epilogue, plan.outer[0])
        schedule_inner_stage(plan.sch, epilogue, plan.outer[0], plan.target)


def _loop_of(plan: Plan, axis: int) -> str:
    """The loop that an axis of the anchor is bound to."""
    block = find_block(plan.sch.func, plan.anchor.block)
    for item in block.iters:
        if item.var.name == plan.anchor.axes[axis].var:
            return str(item.binding)
    raise ScheduleError("block `{block}` has no iterator `{axis}`", block=block.name, axis=plan.anchor.axes[axis].var)


def _tile(plan: Plan) -> None:
    """Split each axis and bring the loops into their order."""
    part, sch = plan.part, plan.sch
    vec, row = part.structure.vec, part.structure.row
    loops = plan.loops
    plan.single = [loops[a] for a in plan.anchor.spatial if a not in part.outer_axes() and a != vec]
    outer: dict[int, str] = {}
    blocks: list[str] = []
    for axis in (a for a in plan.anchor.spatial if a in part.tile):
        size = plan.values[part.tile[axis]]
        if axis == vec:
            outer[axis], vectors, lanes = sch.split(loops[axis], [None, *size])
            plan.vectors, plan.lanes = [vectors], [lanes]
            plan.tile_loops[axis] = [vectors, lanes]
        elif axis == row and plan.value(part.block, 1) > 1:
            outer[axis], block, inner = sch.split(loops[axis], [None, plan.value(part.block), size])
            blocks.append(block)
            plan.rows.append(inner)
            plan.tile_loops[axis] = [inner]
        elif size > 1:
            outer[axis], inner = sch.split(loops[axis], [None, size])
            plan.rows.append(inner)
            plan.tile_loops[axis] = [inner]
        else:
            outer[axis] = loops[axis]
    if part.structure.factored:
        vectors, lanes = sch.split(loops[vec], list(plan.values[part.tile[vec]]))
        plan.vectors, plan.lanes = [vectors], [lanes]
        plan.tile_loops[vec] = [vectors, lanes]
    _tile_reductions(plan)
    order = plan.value(part.order, tuple(outer))
    ordered = [outer[a] for a in order] + [outer[a] for a in outer if a not in order]
    shared = plan.value(part.parallel, 1) if plan.panel_loop else len(ordered)
    panels = [plan.panel_loop] if plan.panel_loop else []
    plan.outer = [*plan.single, *ordered[:shared], *panels, *ordered[shared:], *blocks]
    sch.reorder(*plan.outer, *plan.reduce_outer, *plan.reduce_inner, *plan.rows, *plan.vectors, *plan.lanes)


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


def _register_tile(plan: Plan) -> None:
    """Accumulate in a local tile; the epilogue, or a copy, takes the result out at the end of each tile."""
    sch = plan.sch
    if plan.panel_loop:
        sch.set_scope(plan.block, 0, "local")
        plan.copy = plan.anchor.block
    elif plan.anchor.epilogue and not plan.part.structure.factored:
        sch.set_scope(plan.block, 0, "local")
        plan.copy = plan.anchor.epilogue
    else:
        plan.copy = sch.cache_write(plan.block, 0, "local")
    if plan.outer:
        sch.reverse_compute_at(plan.copy, plan.outer[-1])
    if plan.panel_loop:
        plan.sum_init = sch.decompose_reduction(plan.copy, plan.panel_loop)
    text, shape = _tile_layout(plan)
    sch.transform_layout(plan.block, ["write", 0], text, "undef", physical_shape=shape)


def _result_shape(plan: Plan) -> tuple[list[int], int]:
    """Extents of the tiled block's result, rounded where it is computed over, and the dimension of the vector axis."""
    output, vec = plan.anchor.output, plan.part.structure.vec
    shape = list(output.shape)
    for axis in plan.anchor.spatial:
        dim = output.plain_dim(axis)
        if dim is not None:
            shape[dim] = plan.rounded(axis)
    if plan.part.structure.factored:
        return [*shape, plan.cover(vec)], len(shape)
    dim = output.plain_dim(vec)
    assert dim is not None
    return ([plan.parts, *shape], dim + 1) if plan.panel_loop else (shape, dim)


def _tile_layout(plan: Plan) -> tuple[str, tuple[int, ...]]:
    """``[i // T, ..., i % T]`` for the vector axis, so that the tile's vectors are contiguous."""
    shape, vec_dim = _result_shape(plan)
    tile = plan.cover(plan.part.structure.vec)
    names = [f"d{k}" for k in range(len(shape))]
    rest = [k for k in range(len(shape)) if k != vec_dim]
    parts = [f"{names[vec_dim]} // {tile}", *(names[k] for k in rest), f"{names[vec_dim]} % {tile}"]
    physical = (-(-shape[vec_dim] // tile), *(shape[k] for k in rest), tile)
    return f"lambda {', '.join(names)}: [{', '.join(parts)}]", physical


def _settle_edges(plan: Plan) -> None:
    """Separate the initialisation; then remove, mark or keep the condition of each ragged axis."""
    sch = plan.sch
    first = (plan.reduce_outer + plan.reduce_inner)[0]
    plan.init = sch.decompose_reduction(plan.block, first)
    for axis in range(len(plan.anchor.axes)):
        if plan.boundary(axis) != OVERCOMPUTE:
            continue
        over = plan.tile_loops[axis]
        if plan.anchor.axes[axis].kind == "spatial":
            init_loops = [f"{loop}_init" for loop in over]
            sch.remove_branching_through_overcompute(plan.init, loops=init_loops)
        sch.remove_branching_through_overcompute(plan.block, loops=over)


def _share(plan: Plan) -> None:
    """Fuse the leading outer loops and give them to threads."""
    sch, part = plan.sch, plan.part
    if not plan.outer:
        return
    count = len(plan.single) + plan.value(part.parallel, 1)
    shared = plan.outer[:count]
    loop = sch.fuse(*shared) if len(shared) > 1 else shared[0]
    plan.outer = [loop, *plan.outer[count:]]
    plan.outer[0] = distribute(sch, loop, plan.target, plan.value(part.work_group, 1))


def distribute(sch: Schedule, loop: str, target: Target, work_group: int) -> str:
    """Run a loop's iterations on threads, or on work-items in groups; returns the innermost shared loop."""
    if target.kind == "cpu":
        sch.parallel(loop)
        return loop
    group, item = sch.split(loop, [None, work_group])
    sch.bind(group, "blockIdx.x")
    sch.bind(item, "threadIdx.x")
    return str(item)


def _vectorize_tile(plan: Plan) -> None:
    """Unroll and vectorize the loops of the tile, in the computation, its init and the way out; mark peeled edges."""
    sch = plan.sch
    peeled = {
        loop
        for axis in range(len(plan.anchor.axes))
        if plan.boundary(axis) == PEEL
        for loop in plan.tile_loops.get(axis, [])
    }
    for loop in [*plan.reduce_inner, *plan.rows, *plan.vectors]:
        sch.unroll(loop)
    _vectorize(sch, plan.lanes, plan.lane())
    if plan.init:
        inside = [f"{loop}_init" for loop in [*plan.rows, *plan.vectors]]
        for loop in inside:
            sch.unroll(loop)
        _vectorize(sch, [f"{loop}_init" for loop in plan.lanes], plan.lane())
        peeled |= {f"{loop}_init" for loop in peeled if f"{loop}_init" in sch.get_loops(plan.init)}
    for block in (plan.copy, plan.sum_init):
        if block:
            _way_out(plan, block)
    for loop in sorted(peeled):
        sch.annotate(loop, "peel", True)


def _vectorize(sch: Schedule, loops: Sequence[str], lane: int) -> None:
    for loop in loops:
        if lane > 1:
            sch.vectorize(loop)


def _way_out(plan: Plan, block: str) -> None:
    """Unroll the copy out of the tile, so that its indices are constants; vectorize where the result is contiguous."""
    sch = plan.sch
    shape, vec_dim = _result_shape(plan)
    inner = sch.get_loops(block)[-len(shape) :]
    contiguous = plan.part.structure.factored or plan.anchor.output.stride(plan.part.structure.vec) == 1
    rest = list(inner)
    if contiguous and plan.lane() > 1:
        loop = rest.pop(vec_dim)
        vectors, lanes = sch.split(loop, [None, plan.lane()])
        sch.reorder(*rest, vectors, lanes)
        rest.append(vectors)
        sch.vectorize(lanes)
    for loop in rest:
        sch.unroll(loop)


def _above_tile(plan: Plan) -> list[str]:
    """The loops outside the register tile, as they are now."""
    above = [loop.var.name for loop in loops_above(plan.sch.func, find_block(plan.sch.func, plan.block))]
    first = (plan.reduce_outer + plan.reduce_inner)[0]
    return above[: above.index(first)]


def _finish_parts(plan: Plan) -> None:
    """Share the sum of the parts, and the epilogue after it."""
    sch = plan.sch
    spatial = sch.get_loops(plan.anchor.block)[:-1]
    if spatial:
        distribute(sch, sch.fuse(*spatial) if len(spatial) > 1 else spatial[0], plan.target, 1)
    if plan.anchor.epilogue:
        schedule_stage(sch, plan.anchor.epilogue, plan.target)


def _place(plan: Plan) -> None:
    """Compute each staged input inside the shared loops, or before, on all threads."""
    for block, _, place in plan.staged:
        if place == INNER and plan.outer:
            plan.sch.compute_at(block, plan.outer[0])
            schedule_inner_stage(plan.sch, block, plan.outer[0], plan.target)
        else:
            schedule_stage(plan.sch, block, plan.target)


def schedule_stage(sch: Schedule, block: str, target: Target) -> None:
    """An element-wise block in a nest of its own: outer loops shared, the innermost vectorized if contiguous."""
    loops = sch.get_loops(block)
    if not loops:
        return
    head, last = loops[:-1], loops[-1]
    tail = vectorize_stage(sch, block, last, target)
    if head:
        distribute(sch, sch.fuse(*head) if len(head) > 1 else head[0], target, 1)
    elif tail is not None:
        distribute(sch, tail, target, 1)


def schedule_inner_stage(sch: Schedule, block: str, outer: str, target: Target) -> None:
    """An element-wise block inside a shared loop: the innermost loop vectorized where that is contiguous."""
    loops = sch.get_loops(block)
    inner = loops[loops.index(outer) + 1 :]
    if inner:
        vectorize_stage(sch, block, inner[-1], target)


def vectorize_stage(sch: Schedule, block: str, loop: str, target: Target) -> str | None:
    """Vectorize the innermost loop of a copy if source and target are contiguous in it; returns its outer part."""
    func = sch.func
    extent = extent_of(find_loop(func, loop))
    dtype = func.buffers[0].dtype
    lanes = target.vector_lanes(dtype)
    if extent < lanes or lanes < 2 or not is_contiguous(func, block, loop):
        return loop
    if extent == lanes:
        sch.vectorize(loop)
        return None
    outer, inner = sch.split(loop, [None, lanes])
    sch.vectorize(inner)
    if extent % lanes:
        sch.annotate(inner, "peel", True)
    return str(outer)
