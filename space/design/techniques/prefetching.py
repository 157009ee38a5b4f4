"""Prefetching: weights that come from memory are fetched while those before them are used.

    for i in T.parallel(n): S   ->   for i in T.parallel(n, annotations={"prefetch": [k]}): S

A network reads its weights once in each run, so that they come from memory.  The first tile of rows that a panel of
weights meets waits for it, and all others find it in the second cache.  Fetching the next panel, spread over all of
these tiles, takes a few instructions more, and as many bytes for each of them (see `backends.passes.prefetch`).
"""

from __future__ import annotations

import numpy as np

from ..candidates import Candidates
from ..decision import Collector
from ..plan import Plan
from ..structure import Site
from .technique import Phase, Technique, Verdicts

LEAST_BYTES = 1 << 15
"""Of a parameter: what is smaller stays in the second cache."""


def _opens(site: Site, out: Collector) -> None:
    """Fetch ahead or not what no call finds in the second cache, and tiles along some axis read again."""
    if site.target.kind != "cpu":
        return
    for number, operand in enumerate(site.anchor.operands):
        again = any(not operand.uses(axis) for axis in site.wide)
        if operand.is_streamed and again and operand.buffer.nbytes >= LEAST_BYTES:
            name = f"prefetch:{operand.name}"
            out.add("prefetch", number, name, "memory", (0, 1), ("none", "next panel"), {name: (0, 1)})


def _excludes(c: Candidates) -> Verdicts:
    """Exclude prefetching of operands that a single tile reads."""
    for number in c.part.of("prefetch"):
        times = np.ones(1, np.int64)
        for axis, item in enumerate(c.axes):
            if item.kind == "spatial" and not c.operands[number].uses(axis):
                times = times * -(-c.extent[axis] // c.cover[axis])
        yield "prefetch of what is read once", (c.column(f"prefetch:{c.operands[number].name}") == 0) | (times > 1)


def _annotate(plan: Plan) -> None:
    """Say at the outermost loop of the anchor which parameters are fetched ahead."""
    params = [param.name for param in plan.sch.func.params]
    numbers = [
        params.index(operand.buffer.name)
        for number, operand in enumerate(plan.anchor.operands)
        if plan.value("prefetch", number, 0)
    ]
    if numbers:
        plan.sch.annotate(plan.sch.get_loops(plan.block)[0], "prefetch", numbers)


PREFETCHING = Technique(("prefetch",), opens=_opens, excludes=_excludes, applies={Phase.FINISH: _annotate})
