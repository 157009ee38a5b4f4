"""Loads whose value is known, because it was assumed or stored, become that value.

::

    assume(B[0] == 0);  if A[0] == B[0]: S                    ->  assume(B[0] == 0);  if A[0] == 0: S
    A[0] = 5;  A[0] = A[0] + 7                                ->  A[0] = 5;  A[0] = 5 + 7
    for i: A[i] = i;  for j: if A[j] < 100: S                 ->  for i: A[i] = i;  for j: S

The value is taken where every instance that evaluates the load finds it (`contents.held`),
so a write in between, or in an earlier iteration of a loop around both, invalidates it.

1. A number takes the place of the load.
2. So does another expression, over loops that are visible at the load, where it is no longer than the load.
3. A comparison that what is known decides, at every instance that evaluates it, becomes true or false.

What was only stored is looked for where it costs little: in memories that at most `MOST_WRITERS` statements write,
and for at most `MOST_LOADS` loads at a time; more are left, which is said at the debug level.
Source: RFC 0077, "Enhancement - Simplify".
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .. import dtypes
from ..affine.guard import NotAffine, Unknown
from ..affine.sets import Domain, is_affine, points
from ..arith.simplify import simplify
from ..dataflow.accesses import Access, own_expressions
from ..dataflow.contents import Reading, Removed, held, reading
from ..dataflow.instances import Program, Statement, instances
from ..dataflow.reduced import Part, cells, is_silent
from ..dataflow.writers import Contradiction, writers
from ..expr import (
    COMPARISONS,
    Binary,
    Buffer,
    Call,
    Const,
    Expr,
    Load,
    Not,
    Undef,
    Var,
    const,
    free_variables,
    substitute,
)
from ..functions import LOAD_WITHIN, MASKED_LOAD, PREFETCH
from ..node import rebuild, walk
from ..stmt import Assume, Block, For, PrimFunc, Stmt, Store, memories_read
from .positions import at, position, with_statement
from .renaming import distinct

MOST_WRITERS = 8  # statements that write a memory whose contents are asked for, a choice
MOST_LOADS = 64  # that are asked for in one round, a choice

_log = logging.getLogger(__name__)


def with_known_loads(func: PrimFunc, within: Stmt, is_whole: bool = True) -> PrimFunc:
    """The function with loads at or below `within` replaced by what is known of them, and comparisons decided by it.

    Unless it `is_whole`, it is a part of one, so that what its parameters hold may be undef.
    """
    root = position(func.body, within)
    func = distinct(func)
    program = instances(func)
    assumptions = (s.cond for s in walk(func.body) if isinstance(s, Assume))
    contents = _Contents(program, frozenset(name for cond in assumptions for name in memories_read(cond)), is_whole)
    within, known = at(func.body, root), dict[int, list[tuple[Expr, Expr]]]()
    for statement in program.below(within):
        known.setdefault(id(statement.stmt), []).extend(_known(contents, statement))
    new = _replaced(within, known) if any(known.values()) else within
    func = func if new is within else with_statement(func, root, new)
    if contents.left:
        _log.debug("%s: %d loads were not looked up, as %d were before", func.name, contents.left, MOST_LOADS)
    return func


@dataclass
class _Contents:
    """What loads of a program find; `spoken` are the memories that assumptions speak of."""

    program: Program
    spoken: frozenset[str]
    is_whole: bool = True
    loud: dict[str, Removed] = field(default_factory=dict)
    asked: int = 0
    left: int = 0
    found: dict[tuple[int, Access], Expr | None] = field(default_factory=dict)

    def value(self, statement: Statement, access: Access) -> Expr | None:
        """The one value that every instance finds, over the variables of the statement; None if unknown."""
        key = (statement.number, access)
        if key not in self.found:
            self.found[key] = self._value(statement, access) if self._asks(access) else None
        return self.found[key]

    def _asks(self, access: Access) -> bool:
        if access.buffer.memory in self.spoken:
            return True
        if access.whole:
            return False
        known = writers(self.program, access.buffer)
        if len(known) > MOST_WRITERS or not any(p.value is not None for w in known for p in w.pieces):
            return False
        self.asked += 1
        self.left += self.asked > MOST_LOADS
        return self.asked <= MOST_LOADS

    def _value(self, statement: Statement, access: Access) -> Expr | None:
        """An assumption does not tell the sign of a zero, which counts in a strict function."""
        read = reading(statement, access)
        try:
            value = self._certain(read, {})
            if value is None and (only := self._loud(access.buffer)):
                value = self._certain(read, only)
        except (NotAffine, Unknown, Contradiction):
            return None
        if value is None or not isinstance(access.node, Load) or value.dtype != access.node.dtype:
            return None
        if isinstance(value, Const) and dtypes.is_float(value.dtype):
            tells = not (self.program.func.is_strict and value.value == 0)
            return value if tells and value.value == value.value else None
        return value

    def _certain(self, read: Reading, only: Removed) -> Expr | None:
        """The one value that every instance finds, where writers count at the instances in `only`."""
        everything = points(read.domain)
        if everything.is_empty():
            return None
        values = held(self.program, read, only, exact=True).values
        return next((v for v, where in values if not isinstance(v, Undef) and everything.is_subset(where)), None)

    def _loud(self, buffer: Buffer) -> Removed:
        """Stores that add to an element, by number, with the condition under which they may change it.

        ``B[i] = B[i] + A[j] * F[k]`` changes nothing where `A` is known to hold 0.
        """
        if buffer.memory not in self.loud:
            self.loud[buffer.memory] = dict(self._loud_stores(buffer)) if self.is_whole else {}
        return self.loud[buffer.memory]

    def _loud_stores(self, buffer: Buffer) -> Iterator[tuple[int, Expr]]:
        for statement in self.program.touching(buffer):
            stmt = statement.stmt
            if not isinstance(stmt, Store) or stmt.buffer.memory != buffer.memory or not statement.exact:
                continue
            loads = {n for n in walk(stmt.value) if isinstance(n, Load)}
            own = Load(stmt.buffer, stmt.indices)
            if own not in loads or not any(self._may_be_known(n.buffer) for n in loads if n != own):
                continue
            everything = silent = points(statement.domain)
            silent = silent.subtract(silent)
            for cell in cells(self.program, Part(statement, statement.domain), [statement.value], exact=True):
                if is_silent(statement, cell, appears=False):
                    silent = silent.union(cell.instances)
            if not silent.is_empty():
                yield statement.number, everything.subtract(silent).condition(everything)

    def _may_be_known(self, buffer: Buffer) -> bool:
        constants = (p.value for w in writers(self.program, buffer) for p in w.pieces)
        return buffer.memory in self.spoken or any(isinstance(v, Const) for v in constants)


def _known(contents: _Contents, statement: Statement) -> Iterator[tuple[Expr, Expr]]:
    """Loads and comparisons of a statement with what all evaluations of them come to."""
    by_load: dict[Load, set[Expr | None]] = {}
    for access in statement.reads:
        if isinstance(access.node, Load):
            by_load.setdefault(access.node, set()).add(contents.value(statement, access))
    values = {load: found.pop() for load, found in by_load.items() if len(found) == 1}
    known = {load: value for load, value in values.items() if value is not None}
    if not known:
        return
    for compared in dict.fromkeys(n for e, _ in own_expressions(statement.stmt) for n in walk(e)):
        if isinstance(compared, Binary) and compared.op in COMPARISONS:
            truth = _decided(statement, compared, known)
            if truth is not None:
                yield compared, const(truth)
    visible = _visible(statement)
    for load, value in known.items():
        here = value if isinstance(value, Const) else _here(value, visible)
        if here is not None and _size(here) <= _size(load):
            yield load, here


def _decided(statement: Statement, compared: Binary, known: Mapping[Load, Expr]) -> bool | None:
    """What a comparison comes to at every instance that evaluates it; None if that differs, or is unknown."""
    if dtypes.lanes(compared.dtype) > 1 or not dtypes.is_int(compared.a.dtype):
        return None
    loads = {n for n in walk(compared) if isinstance(n, Load)}
    if not loads or not loads <= known.keys():
        return None
    accesses = [a for a in statement.loads(compared) if isinstance(a.node, Load)]
    guards = frozenset.intersection(*(frozenset(a.guards) for a in statement.reads if a.node in loads))
    resolved = {load: statement.resolve(load) for load in loads}
    if len(accesses) != len(loads):
        return None
    cond = simplify(_swapped(statement.resolve(compared), {resolved[n]: known[n] for n in loads}), statement.bounds)
    if isinstance(cond, Const):
        return bool(cond.value)
    variables = frozenset(statement.variables)
    if not is_affine(cond, variables):
        return None
    domain: Domain = statement.domain.where(*(g for g in guards if is_affine(g, variables)))
    try:
        everywhere = points(domain)
        if everywhere.where(Not(cond)).is_empty():
            return True
        return False if everywhere.where(cond).is_empty() else None
    except (NotAffine, Unknown):
        return None


def _swapped(expr: Any, values: Mapping[Expr, Expr]) -> Any:
    if isinstance(expr, Load) and expr in values:
        return values[expr]
    return rebuild(expr, lambda child: _swapped(child, values) if isinstance(child, Expr) else child)


def _visible(statement: Statement) -> Mapping[Var, Var | None]:
    """The variables of a statement, with what they are called where it stands; None for those that a block hides.

    In a block with iterators a loop is visible as the iterator that is bound to it.
    """
    blocks = [s for s in statement.path if isinstance(s, Block) and s.iters and s is not statement.stmt]
    if not blocks:
        return {v: None if v == statement.lane else v for v in statement.variables}
    around = {loop.var for loop in statement.loops}
    names: dict[Var, Var | None] = dict.fromkeys(statement.variables)
    inner = list(statement.path).index(blocks[-1])
    own = {s.var for s in statement.path[inner:] if isinstance(s, For)}
    env = dict(statement.env)
    for var in statement.variables:
        if var in own or var not in around:
            names[var] = None if var == statement.lane else var
    for item in blocks[-1].iters:
        bound = env.get(item.var)
        if isinstance(bound, Var) and names.get(bound, bound) is None and bound.dtype == item.var.dtype:
            names[bound] = item.var
    return names


def _here(value: Expr, visible: Mapping[Var, Var | None]) -> Expr | None:
    """`value` in the names that are visible; None where one of its variables is not."""
    names: dict[Var, Expr] = {}
    for var in free_variables(value):
        name = visible.get(var, var)
        if name is None:
            return None
        names[var] = name
    result: Expr = substitute(value, names)
    return result


def _size(expr: Expr) -> int:
    return sum(1 for n in walk(expr) if isinstance(n, Expr))


def _replaced(stmt: Stmt, known: Mapping[int, Sequence[tuple[Expr, Expr]]]) -> Stmt:
    """The statement with other expressions in those that a statement evaluates itself, by its identity."""
    new = rebuild(stmt, lambda child: _replaced(child, known) if isinstance(child, Stmt) else child)
    for old, value in known.get(id(stmt), ()):
        new = rebuild(new, partial(_own, old=old, value=value))
    assert isinstance(new, Stmt)
    return new


def _own(child: Any, old: Expr, value: Expr) -> Any:
    """What a statement holds, with `old` replaced where it is no statement."""

    def swap(node: Any) -> Any:
        if node == old:
            return value
        names_it = isinstance(node, Call) and node.name in (MASKED_LOAD, LOAD_WITHIN, PREFETCH)

        def below(item: Any) -> Any:
            if names_it and isinstance(item, Load):
                return rebuild(item, lambda index: swap(index) if isinstance(index, Expr) else index)
            return swap(item) if isinstance(item, Expr) else item

        return rebuild(node, below)

    return child if isinstance(child, Stmt) else swap(child)
