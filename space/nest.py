"""Perfect nests, and the check that every rewrite of their order shares.

A perfect nest may have index bindings between its loops, and conditions that may be evaluated anywhere inside::

    for i:                      loops       i, j
        if c(i):                conditions  c(i)
            k = i + 1           body        S with i + 1 for k
            for j: S
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..ir import dtypes
from ..ir.affine.sets import Domain, NotAffine, Unknown, access_map
from ..ir.arith.intervals import ANY_INDEX, Facts
from ..ir.arith.widening import linear_index
from ..ir.dataflow.concurrency import CONCURRENT
from ..ir.dataflow.instances import Statement, instances
from ..ir.dataflow.order import Time, find_reversal
from ..ir.expr import Const, Expr, Var, as_int, can_fail, conjuncts, const, free_variables, reads_memory, substitute
from ..ir.stmt import (
    Attr,
    Block,
    For,
    If,
    Iter,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    path_to,
    read_buffers,
    stores,
    walk_stmts,
)
from ..ir.verify.init import holds_at_zero
from .concurrency import check_marked
from .errors import ScheduleError
from .tree import find_loop, integer_bounds, loop_bounds, loops_above


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
        elif isinstance(stmt, If) and stmt.orelse is None and not can_fail(stmt.cond):
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
    """Raises ScheduleError (2) where the extent of a loop depends on another loop of the nest, or may not be known."""
    for depth, loop in enumerate(nest.loops):
        if depth and can_fail(loop.extent):
            raise ScheduleError("(2) the extent {extent!r} of loop `{loop}` reads memory, or divides by what may be 0",
                                loop=loop.var.name, extent=loop.extent)  # fmt: skip
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


def any_order(nest: Nest) -> bool:
    """Whether a nest holds one block with spatial and reduce iterators only, whose instances may run in any order.

    Spatial instances are independent, and reductions commute.  An init runs at the all-minimum reduce point, which
    stays first in every order of the loops, unless a loop moves along both kinds, a point runs again, or that point is
    not at the loops' zeros.  What decides on memory whether and where a block runs may see what other instances write.
    """
    body, loops, conditions = nest.body, list(nest.loops), list(nest.conditions)
    while isinstance(body, (For, Attr)) or (isinstance(body, If) and body.orelse is None):
        if isinstance(body, For):
            loops.append(body)
        elif isinstance(body, If):
            conditions += conjuncts(body.cond)
        body = body.then if isinstance(body, If) else body.body
    if not isinstance(body, Block) or not body.iters or any(i.kind == "opaque" for i in body.iters):
        return False
    conditions += conjuncts(body.predicate)
    deciding = (*conditions, *(i.binding for i in body.iters), *(loop.extent for loop in loops))
    if any(map(reads_memory, deciding)):
        return False
    if body.init is None:
        return True
    begins = _begins_at_zeros(body, loops, conditions)
    return begins and _moved_by(body.spatial).isdisjoint(_moved_by(body.reduce)) and runs_once(body, loops, conditions)


def _moved_by(iters: Sequence[Iter]) -> set[Var]:
    """The variables that the bindings of `iters` depend on."""
    return {v for i in iters for v in free_variables(i.binding)}


def _begins_at_zeros(block: Block, around: Sequence[For], conditions: Sequence[Expr]) -> bool:
    """Whether each condition, where it holds, also holds with the loops of the reduction of a block at 0.

    That no argument of the function makes its sums wrap around `verify` has proven of the block where it stands.
    """
    reduce = _moved_by(block.reduce)
    zero: dict[Var, Expr] = {loop.var: const(0, loop.var.dtype) for loop in around if loop.var in reduce}
    facts = Facts({v: ANY_INDEX for cond in conditions for v in free_variables(cond)})
    for loop in around:
        facts = facts.looping(loop.var, loop.extent)
    return all(holds_at_zero(cond, zero, facts) for cond in conditions)


def runs_once(block: Block, loops: Sequence[For], conditions: Sequence[Expr]) -> bool:
    """Whether `loops`, with those around them fixed, provably reach no point of a block's iterators twice.

    `conditions` hold wherever the block runs.
    """
    bindings = [i.binding for i in block.iters]
    if _are_digits(bindings, loops):
        return True
    own = {loop.var for loop in loops}
    around = {v for e in (*bindings, *conditions, *(loop.extent for loop in loops)) for v in free_variables(e)} - own
    fixed = sorted(around, key=lambda v: v.name)
    dims = (*((v, None) for v in fixed), *((loop.var, loop.extent) for loop in loops))
    # A binding lies within its extent: arguments that add to it, or what they wrap around to, do as indices do.
    domain = Domain(dims, tuple(conditions), frozenset(v for v in fixed if v.dtype == dtypes.INDEX))
    try:
        return access_map(domain.relaxed(), [*fixed, *bindings]).is_injective()
    except (NotAffine, Unknown):
        return False


def _are_digits(bindings: Sequence[Expr], loops: Sequence[For]) -> bool:
    """Whether each loop is a digit of a binding, as in ``i_0 * 12 + i_1 * 4 + i_2``, i_1 below 3 and i_2 below 4."""
    if not all(isinstance(loop.extent, Const) for loop in loops):
        return False
    last = {loop.var: as_int(loop.extent) - 1 for loop in loops}
    left = {var for var, most in last.items() if most > 0}
    for binding in bindings:
        terms, _ = linear_index(binding, {var: (0, most) for var, most in last.items()})
        if any(not isinstance(atom, Var) and not last.keys().isdisjoint(free_variables(atom)) for atom in terms):
            return False
        digits = [(abs(size), last[atom]) for atom, size in terms.items() if isinstance(atom, Var) and last.get(atom)]
        reach = 0
        for size, most in sorted(digits):
            if size <= reach:
                return False
            reach += size * most
        left -= {atom for atom in terms if isinstance(atom, Var)}
    return not left


def updates_itself(block: Block) -> bool:
    """Whether a block stores to memory that it reads."""
    return not {s.buffer.memory for s in stores(block)}.isdisjoint(b.memory for b in read_buffers(block.body))


def check_once(block: Block, around: Sequence[For], number: str) -> None:
    """Raises ScheduleError (`number`) where a block may update at one point several times, since it is moved for one.

    Where an init begins anew, only the loops that the reduction begins with and those inside of them count.
    """
    if not updates_itself(block):
        return
    reduce = _moved_by(block.reduce) if _begins_anew(block, around) else set()
    first = next((k for k, loop in enumerate(around) if loop.var in reduce), len(around) if reduce else 0)
    check_runs_once(block, around[first:], number)


def _begins_anew(block: Block, around: Sequence[For]) -> bool:
    """Whether the reduction of a block begins, each time that its loops do, with an init of all that it updates."""
    if block.init is None:
        return False
    inits = block.init.stmts if isinstance(block.init, Seq) else (block.init,)
    begun = {(s.buffer, s.indices) for s in inits if isinstance(s, Store)}
    read = {b.memory for b in read_buffers(block.body)}
    updated = [s for s in stores(block.body) if s.buffer.memory in read]
    return (
        _begins_at_zeros(block, around, conjuncts(block.predicate))
        and all((s.buffer, s.indices) in begun for s in updated)
        and {b.memory for b in read_buffers(block.init)}.isdisjoint(s.buffer.memory for s in updated)
    )


def check_runs_once(block: Block, loops: Sequence[For], number: str, conditions: Sequence[Expr] | None = None) -> None:
    """Raises ScheduleError (`number`) unless a block provably runs once at each point that `loops` reach.

    `conditions` hold wherever it runs, by default those of its predicate.
    """
    if not runs_once(block, loops, conjuncts(block.predicate) if conditions is None else conditions):
        raise ScheduleError("({number}) block `{block}` may run at one point twice", number=number, block=block.name)


def check_still_concurrent(func: PrimFunc, loops: Sequence[For], number: str) -> None:
    """Raises ScheduleError (`number`) where a concurrent loop among `loops` may not be one at its place in `func`."""
    for loop in (loop for loop in loops if loop.kind in CONCURRENT):
        try:
            check_marked(func, find_loop(func, loop.var.name))
        except ScheduleError as error:
            raise ScheduleError("({number}) `{loop}` runs concurrently, but {error}",
                                number=number, loop=loop.var.name, error=error) from None  # fmt: skip


def enclosing_bounds(func: PrimFunc, stmt: Stmt) -> dict[Var, tuple[int, int]]:
    """Inclusive bounds of the loops with constant extents around `stmt`, up to the enclosing block."""
    found = integer_bounds(func)
    integers = frozenset(found)
    for loop in loops_above(func, stmt):
        extent = getattr(loop.extent, "value", None)
        if isinstance(extent, int):
            found[loop.var] = (0, extent - 1)
        elif integers and free_variables(loop.extent) <= integers:
            found |= loop_bounds([loop], func)
    return found
