"""Layout, pad value and place of each input: a parameter's own layout, a cache's, or a producer's."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....ir.arith.constants import neutral
from ....ir.functions import BIT_CALLS
from ...primitives.cache import read_buffer
from ...tree import find_block
from ..candidates import Bools, Candidates, Columns
from ..decision import INLINE, INNER, MASK, OVERCOMPUTE, PLACES, ROOT, UNDEF, Collector
from ..decision import NEUTRAL_PAD as NEUTRAL
from ..layouts import DotPacked4, Identity, LayoutFamily, alternatives, code, is_read_in_words, meeting
from ..operand import Operand
from ..plan import Plan, one
from ..program import has_condition
from ..stages import schedule_inner_stage, schedule_stage
from ..structure import Site
from . import images
from .boundaries import may_overcompute
from .technique import Phase, Technique, Verdicts, most_scratch


def _opens(site: Site, out: Collector) -> None:
    for number, operand in enumerate(site.anchor.operands):
        if operand.is_output:
            continue
        choices = alternatives(site.anchor, operand, site.structure)
        laid_out = choices != (Identity(),)
        if laid_out:
            table = _layout_table(site, operand, choices)
            labels = [choice.label for choice in choices]
            out.add("layout", number, f"layout:{operand.name}", "layout", choices, labels, table)
        laid_out = laid_out or operand.source == "stage" or operand.is_packed_by_caller
        if operand.dims and laid_out and _may_be_read_over_an_edge(site, operand):
            _add_pad_values(site, out, number, operand)
        places = _places(site, operand, choices)
        if len(places) > 1:
            name = f"place:{operand.name}"
            out.add("place", number, name, "place", places, [PLACES[p] for p in places], {name: places})


def _layout_table(site: Site, operand: Operand, choices: Sequence[LayoutFamily]) -> dict[str, Sequence[float]]:
    """The kind, the alternative, how vectors meet the operand, and the axis (counted from 1) whose tile it follows."""
    name, vec, kind = operand.name, site.structure.vec, site.target.kind
    return {
        f"layout:{name}": [code(choice) for choice in choices],
        f"alternative:{name}": range(len(choices)),
        f"meets:{name}": [meeting(operand, choice, vec, kind) for choice in choices],
        f"follows:{name}": [choice.axis + 1 for choice in choices],
    }


def _may_be_read_over_an_edge(site: Site, operand: Operand) -> bool:
    """Whether an input's padding can be computed on; where it cannot, its value decides nothing."""
    axes = (a for a, item in enumerate(site.anchor.axes) if item.extent > 1 or a == site.structure.vec)
    return any(operand.uses(a) and may_overcompute(site.anchor, a) for a in axes)


def _add_pad_values(site: Site, out: Collector, number: int, operand: Operand) -> None:
    """None, undef, and the value that makes overcompute of the anchor's reduction neutral."""
    values: list[object] = [None, "undef"]
    labels = ["none", "undef"]
    if site.anchor.op and site.anchor.op not in BIT_CALLS:
        value = neutral(site.anchor.op, operand.dtype).value
        values.append(repr(value) if math.isinf(value) else value)
        labels.append(f"{value:g}")
    name = f"pad:{operand.name}"
    out.add("pad", number, name, "pad_value", values, labels, {name: range(len(values))})


def _places(site: Site, operand: Operand, choices: Sequence[LayoutFamily]) -> list[int]:
    """Where an input's copy or producer is computed: of a sum in a step that comes before, once for all threads."""
    if site.anchor.in_step:
        return [ROOT]
    inner = [INNER] if site.target.execution.work_items_share_a_thread and not site.structure.subgroup else []
    if operand.source == "stage" and is_read_in_words(site.anchor, operand, site.structure):
        return [ROOT, *inner]
    if operand.source == "stage":
        return [ROOT, INLINE, *inner] if has_condition(site.func, operand.producer) else [INLINE, ROOT, *inner]
    if operand.source == "fixed" and len(choices) > 1:
        return [ROOT, *inner]
    return [ROOT]


def _excludes(c: Candidates) -> Verdicts:
    """An input that is reached over the edge has room for it, holds a fitting value there, and exists as a buffer."""
    for number, operand in enumerate(c.operands):
        if operand.is_output:
            continue
        moved, place, any_over = c.moved(number), c.place(number), c.reached_over(number)
        if number in c.part.of("place"):
            yield "layout of what is inlined", (place != INLINE) | ~moved
            bytes_inside = c.chunk_bytes(number) * c.items
            yield "size of a stage inside", (place != INNER) | (bytes_inside <= most_scratch(c.target))
        if operand.padded and operand.source == "fixed":
            yield "copy of padding over the edge", ~moved | ~c.reached_over(number, "reduce")
        if number not in c.part.of("pad"):
            yield "room over the edge", ~any_over
            continue
        pad = c.pad(number)
        yield "room over the edge", ~any_over | ((moved | (operand.source != "fixed")) & (place != INLINE))
        fits = ~c.reached_over(number, "spatial") | (pad >= UNDEF)
        yield "pad value over the edge", fits & (~c.reached_over(number, "reduce") | (pad == NEUTRAL))
        padded = any_over | c.by_layout(number, [choice.pads(operand, c.cover) for choice in c.layouts(number)])
        yield "pad value without padding", padded | (pad == 0) | ((pad == NEUTRAL) & _has_edge(c, operand))


def _has_edge(c: Candidates, operand: Operand) -> Bools:
    """Whether an edge that may be computed over is ragged; elsewhere an input's pad value decides nothing."""
    result: Bools = np.zeros(1, bool)
    for axis, number in c.part.of("boundary").items():
        if operand.uses(axis) and OVERCOMPUTE in c.part.decisions[number].values:
            result = result | c.ragged[axis]
    return result


def _shown(c: Candidates) -> Columns:
    """The columns of all decisions; a pad value where nothing is padded is none, a place without a stage the root."""
    found = c.columns("layout", "pad", "place")
    for number in c.part.of("pad"):
        name = f"pad:{c.operands[number].name}"
        padded = c.reached_over(number) | _follows_a_ragged_tile(c, number)
        found[name] = np.where(c.staged(number) & padded, found[name], np.float32(0))
    for number in c.part.of("place"):
        name = f"place:{c.operands[number].name}"
        if c.operands[number].source != "stage":
            found[name] = np.where(c.staged(number), found[name], np.float32(ROOT))
    return found


def _follows_a_ragged_tile(c: Candidates, number: int) -> Bools:
    """Whether an input lies in tiles of an axis that do not divide it."""
    ragged = [c.ragged[layout.axis] if layout.axis >= 0 else np.zeros(1, bool) for layout in c.layouts(number)]
    return c.by_layout(number, ragged)


def _stage(plan: Plan) -> None:
    """Give each input its layout: a parameter's own, a cache's, or a producer's."""
    cover = [one(size) for size in plan.chosen.cover]
    for number, operand in enumerate(plan.anchor.operands):
        family, place = plan.layout(number), plan.value("place", number)
        if operand.source == "stage" and place == INLINE:
            plan.sch.compute_inline(operand.producer)
            continue
        plain = isinstance(family, Identity)
        if plain and operand.source in ("fixed", "other", "output"):
            continue
        if not operand.dims:
            if operand.producer:
                plan.staged.append((operand.producer, place, 1))
            continue
        reach = [one(extent) for extent in plan.chosen.logical(number)]
        layout = family.layout(operand, cover, reach, plan.value("pad", number))
        image = images.is_image(plan, number)
        if image:
            layout = images.image_layout(layout, plan.target)
        changed = not plain or layout.physical_shape != operand.shape or image
        if operand.is_packed_by_caller:
            if changed:
                plan.sch.transform_layout(plan.block, operand.buffer.name, layout)
            if image:
                plan.sch.set_scope(plan.block, operand.buffer.name, images.TEXTURE)
            continue
        block = operand.producer or plan.sch.cache_read(plan.block, _read_index(plan, number), "global")
        if not operand.producer:
            plan.reads[number] = block
        if operand.source != "stage" or changed:
            plan.sch.transform_layout(block, ["write", 0], layout, rewrite_loops=True)
        if image:
            plan.sch.set_scope(block, 0, images.TEXTURE)
        plan.staged.append((block, place, 2 if isinstance(family, DotPacked4) else 1))  # a word is little to share


def _read_index(plan: Plan, number: int) -> int:
    """The position of an operand's buffer among what the block reads now."""
    block = find_block(plan.sch.func, plan.block)
    wanted = plan.anchor.operands[number].buffer.name
    position = 0
    while read_buffer(plan.sch.func, block, position).name != wanted:
        position += 1
    return position


def _place(plan: Plan) -> None:
    """Compute each staged input inside the shared loops, or before, on all threads."""
    for block, place, inside in plan.staged:
        if place == INNER and plan.outer:
            plan.sch.compute_at(block, plan.place_inside)
            schedule_inner_stage(plan.sch, block, plan.place_inside, plan.target)
        else:
            schedule_stage(plan.sch, block, plan.target, inside=inside)


def _mask_borders(plan: Plan) -> None:
    """Mask the lanes of a sum that reads a border along its vectors, which is computed in place.

    Without masks a vector that meets the border runs lane by lane, and of a row of few vectors most do for some tap.
    """
    anchor, vec, target = plan.anchor, plan.structure.vec, plan.target
    has_masks = target.has_mask_registers and all(target.has_masks(operand.dtype) for operand in anchor.operands)
    if plan.lane() < 2 or not has_masks or plan.factored or plan.structure.dot is not None:
        return
    for number, operand in enumerate(anchor.operands):
        is_inline = operand.source == "stage" and plan.value("place", number) == INLINE
        along = (axis for dim in operand.tested if operand.dims for axis, _ in operand.dims[dim])
        if is_inline and vec in along and one(plan.chosen.boundary[vec]) != MASK:
            for loop in plan.lanes:
                plan.sch.annotate(loop, "mask", True)
            return


STAGING = Technique(
    ("layout", "pad", "place"), opens=_opens, excludes=_excludes,
    applies={Phase.STAGE: _stage, Phase.PLACE: _place, Phase.VECTORIZE: _mask_borders}, shown=_shown,
)  # fmt: skip
