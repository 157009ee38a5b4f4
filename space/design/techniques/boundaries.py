"""Ragged edges: branch around them, peel them off, compute over them on padding that is harmless, or mask lanes.

A masked edge is peeled off as well, so that whole tiles have no masks; the lanes of its last vector beyond the edge
store nothing, and what they load is dropped.  It is offered along the vector axis where the target has masks for every
element type.
"""

from __future__ import annotations

from ..candidates import Candidates, Columns
from ..decision import BOUNDARIES, BRANCH, MASK, OVERCOMPUTE, PEEL, Collector
from ..plan import Plan, one
from ..program import Anchor
from ..structure import Site
from .technique import Phase, Technique, Verdicts


def may_overcompute(anchor: Anchor, axis: int) -> bool:
    """Whether computing over the edge of an axis can be harmless at all.

    A spatial axis needs the local tile of a reduction to write into; a reduction needs a
    factor with a dimension of its own for the axis, whose padding is then neutral.  An axis of
    one point has no index that could go beyond it, and beyond the rows of a chunk are those of the next one.
    """
    if anchor.axes[axis].extent == 1:
        return False
    users = [o for o in anchor.inputs if o.uses(axis)]
    if not anchor.reduce or any(not o.is_linear or o.source == "other" for o in users):
        return False
    if anchor.axes[axis].kind == "spatial":
        dim = anchor.output.plain_dim(axis)
        return dim is not None and anchor.output.shape[dim] == anchor.axes[axis].extent
    return any(anchor.operands[f].plain_dim(axis) is not None for f in anchor.factors)


def may_mask(site: Site, axis: int) -> bool:
    """Whether lanes along an axis can be masked: those of vectors over parts of the result that may be ragged.

    The words of a dot product are several elements, of which no lane of a mask is one.
    """
    operands, structure = site.anchor.operands, site.structure
    vectors = axis == structure.vec and not structure.factored and structure.dot is None and site.lanes > 1
    return vectors and site.anchor.axes[axis].extent > 1 and all(site.target.has_masks(o.dtype) for o in operands)


def _opens(site: Site, out: Collector) -> None:
    for axis in out.numbers["tile"]:
        # Within a subgroup items have an edge of their own each.
        kinds = [BRANCH] if site.structure.subgroup and axis == site.structure.vec else [BRANCH, PEEL]
        kinds += [OVERCOMPUTE] if may_overcompute(site.anchor, axis) else []
        kinds += [MASK] if may_mask(site, axis) else []
        name = f"boundary:{site.anchor.axes[axis].name}"
        if len(kinds) > 1:
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


def _excludes(c: Candidates) -> Verdicts:
    """A mask needs a vector that the edge cuts: a tile of whole vectors is peeled off without one."""
    vec = c.structure.vec
    if vec in c.part.of("boundary"):
        yield "mask without a cut vector", (c.boundary[vec] != MASK) | ((c.extent[vec] % c.lane != 0) & (c.lane > 1))


def _mark(plan: Plan) -> None:
    """Mark the loops whose last iterations are peeled off, in the computation and its init, and the masked lanes."""
    axes = [axis for axis in range(len(plan.axes)) if one(plan.chosen.boundary[axis]) in (PEEL, MASK)]
    peeled = {loop for axis in axes for loop in plan.tile_loops.get(axis, [])}
    if plan.init:
        apart = set(plan.sch.get_loops(plan.init))
        peeled |= {f"{loop}_init" for loop in peeled if f"{loop}_init" in apart}
    for loop in sorted(peeled):
        plan.sch.annotate(loop, "peel", True)
    if one(plan.chosen.boundary[plan.structure.vec]) == MASK:
        inits = [f"{loop}_init" for loop in plan.lanes] if plan.init else []
        for loop in [*plan.lanes, *inits, *plan.out_lanes]:
            plan.sch.annotate(loop, "mask", True)


def _shown(c: Candidates) -> Columns:
    return {f"boundary:{c.axes[axis].name}": c.boundary[axis].astype("float32") for axis in c.part.of("boundary")}


EDGES = Technique(
    ("boundary",), opens=_opens, excludes=_excludes, applies={Phase.EDGES: _settle_edges, Phase.VECTORIZE: _mark},
    shown=_shown,
)  # fmt: skip
