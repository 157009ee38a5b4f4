"""Which of the device's decisions go together, for a whole population: the mask's part for OpenCL.

1. a vector width divides the register tile along the vector axis;
2. of the work-items of a linear work-group at most a fifth have no shared iteration; a grid is no larger than the
   number of tiles along either of its axes, which are shared;
3. an input in texture memory lies in a buffer that the search lays out, is no larger than the device's images,
   and an anchor has no more of them than a kernel takes;
4. local memory needs a grid of several items, an input that is not computed in place, and room for the box that
   the group reads, of one panel where the reduction is cut in panels.  No epilogue waits for panels there: its
   items would read what others have summed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ...ir.target import Target
from .anatomy import Operand
from .decision import INLINE, ROOT
from .device import TEXEL, element_bytes
from .layouts import LayoutChoice, physical_shape, steps_of
from .population import Bools, Ints, blocks, covers, inside_shared, lanes, moved, numbers
from .structure import Open

IDENTITY = LayoutChoice("identity")


def device_verdicts(
    part: Open, choices: Ints, target: Target, over: Mapping[int, Bools]
) -> Iterator[tuple[str, Bools]]:
    """Every rule's name, and the candidates that it lets through."""
    device = part.device
    cover = covers(part, choices)
    if device.vector is not None:
        yield "vector width", cover[part.structure.vec] % lanes(part, choices) == 0
    if device.work_group is not None:
        yield "work-group", _groups(part, choices, cover)
    images: Ints = np.zeros(len(choices), dtype=np.int64)
    for number, decision in device.image.items():
        name = part.anchor.operands[number].name
        wanted = numbers(part, choices, decision, f"image:{name}") == 1
        images = images + wanted
        yield "image of what lies elsewhere", ~wanted | _laid_out(part, choices, number)
        yield "extents of an image", ~wanted | _fits_image(part, choices, number, over, cover, target)
    if device.image:
        yield "number of images", images <= target.image_args
    yield from _local_memory(part, choices, cover, target)


def _groups(part: Open, choices: Ints, cover: Mapping[int, Ints]) -> Bools:
    """Rule 2."""
    assert part.device.work_group is not None
    x, y = (numbers(part, choices, part.device.work_group, f"group:{side}") for side in "xy")
    inside, trips = inside_shared(part, choices), tiles_along(part, choices, cover)
    shared: Ints = np.ones(len(choices), dtype=np.int64)
    for axis in part.outer_axes():
        shared = shared * np.where(inside[axis], 1, trips[axis])
    items = numbers(part, choices, part.device.work_group, "work_group")
    linear = 4 * -(-shared // items) * items <= 5 * shared
    grid: Bools = np.ones(len(choices), dtype=bool)
    for along, side in ((part.structure.vec, x), (part.structure.row, y)):
        if along is not None and along in trips:
            grid &= (side <= 1) | (~inside[along] & (side <= trips[along]))
    return np.where(x > 0, grid, linear)


def in_local_memory(part: Open, choices: Ints) -> Bools:
    """Whether a candidate holds some input in local memory."""
    result: Bools = np.zeros(len(choices), dtype=bool)
    for number, decision in part.device.local.items():
        result |= numbers(part, choices, decision, f"local:{part.anchor.operands[number].name}") == 1
    return result


def tiles_along(part: Open, choices: Ints, cover: Mapping[int, Ints]) -> dict[int, Ints]:
    """For each axis with an outer loop, the number of its tiles, those that a block takes together as one."""
    result = {axis: -(-part.anchor.axes[axis].extent // cover[axis]) for axis in part.outer_axes()}
    return result | {axis: result[axis] // block for axis, block in blocks(part, choices).items()}


# ---------------------------------------------------------------- texture memory


def _laid_out(part: Open, choices: Ints, number: int) -> Bools:
    """Whether an input is a parameter that is packed, or a stage that is stored."""
    operand = part.anchor.operands[number]
    if operand.source in ("constant", "free"):
        return np.ones(len(choices), dtype=bool)
    placed: Bools = np.ones(len(choices), dtype=bool)
    if number in part.place:
        placed = numbers(part, choices, part.place[number], f"place:{operand.name}") == ROOT
    return placed & (moved(part, choices, number) | (operand.source == "stage"))


def _fits_image(
    part: Open, choices: Ints, number: int, over: Mapping[int, Bools], cover: Mapping[int, Ints], target: Target
) -> Bools:
    """Rule 3: some cut between the physical axes leaves rows and columns within the limits."""
    operand = part.anchor.operands[number]
    result: Bools = np.zeros(len(choices), dtype=bool)
    logical = _logical_extents(part, operand, over, cover, len(choices))
    tiles = {axis: cover.get(axis, np.ones(len(choices), np.int64)) for axis in range(len(part.anchor.axes))}
    for code, choice in enumerate(_choices(part, number)):
        shape = [np.asarray(e, dtype=np.int64) for e in physical_shape(operand, choice, tiles, logical)]  # type: ignore[arg-type]
        shape[-1] = -(-shape[-1] // TEXEL) * TEXEL
        fits: Bools = np.zeros(len(choices), dtype=bool)
        for cut in range(1, len(shape)):
            rows, columns = _product(shape[:cut]), _product(shape[cut:])
            fits |= (rows <= target.image_height) & (columns // TEXEL <= target.image_width)
        result |= fits if number not in part.layout else fits & (choices[:, part.layout[number]] == code)
    return result


def _choices(part: Open, number: int) -> Sequence[LayoutChoice]:
    return part.decisions[part.layout[number]].values if number in part.layout else (IDENTITY,)


def _logical_extents(
    part: Open, operand: Operand, over: Mapping[int, Bools], cover: Mapping[int, Ints], count: int
) -> list[Ints]:
    """`layouts.logical_extents` for a population."""
    rounded: list[Ints] = []
    for number, axis in enumerate(part.anchor.axes):
        extent: Ints = np.full(count, axis.extent, dtype=np.int64)
        if number in over:
            extent = np.where(over[number], -(-extent // cover[number]) * cover[number], extent)
        rounded.append(extent)
    result: list[Ints] = []
    for size, terms, offset in zip(operand.shape, operand.dims, operand.offsets, strict=True):
        top: Ints = np.full(count, offset + 1, dtype=np.int64)
        for axis_number, coefficient in terms:
            top = top + max(0, coefficient) * (rounded[axis_number] - 1)
        result.append(np.maximum(size, top))
    return result


def _product(extents: Sequence[Ints]) -> Ints:
    result: Ints = np.ones(1, dtype=np.int64)
    for extent in extents:
        result = result * extent
    return result


# ---------------------------------------------------------------- local memory


def _local_memory(part: Open, choices: Ints, cover: Mapping[int, Ints], target: Target) -> Iterator[tuple[str, Bools]]:
    """Rule 4."""
    device = part.device
    if not device.local or device.work_group is None:
        return
    grid = numbers(part, choices, device.work_group, "group:x") > 0
    reach = _reach(part, choices, cover)
    total: Ints = np.zeros(len(choices), dtype=np.int64)
    for number, decision in device.local.items():
        operand = part.anchor.operands[number]
        wanted = numbers(part, choices, decision, f"local:{operand.name}") == 1
        yield "local memory without a grid", ~wanted | grid
        if number in part.place:
            place = numbers(part, choices, part.place[number], f"place:{operand.name}")
            yield "local memory of what is inlined", ~wanted | (place != INLINE)
        total = total + np.where(wanted, _box_bytes(part, choices, number, reach), 0)
    if part.panel is not None and part.anchor.epilogue:
        axis, number = part.panel
        panel = numbers(part, choices, number, f"tile:{part.anchor.axes[axis].name}:panel")
        whole = panel == part.anchor.axes[axis].extent
        yield "local memory of panels before an epilogue", whole | ~in_local_memory(part, choices)
    yield "size of local memory", total <= target.local_bytes


def _reach(part: Open, choices: Ints, cover: Mapping[int, Ints]) -> dict[int, Ints]:
    """For each axis, how many of its points a work-group of a grid covers in one panel."""
    assert part.device.work_group is not None
    inside, trips = inside_shared(part, choices), tiles_along(part, choices, cover)
    x, y = (numbers(part, choices, part.device.work_group, f"group:{side}") for side in "xy")
    sides = {part.structure.vec: x, part.structure.row: y}
    result: dict[int, Ints] = {}
    for number, axis in enumerate(part.anchor.axes):
        tile = cover.get(number, np.ones(len(choices), np.int64))
        whole: Ints = -(-axis.extent // tile) * tile
        if number not in trips:
            result[number] = whole
            if part.panel is not None and part.panel[0] == number:
                panel = numbers(part, choices, part.panel[1], f"tile:{axis.name}:panel")
                result[number] = np.where(panel == axis.extent, whole, panel)
            continue
        tiles = -(-axis.extent // tile) // np.maximum(trips[number], 1)
        result[number] = np.where(inside[number], whole, tile * tiles * np.maximum(sides.get(number, np.int64(1)), 1))
    return result


def _box_bytes(part: Open, choices: Ints, number: int, reach: Mapping[int, Ints]) -> Ints:
    """Bytes of the box of an input, in its layout, that a group reads."""
    operand = part.anchor.operands[number]
    spans: list[Ints] = []
    for terms in operand.dims:
        span: Ints = np.ones(len(choices), dtype=np.int64)
        for axis, coefficient in terms:
            span = span + abs(coefficient) * (reach[axis] - 1)
        spans.append(span)
    result = _product(spans)
    for code, choice in enumerate(_choices(part, number)):
        if choice.kind == "phase":
            step = steps_of(operand, choice)
            rest = _product([s for dim, s in enumerate(spans) if dim != choice.dim])
            boxed = rest * step * (spans[choice.dim] // step + 2)
            result = np.where(choices[:, part.layout[number]] == code, boxed, result)
    return np.broadcast_to(result * element_bytes(operand), len(choices))
