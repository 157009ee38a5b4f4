"""A reduction along the vector axis: in independent parts, one for each lane of each vector of the tile.

    y[s] = sum_j e(s, j)   ->   p[s, v, l] = sum_k e(s, (k V + v) L + l)    in the register tile,
                                q[s, l] = sum_v p[s, v, l]                  lane by lane, where V > 1,
                                y[s] = sum_l q[s, l]                        as scalars

for V vectors of L lanes.  All of it happens in registers inside the loops around a tile, so that no part of a sum
passes through memory, and a result is stored once.  In primitives: split, `rfactor` of the lanes, then of the
vectors, and both sums moved after each tile (`reverse_compute_at`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ....ir.layout.layout import Dim, Layout
from ...primitives.cache import write_buffer
from ...tree import find_block
from ..plan import Plan
from .technique import Phase, Technique


def _factor(plan: Plan) -> None:
    """Reduce along the vector axis in as many independent parts as the tile has elements along it.

    Lanes or vectors of which there is one have no loop: nothing is summed along them.
    """
    if not plan.factored:
        return
    sch, vec = plan.sch, plan.structure.vec
    vectors, lane = plan.vector_shape()
    outer, *parts = sch.split(plan.loops[vec], [None, *(size for size in (vectors, lane) if size > 1)])
    plan.reduce_outer.append(outer)
    plan.tile_loops[vec] = parts
    plan.vectors, plan.lanes = (parts[:-1], parts[-1:]) if lane > 1 else (parts, [])
    if plan.structure.subgroup:
        (plan.team,), plan.lanes = plan.lanes, []
    for place, loop in enumerate(reversed(parts)):
        plan.sums.insert(0, plan.block)
        plan.block = sch.rfactor(loop, -1 - place)


def _sum_parts(plan: Plan) -> None:
    """Hold the parts and every sum of them in registers, and sum right after each tile."""
    if not plan.factored:
        return
    sch = plan.sch
    for block in (plan.block, *plan.sums[:-1]):
        sch.set_scope(block, 0, "local")
    if plan.anchor.epilogue:
        sch.set_scope(plan.anchor.block, 0, "local")
        plan.copy = plan.anchor.epilogue
    else:
        plan.copy = sch.cache_write(plan.anchor.block, 0, "local")
    if plan.outer:
        for block in plan.sums:
            sch.reverse_compute_at(block, plan.team or plan.outer[-1])
        sch.reverse_compute_at(plan.copy, plan.outer[-1])
    _make_room(plan)


def _make_room(plan: Plan) -> None:
    """Give the parts room for the rows beyond the result's that are computed as well."""
    parts = write_buffer(plan.sch.func, find_block(plan.sch.func, plan.block), 0)
    rows = plan.rounded_shape()
    shape = (*rows, *parts.shape[len(rows) :])
    if shape != parts.shape:
        whole = [Dim(k) for k in range(len(shape))]
        layout = Layout.of_dims(parts.shape, whole, reach=shape, pad_value="undef")
        plan.sch.transform_layout(plan.block, ["write", 0], layout)


def unroll_sums(plan: Plan) -> None:
    """Unroll the sums of the parts and the way out, so that all are in registers; vectors are added as vectors."""
    sch = plan.sch
    for block in plan.sums:
        across = _bound_to_last(plan, block, "reduce")
        lanes = [_bound_to_last(plan, block, "spatial")] if block != plan.anchor.block else []
        rows = [loop for loop in _inside(plan, block) if loop not in (across, *lanes)]
        if across == plan.team:
            _unroll_rows_of_team(plan, block, rows)
            continue
        if lanes == [plan.team]:
            lanes = []
        sch.reorder(*rows, across, *lanes)
        sch.decompose_reduction(block, across)
        if lanes and plan.lane() > 1:
            sch.vectorize(lanes[0])
            sch.vectorize(f"{lanes[0]}_init")
        for loop in (*rows, across):
            sch.unroll(loop)
    for loop in _inside(plan, plan.copy):
        sch.unroll(loop)


def _unroll_rows_of_team(plan: Plan, block: str, rows: Sequence[str]) -> None:
    """Initialise the sum before the items of a subgroup add to it, and unroll its rows in both."""
    init = plan.sch.decompose_reduction(block, plan.team)
    for loop in (*rows, *_inside(plan, init)):
        plan.sch.unroll(loop)


def _inside(plan: Plan, block: str) -> list[str]:
    """The loops of a block inside those around the tile."""
    around = plan.sch.get_loops(block)
    return around[around.index(plan.outer[-1]) + 1 :] if plan.outer else around


def _bound_to_last(plan: Plan, block: str, kind: str) -> str:
    """The loop of a block's last iterator of a kind."""
    found = [item for item in find_block(plan.sch.func, block).iters if item.kind == kind]
    return str(found[-1].binding)


FACTORED = Technique(applies={Phase.CUT: _factor, Phase.ACCUMULATE: _sum_parts})
