"""Whether anybody sees what stores write, by comparing boxes alone.

A store *fills* its box if each index is a number or a loop of its own, which no condition cuts. Of such a store the
statements that may touch the box are gone through in program order::

    A[3] = x;  A[3] = y             the first is dead: what is written next covers it
    A[3] = x;  B[0] = A[3]          it is needed, if `x` is not there already
    for i: A[i] = i;  for j: A[j] = j      the second is silent

Loops around two statements count where each is the same index of both, so that elements meet in one iteration alone:
else what comes later in the text may run earlier.  Anything else is open, which is no answer: sets decide it then
(`witness`, `harmless`), at a hundred times the cost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from ..affine.sets import points
from ..arith.simplify import simplify
from ..expr import Call, Const, Expr, Load, Select, Undef, Var, substitute
from ..node import walk
from .accesses import Access, Accesses
from .boxes import Box, holds, meet
from .dependence import common_loops
from .effects import Harm, element_text
from .instances import Program, Statement
from .reduced import Cell, reduced


class _Open(Enum):
    """No answer."""

    OPEN = 0


OPEN = _Open.OPEN


@dataclass(frozen=True)
class Answer:
    """Why stores may not go, and the one of them that shows it; both None if they may."""

    harm: Harm | None = None
    store: Statement | None = None


def by_boxes(program: Program, stores: Sequence[Statement]) -> Answer | None:
    """Whether `stores` may be left out, as far as boxes tell; None where that is open."""
    if program.parameters or program.func.layouts or program.assumptions:
        return None
    gone = frozenset(s.number for s in stores)
    is_open = False
    for store in reversed(stores):
        found = _harm(program, store, gone)
        if isinstance(found, Harm):
            return Answer(found, store)
        is_open = is_open or found is OPEN
    return None if is_open else Answer()


def _filled(statement: Statement, access: Access | None) -> Box | None:
    """The box that an access fills at the instances that run, or at all of them; None if it may fill less."""
    if access is None or access.whole or access.owners or access.guards or statement.lane is not None:
        return None
    if statement.domain.conditions or statement.domain.dims != statement.dims:
        return None
    if not all(isinstance(extent, int) and extent > 0 for _, extent in statement.dims):
        return None
    inside = [i for i in access.indices if isinstance(i, Var)]
    if len(inside) != len(set(inside)) or not all(i in statement.bounds for i in inside):
        return None
    return statement.boxes[access] if all(isinstance(i, (Var, Const)) for i in access.indices) else None


def _harm(program: Program, store: Statement, gone: Collection[int]) -> Harm | _Open | None:
    """Why one of the stores `gone` is needed; None if it is dead or silent."""
    write, box = store.write, _filled(store, store.write)
    if write is None or box is None or (store.block is not None and store.block.init is not None):
        return OPEN
    near = program.touching(write.buffer, box)
    silent = _is_silent(program, near, store, box, gone)
    if silent is not False:
        return OPEN if silent is OPEN else None
    for other in near:
        if other.number in gone or (other.number < store.number and not common_loops(store, other)):
            continue
        for access in other.reads:
            if access.buffer == write.buffer and meet(other.boxes[access], box):
                later = _is_later(store, write, other, access)
                if later is OPEN or (later and _filled(other, access) is None):
                    return OPEN
                if later:
                    return _needed(store, write, f"which block {other.label} reads")
        if other.write is None or other.write.buffer != write.buffer or not meet(other.boxes[other.write], box):
            continue
        later = _is_later(store, write, other, other.write)
        if later is OPEN:
            return OPEN
        if later and other.exact:
            filled = _filled(other, other.write)
            covers = filled is not None and holds(filled, box)
            readers = ((s, a) for s in near if s.number not in gone for a in s.reads)
            return None if covers and not _interleaves(other, other.write, readers) else OPEN
    is_seen = any(b.name == write.buffer.name for b in program.func.buffers)
    return _needed(store, write, "an element of a parameter") if is_seen else None


def _needed(store: Statement, write: Access, who: str) -> Harm:
    point = {v.name: high for v, (_, high) in store.bounds.items()}
    text = element_text(write, store, point)
    return Harm(f"it would write {text}, {who}, and the value is not neutral", point)


def _is_later(store: Statement, write: Access, other: Statement, access: Access) -> bool | _Open:
    """Whether `other` comes after the store wherever both touch one element."""
    for loop in common_loops(store, other):
        places = [k for k, index in enumerate(write.indices) if index == loop.var]
        if len(places) != 1 or access.indices[places[0]] != loop.var:
            return OPEN
    return other.number > store.number


def _interleaves(writer: Statement, write: Access, others: Iterable[tuple[Statement, Access]]) -> bool:
    """Whether, in a loop around both, another access may touch an element before or after the writer's iteration."""
    return any(
        other is not writer and access.buffer == write.buffer and _is_later(writer, write, other, access) is OPEN
        for other, access in others
    )


def _is_silent(
    program: Program, near: Sequence[Statement], store: Statement, box: Box, gone: Collection[int]
) -> bool | _Open:
    """Whether the elements hold what is stored, without the stores `gone`."""
    write = store.write
    assert write is not None
    if any(access.buffer == write.buffer for access in store.loads(store.value)):
        return OPEN
    same = False
    for other in reversed(near):
        if other.number > store.number and not common_loops(store, other):
            continue
        if other.number in gone or other.write is None or other.write.buffer != write.buffer:
            continue
        if other.region is not None:
            return False  # which leaves anything
        filled = _filled(other, other.write)
        later = OPEN if filled is None else _is_later(store, write, other, other.write)
        if later is OPEN or filled is None:
            return OPEN
        if later or not meet(filled, box):
            continue
        equal = _are_equal(program, store, other) if holds(filled, box) else OPEN
        if equal is not True:
            return equal
        same = True
        if other.exact:
            writers = ((s, s.write) for s in near if s.number not in gone and s.write is not None)
            return OPEN if _interleaves(other, other.write, writers) else True
    # Some writer may leave the very value, and none surely has: nothing is known of what was there before.
    return OPEN if same else False


def _are_equal(program: Program, store: Statement, other: Statement) -> bool | _Open:
    """Whether `other` leaves in each element what `store` puts there."""
    assert store.write is not None
    assert other.write is not None
    value, left = (s.resolve(s.value, strict=True) for s in (store, other))
    if any(isinstance(n, (Select, Undef)) or (isinstance(n, Call) and n.name == "if_then_else") for n in walk(left)):
        return OPEN
    if isinstance(left, Const) and isinstance(value, Const):
        if left.value != left.value or value.value != value.value:
            return OPEN
        return OPEN if left.value == value.value and repr(left) != repr(value) else repr(left) == repr(value)
    if any(isinstance(n, (Load, Call)) for n in walk(left)):
        return False  # what is computed from data is known to nobody
    loads = store.loads(store.value)
    if loads:
        return OPEN if _may_be_known(program, store, loads) else False
    pairs = zip(other.write.indices, store.write.indices, strict=True)
    meant: dict[Var, Expr] = {old: new for old, new in pairs if isinstance(old, Var)}
    bound = {v for v, _ in other.dims}
    if not {n for n in walk(left) if isinstance(n, Var)} <= bound & meant.keys():
        return OPEN
    moved: Expr = simplify(substitute(left, meant), store.bounds, strict=True)
    return True if moved == value else OPEN


def _may_be_known(program: Program, store: Statement, loads: Accesses) -> bool:
    """Whether what is stored may come to what does not depend on these loads of it."""
    if any(access.buffer in (program.whole or program).written for access in loads):
        return True
    data = frozenset(access.node for access in loads if isinstance(access.node, Load))
    value = reduced(store.value, Cell(points(store.domain), {}, data, None))
    return not any(isinstance(n, Load) for n in walk(value))
