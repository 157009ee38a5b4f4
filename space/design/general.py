"""A sketch for whatever the tiling rules have no name for: parallel outside, vectors inside, tiles between.

Scans, gathers, sums whose result has no dimension of its own for an axis, bare loops: of such a nest nothing is known
but which loops may run concurrently, and that is proven.  With concurrent loops c and others o,

    for c0, o, c1: S   ->   for c0, c1 / T [on threads]: for o: for c1 % T [vectors, or unrolled]: S

so that a recurrence runs in the lanes of vectors, or several at once hide each other's latency.  Each nest is one
decision among *forms*: which loop is inside, in how many lanes or copies, and which other one is tiled around it.
Every form is tried when the space is derived, so that each one builds.

A stencil that advances in time reads neighbours of the step before, so that its concurrent loops cannot come outside:

    for t: for x: u[t + 1, x] = f(u[t, x - 1], u[t, x], u[t, x + 1])

Where no form builds for such a reason, the nest has the same forms with its loops *in order*: tiles are inside of them,
and threads share what is concurrent of the outermost ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from ...ir.arith.linear import linear_form
from ...ir.expr import Const, Load, Var, substitute
from ...ir.node import walk
from ...ir.stmt import Block, For, PrimFunc, Seq, Stmt, Store
from ...ir.target import Target
from ..concurrency import check_concurrent
from ..errors import ScheduleError
from ..schedule import Schedule
from ..tree import blocks_below, extent_of
from .program import Anchor
from .stages import distribute

COPIES = (4, 8)
ROWS = (4, 8)
WORK_GROUP = 64


@dataclass(frozen=True)
class Nest:
    """The loops of one statement, outermost first, and those that may run concurrently, the last one innermost.

    A loop whose extent another one decides, as in a triangle, stays inside of that one, and is not among them.  A walk
    looks up where it goes next at the place that it has come to, as down a tree.
    """

    loops: tuple[str, ...]
    concurrent: tuple[str, ...]
    dtype: str
    block: str = ""
    has_init: bool = False
    is_elementwise: bool = False
    is_box: bool = True
    is_walk: bool = False


@dataclass(frozen=True)
class Form:
    """A way to run a nest; `inner` and `row` are numbers among its concurrent loops, -1 for none.

    With loops `in_order`, concurrent ones do not come outside of others.
    """

    inner: int = -1
    size: int = 1
    vector: bool = False
    row: int = -1
    rows: int = 1
    in_order: bool = False

    def __str__(self) -> str:
        """``c1 x16, c0 x4``: lanes of vectors, then copies; ``c1 *4`` where the inner loop is unrolled; ``plain``."""
        order = ", in order" if self.in_order else ""
        if self.inner < 0:
            return f"plain{order}"
        row = "" if self.row < 0 else f", c{self.row} *{self.rows}"
        return f"c{self.inner} {'x' if self.vector else '*'}{self.size}{row}{order}"


def schedule_left_over(sch: Schedule, anchors: Sequence[Anchor], target: Target) -> None:
    """Give the nests of blocks that no anchor is, produces, or takes up the first form that they can have.

    Element-wise ones are not among them: every schedule of a sketch ends with them (see `sketch`).
    """
    covered = {name for a in anchors for name in (a.block, a.epilogue, *(o.producer for o in a.operands))}
    for nest in list(nests_of(sch.func)):
        if nest.block not in covered and not nest.is_elementwise:
            form = next(iter(forms_of(sch, nest, target)), None)
            if form is not None:
                schedule_nest(sch, nest, form, target)


def forms_of(sch: Schedule, nest: Nest, target: Target) -> list[Form]:
    """The forms that every primitive accepts; the first one is the best guess.

    Of a walk that is several copies, whose latencies hide each other: in lanes its places would leave vectors and come
    back in every step.  Where none is accepted that brings the concurrent loops outside, those with all loops in order.
    """
    lanes = target.vector_lanes(nest.dtype)
    last = len(nest.concurrent) - 1
    found = []
    copies, vectors = [(c, False) for c in COPIES], [(lanes, True), (max(2, lanes // 2), True)]
    for inner in range(last, -1, -1)[:2]:
        others = [k for k in range(last, -1, -1) if k != inner][:1]
        for size, vector in [*reversed(copies), *vectors] if nest.is_walk else [*vectors, *copies]:
            found.append(Form(inner, size, vector))
            found.extend(Form(inner, size, vector, row, rows) for row in others for rows in ROWS)
    found.append(Form())
    accepted = [form for form in found if _accepted(sch, nest, form, target)]
    if accepted:
        return accepted
    return [form for form in (replace(form, in_order=True) for form in found) if _accepted(sch, nest, form, target)]


def _accepted(sch: Schedule, nest: Nest, form: Form, target: Target) -> bool:
    try:
        schedule_nest(sch.copy(), nest, form, target)
    except ScheduleError:
        return False
    return True


def schedule_nest(sch: Schedule, nest: Nest, form: Form, target: Target) -> None:
    """Run a nest in a form.  Raises ScheduleError where a primitive refuses."""
    outer, tiles, ragged = _tiled(sch, nest, form)
    rest = [loop for loop in nest.loops if loop not in nest.concurrent]
    if form.in_order:
        order = [outer.get(loop, loop) for loop in nest.loops]
        shared = [outer[loop] for loop in takewhile(lambda loop: loop in outer, nest.loops)]
    else:
        shared = list(outer.values())
        order = [*shared, *rest]
    order += tiles
    if order != list(nest.loops) and len(order) > 1:
        sch.reorder(*order)
    if nest.has_init and nest.is_box and rest:
        sch.decompose_reduction(nest.block, rest[0])
    if shared:
        distribute(sch, sch.fuse(*shared) if len(shared) > 1 else shared[0], target, WORK_GROUP)
    _inside(sch, tiles, form, ragged)


def _tiled(sch: Schedule, nest: Nest, form: Form) -> tuple[dict[str, str], list[str], bool]:
    """Split the tiled loops: what is outside of each concurrent loop, the tiles, and whether one does not divide."""
    outer = {loop: loop for loop in nest.concurrent}
    tiles: list[str] = []
    ragged = False
    for number, size in ((form.row, form.rows), (form.inner, form.size)):
        if number >= 0 and size > 1:
            loop = nest.concurrent[number]
            extent = extent_of(sch.get(loop))  # type: ignore[arg-type]
            if size > extent:
                raise ScheduleError("a tile of {size} is longer than its loop", size=size)
            ragged |= extent % size != 0
            outer[loop], inside = sch.split(loop, [None, size])
            tiles.append(inside)
    return outer, tiles, ragged


def _inside(sch: Schedule, tiles: Sequence[str], form: Form, ragged: bool) -> None:
    """Unroll and vectorize the loops of a tile, and those of the initialisation."""
    known = {n.var.name for n in walk(sch.func.body) if isinstance(n, For)}
    for position, loop in enumerate(tiles):
        vector = form.vector and position == len(tiles) - 1
        for name in (loop, f"{loop}_init"):
            if name in known:
                (sch.vectorize if vector else sch.unroll)(name)
                if ragged:
                    sch.annotate(name, "peel", True)


# ---------------------------------------------------------------- what there is


def nests_of(func: PrimFunc) -> Iterator[Nest]:
    """The loop nests of a program that do some work."""
    body: Stmt = func.body.body
    for stmt in body.stmts if isinstance(body, Seq) else (body,):
        nest = _nest(func, stmt)
        if nest is not None:
            yield nest


def _nest(func: PrimFunc, stmt: Stmt) -> Nest | None:
    loops: list[For] = []
    inner = stmt
    while isinstance(inner, For):
        loops.append(inner)
        inner = inner.body
    if not loops or any(loop.kind != "serial" for loop in loops) or not any(isinstance(n, Store) for n in walk(stmt)):
        return None
    blocks = blocks_below(stmt)
    alone = blocks[0] if len(blocks) == 1 and inner is blocks[0] else None
    free = [loop for loop in loops if isinstance(loop.extent, Const) and _is_concurrent(func, loop)]
    free.sort(key=lambda loop: _steps(inner, loop.var, alone), reverse=True)
    names = tuple(loop.var.name for loop in loops)
    has_init = alone is not None and alone.init is not None
    plain = alone is not None and not has_init and all(i.kind == "spatial" for i in alone.iters)
    dtype = next(n.buffer.dtype for n in walk(stmt) if isinstance(n, Store))
    concurrent = tuple(loop.var.name for loop in free)
    is_box = all(isinstance(loop.extent, Const) for loop in loops)
    called = "" if alone is None else alone.name
    return Nest(names, concurrent, dtype, called, has_init, plain, is_box, _is_walk(inner))


def _is_walk(body: Stmt) -> bool:
    """Whether an index of what is loaded is computed from what the nest itself stores."""
    stored = {n.buffer.memory for n in walk(body) if isinstance(n, Store)}
    indices = (index for n in walk(body) if isinstance(n, Load) for index in n.indices)
    return any(isinstance(n, Load) and n.buffer.memory in stored for index in indices for n in walk(index))


def _is_concurrent(func: PrimFunc, loop: For) -> bool:
    try:
        check_concurrent(func, loop, private=False)
    except ScheduleError:
        return False
    return True


def _steps(body: Stmt, loop: Var, block: Block | None) -> tuple[int, ...]:
    """How far apart neighbours along a loop lie in memory, what is stored first: an order without names."""
    bound = {} if block is None else {i.var: i.binding for i in block.iters}
    stored: list[int] = []
    loaded: list[int] = []
    for node in walk(body):
        if isinstance(node, (Load, Store)):
            total = 0
            for index, stride in zip(node.indices, node.buffer.strides, strict=True):
                total += linear_form(substitute(index, bound))[0].get(loop, 0) * stride
            (stored if isinstance(node, Store) else loaded).append(abs(total))
    return (max(stored, default=0), *sorted(loaded, reverse=True))
