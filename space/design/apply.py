"""From a choice to a schedule: the steps of one anchor, in order.

1. stage inputs: layouts of constants and free arguments, caches and producers of the others;
2. tile: split every axis, reorder to ``outer.. | reduce.. | rows.. | vectors | lanes``;
3. give the result a register tile (``local``), with the epilogue, a copy or the sum of its parts as its way out;
4. separate the initialisation, and settle each ragged edge;
5. share the outer loops between threads, unroll and vectorize the tile;
6. load what the items of a work-group share; place the staged inputs and schedule them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.target import Target
from ..primitives.cache import read_buffer
from ..schedule import Schedule
from ..tree import find_block
from .decision import INLINE, INNER
from .device_apply import TEXTURE, image_layout, share_between_groups, stage_locally
from .layouts import IDENTITY, LayoutChoice, index_map, logical_extents, physical_shape
from .loop_tiles import cut_panels, loop_of, tile
from .parts import factor, sum_parts
from .plan import Plan
from .register_tile import finish_panels, register_tile, settle_edges, vectorize_tile
from .stages import distribute, schedule_inner_stage, schedule_stage
from .structure import Open


def schedule_anchor(sch: Schedule, part: Open, choice: Sequence[int], target: Target) -> None:
    """Apply one anchor's decisions.  Raises ScheduleError where a primitive refuses."""
    values = {n: d.values[c] for n, (d, c) in enumerate(zip(part.decisions, choice, strict=True))}
    plan = Plan(sch, part, target, values, block=part.anchor.block, exit=part.anchor.epilogue)
    plan.loops = {number: loop_of(sch, plan.block, axis) for number, axis in enumerate(part.anchor.axes)}
    stage_inputs(plan)
    if part.structure.factored:
        factor(plan)
    cut_panels(plan)
    tile(plan)
    if part.anchor.reduce:
        if part.structure.factored:
            sum_parts(plan)
        else:
            register_tile(plan)
        settle_edges(plan)
    _share(plan)
    vectorize_tile(plan)
    _load_together(plan)
    _place(plan)
    finish_panels(plan)


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
        is_image = plan.value(plan.part.device.image.get(number), False)
        if is_image:
            text, shape = image_layout(text, shape, plan.target)
        pad = plan.value(plan.part.pad.get(number))
        if operand.source in ("constant", "free"):
            if choice.kind != IDENTITY or shape != operand.shape or is_image:
                plan.sch.transform_layout(plan.block, operand.buffer.name, text, pad, physical_shape=shape)
            if is_image:
                plan.sch.set_scope(plan.block, operand.buffer.name, TEXTURE)
            continue
        block = operand.producer or plan.sch.cache_read(plan.block, _read_index(plan, number), "global")
        if not operand.producer:
            plan.reads[number] = block
        if operand.source != "stage" or choice.kind != IDENTITY or shape != operand.shape or is_image:
            plan.sch.transform_layout(block, ["write", 0], text, pad, physical_shape=shape, rewrite_loops=True)
        if is_image:
            plan.sch.set_scope(block, 0, TEXTURE)
        plan.staged.append((block, number, place))


def _read_index(plan: Plan, number: int) -> int:
    """The position of an operand's buffer among what the block reads now."""
    block = find_block(plan.sch.func, plan.block)
    wanted = plan.anchor.operands[number].buffer.name
    position = 0
    while read_buffer(block, position).name != wanted:
        position += 1
    return position


def _share(plan: Plan) -> None:
    """Fuse the leading outer loops and give them to threads, unless the anchor runs in chunks that threads share."""
    sch = plan.sch
    if not plan.outer or plan.part.chunks:
        return
    count = len(plan.single) + plan.shared
    shared = plan.outer[:count]
    loop = sch.fuse(*shared) if len(shared) > 1 else shared[0]
    plan.outer = [loop, *plan.outer[count:]]
    if plan.group.is_grid:
        share_between_groups(sch, loop, plan.items, ["", "_init"] if plan.panel_loop and plan.locals else [""])
    else:
        plan.outer[0] = distribute(sch, loop, plan.target, plan.group.items)


def _load_together(plan: Plan) -> None:
    """Stage the inputs that go to local memory, for all items of a group, whole or for one panel of the reduction."""
    for number in plan.locals:
        buffer = plan.reads.get(number, plan.anchor.operands[number].buffer.name)
        stage_locally(plan.sch, plan.block, buffer, plan.panel_loop or plan.outer[0], plan.group)


def _place(plan: Plan) -> None:
    """Compute each staged input inside the shared loops, or before, on all threads."""
    for block, _, place in plan.staged:
        if place == INNER and plan.outer:
            plan.sch.compute_at(block, plan.place_inside)
            schedule_inner_stage(plan.sch, block, plan.place_inside, plan.target)
        else:
            schedule_stage(plan.sch, block, plan.target)
