"""The ragged edge: branch around it, or compute over it.

``remove_branching_through_overcompute`` lets instances run that a condition left out,
``remove_overcompute_through_branching`` leaves instances out; both are legal where these
instances are harmless (`dataflow.harmless`) and no concurrent loop around them would race
(`dataflow.concurrency`).  A condition stands in a block's predicate, in an `If`, or in an
``if_then_else`` of a stored value, and is removed conjunct by conjunct.  Of an `If`
with an else-branch one side is kept if on the other side it comes to the same.

Source: RFC 0077, "Remove Branching Through Overcompute".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace

from ..arith.intervals import negate
from ..arith.simplify import bound, simplify
from ..caches import cached
from ..context import Context, nowhere, start
from ..dataflow.concurrency import CONCURRENT, conflict
from ..dataflow.harmless import Change, Harm, appearing, vanishing
from ..dataflow.instances import Program, Statement, evaluations, instances
from ..expr import (
    Call,
    Const,
    Expr,
    Extent,
    Load,
    Var,
    all_of,
    as_index,
    binary,
    conjuncts,
    const,
    if_then_else,
    substitute,
    variables,
)
from ..extents import as_extent
from ..layout.ranged import reached
from ..node import rebuild, walk
from ..stmt import Block, For, If, Let, PrimFunc, Seq, Stmt, Store, stmt_children, walk_stmts
from ..text import expr_text
from .empty import without_empty
from .positions import at, position, with_statement

Choice = Callable[[Expr], bool]
_PROVEN = 256  # programs with one condition less, each with the proof that it may go


@dataclass(frozen=True)
class Refusal:
    """Why a condition is kept, or none is added: a sentence, and a point where the program would change."""

    cond: Expr
    harm: Harm
    verb: str = "stays"

    def __str__(self) -> str:
        return f"`{expr_text(self.cond)}` {self.verb}: {self.harm}"


def remove_branching_through_overcompute(func: PrimFunc) -> PrimFunc:
    """``if c and d: S`` -> ``if d: S`` for each conjunct ``c`` whose removal is proven harmless."""
    return overcompute(func, func.body)[0]


def overcompute(func: PrimFunc, within: Stmt, chosen: Choice = lambda _: True) -> tuple[PrimFunc, list[Refusal]]:
    """Remove what can be removed of the conditions at or below `within`, and say why the rest stays.

    `within` is a statement of the function, by identity; `chosen` picks conjuncts.
    """
    refused: dict[tuple[tuple[int, ...], Expr], Refusal] = {}
    root = position(func.body, within)
    while True:
        for site in _sites(at(func.body, root), root):
            if (site.place, site.cond) in refused or not chosen(site.cond):
                continue
            new, refusal = site.attempt(func)
            if refusal is None:
                func = new
                break
            refused[site.place, site.cond] = refusal
        else:
            sequences = (s.stmts for s in walk_stmts(func.body) if isinstance(s, Seq))
            nested = any(isinstance(item, Seq) for items in sequences for item in items)
            return without_empty(func) if nested else func, list(refused.values())


# ---------------------------------------------------------------- conditions


@dataclass(frozen=True)
class _Site:
    """One conjunct of one condition, and how to try without it."""

    place: tuple[int, ...]
    cond: Expr
    attempt: Callable[[PrimFunc], tuple[PrimFunc, Refusal | None]]


def _sites(stmt: Stmt, place: tuple[int, ...]) -> Iterator[_Site]:
    """The conjuncts of all conditions at or below a statement, the outermost first."""
    if isinstance(stmt, Block):
        for cond in conjuncts(stmt.predicate):
            yield _Site(place, cond, lambda func, c=cond: _without_predicate(func, place, c))  # type: ignore[misc]
    elif isinstance(stmt, If) and stmt.orelse is None:
        for cond in conjuncts(stmt.cond):
            yield _Site(place, cond, lambda func, c=cond: _without_if(func, place, c))  # type: ignore[misc]
    elif isinstance(stmt, If):
        yield _Site(place, stmt.cond, lambda func: _without_else(func, place))
    elif isinstance(stmt, Store):
        for call in (n for n in walk(stmt.value) if isinstance(n, Call) and n.name == "if_then_else"):
            for cond in conjuncts(call.args[0]):
                yield _Site(
                    place,
                    cond,
                    lambda func, c=cond, n=call: _without_choice(func, place, n, c),  # type: ignore[misc]
                )
    for k, child in enumerate(stmt_children(stmt)):
        yield from _sites(child, (*place, k))


@cached(_PROVEN)
def _without_predicate(func: PrimFunc, place: tuple[int, ...], cond: Expr) -> tuple[PrimFunc, Refusal | None]:
    block = at(func.body, place)
    assert isinstance(block, Block)
    rest = all_of([c for c in conjuncts(block.predicate) if c != cond])
    wide = _widened(replace(block, predicate=rest), cond, _Around.of(func, place))
    return _try(func, place, wide, cond)


@cached(_PROVEN)
def _without_if(func: PrimFunc, place: tuple[int, ...], cond: Expr) -> tuple[PrimFunc, Refusal | None]:
    stmt = at(func.body, place)
    assert isinstance(stmt, If)
    rest = all_of([c for c in conjuncts(stmt.cond) if c != cond])
    then = _widened(stmt.then, cond, _Around.of(func, place))
    return _try(func, place, copy(then) if rest == const(True) else If(rest, then), cond)


def _try(func: PrimFunc, place: tuple[int, ...], new: Stmt, cond: Expr) -> tuple[PrimFunc, Refusal | None]:
    """The function with `new` at `place`, in which the instances that violate `cond` appear."""
    after = with_statement(func, place, new)
    node = at(after.body, place) if not isinstance(new, Seq) else new
    program = instances(after)
    changes = [Change(s, s.resolve(cond)) for s in program.below(node)]
    harm = _appear(program, changes, _around(after, node, cond))
    return after, None if harm is None else Refusal(cond, harm)


def _around(func: PrimFunc, node: Stmt, cond: Expr) -> list[Change]:
    """Loops, conditions, let bindings and blocks at or below `node`, at the points where `cond` fails."""
    inner = (For, If, Let, Block)
    found = [s for s in evaluations(func) if s.below(node) and isinstance(s.stmt, inner)]
    return [Change(s, s.resolve(cond)) for s in found]


def _appear(program: Program, changes: Sequence[Change], around: Sequence[Change]) -> Harm | None:
    harm = appearing(program, changes, around)
    return harm or _race(program, [c.statement for c in changes])


def _race(program: Program, statements: Sequence[Statement]) -> Harm | None:
    """Concurrent loops around the statements stay free of conflicts."""
    loops = {id(loop): loop for s in statements for loop in s.loops if loop.kind in CONCURRENT}
    for loop in loops.values():
        found = conflict(program, loop, private=loop.kind != "vectorized", reduces=loop.reduces)
        if found is not None:
            return Harm(str(found))
    return None


@dataclass(frozen=True)
class _Around:
    """What stands around a place: inclusive bounds of loops and iterators, and the extents of all loops.

    `integers` are those that extents of the function are made of, `start` is what holds of them.
    """

    ranges: dict[Var, tuple[int, int]]
    limits: dict[Var, Extent]
    integers: frozenset[Var]
    start: Context

    @staticmethod
    def of(func: PrimFunc, place: Sequence[int]) -> _Around:
        """Around a place of the function."""
        integers = frozenset(func.integers if func.stated else ())
        around = _Around({}, {}, integers, start(func) if integers else nowhere())
        stmt: Stmt = func.body
        for k in place:
            around = around.inside(stmt)
            if isinstance(stmt, Block):
                around = replace(around, ranges={**around.ranges, **{i.var: i.span for i in stmt.iters}})
            stmt = stmt_children(stmt)[k]
        return around

    def inside(self, stmt: Stmt) -> _Around:
        """What is known in the body of `stmt`, if that is a loop; `self` for any other statement."""
        if not isinstance(stmt, For):
            return self
        if not isinstance(stmt.extent, Const):
            limits = {**self.limits, stmt.var: as_index(stmt.extent)}  # in 64 bits, also of a narrow loop
            return replace(self, limits=limits)
        count = int(stmt.extent.value)
        limits = {**self.limits, stmt.var: count}
        return replace(self, limits=limits, ranges={**self.ranges, stmt.var: (0, count - 1)})

    def reach(self, binding: Expr, limit: Extent) -> Extent:
        """The limit of an iterator that holds every value of its binding; `limit` where none is known."""
        if not isinstance(limit, Expr) and variables(binding) <= self.ranges.keys():
            return max(limit, int(bound(binding, self.ranges)[1]) + 1)
        known = bool(self.integers) and variables(binding) <= self.limits.keys()
        reach = reached(binding, self.limits) if known else None
        if reach is None or not variables(reach) <= self.integers:
            return limit
        if not self.start.implies(binary(">=", reach, limit)):
            return limit
        return as_extent(self.start.simplify(reach))


def _widened(stmt: Stmt, cond: Expr, around: _Around) -> Stmt:
    """The statement with iterators wide enough for the instances that `cond` leaves out."""
    if isinstance(stmt, Block):
        iters = tuple(
            replace(i, limit=around.reach(i.binding, i.limit))
            if not variables(cond).isdisjoint(variables(i.binding))
            and not _limited(i.binding, i.limit, stmt, around.ranges)
            else i
            for i in stmt.iters
        )
        return stmt if iters == stmt.iters else replace(stmt, iters=iters)
    inner = around.inside(stmt)
    result: Stmt = rebuild(stmt, lambda child: _widened(child, cond, inner) if isinstance(child, Stmt) else child)
    return result


def _limited(binding: Expr, extent: Extent, block: Block, ranges: dict[Var, tuple[int, int]]) -> bool:
    """Whether a conjunct of the block's predicate says that the binding stays below the extent."""
    limit = simplify(binary("<", binding, extent), ranges)
    return any(simplify(c, ranges) == limit for c in conjuncts(block.predicate))


@cached(_PROVEN)
def _without_choice(func: PrimFunc, place: tuple[int, ...], call: Call, cond: Expr) -> tuple[PrimFunc, Refusal | None]:
    """``if_then_else(c and d, a, b)`` -> ``if_then_else(d, a, b)`` in a stored value."""
    store = at(func.body, place)
    assert isinstance(store, Store)
    rest = all_of([c for c in conjuncts(call.args[0]) if c != cond])
    value = _replaced(store.value, call, if_then_else(rest, call.args[1], call.args[2]))
    after = with_statement(func, place, Store(store.buffer, store.indices, value))
    program = instances(after)
    node = at(after.body, place)
    old = _replaced(store.value, call, call.args[2])
    changes = [Change(s, s.resolve(cond), old) for s in program.below(node) if s.stmt is node]
    if any(isinstance(n, Load) for n in walk(cond)):
        return func, Refusal(cond, Harm("it is unknown whether that is legal: the condition reads memory"))
    harm = _appear(program, changes, ())
    return after, None if harm is None else Refusal(cond, harm)


def _replaced(expr: Expr, old: Expr, new: Expr) -> Expr:
    if expr == old:
        return new
    result: Expr = rebuild(expr, lambda child: _replaced(child, old, new) if isinstance(child, Expr) else child)
    return result


# ---------------------------------------------------------------- else-branches


@cached(_PROVEN)
def _without_else(func: PrimFunc, place: tuple[int, ...]) -> tuple[PrimFunc, Refusal | None]:
    """``if c: S else: T`` -> S if on "not c" it comes to T, otherwise T if on "c" it comes to S."""
    stmt = at(func.body, place)
    assert isinstance(stmt, If) and stmt.orelse is not None
    first: Harm | None = None
    for keep, gone, cond in ((stmt.then, stmt.orelse, stmt.cond), (stmt.orelse, stmt.then, negate(stmt.cond))):
        after, harm = _one_side(func, place, keep, gone, cond)
        if harm is None:
            return after, None
        first = first or harm
    assert first is not None
    return func, Refusal(stmt.cond, first)


def _one_side(
    func: PrimFunc, place: tuple[int, ...], keep: Stmt, gone: Stmt, cond: Expr
) -> tuple[PrimFunc, Harm | None]:
    pairs = _aligned(keep, gone)
    if pairs is None:
        before = instances(func)
        harm = vanishing(before, [Change(s, s.resolve(cond)) for s in before.below(gone)])
        if harm is not None:
            return func, harm
        pairs = {}
    new = copy(_widened(keep, cond, _Around.of(func, place)))
    after = with_statement(func, place, new)
    program = instances(after)
    olds = [pairs.get(id(s)) for s in walk(keep) if isinstance(s, Store)]
    stores = [s for s in walk(new) if isinstance(s, Store)]
    old_of = {id(s): old for s, old in zip(stores, olds, strict=True)}
    changes = [Change(s, s.resolve(cond), old_of.get(id(s.stmt))) for s in program.below(new)]
    return after, _appear(program, changes, _around(after, new, cond))


def _aligned(keep: Stmt, gone: Stmt) -> dict[int, Expr] | None:
    """The value that `gone` stores in the place of each store of `keep`, by its `id`; None unless they match."""
    if isinstance(keep, Store) and isinstance(gone, Store):
        same = keep.buffer == gone.buffer and keep.indices == gone.indices
        return {id(keep): gone.value} if same else None
    if isinstance(keep, Seq) or isinstance(gone, Seq):
        mine = keep.stmts if isinstance(keep, Seq) else (keep,)
        theirs = gone.stmts if isinstance(gone, Seq) else (gone,)
        return _aligned_sequences(mine, theirs)
    if isinstance(keep, For) and isinstance(gone, For) and keep.extent == gone.extent and keep.kind == gone.kind:
        return _aligned(keep.body, substitute(gone.body, {gone.var: keep.var}))
    if isinstance(keep, If) and isinstance(gone, If) and keep.cond == gone.cond and keep.orelse == gone.orelse is None:
        return _aligned(keep.then, gone.then)
    return {} if keep == gone else None


def _aligned_sequences(mine: Sequence[Stmt], theirs: Sequence[Stmt]) -> dict[int, Expr] | None:
    found: dict[int, Expr] = {}
    rest = list(theirs)
    for item in mine:
        pairs = _aligned(item, rest[0]) if rest else None
        if pairs is not None:
            found.update(pairs)
            rest.pop(0)
    return None if rest else found
