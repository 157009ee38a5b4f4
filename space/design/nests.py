"""Programs in the form of the workloads: loops of 64 bits, boxes, a nest for each block, reductions with their init.

Loops of narrow types, bare loops, stages that share a loop over rows, triangles, and sums that begin in a nest of their
own are as good a way to write a program; anchors are found once they have been brought into that form, step by proven
step.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.expr import Const, free_variables
from ...ir.node import walk
from ...ir.stmt import Block, For, If, Iter, PrimFunc, Seq, Stmt, Store, walk_stmts
from ..errors import ScheduleError
from ..primitives.widen_loops import is_narrow
from ..schedule import Schedule
from ..tree import blocks_below, leaf_blocks, producers


def as_nests(func: PrimFunc) -> Schedule:
    """A schedule that brings a program into the form of the workloads (see the module)."""
    boxes = Schedule(func)
    if any(is_narrow(n.var) for n in walk(func.body) if isinstance(n, (For, Iter))):
        boxes.widen_loops()
    make_boxes(boxes, sums=False)
    schedule = with_separate_nests(boxes)
    for nest in _nests(schedule.func):
        if isinstance(nest, For) and isinstance(_innermost(nest), Store):
            try:
                schedule.add_block(nest.var.name)
            except ScheduleError:  # as of a recurrence
                continue
    compose_reductions(schedule)
    return schedule


def make_boxes(schedule: Schedule, sums: bool = True) -> None:
    """Make loops rectangular, as those over the rows of a triangle, where their longest is known.

    Without `sums` those of reductions stay: parts of a sum of which a condition leaves out some have no first element.
    """
    for loop in [n for n in walk(schedule.func.body) if isinstance(n, For) and not isinstance(n.extent, Const)]:
        if not sums and _is_summed(loop):
            continue
        try:
            schedule.make_rectangular(loop.var.name)
        except ScheduleError:  # as where lengths stand in memory
            continue


def _is_summed(loop: For) -> bool:
    """Whether something below a loop is stored at places that it does not move along."""
    blocks = [n for n in walk(loop.body) if isinstance(n, Block)]
    if blocks:
        return any(loop.var in free_variables(item.binding) for block in blocks for item in block.reduce)
    stored = [n for n in walk(loop.body) if isinstance(n, Store)]
    return not all(any(loop.var in free_variables(index) for index in store.indices) for store in stored)


def compose_reductions(schedule: Schedule) -> None:
    """Make what a nest of its own stores before a sum the init of that sum."""
    for block in leaf_blocks(schedule.func.body):
        if not block.reduce or block.init is not None or not isinstance(block.body, Store):
            continue
        writers = [writer.name for writer in producers(schedule.func, block.body.buffer)]
        before = writers[: writers.index(block.name)]
        try:
            for name in before[-1:]:
                schedule.compose_reduction(block.name, name)
        except ScheduleError:  # as where not every element is summed up
            continue


def with_separate_nests(schedule: Schedule) -> Schedule:
    """Loops distributed over the statements below them, so that each nest has one block; as it is where one may not be.

    ::

        for i: (for j: S(i, j)); (for j: T(i, j))   ->   for i: for j: S(i, j)   then   for i: for j: T(i, j)

    What a row's stages have in common is for sketches to find again, with tiles and vectors for each of them.
    """
    apart = schedule.copy()
    try:
        while nest := next((nest for nest in _nests(apart.func) if not _is_separate(nest)), None):
            if not isinstance(nest, For):
                return schedule
            apart.distribute(nest.var.name, 1)
    except ScheduleError:  # as where the rows of one stage need those of a later one
        return schedule
    return apart


def is_flat(func: PrimFunc) -> bool:
    """Whether the program is a sequence of nests with one block each."""
    return all(_single(nest) for nest in _nests(func))


def steps_of(func: PrimFunc) -> tuple[Block, ...]:
    """Blocks that hold others and run in the order of an opaque iterator, as the steps of a recurrence do."""
    found = (n for n in walk_stmts(func.body) if isinstance(n, Block) and any(i.kind == "opaque" for i in n.iters))
    return tuple(block for block in found if blocks_below(block.body))


def _is_separate(nest: Stmt) -> bool:
    """Whether a nest runs one block or one store."""
    return _single(nest) or isinstance(_innermost(nest), Store)


def _innermost(stmt: Stmt) -> Stmt:
    """What loops and conditions hold."""
    while isinstance(stmt, For) or (isinstance(stmt, If) and stmt.orelse is None):
        stmt = stmt.body if isinstance(stmt, For) else stmt.then
    return stmt


def _nests(func: PrimFunc) -> Sequence[Stmt]:
    body: Stmt = func.body.body
    return body.stmts if isinstance(body, Seq) else (body,)


def _single(stmt: Stmt) -> bool:
    while isinstance(stmt, For):
        stmt = stmt.body
    return isinstance(stmt, Block) and not blocks_below(stmt.body)
