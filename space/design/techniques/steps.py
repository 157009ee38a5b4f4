"""The steps of a recurrence: what one of them does is tiled as a program of its own, inside of the loop over them.

    for t in T: step { for n, k: acc[n] += h[k] r[n, k];    for j: h[j] = f(acc[j], acc[H + j]) }
    ->   for t in T: step { for n / C [on threads]: for k: for n % C [vectors]: ..;    for j [vectors]: .. }

A step is a block that holds others and has an opaque iterator, so that steps keep their order.  Sums in it are anchors
with all decisions that they have elsewhere: constants are packed for them, and threads may share them, where they meet
after each step.  What is computed element by element runs in vectors.  Where loops around the steps are independent, as
those of two directions are, threads may share these instead, and do not meet before the end.
"""

from __future__ import annotations

from ....ir.expr import Const
from ....ir.stmt import For, PrimFunc
from ....ir.target import Target
from ...concurrency import check_concurrent
from ...errors import ScheduleError
from ...schedule import Schedule
from ...tree import leaf_blocks, loops_above
from ..nests import steps_of
from ..program import Anchor
from ..stages import vectorize_stage
from ..structure import Structure, structures


def structures_in_steps(anchor: Anchor, target: Target) -> tuple[Structure, ...]:
    """The structures of a sum in a step, which no subgroup shares."""
    return tuple(s for s in structures(anchor, target) if not s.subgroup)


def independent_loop(func: PrimFunc) -> For | None:
    """The outermost loop around the steps of a recurrence, where its iterations do not need each other."""
    around = [loops_above(func, step)[:1] for step in steps_of(func)]
    if len(around) != 1 or not around[0]:
        return None
    (loop,) = around[0]
    is_long = isinstance(loop.extent, Const) and loop.extent.value > 1
    return loop if is_long and _is_independent(func, loop) else None


def _is_independent(func: PrimFunc, loop: For) -> bool:
    try:
        check_concurrent(func, loop)
    except ScheduleError:
        return False
    return True


def schedule_elements(sch: Schedule, target: Target) -> None:
    """Run what steps compute element by element in vectors."""
    for step in steps_of(sch.func):
        for block in leaf_blocks(step.body):
            loops = sch.get_loops(block.name)
            if not block.reduce and loops:
                vectorize_stage(sch, block.name, loops[-1], target)
