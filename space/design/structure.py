"""The structure of an anchor's schedule, and the decisions that it leaves open.

A structure fixes which axis runs in the lanes of vectors (`vec`) and which one fills
the rows of the register tile (`row`).  A reduction can be the vector axis as well: it
is then reduced in independent parts first (rfactor).  Everything else is a decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations

from ...ir.stmt import PrimFunc
from ...ir.target import Target
from .anatomy import Anchor, Operand, has_condition
from .decision import BOUNDARIES, BRANCH, INLINE, INNER, OVERCOMPUTE, PEEL, PLACES, ROOT, Collector, Decision
from .device import Device, device_decisions, device_tiles
from .fused_rows import partner
from .layouts import LayoutChoice, alternatives
from .panels import panels

VECTORS = (1, 2, 3, 4, 6, 8)
ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 28)
SIDE_ROWS = (1, 2, 3, 4)
BLOCKS = (1, 2, 4, 8, 16)
STRIPS = (*BLOCKS, 32, 64, 128)
UNROLLS = (1, 2, 4, 8)
MAX_ORDERS = 6


@dataclass(frozen=True)
class Structure:
    """The vector axis and the row axis of one anchor, by number."""

    vec: int
    row: int | None
    factored: bool

    def label(self, anchor: Anchor) -> str:
        row = "" if self.row is None else f",row={anchor.axes[self.row].name}"
        return f"vec={anchor.axes[self.vec].name}{row}"


def structures(anchor: Anchor, target: Target) -> tuple[Structure, ...]:
    """Each spatial axis as vector axis with each other as row, and the long reductions of unit stride.

    A spatial axis can be vectorized if the result has a dimension of its own for it.
    """
    lanes = target.vector_lanes(anchor.output.dtype)
    wide = [a for a in anchor.spatial if anchor.axes[a].extent > 1]
    found: list[Structure] = []
    for vec in wide or list(anchor.spatial[:1]):
        if anchor.output.plain_dim(vec) is None:
            continue
        rows: list[int | None] = [a for a in wide if a != vec]
        found.extend(Structure(vec, row, False) for row in rows or [None])
    for axis in anchor.reduce:
        readers = [o for o in anchor.inputs if o.uses(axis)]
        if (
            anchor.axes[axis].extent >= 2 * max(lanes, 2)
            and readers
            and all(o.dims and o.stride(axis) == 1 for o in readers)
        ):
            rows = list(wide)
            found.extend(Structure(axis, row, True) for row in rows or [None])
    return tuple(found)


@dataclass(frozen=True)
class Open:
    """The decisions of one anchor in one structure, grouped by what they decide; values index `decisions`.

    `block`, `panel` and `fused` are an axis and the decision about it: blocks of tiles, panels, rows fused with it.
    `chunks` is 0, or the number of chunks of rows that threads share, each with all anchors (see `together`).
    """

    anchor: Anchor
    structure: Structure
    decisions: tuple[Decision, ...]
    tile: dict[int, int]
    block: tuple[int, int] | None
    boundary: dict[int, int]
    order: int | None
    reduce_order: int | None
    parallel: int | None
    layout: dict[int, int]
    pad: dict[int, int]
    place: dict[int, int]
    device: Device = field(default_factory=Device)
    panel: tuple[int, int] | None = None
    fused: tuple[int, int] | None = None
    chunks: int = 0

    def outer_axes(self) -> tuple[int, ...]:
        """Spatial axes with a loop outside the register tile."""
        return tuple(a for a in self.anchor.spatial if self.anchor.axes[a].extent > 1)


def open_decisions(
    func: PrimFunc, anchor: Anchor, structure: Structure, target: Target, prefix: str, chunks: int = 0
) -> Open:
    """Every decision of an anchor in a structure, with the numbers that describe its alternatives.

    In one of several `chunks` nothing is shared, and rows are not fused beyond it.
    """
    out = Collector(prefix)
    tile = _tiles(out, anchor, structure, target)
    block = _block(out, anchor, structure, target)
    boundary = {a: _boundary(out, anchor, a, structure) for a in tile}
    order = _orders(out, anchor)
    reduce_order = _reduce_orders(out, anchor, structure)
    panel = _panel(out, anchor, structure, block is not None)
    fused = None if chunks else _fused(out, anchor, structure, target)
    parallel = None if chunks else _parallel(out, anchor)
    layout, pad, place = _operands(out, func, anchor, structure, target)
    device = device_decisions(out, anchor, structure, target)
    return Open(
        anchor, structure, tuple(out.decisions), tile, block, boundary, order, reduce_order, parallel,
        layout, pad, place, device, panel, fused, chunks,
    )  # fmt: skip


def _fused(out: Collector, anchor: Anchor, structure: Structure, target: Target) -> tuple[int, int] | None:
    """The axis that may be fused with the row axis, and the decision whether it is."""
    axis = partner(anchor, structure)
    if axis is None or structure.row is None or target.kind != "cpu":
        return None
    name = anchor.axes[structure.row].name
    labels = [name, f"{anchor.axes[axis].name}*{name}"]
    return axis, out.add(f"tile:{name}:rows", "tile", (False, True), labels, {f"fused:{name}": (0, 1)})


def _block(out: Collector, anchor: Anchor, structure: Structure, target: Target) -> tuple[int, int] | None:
    """The axis whose neighbouring tiles may follow each other, and the decision how many do.

    It is the row axis.  A reduction without one has long blocks along its vectors on a CPU, where a thread's share
    of the columns can be a single block, around which panels run.
    """
    axis, smallest = structure.row, 1
    sizes: tuple[int, ...] = BLOCKS
    if axis is None:
        if target.kind != "cpu" or structure.factored or not anchor.op:
            return None
        axis, sizes = structure.vec, STRIPS
        lanes = target.vector_lanes(anchor.output.dtype)
        smallest = min(v * lane for v, lane in _vector_shapes(anchor.axes[axis].extent, lanes, structure.factored))
    name, extent = anchor.axes[axis].name, anchor.axes[axis].extent
    if extent < 2 * BLOCKS[1] * smallest:
        return None
    values = [b for b in sizes if b * smallest <= extent]
    labels = [str(v) for v in values]
    return axis, out.add(f"tile:{name}:block", "tile", values, labels, {f"tile:{name}:block": values})


def _panel(out: Collector, anchor: Anchor, structure: Structure, blocked: bool) -> tuple[int, int] | None:
    """The axis of the reduction that may be cut in panels, and the decision how long they are."""
    found = panels(anchor, structure, blocked)
    if found is None:
        return None
    axis, sizes = found
    name = anchor.axes[axis].name
    labels = ["whole", *(str(size) for size in sizes[1:])]
    return axis, out.add(f"tile:{name}:panel", "tile", sizes, labels, {f"tile:{name}:panel": sizes})


def _tiles(out: Collector, anchor: Anchor, structure: Structure, target: Target) -> dict[int, int]:
    """The register tile: vectors along `vec`, rows along `row`, a few along other axes, unrolled reductions."""
    result: dict[int, int] = {}
    lanes = target.vector_lanes(anchor.output.dtype)
    for axis, item in enumerate(anchor.axes):
        if item.extent == 1 and axis != structure.vec:
            continue
        name = item.name
        if axis == structure.vec and target.kind == "cpu":
            pairs = _vector_shapes(item.extent, lanes, structure.factored)
            table = {
                f"tile:{name}:lane": [lane for _, lane in pairs],
                f"tile:{name}:reg": [v * lane for v, lane in pairs],
            }
            result[axis] = out.add(f"tile:{name}", "tile", pairs, [f"{v}x{lane}" for v, lane in pairs], table)
            continue
        if axis == structure.vec:
            sizes = device_tiles(item.extent, lanes, structure.factored, target)
        elif item.kind == "reduce":
            sizes = _unrolls(item.extent)
        else:
            sizes = [t for t in (ROWS if axis == structure.row else SIDE_ROWS) if t <= item.extent]
        result[axis] = out.add(f"tile:{name}", "tile", sizes, [str(t) for t in sizes], {f"tile:{name}:reg": sizes})
    return result


def _vector_shapes(extent: int, lanes: int, factored: bool) -> list[tuple[int, int]]:
    """``(vectors, lanes)`` whose product does not exceed the extent rounded up to one vector.

    A reduction that is factored has two parts or more, each of which sums: there it is less than the extent.
    """
    limit = extent - 1 if factored else -(-extent // lanes) * lanes
    found = [(v, lanes) for v in VECTORS if v * lanes <= limit and (v * lanes > 1 or not factored)]
    half = lanes // 2
    if half > 1:
        found += [(v, half) for v in (1, 3) if v * half <= max(extent, half)]
    return found or [(1, 1)]


def _unrolls(extent: int) -> list[int]:
    """Unroll factors of a reduction: powers of two, and a short reduction whole."""
    found = [u for u in UNROLLS if u <= extent]
    if 1 < extent <= 11 and extent not in found:
        found.append(extent)
    return found


def _boundary(out: Collector, anchor: Anchor, axis: int, structure: Structure) -> int:
    """What to do at the axis's ragged edge; overcompute needs a reduction's local tile to write into."""
    kinds = (BRANCH, PEEL, OVERCOMPUTE) if _may_overcompute(anchor, axis, structure) else (BRANCH, PEEL)
    name = anchor.axes[axis].name
    labels = [BOUNDARIES[k] for k in kinds]
    return out.add(f"boundary:{name}", "boundary", kinds, labels, {f"boundary:{name}": kinds})


def _may_overcompute(anchor: Anchor, axis: int, structure: Structure) -> bool:
    """Whether computing over the edge of an axis can be harmless at all.

    A spatial axis needs the local tile of a reduction to write into; a reduction needs a
    factor with a dimension of its own for the axis, whose padding is then neutral.  An axis of
    one point has no index that could go beyond it, and beyond the rows of a chunk are those of the next one.
    """
    if anchor.axes[axis].extent == 1:
        return False
    users = [o for o in anchor.inputs if o.uses(axis)]
    if not anchor.reduce or any(not o.dims or o.source == "other" for o in users):
        return False
    if anchor.axes[axis].kind == "spatial":
        dim = anchor.output.plain_dim(axis)
        return dim is not None and anchor.output.shape[dim] == anchor.axes[axis].extent
    return any(anchor.operands[f].plain_dim(axis) is not None for f in anchor.factors)


def _orders(out: Collector, anchor: Anchor) -> int | None:
    """The order of the loops outside the register tile, outermost first."""
    wide = [a for a in anchor.spatial if anchor.axes[a].extent > 1]
    found = list(permutations(wide))
    if len(found) > MAX_ORDERS:
        rotations = [tuple(wide[k:] + wide[:k]) for k in range(len(wide))]
        found = rotations + [tuple(reversed(r)) for r in rotations[: MAX_ORDERS - len(rotations)]]
    if len(found) < 2:
        return None
    labels = [">".join(anchor.axes[a].name for a in order) for order in found]
    table = {f"order:{anchor.axes[a].name}": [order.index(a) for order in found] for a in wide}
    return out.add("order", "order", found, labels, table)


def _reduce_orders(out: Collector, anchor: Anchor, structure: Structure) -> int | None:
    """The order of the reduction loops: the rotations of the canonical one."""
    loops = [a for a in anchor.reduce if anchor.axes[a].extent > 1]
    found = [tuple(loops[k:] + loops[:k]) for k in range(len(loops))]
    if len(found) < 2:
        return None
    labels = [">".join(anchor.axes[a].name for a in order) for order in found]
    table = {f"order:{anchor.axes[a].name}": [order.index(a) for order in found] for a in loops}
    return out.add("order:reduce", "order", found, labels, table)


def _parallel(out: Collector, anchor: Anchor) -> int | None:
    """How many outer loops are shared between threads."""
    wide = [a for a in anchor.spatial if anchor.axes[a].extent > 1]
    if len(wide) < 2:
        return None
    counts = list(range(1, len(wide) + 1))
    return out.add("parallel", "parallel", counts, [str(c) for c in counts], {"parallel": counts})


def _operands(
    out: Collector, func: PrimFunc, anchor: Anchor, structure: Structure, target: Target
) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
    """Layout, pad value and place of each input whose layout may be chosen."""
    layout: dict[int, int] = {}
    pad: dict[int, int] = {}
    place: dict[int, int] = {}
    for number, operand in enumerate(anchor.operands):
        if operand.is_output:
            continue
        choices = alternatives(anchor, operand, structure.vec, structure.row)
        if len(choices) > 1:
            codes = [_LAYOUT_CODES[c.kind] for c in choices]
            layout[number] = out.add(
                f"layout:{operand.name}",
                "layout",
                choices,
                [c.label for c in choices],
                {f"layout:{operand.name}": codes},
            )
        laid_out = len(choices) > 1 or operand.source in ("stage", "constant", "free")
        if operand.dims and laid_out and _may_be_read_over_an_edge(anchor, operand, structure):
            pad[number] = _pads(out, anchor, operand)
        places = _places(func, operand, choices, target)
        if len(places) > 1:
            place[number] = out.add(
                f"place:{operand.name}", "place", places, [PLACES[p] for p in places], {f"place:{operand.name}": places}
            )
    return layout, pad, place


_LAYOUT_CODES = {"identity": 0, "copy": 1, "tiled": 2, "phase": 3, "last": 4, "blocked": 5, "pitched": 6}


def _may_be_read_over_an_edge(anchor: Anchor, operand: Operand, structure: Structure) -> bool:
    """Whether an input's padding can be computed on; where it cannot, its value decides nothing."""
    axes = (a for a, item in enumerate(anchor.axes) if item.extent > 1 or a == structure.vec)
    return any(operand.uses(a) and _may_overcompute(anchor, a, structure) for a in axes)


def _pads(out: Collector, anchor: Anchor, operand: Operand) -> int:
    """None, undef, and the value that makes overcompute of the anchor's reduction neutral."""
    values: list[object] = [None, "undef"]
    labels = ["none", "undef"]
    codes = [0.0, 1.0]
    if anchor.neutral is not None:
        infinite = anchor.neutral in (float("inf"), float("-inf"))
        values.append(repr(anchor.neutral) if infinite else anchor.neutral)
        labels.append(f"{anchor.neutral:g}")
        codes.append(2.0)
    return out.add(f"pad:{operand.name}", "pad_value", values, labels, {f"pad:{operand.name}": codes})


def _places(func: PrimFunc, operand: Operand, choices: Sequence[LayoutChoice], target: Target) -> list[int]:
    """Where an input's copy or producer is computed."""
    inner = [INNER] if target.kind == "cpu" else []
    if operand.source == "stage":
        return [ROOT, INLINE, *inner] if has_condition(func, operand.producer) else [INLINE, ROOT, *inner]
    if operand.source == "fixed" and len(choices) > 1:
        return [ROOT, *inner]
    return [ROOT]
