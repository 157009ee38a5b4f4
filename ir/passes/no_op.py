"""Statements without an effect that anybody sees are left out.

::

    A[i] = x;  A[i] = y                        ->  A[i] = y              overwritten before it is read
    for i: A[i] = x;  for i: A[i] = y          ->  for i: A[i] = y       a nest or block that a later one supersedes
    A[i] = A[i]                                ->                        a value written back where it came from
    assume(A[0] == 0);  A[0] = 0               ->  assume(A[0] == 0)     what is known to be there
    for i: ;  if c: ;  assume(True)            ->                        nothing

Several stores go together: a whole block, loop nest or branch first, then its parts.
Conditions: (1) every store that goes is dead or silent (`dataflow.harmless`), which the
function's end decides too: it reads the logical elements of outputs and promised padding;
(2) no assumption speaks of what a dead store wrote; (3) a block's reduction still begins
with its init; (4) a store of `undef` stays, since it says that anything may stand there
(`remove_store_undef` takes it), and so does an assumption.
Source: RFC 0077, "Enhancement - Remove No Op".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..affine.guard import NotAffine, Unknown
from ..affine.sets import points
from ..arith.statements import NOTHING
from ..dataflow.harmless import Change, Harm, vanishing
from ..dataflow.instances import Program, Statement, instances
from ..dataflow.reduced import Part, cells, is_silent
from ..dataflow.witness import needed_instance
from ..dataflow.writers import Contradiction
from ..expr import FALSE, TRUE, Buffer, Call, Expr, Load
from ..functions import FUNCTIONS
from ..node import rebuild, walk
from ..stmt import (
    Assume,
    Evaluate,
    PrimFunc,
    Stmt,
    Store,
    stmt_children,
)
from .empty import pruned, without_empty
from .positions import Position, at, position, with_statement
from .removal import has_undef
from .renaming import distinct

_PURE = frozenset((*FUNCTIONS, "if_then_else"))


@dataclass(frozen=True)
class Needed:
    """Why a statement stays, with an instance that somebody needs if one is known."""

    label: str
    harm: Harm

    def __str__(self) -> str:
        return f"{self.label} stays: {self.harm}"


def without_no_ops(func: PrimFunc, within: Stmt) -> tuple[PrimFunc, list[Needed]]:
    """Leave out what has no effect at or below `within`, a statement of the function; and why the rest stays."""
    root = position(func.body, within)
    silent = _silent(at(func.body, root))
    if silent is not at(func.body, root):
        func = with_statement(func, root, silent)
    while True:
        func, needed = _swept(distinct(func), root)
        smaller = _without_empty_at(func, root)
        if smaller == func:
            return without_empty(func), needed
        func = smaller  # conditions of what was left empty read nothing any more


def _swept(func: PrimFunc, root: Position) -> tuple[PrimFunc, list[Needed]]:
    """The function without the stores at `root` that may go, empty statements left in their places."""
    stay: dict[tuple[Position, ...], _Stay] = {}
    while True:
        program = instances(func)
        for part in _parts(_stores(program, at(func.body, root), root), root):
            if part.key in stay:
                continue
            harm = _harm(program, part.statements)
            if harm is None:
                func = with_statement(func, part.place, _storeless(at(func.body, part.place)))
                stay = {k: v for k, v in stay.items() if v.memories.isdisjoint(part.memories)}
                break
            stay[part.key] = _Stay(part, harm)
        else:
            return func, [v.needed for v in stay.values() if len(v.part.key) == 1]


def _without_empty_at(func: PrimFunc, root: Position) -> PrimFunc:
    if not root:
        return without_empty(func)
    old = at(func.body, root)
    new = pruned(old)
    return func if new is old else with_statement(func, root, new)


@dataclass(frozen=True)
class _Part:
    """Stores, by position and as statements, and the smallest statement that holds all of them."""

    place: Position
    key: tuple[Position, ...]
    statements: tuple[Statement, ...]

    @property
    def memories(self) -> frozenset[str]:
        """The memories that the part touches; a statement that touches none of them does not depend on it."""
        return frozenset(a.buffer.memory for s in self.statements for a in s.accesses)


@dataclass(frozen=True)
class _Stay:
    part: _Part
    harm: Harm

    @property
    def memories(self) -> frozenset[str]:
        return self.part.memories

    @property
    def needed(self) -> Needed:
        return Needed(self.part.statements[0].label, self.harm)


def _stores(program: Program, stmt: Stmt, place: Position) -> list[tuple[Position, Statement]]:
    """The stores at or below `stmt` with their positions, which stay what they are when others become empty."""
    by_id = {id(s.stmt): s for s in program.statements if isinstance(s.stmt, Store)}
    found: list[tuple[Position, Statement]] = []

    def visit(item: Stmt, here: Position) -> None:
        if id(item) in by_id:
            found.append((here, by_id[id(item)]))
        for number, child in enumerate(stmt_children(item)):
            visit(child, (*here, number))

    visit(stmt, place)
    return found


def _parts(found: Sequence[tuple[Position, Statement]], place: Position) -> Iterator[_Part]:
    """Groups of stores below one statement, larger ones before their parts, and later ones before earlier ones."""
    if not found:
        return
    depth = len(place)
    branches = sorted({where[depth] for where, _ in found if len(where) > depth}, reverse=True)
    if len(branches) != 1 and place:
        yield _Part(place, tuple(w for w, _ in found), tuple(s for _, s in found))
    for number in branches:
        yield from _parts([f for f in found if f[0][depth : depth + 1] == (number,)], (*place, number))


def _harm(program: Program, statements: Sequence[Statement]) -> Harm | None:
    """Why these stores may not go; None if they may."""
    if any(has_undef(s.stmt.value) for s in statements if isinstance(s.stmt, Store)):
        return Harm("it stores `undef`, which says that anything may stand there")
    changes = [Change(s, FALSE) for s in statements]
    harm = needed_instance(program, statements) or vanishing(program, changes)
    if harm is not None:
        return harm
    spoken = {b.memory for b in _assumed(program)} & {s.write.buffer.memory for s in statements if s.write is not None}
    if spoken and not _are_silent(program, statements):
        return Harm(f"an assumption speaks of `{min(spoken)}`")
    return None


def _are_silent(program: Program, statements: Sequence[Statement]) -> bool:
    """Whether each store writes what the element holds without any of them."""
    only: dict[int, Expr] = {s.number: FALSE for s in statements}
    try:
        for s in statements:
            cut = cells(program, Part(s, s.domain), [s.value], only, exact=True)
            if not all(is_silent(s, cell) for cell in cut):
                return False
    except (NotAffine, Unknown, Contradiction):
        return False
    return True


def _assumed(program: Program) -> set[Buffer]:
    """The buffers that assumptions speak of."""
    return {
        n.buffer
        for s in program.statements
        if isinstance(s.stmt, Assume) and not _never(s)
        for n in walk(s.stmt.cond)
        if isinstance(n, Load)
    }


def _never(statement: Statement) -> bool:
    try:
        return points(statement.domain).is_empty()
    except (NotAffine, Unknown):
        return False


def _storeless(node: Any) -> Any:
    """The statement without its stores; assumptions stay."""
    if isinstance(node, Store):
        return NOTHING
    return rebuild(node, lambda child: _storeless(child) if isinstance(child, Stmt) else child)


# ---------------------------------------------------------------- what has no statement left


def _silent(stmt: Stmt) -> Stmt:
    """`stmt` without assumptions of what is always so, and without evaluations for nothing."""
    if isinstance(stmt, Assume):
        return NOTHING if stmt.cond == TRUE else stmt
    if isinstance(stmt, Evaluate):
        return NOTHING if all(n.name in _PURE for n in walk(stmt) if isinstance(n, Call)) else stmt
    new: Stmt = rebuild(stmt, lambda child: _silent(child) if isinstance(child, Stmt) else child)
    return new
