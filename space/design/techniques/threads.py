"""On how many threads an anchor runs: a small one takes longer on all of them than on few.

Threads that meet wait for each other, and what one has written the next has to fetch.  That takes as long as a few
hundred steps of vectors, which is nothing for a large anchor: there all threads work, and nothing is decided.

    for i in T.parallel(n): S   ->   for i in T.parallel(n, annotations={"threads": k}): S

A loop that is annotated with 1 is compiled as a serial one.
"""

from __future__ import annotations

import numpy as np

from ....ir.node import walk
from ....ir.stmt import For
from ..candidates import Candidates
from ..decision import Collector
from ..plan import Plan
from ..structure import Site
from .technique import Phase, Technique, Verdicts

SMALL_STEPS = 1 << 15
"""Steps of vectors for each thread, about ten microseconds, up to which fewer threads were seen to be as fast."""


def _opens(site: Site, out: Collector) -> None:
    """All threads, half of them, an eighth, one: where all have little to do."""
    threads = site.target.threads
    points = np.prod([axis.extent for axis in site.anchor.axes], dtype=np.float64)
    small = points <= SMALL_STEPS * threads * max(1, site.lanes)
    if site.target.kind != "cpu" or threads < 2 or site.chunks or not site.wide or not small:
        return
    counts = sorted({threads, threads // 2, threads // 8, 1} - {0}, reverse=True)
    out.add("threads", 0, "threads", "parallel", counts, [str(c) for c in counts], {"threads": counts})


def _excludes(c: Candidates) -> Verdicts:
    """As many threads as there are iterations are all that can work."""
    if c.part.of("threads"):
        yield "threads", (c.threads == c.target.threads) | (c.threads < c.iterations)


def _remember(plan: Plan) -> None:
    """The parallel loops of anchors that were scheduled before."""
    plan.parallel_before = _parallel(plan)


def _limit(plan: Plan) -> None:
    """Every parallel loop that the anchor and its stages have got runs on so many threads at most."""
    count = plan.value("threads", 0, plan.target.threads)
    if count < plan.target.threads:
        for loop in _parallel(plan):
            if loop not in plan.parallel_before:
                plan.sch.annotate(loop, "threads", count)


def _parallel(plan: Plan) -> list[str]:
    return [n.var.name for n in walk(plan.sch.func.body) if isinstance(n, For) and n.kind == "parallel"]


THREADS = Technique(
    ("threads",), opens=_opens, excludes=_excludes, applies={Phase.STAGE: _remember, Phase.FINISH: _limit}
)  # fmt: skip
