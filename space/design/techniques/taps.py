"""Taps that meet padding alone are left out.

A convolution whose taps lie far apart reads much of its padding: of 18 rows with taps 12 rows apart, two of three taps
read rows of zeros for all but 6 rows of the result.  Each register tile does a step of the reduction only where some
of its points meets data,

    for oh, kh: for ow in T: y[oh, ow] += x_pad[oh + 12*kh, ..] * w[kh, ..]
    ->  for oh, kh: if 12 <= oh + 12*kh and oh + 12*kh < 30: for ow in T: ...

a test that lowering moves out of all loops that it does not depend on.  It is offered where a sum reads a stage that
pads with zeros, or a maximum one that pads with the least number, and where enough of its points do; tiles along two
fused axes are no boxes, and have no such test.  In primitives: `remove_overcompute_through_branching` of whole tiles,
which proves that what is left out adds nothing.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ....ir.arith.constants import neutral
from ....ir.arith.linear import linear_form
from ....ir.expr import Load, Var
from ....ir.node import walk
from ...tree import find_block
from ..candidates import Candidates, Columns
from ..decision import NEUTRAL_PAD, Collector
from ..padding import Data, data_of_stage, share_with_data
from ..plan import Plan, one
from ..structure import Site
from .technique import Phase, Technique, Verdicts

LEAST = 0.3
"""The share of steps along one dimension that meet padding alone, from which on tests pay for sure.

Below it they cost about what they save, and more where a step is little work, as in a depthwise convolution of 7x7 on
8x7 pixels: 21 % of the steps along rows, and twice the time.
"""
LEAST_OF_SUMS, SUM = 0.15, 16
"""The share where a step is a sum of its own, over so many other points of the reduction: one test for all of them."""
GAIN = 0.97
"""The share of steps that are done at most where taps are left out."""


def _opens(site: Site, out: Collector) -> None:
    """Open whether all taps run, or those alone that meet data, for the input with most padding."""
    if site.target.kind != "cpu" or site.structure.factored:
        return
    found = [(number, data) for number in site.anchor.factors if (data := _data(site, number))]
    for number, data in found[:1]:
        values = (None, (number, tuple(data.items())))
        out.add("taps", 0, "taps", "choice", values, ["all", "with data"], {"taps": [0, 1]})


def _data(site: Site, number: int) -> Data:
    """For each padded dimension of an input, which indices are of data; empty where little is read of padding."""
    anchor, operand = site.anchor, site.anchor.operands[number]
    if operand.source != "stage" or not operand.dims or not anchor.op or not _is_linear(site, number):
        return {}
    data = data_of_stage(site.func, operand.producer, neutral(anchor.op, operand.dtype).value)
    shares = [share_with_data(anchor, number, dim, inside, {}) for dim, inside in data.items()
              if all(axis != site.structure.vec for axis, _ in operand.dims[dim])]  # fmt: skip
    tested = {axis for dim in data for axis, _ in operand.dims[dim]}
    step = prod(anchor.axes[axis].extent for axis in anchor.reduce if axis not in tested)
    return data if min(shares, default=1.0) <= 1 - (LEAST_OF_SUMS if step >= SUM else LEAST) else {}


def _is_linear(site: Site, number: int) -> bool:
    """Whether the indices of an input are sums of axes themselves, and `Operand.dims` no outline of them."""
    anchor = site.anchor
    reads = [n for n in walk(find_block(site.func, anchor.block).body)
             if isinstance(n, Load) and n.buffer == anchor.operands[number].buffer]  # fmt: skip
    return all(isinstance(atom, Var) for load in reads for index in load.indices for atom in linear_form(index)[0])


def _excludes(c: Candidates) -> Verdicts:
    """Tiles are boxes, and some meet no data; zeros are stored, and what they meet beyond an edge is finite."""
    if not c.part.of("taps"):
        return
    possible = ~c.fused & (c.executed <= GAIN)
    for number in c.anchor.factors:
        possible = possible & (~c.reached_over(number) | (c.pad(number) == NEUTRAL_PAD))
        if c.operands[number].source == "stage":
            possible = possible & c.staged(number)
    yield "taps of padding", ~c.leaves_out_taps | possible


def _leave_out(plan: Plan) -> None:
    if one(plan.chosen.leaves_out_taps):
        plan.sch.remove_overcompute_through_branching(plan.block, tile=[*plan.rows, *plan.vectors, *plan.lanes])


def _shown(c: Candidates) -> Columns:
    """The share of steps that are done, as a power of two."""
    return {"taps": np.log2(c.executed).astype(np.float32)} if c.part.of("taps") else {}


TAPS = Technique(("taps",), opens=_opens, excludes=_excludes, applies={Phase.EDGES: _leave_out}, shown=_shown)
