"""Local memory of an OpenCL device: the items of a group load together the box that all of them read.

A candidate needs a work-group that is a grid of several items, an input that is not computed in place, and room for
the box that the group reads, of one panel where the reduction is cut in panels.  No epilogue waits for panels there:
its items would read what others have summed.
"""

from __future__ import annotations

import numpy as np

from ....ir import dtypes
from ...schedule import Schedule
from ...tree import extent_of, find_loop
from ..candidates import Candidates, Ints, product
from ..decision import INLINE, INNER, SELDOM, Collector
from ..layouts import is_read_in_words
from ..operand import Operand
from ..plan import Plan, one
from ..structure import Site
from .technique import Phase, Technique, Verdicts
from .work_groups import Group, group_of

KEPT_BYTES = 64
"""Of local memory, for the driver: on an NVIDIA H100 a kernel with an array of all 49,152 bytes used 49,216."""


def _opens(site: Site, out: Collector) -> None:
    if not out.numbers.get("work_group"):
        return
    for number, operand in enumerate(site.anchor.operands):
        if _may_be_local(site, operand):
            name = f"local:{operand.name}"
            weights = SELDOM if site.target.execution.has_one_memory else ()  # a CPU has one memory for both
            out.add("local", number, name, "memory", (False, True), ("global", "local"), {name: (0, 1)}, weights)


def _may_be_local(site: Site, operand: Operand) -> bool:
    """An input of a reduction, read at known places, whose items hold parts of the result and not of the sum."""
    known = not operand.is_output and bool(operand.dims) and operand.source != "other"
    if is_read_in_words(site.anchor, operand, site.structure):
        return False  # a copy of a part of a row may begin or end within a word
    return known and bool(site.anchor.reduce) and not site.structure.factored and site.target.local_bytes > 0


def _excludes(c: Candidates) -> Verdicts:
    if not c.part.of("local"):
        return
    total: Ints = np.zeros(1, np.int64)
    for number in c.part.of("local"):
        wanted = c.in_memory("local", number)
        yield "local memory without a grid", ~wanted | (c.group("x") > 0)
        apart = (c.place(number) != INLINE) & (c.place(number) != INNER)
        yield "local memory of what is computed in place", ~wanted | apart
        total = total + np.where(wanted, _box_bytes(c, number), 0)
    axis = c.panelled
    if axis is not None and c.anchor.epilogue:
        whole = c.panel[axis] == c.axes[axis].extent
        yield "local memory of panels before an epilogue", whole | ~c.any_in_local_memory
    yield "size of local memory", total <= c.target.local_bytes - KEPT_BYTES


def _box_bytes(c: Candidates, number: int) -> Ints:
    """Bytes of the box of an input, in its layout, that a group reads."""
    operand = c.operands[number]
    spans, chosen = c.span(operand, c.group_reach), c.layout(number)
    result = product(spans)
    for alternative, layout in enumerate(c.layouts(number)):
        result = np.where(chosen == alternative, product(layout.box(operand, spans)), result)
    return result * dtypes.nbytes(operand.dtype)


def _load_together(plan: Plan) -> None:
    """Stage the inputs that go to local memory, for all items of a group, whole or for one panel of the reduction."""
    for number in plan.part.of("local"):
        if one(plan.chosen.in_memory("local", number)):
            buffer = plan.reads.get(number, plan.anchor.operands[number].buffer.name)
            _stage_locally(plan.sch, plan.block, buffer, plan.panel_loop or plan.outer[0], group_of(plan))


def _stage_locally(sch: Schedule, block: str, buffer: str, loop: str, group: Group) -> None:
    """``S(A[i])`` -> a copy of the box that one iteration of `loop` reads in local memory, then ``S(A_shared[i])``.

    All items of the group copy: neighbours along x take neighbouring elements of the last dimension, those along
    y rows of the one before.
    """
    copy = sch.cache_read(block, buffer, "shared")
    sch.compute_at(copy, loop)
    around = sch.get_loops(copy)
    own = around[around.index(loop) + 1 :]
    long = [name for name in own if extent_of(find_loop(sch.func, name)) > 1] or own[-1:]
    items: dict[str, str] = {}
    if group.x > 1 and group.y > 1 and len(long) == 1:
        _, items["y"], items["x"] = sch.split(long[0], [None, group.y, group.x])
    else:
        for axis, side in (("x", group.x), ("y", group.y)):
            if side > 1:
                items[axis] = sch.split(long.pop(), [None, side])[1]
    for axis, item in items.items():
        sch.bind(item, f"threadIdx.{axis}")
    inside = sch.get_loops(copy)
    rest = [name for name in inside[inside.index(loop) + 1 :] if name not in items.values()]
    sch.reorder(*reversed(items.values()), *rest)


LOCAL_MEMORY = Technique(("local",), opens=_opens, excludes=_excludes, applies={Phase.LOAD: _load_together})
