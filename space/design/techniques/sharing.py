"""How many of the outer loops threads, or work-groups, share, where that is not settled (`Candidates.shared`)."""

from __future__ import annotations

import numpy as np

from ..candidates import Candidates, Columns
from ..decision import Collector
from ..plan import Plan
from ..stages import distribute
from ..structure import Site
from . import work_groups
from .technique import Phase, Technique


def _opens(site: Site, out: Collector) -> None:
    if site.chunks or len(site.wide) < 2 or site.target.warp > 1:
        return
    counts = list(range(1, len(site.wide) + 1))
    out.add("parallel", 0, "parallel", "parallel", counts, [str(c) for c in counts], {"parallel": counts})


def _share(plan: Plan) -> None:
    """Fuse the leading outer loops and share them, unless the anchor runs in chunks, which are shared instead."""
    if not plan.outer or plan.part.chunks:
        return
    count = len(plan.single) + plan.shared
    shared = plan.outer[:count]
    loop = plan.sch.fuse(*shared) if len(shared) > 1 else shared[0]
    plan.outer = [loop, *plan.outer[count:]]
    if not work_groups.share_grid(plan, loop):
        along = "y" if plan.team else "x"
        plan.outer[0] = distribute(plan.sch, loop, plan.target, work_groups.group_of(plan).items, along)


def _shown(c: Candidates) -> Columns:
    """The number of shared loops, at most as many as there are after rows have been fused."""
    found = c.columns("parallel")
    if c.pair is not None and found:
        loops = len(c.part.outer_axes) - c.fused.astype(np.float32)
        found["parallel"] = np.minimum(found["parallel"], loops.astype(np.float32))
    return found


SHARING = Technique(("parallel",), opens=_opens, applies={Phase.SHARE: _share}, shown=_shown)
