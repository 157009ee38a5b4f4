"""Rows of the register tile along two axes at once.

A row of 7, 14 or 27 points is no multiple of the 6 rows that fill a register tile.  Where the result lies row
after row, two axes of extents H and W are one of H W points,

    f = h W + w,    h = f // W,    w = f % W,

of which tiles cover all but a last one: 49 = 8 * 6 + 1, where rows of 7 = 6 + 1 waste most of every second tile.
A tile then spans the end of a row; its inputs have an address for each of its rows, and nothing else changes.
In primitives: this map for the block (`transform_block_layout`), for the local tile (`transform_layout`), and for the
block that takes the result out.
"""

from __future__ import annotations

from ....ir.expr import Load
from ....ir.node import walk
from ...schedule import Schedule
from ...tree import block_stores, find_block
from ..candidates import Candidates
from ..decision import INNER, Collector
from ..index_maps import fusing
from ..plan import Plan
from ..program import Anchor
from ..structure import Site, Structure
from .technique import Phase, Technique, Verdicts


def partner(anchor: Anchor, structure: Structure) -> int | None:
    """The axis H that may be fused with the row axis W, or None.

    It is the next outer dimension of the result, in a reduction, and every input moves along both axes or along
    neither: an input of one alone would be loaded anew wherever a tile spans the end of a row.
    """
    row, output = structure.row, anchor.output
    if row is None or structure.factored or not anchor.reduce:
        return None
    dim = output.plain_dim(row)
    for axis in anchor.spatial:
        outer = output.plain_dim(axis)
        if axis == structure.vec or dim is None or outer != dim - 1 or anchor.axes[axis].extent == 1:
            continue
        if all(operand.is_linear and operand.uses(axis) == operand.uses(row) for operand in anchor.inputs):
            return axis
    return None


def _opens(site: Site, out: Collector) -> None:
    """Whether rows are fused; those of a chunk are not fused beyond it."""
    axis = partner(site.anchor, site.structure)
    if axis is None or site.structure.row is None or not site.target.execution.work_items_share_a_thread or site.chunks:
        return
    name = site.anchor.axes[site.structure.row].name
    labels = [name, f"{site.anchor.axes[axis].name}*{name}"]
    out.add("fused", axis, f"tile:{name}:rows", "tile", (False, True), labels, {f"fused:{name}": (0, 1)})


def _excludes(c: Candidates) -> Verdicts:
    """Fused rows leave no tile for the outer axis, and what one iteration reads along both axes is no box."""
    if c.pair is None:
        return
    axis, _ = c.pair
    ok = c.cover[axis] == 1
    for number in c.part.of("place"):
        if c.operands[number].uses(axis):
            ok = ok & (c.place(number) != INNER)
    yield "fused rows", ok | ~c.fused


def _fuse_axes(plan: Plan) -> None:
    """One iterator and one loop for the points along both axes, in the place of the outer one's."""
    if not plan.fused:
        return
    high, low = plan.fused
    names = {loop: axis for axis, loop in plan.loops.items()}
    order = [names.get(str(item.binding), -1) for item in find_block(plan.sch.func, plan.block).iters]
    made = _fuse_iterators(plan.sch, plan.block, order.index(high), order.index(low), plan.axes[low].extent)
    order.remove(low)
    for axis, loop in zip(order, made, strict=True):
        if axis < 0:
            plan.panel_loop = loop
        else:
            plan.loops[low if axis == high else axis] = loop


def fuse_results(plan: Plan) -> None:
    """The local tile, and the blocks that take the result out of it, run over the fused points as well."""
    if not plan.fused:
        return
    high, low = plan.fused_dims
    first = 1 if plan.panel_loop else 0
    width = plan.axes[plan.fused[1]].extent
    _fuse_result(plan.sch, plan.block, plan.copy, (high + first, low + first), width)
    if plan.panel_loop and plan.exit:
        _fuse_result(plan.sch, plan.copy, plan.exit, (high, low), width)


def _fuse_iterators(sch: Schedule, block: str, high: int, low: int, width: int) -> list[str]:
    """``S(h, w)`` -> ``S(f // W, f % W)`` for iterators by number; returns the block's loops in the order of iterators.

    The block's iterators are bound to its loops one by one.
    """
    count = len(find_block(sch.func, block).iters)
    return [str(loop) for loop in sch.transform_block_layout(block, fusing(count, high, low, width))]


def _fuse_result(sch: Schedule, writer: str, reader: str, dims: tuple[int, int], width: int) -> None:
    """``local[.., h, w, ..]`` -> ``local[.., h W + w, ..]``, and the block that reads it runs over the fused points.

    `dims` are the places of h and w in the buffer that block `writer` writes, `width` is W.
    """
    (buffer,) = {store.buffer for store in block_stores(find_block(sch.func, writer))}
    block = find_block(sch.func, reader)
    load = next(n for n in walk(block.body) if isinstance(n, Load) and n.buffer == buffer)
    iterators = [item.var for item in block.iters]
    high, low = (iterators.index(load.indices[dim]) for dim in dims)  # type: ignore[arg-type]
    sch.transform_layout(writer, ["write", 0], fusing(len(buffer.shape), *dims, width))
    _fuse_iterators(sch, reader, high, low, width)


FUSED_ROWS = Technique(("fused",), opens=_opens, excludes=_excludes, applies={Phase.FUSE: _fuse_axes})
