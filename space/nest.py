"""Perfect nests, and the check that every rewrite of their order shares.

A perfect nest may have conditions and index bindings between its loops::

    for i:                      loops       i, j
        if c(i):                conditions  c(i)
            k = i + 1           body        S with i + 1 for k
            for j: S
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..ir.affine.sets import NotAffine, Unknown
from ..ir.dataflow.instances import Statement, instances
from ..ir.dataflow.order import Time, find_reversal
from ..ir.expr import Expr, Var, free_variables, reads_memory, substitute
from ..ir.stmt import Attr, Block, For, If, Let, PrimFunc, Stmt, path_to, walk_stmts
from .concurrency import check_concurrent
from .errors import ScheduleError
from .tree import find_loop, loops_above


@dataclass(frozen=True)
class Nest:
    """Loops from the outermost to the innermost, the conditions between them, and what they run."""

    loops: tuple[For, ...]
    conditions: tuple[Expr, ...]
    body: Stmt

    @property
    def variables(self) -> tuple[Var, ...]:
        return tuple(loop.var for loop in self.loops)


def perfect_nest(func: PrimFunc, names: Sequence[str]) -> Nest:
    """The nest from the outermost to the innermost of the named loops.

    Raises ScheduleError (1) where they do not lie on one perfect nest.
    """
    missing = {find_loop(func, name).var for name in names}
    if len(missing) != len(names) or not names:
        raise ScheduleError("(1) a loop is named twice, or none: {names}", names=list(names))
    stmt: Stmt = next(s for s in walk_stmts(func.body) if isinstance(s, For) and s.var in missing)
    loops: list[For] = []
    conditions: list[Expr] = []
    while missing:
        if isinstance(stmt, For):
            loops.append(stmt)
            missing.discard(stmt.var)
            stmt = stmt.body
        elif isinstance(stmt, If) and stmt.orelse is None and not reads_memory(stmt.cond):
            conditions.append(stmt.cond)
            stmt = stmt.then
        elif isinstance(stmt, Let) and not reads_memory(stmt.value):
            stmt = substitute(stmt.body, {stmt.var: stmt.value})
        else:
            raise ScheduleError(
                "(1) loop {left} is not in a perfect nest with `{outer}`",
                hint="separate the statements between them with decompose_reduction or distribute",
                left=", ".join(sorted(v.name for v in missing)),
                outer=loops[0].var.name,
            )
    return Nest(tuple(loops), tuple(conditions), stmt)


def check_rectangular(nest: Nest) -> None:
    """Raises ScheduleError (2) where the extent of a loop depends on another loop of the nest."""
    for loop in nest.loops:
        if not free_variables(loop.extent).isdisjoint(nest.variables) or reads_memory(loop.extent):
            raise ScheduleError(
                "(2) the extent {extent!r} of loop `{loop}` changes inside the nest",
                loop=loop.var.name,
                extent=loop.extent,
            )


def check_order(func: PrimFunc, top: Stmt, time: Callable[[Statement], Time], number: int) -> None:
    """Raises ScheduleError (`number`) unless the instances at or below `top` may run in the order of `time`.

    `time` gives stamps within one iteration of the loops around `top`, which stay.
    """
    program = instances(func)
    common = (*program.parameters, *(loop.var for loop in _loops_around(func, top)))
    below = program.below(top)
    try:
        found = find_reversal(below, time, common)
    except (NotAffine, Unknown) as error:
        raise ScheduleError("({number}) the order is unknown: {error}", number=number, error=str(error)) from None
    if found is not None:
        raise ScheduleError("({number}) {found}", number=number, found=found)


def _loops_around(func: PrimFunc, stmt: Stmt) -> list[For]:
    path = path_to(func.body, stmt)
    assert path is not None
    return [s for s in path[:-1] if isinstance(s, For)]


def depth_of(func: PrimFunc, loop: For) -> int:
    """The number of loops around `loop`, of enclosing blocks too; its variable is ``schedule[2 * depth + 1]``."""
    return len(_loops_around(func, loop))


def any_order(body: Stmt) -> bool:
    """Whether `body` is one block with spatial and reduce iterators only, whose instances may run in any order.

    Spatial instances are independent, reductions commute, and the all-minimum reduce
    point stays first in every order of the loops, unless a loop moves along both kinds.
    """
    while isinstance(body, (For, Attr)) or (isinstance(body, If) and body.orelse is None):
        body = body.then if isinstance(body, If) else body.body
    if not isinstance(body, Block) or not body.iters or any(i.kind == "opaque" for i in body.iters):
        return False
    spatial, reduce = ({v for i in items for v in free_variables(i.binding)} for items in (body.spatial, body.reduce))
    return body.init is None or spatial.isdisjoint(reduce)


def check_still_concurrent(func: PrimFunc, loops: Sequence[For]) -> None:
    """Raises ScheduleError where a concurrent loop among `loops` may not be one at its place in `func`."""
    for loop in loops:
        if loop.kind in ("parallel", "vectorized", "thread_binding"):
            private, there = loop.kind != "vectorized", find_loop(func, loop.var.name)
            check_concurrent(func, there, private=private, reduces=loop.reduces)


def enclosing_bounds(func: PrimFunc, stmt: Stmt) -> dict[Var, tuple[int, int]]:
    """Inclusive bounds of the loops with constant extents around `stmt`, up to the enclosing block."""
    found: dict[Var, tuple[int, int]] = {}
    for loop in loops_above(func, stmt):
        extent = getattr(loop.extent, "value", None)
        if isinstance(extent, int):
            found[loop.var] = (0, extent - 1)
    return found
