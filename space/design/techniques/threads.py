"""On how many threads an anchor runs: a small one takes longer on all of them than on few.

Threads that meet wait for each other, and what one has written the next has to fetch.  That takes as long as a few
hundred steps of vectors, which is nothing for a large anchor: there all threads work, and nothing is decided.

    for i in T.parallel(n): S   ->   for i in T.parallel(n, annotations={"threads": k}): S

A loop that is annotated with 1 is compiled as a serial one.

An OpenCL device of the CPU has it for loops over groups; of the driver's own threads all run them, or one:

    for g in T.thread_binding(n, "blockIdx.x"): S
        ->   for g in T.thread_binding(n, "blockIdx.x", annotations={"threads": 1}): S

There, stages that share chunks of rows (see `chunks`) have it as well, decided with the first of them for all.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ....ir.node import walk
from ....ir.stmt import For
from ...schedule import Schedule
from ...tree import leaf_blocks
from ..candidates import Candidates
from ..decision import Collector
from ..plan import Plan
from ..structure import Site
from .technique import Phase, Technique, Verdicts

SMALL_STEPS = 1 << 15
"""Steps of vectors for each thread, about ten microseconds, up to which fewer threads were seen to be as fast."""
SMALL_LAUNCH = 1 << 17
"""The same for a driver whose threads may have to wake up, which takes PoCL's 20 to 36 us."""


def _opens(site: Site, out: Collector) -> None:
    """Open the number of threads, where all would have little to do: all, half of them, an eighth, one."""
    threads = site.target.threads
    points = np.prod([axis.extent for axis in site.anchor.axes], dtype=np.float64) * max(1, site.chunks)
    is_opencl = site.target.kind == "opencl"
    wakes = is_opencl and not site.target.has_thread_pool
    small = points <= (SMALL_LAUNCH if wakes else SMALL_STEPS) * threads * max(1, site.lanes)
    decides = site.target.execution.runs_on_the_host and not site.structure.subgroup and (is_opencl or not site.chunks)
    if site.chunks and decides:
        decides = leaf_blocks(site.func.body)[0].name == site.anchor.block
    if not decides or threads < 2 or not small or not (site.wide or site.chunks):
        return
    counts = sorted({threads, threads // 2, threads // 8, 1} - {0}, reverse=True)
    if wakes:  # the driver's threads take part or do not
        counts = [threads, 1]
    out.add("threads", 0, "threads", "parallel", counts, [str(c) for c in counts], {"threads": counts})


def _excludes(c: Candidates) -> Verdicts:
    """Exclude more threads than there are iterations; work-groups of several items share them."""
    if c.part.of("threads"):
        yield "threads", (c.threads == c.target.threads) | (c.threads < (c.part.chunks or c.iterations))
        if c.target.kind == "opencl":
            yield "one thread for groups", (c.threads > 1) | ((c.items == 1) & (c.group("x") == 0))


def _remember(plan: Plan) -> None:
    """The parallel loops of anchors that were scheduled before."""
    plan.parallel_before = _parallel(plan.sch)


def _limit(plan: Plan) -> None:
    """Every parallel loop that the anchor and its stages have got runs on so many threads at most."""
    count = plan.value("threads", 0, plan.target.threads)
    if count < plan.target.threads:
        limit(plan.sch, count, plan.parallel_before)


def limit(sch: Schedule, count: int, but: Collection[str] = ()) -> None:
    """Every parallel loop of a program, `but` some, runs on so many threads at most."""
    for loop in _parallel(sch):
        if loop not in but:
            sch.annotate(loop, "threads", count)


def _parallel(sch: Schedule) -> list[str]:
    loops = (n for n in walk(sch.func.body) if isinstance(n, For))
    return [loop.var.name for loop in loops if loop.kind == "parallel" or loop.thread.startswith("blockIdx")]


THREADS = Technique(
    ("threads",), opens=_opens, excludes=_excludes, applies={Phase.STAGE: _remember, Phase.FINISH: _limit}
)  # fmt: skip
