"""Statements without an effect that anybody sees are left out.

::

    A[i] = x;  A[i] = y                        ->  A[i] = y              overwritten before it is read
    for i: A[i] = x;  for i: A[i] = y          ->  for i: A[i] = y       a nest or block that a later one supersedes
    A[i] = f();  A[i] = y                      ->  f();  A[i] = y        a call of what is not known here stays
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

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from ..affine.guard import NotAffine, Unknown
from ..affine.sets import points
from ..arith.statements import NOTHING
from ..dataflow.harmless import Change, Harm, vanishing
from ..dataflow.instances import Program, Statement, instances
from ..dataflow.rectangles import Answer, by_boxes
from ..dataflow.reduced import Part, cells, is_silent
from ..dataflow.witness import needed_instance
from ..dataflow.writers import Contradiction
from ..expr import FALSE, TRUE, Buffer, Call, Expr, Load
from ..functions import FUNCTIONS
from ..node import rebuild, walk
from ..stmt import (
    Assume,
    Evaluate,
    Opaque,
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
        old = at(func.body, root)
        new = pruned(old) if root else without_empty(func).body
        smaller = func if new is old else with_statement(func, root, new)
        if smaller == func:
            return without_empty(func), needed
        func = smaller  # conditions of what was left empty read nothing any more


def _swept(func: PrimFunc, root: Position) -> tuple[PrimFunc, list[Needed]]:
    """The function without the stores at `root` that may go, empty statements left in their places."""
    sweep = _Sweep(instances(func), at(func.body, root), root)
    while (part := sweep.next()) is not None:
        sweep.settle(part, _harm(sweep.program, part.statements))
    if not sweep.gone:
        return func, sweep.needed
    places = {id(s.stmt) for s in sweep.gone}
    return func.with_body(_storeless(func.body, places)), sweep.needed


@dataclass(frozen=True)
class _Part:
    """Stores below one statement; the `number`s of parts are the order in which they are asked about."""

    number: int
    statements: tuple[Statement, ...]


class _Sweep:
    """Parts in order, each of them asked about until nothing that it depends on changes.

    Where a part goes, those that touch its elements are asked about again, and those that it was one of.  `program` is
    what is left of the program.
    """

    def __init__(self, program: Program, within: Stmt, root: Position) -> None:
        self.program, self.gone = program, list[Statement]()
        groups = list(_parts(_stores(program, within, root), root))
        self._members = [{s.number: s for s in group} for group in groups]
        self._harms: dict[int, tuple[Harm, Statement]] = {}
        self._asked = list(range(len(groups)))  # a heap
        self._holding: dict[int, list[int]] = {}  # the parts that hold a store
        for number, group in enumerate(groups):
            for statement in group:
                self._holding.setdefault(statement.number, []).append(number)
        self._shown: dict[int, set[int]] = {}  # the parts whose harm a store shows

    @property
    def needed(self) -> list[Needed]:
        """Why single stores stay."""
        single = [(k, harm) for k, harm in sorted(self._harms.items()) if len(self._members[k]) == 1]
        return [Needed(statement.label, harm) for _, (harm, statement) in single]

    def next(self) -> _Part | None:
        """The first part that is to be asked about."""
        while self._asked:
            number = heappop(self._asked)
            members = tuple(self._members[number].values())
            if number in self._harms or not members:
                continue
            # Of a part that became a single store a part before this one may be the same.
            before = (k for k in self._holding[members[0].number] if k < number)
            if len(members) > 1 or all(len(self._members[k]) > 1 for k in before):
                return _Part(number, members)
        return None

    def settle(self, part: _Part, found: Answer) -> None:
        """Keep why a part stays, or leave it out."""
        if found.harm is not None:
            shown = (part.statements[0],) if len(part.statements) == 1 else part.statements
            self._harms[part.number] = found.harm, shown[0]
            for statement in shown if found.store is None else (found.store,):
                self._shown.setdefault(statement.number, set()).add(part.number)
            return
        self.gone.extend(part.statements)
        self.program = self.program.without([s.number for s in part.statements])
        again: set[int] = set()
        for statement in part.statements:
            for number in self._holding.pop(statement.number):
                del self._members[number][statement.number]
            again |= self._shown.pop(statement.number, set())
            for access, box in statement.boxes.items():
                for other in self.program.touching(access.buffer, box):
                    if access.is_write or (other.write is not None and other.write.buffer == access.buffer):
                        again |= self._shown.get(other.number, set())
        for number in again:
            if self._harms.pop(number, None) is not None:
                heappush(self._asked, number)


def _stores(program: Program, stmt: Stmt, place: Position) -> list[tuple[Position, Statement]]:
    """The stores at or below `stmt` with their positions, which stay what they are when others become empty.

    A call whose value an element takes is a store as well: the last of what it writes.
    """
    by_id = {
        id(s.stmt): s
        for s in program.statements
        if isinstance(s.stmt, Store) or (isinstance(s.stmt, Opaque) and s.stmt.target is not None and s.is_written)
    }
    found: list[tuple[Position, Statement]] = []

    def visit(item: Stmt, here: Position) -> None:
        if id(item) in by_id:
            found.append((here, by_id[id(item)]))
        for number, child in enumerate(stmt_children(item)):
            visit(child, (*here, number))

    visit(stmt, place)
    return found


def _parts(found: Sequence[tuple[Position, Statement]], place: Position) -> Iterator[tuple[Statement, ...]]:
    """Groups of stores below one statement, larger ones before their parts, and later ones before earlier ones."""
    if not found:
        return
    depth = len(place)
    branches: dict[int, list[tuple[Position, Statement]]] = {}
    for where, statement in found:
        if len(where) > depth:
            branches.setdefault(where[depth], []).append((where, statement))
    if len(branches) != 1 and place:
        yield tuple(s for _, s in found)
    for number in sorted(branches, reverse=True):
        yield from _parts(branches[number], (*place, number))


def _harm(program: Program, statements: Sequence[Statement]) -> Answer:
    """Why these stores may not go, if they may not: by boxes, and by sets where that is open."""
    if any(has_undef(s.stmt.value) for s in statements if isinstance(s.stmt, Store)):
        # Which is knowledge that later proofs rest on, although the store itself changes nothing.
        return Answer(Harm("it stores `undef`, which says that anything may stand there"))

    return by_boxes(program, statements) or Answer(_exact_harm(program, statements))


def _exact_harm(program: Program, statements: Sequence[Statement]) -> Harm | None:
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
        for s in program.assumptions
        if isinstance(s.stmt, Assume) and not _never(s)
        for n in walk(s.stmt.cond)
        if isinstance(n, Load)
    }


def _never(statement: Statement) -> bool:
    try:
        return points(statement.domain).is_empty()
    except (NotAffine, Unknown):
        return False


def _storeless(node: Any, places: Collection[int]) -> Any:
    """The statement without the stores at `places`, which are told by their identities."""
    if isinstance(node, Store):
        return NOTHING if id(node) in places else node
    if isinstance(node, Opaque):
        return node.without_result() if id(node) in places else node
    return rebuild(node, lambda child: _storeless(child, places) if isinstance(child, Stmt) else child)


# ---------------------------------------------------------------- what has no statement left


def _silent(stmt: Stmt) -> Stmt:
    """`stmt` without assumptions of what is always so, and without evaluations for nothing."""
    if isinstance(stmt, Assume):
        return NOTHING if stmt.cond == TRUE else stmt
    if isinstance(stmt, Evaluate):
        return NOTHING if all(n.name in _PURE for n in walk(stmt) if isinstance(n, Call)) else stmt
    new: Stmt = rebuild(stmt, lambda child: _silent(child) if isinstance(child, Stmt) else child)
    return new
