"""Loops of blocks: an axis's loop, and element-wise blocks of their own, shared between threads and vectorized."""

from __future__ import annotations

from ...ir.expr import variables
from ...ir.target import Target
from ..errors import ScheduleError
from ..schedule import Schedule
from ..tree import extent_of, find_block, find_loop
from .contiguity import is_contiguous
from .program import Axis


def loop_of(sch: Schedule, block: str, axis: Axis) -> str:
    """The loop that an axis of an anchor is bound to: of a chunk's and that inside of it the inner one.

    With a single row in a chunk no index depends on the inner one, and it is the chunk's.
    """
    for item in find_block(sch.func, block).iters:
        if item.var.name == axis.var:
            used = {var.name for var in variables(item.binding)}
            return str([loop for loop in sch.get_loops(block) if loop in used][-1])
    raise ScheduleError("block `{block}` has no iterator `{axis}`", block=block, axis=axis.var)


def distribute(sch: Schedule, loop: str, target: Target, work_group: int) -> str:
    """Run a loop's iterations on threads, or on work-items in groups; returns the innermost shared loop."""
    if target.kind == "cpu":
        sch.parallel(loop)
        return loop
    group, item = sch.split(loop, [None, work_group])
    sch.bind(group, "blockIdx.x")
    sch.bind(item, "threadIdx.x")
    return str(item)


def schedule_stage(sch: Schedule, block: str, target: Target, shared: bool = True) -> None:
    """An element-wise block in a nest of its own: outer loops shared, the innermost vectorized if contiguous."""
    loops = sch.get_loops(block)
    if not loops:
        return
    head, last = loops[:-1], loops[-1]
    tail = vectorize_stage(sch, block, last, target)
    if not shared:
        return
    if head:
        distribute(sch, sch.fuse(*head) if len(head) > 1 else head[0], target, 1)
    elif tail is not None:
        distribute(sch, tail, target, 1)


def schedule_inner_stage(sch: Schedule, block: str, outer: str, target: Target) -> None:
    """An element-wise block inside a shared loop: the innermost loop vectorized where that is contiguous."""
    loops = sch.get_loops(block)
    inner = loops[loops.index(outer) + 1 :]
    if inner:
        vectorize_stage(sch, block, inner[-1], target)


def vectorize_stage(sch: Schedule, block: str, loop: str, target: Target) -> str | None:
    """Vectorize the innermost loop of a copy if source and target are contiguous in it; returns its outer part."""
    func = sch.func
    extent = extent_of(find_loop(func, loop))
    dtype = func.buffers[0].dtype
    lanes = target.vector_lanes(dtype)
    if extent < lanes or lanes < 2 or not is_contiguous(func, block, loop):
        return loop
    if extent == lanes:
        sch.vectorize(loop)
        return None
    outer, inner = sch.split(loop, [None, lanes])
    sch.vectorize(inner)
    if extent % lanes:
        sch.annotate(inner, "peel", True)
    return str(outer)
