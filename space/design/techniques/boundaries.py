"""Ragged edges: branch around them, peel them off, or compute over them on padding that makes it harmless."""

from __future__ import annotations

from ..anatomy import Anchor
from ..candidates import Candidates, Columns
from ..decision import BOUNDARIES, BRANCH, OVERCOMPUTE, PEEL, Collector
from ..plan import Plan, one
from ..structure import Site
from .technique import Phase, Technique


def may_overcompute(anchor: Anchor, axis: int) -> bool:
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


def _opens(site: Site, out: Collector) -> None:
    for axis in out.numbers["tile"]:
        kinds = (BRANCH, PEEL, OVERCOMPUTE) if may_overcompute(site.anchor, axis) else (BRANCH, PEEL)
        name = f"boundary:{site.anchor.axes[axis].name}"
        out.add("boundary", axis, name, "boundary", kinds, [BOUNDARIES[k] for k in kinds], {name: kinds})


def _settle_edges(plan: Plan) -> None:
    """Separate the initialisation; then remove the condition of each axis that is computed over."""
    if not plan.anchor.reduce:
        return
    sch = plan.sch
    first = (plan.reduce_outer + plan.reduce_inner)[0]
    plan.init = sch.decompose_reduction(plan.block, first)
    for axis, item in enumerate(plan.axes):
        if not plan.over(axis):
            continue
        over = plan.tile_loops[axis]
        if item.kind == "spatial":
            sch.remove_branching_through_overcompute(plan.init, loops=[f"{loop}_init" for loop in over])
        sch.remove_branching_through_overcompute(plan.block, loops=over)


def _mark_peeled(plan: Plan) -> None:
    """Mark the loops whose last iterations are peeled off, in the computation and its init."""
    axes = [axis for axis in range(len(plan.axes)) if one(plan.chosen.boundary[axis]) == PEEL]
    peeled = {loop for axis in axes for loop in plan.tile_loops.get(axis, [])}
    if plan.init:
        apart = set(plan.sch.get_loops(plan.init))
        peeled |= {f"{loop}_init" for loop in peeled if f"{loop}_init" in apart}
    for loop in sorted(peeled):
        plan.sch.annotate(loop, "peel", True)


def _shown(c: Candidates) -> Columns:
    return {f"boundary:{c.axes[axis].name}": c.boundary[axis].astype("float32") for axis in c.part.of("boundary")}


EDGES = Technique(
    ("boundary",), opens=_opens, applies={Phase.EDGES: _settle_edges, Phase.VECTORIZE: _mark_peeled}, shown=_shown
)
