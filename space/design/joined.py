"""Vectors along two axes, the inner of which is shorter than a vector: the channels of a group, and its groups."""

from __future__ import annotations

from ...ir.arith.linear import linear_form
from ...ir.expr import Binary, Var
from ...ir.layout.digits import digit
from ...ir.node import walk
from ...ir.stmt import Block, Store
from ...ir.target import Target
from ..errors import ScheduleError
from ..schedule import Schedule
from ..tree import has_plain_bindings, leaf_blocks
from .index_maps import fusing
from .program import Anchor
from .structure import Structure


def with_joined_axes(schedule: Schedule, target: Target) -> Schedule | None:
    """The schedule with axes joined along which vectors are to run together, None where there are none.

    Where the channels of a group are fewer than the lanes of a vector, ``y[8 g + c]`` for c < 8, a vector that runs
    along ``f = 8 g + c`` is full; what a group shares is read at ``f // 8``, by picking lanes of what lies together.  A
    program may be written in ``f`` already.
    """
    found = schedule.copy()
    joined = False
    for block in leaf_blocks(schedule.func.body):
        if not (block.reduce and isinstance(block.body, Store) and block.body.indices and has_plain_bindings(block)):
            continue
        lanes = target.vector_lanes(block.body.buffer.dtype)
        terms, offset = linear_form(block.body.indices[-1])
        spatial = {item.var: item.extent for item in block.spatial}
        if offset or not set(terms) <= set(spatial):
            continue
        order = [item.var for item in block.iters]
        strides = {stride: order.index(var) for var, stride in terms.items()}  # type: ignore[arg-type]
        inner = block.iters[strides[1]] if 1 in strides else None
        if inner is None or len(strides) != len(terms):
            continue
        if len(terms) == 2 and inner.extent in strides and inner.extent < lanes:
            one = fusing(len(block.iters), strides[inner.extent], strides[1], inner.extent)
            try:
                found.transform_block_layout(block.name, one)
            except ScheduleError:
                continue
            joined = True
        elif len(terms) == 1:
            joined = joined or any(low < lanes for low in _groups_of(block, inner.var))
    return found if joined else None


def _groups_of(block: Block, var: Var) -> list[int]:
    """The divisors c by which an iterator stands in a block as ``v // c``."""
    nodes = [node for node in walk(block.body) if isinstance(node, Binary) and node.op == "//"]
    ones = [one for one in map(digit, nodes) if one is not None and one.of == var and one.offset == 0]
    return [one.low for one in ones if one.high is None and one.low > 1]


def along_joined_axes(anchor: Anchor, found: tuple[Structure, ...], target: Target) -> tuple[Structure, ...]:
    """Structures whose vectors run along neighbours of the result and are full; all where there is none."""
    lanes = target.vector_lanes(anchor.output.dtype)
    along = tuple(
        s for s in found
        if not s.factored and anchor.output.stride(s.vec) == 1 and anchor.axes[s.vec].extent >= lanes
    )  # fmt: skip
    return along or found
