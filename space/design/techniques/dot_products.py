"""Dot products: four steps of a reduction of bytes as one, or two of bfloat16, on devices that have a function for it.

    reduce.. | rows.. | vectors | lanes: C += A B   ->   reduce.. | rows.. | vectors | lanes | 4 {dot}: C += A B

The steps of each operand are a word of 32 bits, so that they are neighbours and the first is at a multiple of their
number: the reduction is the last dimension of a layout whose rows are such multiples, or `DotPacked4` or `DotPacked2`
has cut it.  A word is read from a buffer in global memory (`layouts.is_read_in_words`).  Steps beyond the edge are
computed over, on padding that is 0.
"""

from __future__ import annotations

import numpy as np

from ..candidates import Bools, Candidates
from ..decision import Collector
from ..layouts import LayoutFamily
from ..plan import Plan
from ..structure import Site, dot_axis
from .technique import Phase, Technique, Verdicts


def _opens(site: Site, out: Collector) -> None:
    """Off or some steps at once, as the structure has it: a decision by whose name sketches are chosen or left out."""
    if dot_axis(site.anchor, site.target) is not None:
        steps = 0 if site.structure.dot is None else site.anchor.dot_steps
        out.add("dot", 0, "dot", "vector", (steps,), (str(steps or "off"),), {"dot": (steps,)})


def _excludes(c: Candidates) -> Verdicts:
    axis = c.structure.dot
    if axis is None:
        return
    yield "steps of a dot product", ~c.ragged[axis] | c.over[axis]
    for number in c.anchor.factors:
        words = c.by_layout(number, [_has_words(c, number, layout) for layout in c.layouts(number)])
        yield "words of a dot product", words


def _has_words(c: Candidates, number: int, layout: LayoutFamily) -> Bools:
    """Whether steps of the reduction, which run along the last dimension, are a word wherever they begin."""
    last = layout.order(c.operands[number], c.cover)[-1]
    row = np.atleast_1d(last.size(c.logical(number)[last.dim]))
    return np.asarray(row % c.anchor.dot_steps == 0)


def _innermost(plan: Plan) -> None:
    """Bring the steps of a dot product inside of the lanes."""
    axis = plan.structure.dot
    if axis is None:
        return
    loop = plan.tile_loops.get(axis, [plan.loops[axis]])[-1]
    at = plan.reduce_inner.index(loop)
    rest: list[str] = []
    if plan.cover(axis) > plan.anchor.dot_steps:
        outer, loop = plan.sch.split(loop, [None, plan.anchor.dot_steps])
        rest = [outer]
    plan.reduce_inner[at : at + 1] = rest
    plan.tile_loops[axis], plan.dot_loop = [*rest, loop], loop
    plan.sch.reorder(*plan.reduce_inner, *plan.rows, *plan.vectors, *plan.lanes, loop)


def _annotate(plan: Plan) -> None:
    """Say that these steps are one."""
    if plan.dot_loop:
        plan.sch.annotate(plan.dot_loop, "dot", True)


DOT_PRODUCTS = Technique(
    ("dot",), opens=_opens, excludes=_excludes, applies={Phase.ORDER: _innermost, Phase.VECTORIZE: _annotate}
)  # fmt: skip
