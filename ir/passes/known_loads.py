"""Loads whose value an assumption tells become that value.

::

    assume(B[0] == 0);  if A[0] == B[0]: S     ->  assume(B[0] == 0);  if A[0] == 0: S

The value is taken where every instance that evaluates the load finds it (`contents.held`),
so a write in between, or in an earlier iteration of a loop around both, invalidates it.
Only memories that some assumption speaks of are looked at: a value that was stored is
left to whoever reads it.  Source: RFC 0077, "Enhancement - Simplify".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import dtypes
from ..affine.guard import NotAffine, Unknown
from ..affine.sets import points
from ..dataflow.accesses import Access
from ..dataflow.contents import held, reading
from ..dataflow.instances import Program, Statement, instances
from ..dataflow.writers import Contradiction
from ..expr import Const, Expr, Load
from ..node import rebuild, walk
from ..stmt import Assume, PrimFunc, Stmt, memories_read
from .positions import Position, at, position, with_statement
from .renaming import distinct


def with_known_loads(func: PrimFunc, within: Stmt) -> PrimFunc:
    """The function with loads at or below `within` replaced by what is assumed of them."""
    root = position(func.body, within)
    assumptions = (s.cond for s in walk(func.body) if isinstance(s, Assume))
    spoken = frozenset(name for cond in assumptions for name in memories_read(cond))
    if not spoken:
        return func
    func = distinct(func)
    program = instances(func)
    for statement in program.below(at(func.body, root)):
        place = position(program.func.body, statement.stmt)
        for load, value in _known(program, statement, spoken):
            func = _replaced(func, place, load, value)
    return func


def _known(program: Program, statement: Statement, spoken: frozenset[str]) -> Iterator[tuple[Load, Const]]:
    """Loads of a statement with the one constant that all evaluations of them find.

    An assumption does not tell the sign of a zero, which counts in a strict function.
    """
    by_load: dict[Load, list[Access]] = {}
    for access in statement.reads:
        if isinstance(access.node, Load) and access.buffer.memory in spoken:
            by_load.setdefault(access.node, []).append(access)
    for load, found in by_load.items():
        values = {_value(program, statement, access) for access in found}
        value = values.pop()
        if values or value is None or value.dtype != load.dtype:
            continue
        if program.func.is_strict and dtypes.is_float(value.dtype) and value.value == 0:
            continue
        yield load, value


def _value(program: Program, statement: Statement, access: Access) -> Const | None:
    read = reading(statement, access)
    try:
        everything = points(read.domain)
        if everything.is_empty():
            return None
        for value, where in held(program, read, exact=True).values:
            if isinstance(value, Const) and everything.is_subset(where):
                return value
    except (NotAffine, Unknown, Contradiction):
        return None
    return None


def _replaced(func: PrimFunc, place: Position, load: Load, value: Const) -> PrimFunc:
    """The function with `load` replaced in the expressions that the statement at `place` evaluates itself."""

    def swap(node: Any) -> Any:
        if node == load:
            return value
        return rebuild(node, lambda child: swap(child) if isinstance(child, Expr) else child)

    def own(child: Any) -> Any:
        return child if isinstance(child, Stmt) else swap(child)

    return with_statement(func, place, rebuild(at(func.body, place), own))
