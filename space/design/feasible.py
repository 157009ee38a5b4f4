"""Which candidates can be built, for a whole population at once.

All rules are arithmetic on the numbers of decisions; no program is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...ir.target import Target
from .decision import INLINE, INNER, OVERCOMPUTE, PEEL
from .device_feasible import device_verdicts, in_local_memory
from .layouts import steps_of
from .panels import fitting_panels, sums_apart
from .population import (
    Bools,
    Ints,
    blocks,
    covers,
    extents,
    fused,
    inside_shared,
    lanes,
    moved,
    numbers,
    overcomputed,
)
from .structure import Open

MAX_STATEMENTS = {"cpu": 1024, "opencl": 512}
MAX_SCRATCH = 3 << 18  # a quarter below what a thread may have: layouts round extents up
PRESSURE = 2.0


def feasible(part: Open, choices: Ints, target: Target) -> Bools:
    """True where no rule excludes the candidate."""
    ok: Bools = np.ones(len(choices), dtype=bool)
    for _, passed in verdicts(part, choices, target):
        ok &= passed
    return ok


def verdicts(part: Open, choices: Ints, target: Target) -> Iterator[tuple[str, Bools]]:
    """Every rule's name, and the candidates that it lets through."""
    cover = covers(part, choices)
    over = overcomputed(part, choices)
    yield "registers", _registers(part, choices, cover, target)
    yield "block of tiles", _blocks(part, choices, cover)
    if part.panel is not None:
        yield "panels", _panels(part, choices, cover)
        if sums_apart(part.anchor, part.structure.vec, target):
            yield "size of a sum inside", _sum_of_panels(part, choices, cover)
    if part.fused is not None:
        yield "fused rows", _fused_rows(part, choices, cover)
    yield from device_verdicts(part, choices, target, over)
    for number, operand in enumerate(part.anchor.operands):
        if not operand.is_output:
            yield from _operand(part, choices, number, over, cover)


def _registers(part: Open, choices: Ints, cover: dict[int, Ints], target: Target) -> Bools:
    """The accumulators fit the registers up to a factor, and the emitted statements stay few."""
    vec = part.structure.vec
    lane = lanes(part, choices)
    vectors = -(-cover[vec] // lane)
    statements = vectors.copy()
    for axis, sizes in cover.items():
        if axis == vec:
            continue
        statements = statements * sizes
        if part.anchor.axes[axis].kind == "spatial":
            vectors = vectors * sizes
    statements = statements * _versions(part, choices, cover)
    result: Bools = statements <= MAX_STATEMENTS[target.kind]
    if part.anchor.reduce:
        wide = np.maximum(lane // target.vector_lanes(part.anchor.output.dtype), 1)
        result &= vectors * wide <= PRESSURE * target.registers
    else:
        result &= statements <= MAX_STATEMENTS[target.kind] // 8
    return result


def _versions(part: Open, choices: Ints, cover: dict[int, Ints]) -> Ints:
    """How often the tile is written out: twice for each ragged edge that is peeled off, or that cuts vectors."""
    result: Ints = np.ones(len(choices), dtype=np.int64)
    extent = extents(part, choices)
    for axis, number in part.boundary.items():
        kind = numbers(part, choices, number, f"boundary:{part.anchor.axes[axis].name}")
        ragged = extent[axis] % cover[axis] != 0
        twice = ragged & ((kind == PEEL) | ((kind != OVERCOMPUTE) & (axis == part.structure.vec)))
        result = np.where(twice, 2 * result, result)
    return result


def _blocks(part: Open, choices: Ints, cover: dict[int, Ints]) -> Bools:
    """A block of tiles divides the number of tiles, so that no tile is computed in vain."""
    result: Bools = np.ones(len(choices), dtype=bool)
    extent = extents(part, choices)
    for axis, block in blocks(part, choices).items():
        result &= -(-extent[axis] // cover[axis]) % block == 0
    return result


def _panels(part: Open, choices: Ints, cover: dict[int, Ints]) -> Bools:
    """A panel of a reduction has loops inside that gain by it."""
    assert part.panel is not None
    axis, number = part.panel
    sizes = numbers(part, choices, number, f"tile:{part.anchor.axes[axis].name}:panel")
    loops = [inside & (part.anchor.axes[a].extent > cover[a]) for a, inside in inside_shared(part, choices).items()]
    loops.extend(block > 1 for block in blocks(part, choices).values())
    loops.append(in_local_memory(part, choices))
    return fitting_panels(part, sizes, cover.get(axis, np.ones(len(choices), dtype=np.int64)), loops)


def _sum_of_panels(part: Open, choices: Ints, cover: dict[int, Ints]) -> Bools:
    """What one iteration of the shared loops adds up fits the memory that a thread may have."""
    assert part.panel is not None
    axis, number = part.panel
    whole = numbers(part, choices, number, f"tile:{part.anchor.axes[axis].name}:panel") >= part.anchor.axes[axis].extent
    output = next(n for n, operand in enumerate(part.anchor.operands) if operand.is_output)
    result: Bools = whole | (_footprint(part, choices, output, cover) <= MAX_SCRATCH)
    return result


def _fused_rows(part: Open, choices: Ints, cover: dict[int, Ints]) -> Bools:
    """Fused rows leave no tile for the outer axis, and what one iteration reads along both axes is no box."""
    assert part.fused is not None
    axis, _ = part.fused
    ok: Bools = cover.get(axis, np.ones(len(choices), dtype=np.int64)) == 1
    for number, decision in part.place.items():
        operand = part.anchor.operands[number]
        if operand.uses(axis):
            ok &= numbers(part, choices, decision, f"place:{operand.name}") != INNER
    result: Bools = ok | ~fused(part, choices)
    return result


def _operand(
    part: Open, choices: Ints, number: int, over: dict[int, Bools], cover: dict[int, Ints]
) -> Iterator[tuple[str, Bools]]:
    """An input that is reached over the edge has room for it, holds a fitting value there, and exists as a buffer."""
    operand = part.anchor.operands[number]
    count = len(choices)
    spatial_over: Bools = np.zeros(count, dtype=bool)
    reduce_over: Bools = np.zeros(count, dtype=bool)
    for axis, flags in over.items():
        if operand.uses(axis):
            if part.anchor.axes[axis].kind == "reduce":
                reduce_over |= flags
            else:
                spatial_over |= flags
    any_over = spatial_over | reduce_over
    relaid = moved(part, choices, number)
    room: Bools = relaid | (operand.source != "fixed")
    if number in part.place:
        place = numbers(part, choices, part.place[number], f"place:{operand.name}")
        room &= place != INLINE
        yield "layout of what is inlined", (place != INLINE) | ~relaid
        yield "size of a stage inside", (place != INNER) | (_footprint(part, choices, number, cover) <= MAX_SCRATCH)
    if number not in part.pad:
        yield "room over the edge", ~any_over
        return
    pad = numbers(part, choices, part.pad[number], f"pad:{operand.name}")
    yield "room over the edge", ~any_over | room
    yield "pad value over the edge", (~spatial_over | (pad >= 1)) & (~reduce_over | (pad == 2))
    padded = any_over | _pads_itself(part, choices, number, cover)
    idle = (pad == 0) | ((pad == 2) & _has_edge(part, choices, number, cover))
    yield "pad value without padding", padded | idle


def _has_edge(part: Open, choices: Ints, number: int, cover: dict[int, Ints]) -> Bools:
    """Whether an edge that may be computed over is ragged; elsewhere an input's pad value decides nothing."""
    operand = part.anchor.operands[number]
    result: Bools = np.zeros(len(choices), dtype=bool)
    extent = extents(part, choices)
    for axis, sizes in cover.items():
        if operand.uses(axis) and OVERCOMPUTE in part.decisions[part.boundary[axis]].values:
            result |= extent[axis] % sizes != 0
    return result


def _pads_itself(part: Open, choices: Ints, number: int, cover: dict[int, Ints]) -> Bools:
    """Whether the layout leaves padding without any reach over an edge."""
    operand = part.anchor.operands[number]
    result: Bools = np.zeros(len(choices), dtype=bool)
    if number not in part.layout:
        return result
    layout = part.layout[number]
    for code, choice in enumerate(part.decisions[layout].values):
        if choice.kind == "tiled":
            ragged = operand.shape[choice.dim] % cover[choice.axis] != 0
        elif choice.kind == "phase":
            ragged = np.asarray(operand.shape[choice.dim] % steps_of(operand, choice) != 0)
        elif choice.kind == "blocked":
            ragged = np.asarray(operand.shape[choice.dim] % choice.size != 0)
        elif choice.kind == "pitched":
            ragged = np.asarray(True)
        else:
            continue
        result |= (choices[:, layout] == code) & ragged
    return result


def _footprint(part: Open, choices: Ints, number: int, cover: dict[int, Ints]) -> Ints:
    """Bytes of an operand that one iteration of the shared loops needs at most: the rest of its loops run inside."""
    operand = part.anchor.operands[number]
    inside = inside_shared(part, choices)
    for axis, block in blocks(part, choices).items():
        cover = cover | {axis: np.minimum(cover[axis] * block, part.anchor.axes[axis].extent)}
    size: Ints = np.full(len(choices), max(1, operand.buffer.nbytes // max(1, operand.buffer.size)), dtype=np.int64)
    for extent, terms in zip(operand.shape, operand.dims, strict=True):
        span: Ints = np.ones(len(choices), dtype=np.int64)
        for axis, coefficient in terms:
            full = part.anchor.axes[axis].extent
            reach = np.where(inside.get(axis, np.ones(len(choices), dtype=bool)), full, cover.get(axis, np.int64(1)))
            span = span + abs(coefficient) * (np.asarray(reach, dtype=np.int64) - 1)
        size = size * np.minimum(span, extent + 64)
    return size
