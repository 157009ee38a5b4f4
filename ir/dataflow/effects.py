"""Whether instances that appear, vanish or change leave everything that is observed as it is.

A store of such an instance is *silent* if it stores what the element holds already
(`reduced`), else *loud*.  Loud stores are harmless where they are dead: no instance
outside of them, nor the function's end, has its last writer there.  Silent ones count as
observers, because what they store again comes from what they read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..affine.guard import NotAffine
from ..affine.sets import Domain, IntSet, is_affine, points
from ..arith.intervals import negate
from ..arith.simplify import simplify
from ..expr import Buffer, Expr, Var, as_expr, binary, conjuncts, const, substitute
from ..text import expr_text
from .accesses import Access, element_variables
from .contents import Reading, held
from .dependence import Event, common_loops, end_event, event, last_writers
from .instances import Program, Statement
from .order import knowing
from .reduced import Part, cells, is_silent
from .writers import layout_padding

Point = dict[str, int]


@dataclass(frozen=True)
class Change:
    """The instances of a statement at which `keep` fails run (or run otherwise) in one program only.

    `old` is the value that they store in the other program, if they store there too.
    """

    statement: Statement
    keep: Expr
    old: Expr | None = None

    @property
    def domain(self) -> Domain:
        return self.statement.domain.where(negate(self.keep))

    @property
    def others(self) -> Domain:
        return self.statement.domain.where(*conjuncts(self.keep))


@dataclass(frozen=True)
class Harm:
    """Why instances may not appear or vanish, with a point where that is known."""

    reason: str
    point: Point | None = None

    def __str__(self) -> str:
        if self.point is None:
            return self.reason
        return "at " + ", ".join(f"{k}={v}" for k, v in self.point.items()) + " " + self.reason


def element_text(access: Access, statement: Statement, point: Point) -> str:
    """The element that an instance of a statement touches, as `A[3, 0]`."""
    values: dict[Var, Expr] = {v: as_expr(point[v.name], v) for v in statement.variables if v.name in point}
    indices = (statement.resolve(i) for i in access.node.indices)
    numbers = ", ".join(expr_text(simplify(substitute(i, values))) for i in indices)
    return f"{access.node.buffer.name}[{numbers}]"


@dataclass
class _Stored:
    """A changed store, its instances that change memory (`loud`), and those that store what is there (`silent`)."""

    change: Change
    loud: IntSet
    silent: IntSet


def effect(program: Program, changes: Sequence[Change], appears: bool) -> Harm | None:
    """Why something that is observed would change; the cheap questions first."""
    stores = [c for c in changes if c.statement.write is not None]
    everything = ((c, points(c.domain)) for c in stores)
    if _untouched(program, changes, [_Stored(c, loud, loud.subtract(loud)) for c, loud in everything]):
        return None
    split = [_split(program, c, changes, appears, exact=False) for c in stores]
    if all(s.loud.is_empty() for s in split) or _untouched(program, changes, split):
        return None
    split = [s if s.loud.is_empty() else _split(program, s.change, changes, appears, exact=True) for s in split]
    return None if all(s.loud.is_empty() for s in split) else _alive(program, changes, split)


def _split(program: Program, change: Change, changes: Sequence[Change], appears: bool, exact: bool) -> _Stored:
    """The silent instances are found from what all other instances leave."""
    only = {c.statement.number: c.keep for c in changes if c.old is None}
    everything = points(change.domain)
    silent = everything.subtract(everything)
    exprs = [change.statement.value] + ([] if change.old is None else [change.old])
    for cell in cells(program, Part(change.statement, change.domain), exprs, only, exact):
        if is_silent(change.statement, cell, change.old, appears):
            silent = silent.union(cell.instances)
    return _Stored(change, everything.subtract(silent), silent)


def _untouched(program: Program, changes: Sequence[Change], split: Sequence[_Stored]) -> bool:
    """Whether the elements of loud stores are touched by no other read, by images alone."""
    by_number = {c.statement.number: c for c in changes}
    silent = {s.change.statement.number: s.silent for s in split}
    for stored in split:
        write = stored.change.statement.write
        assert write is not None
        if stored.loud.is_empty():
            continue
        if write.whole or write.owners or program.parameters:
            return False
        try:
            written = stored.loud.image(write.indices, element_variables(write.buffer))
            if not written.intersect(end_elements(program, write.buffer)).is_empty():
                return False
            for statement in program.touching(write.buffer, stored.change.statement.boxes[write]):
                change = by_number.get(statement.number)
                parts = [points(statement.domain if change is None else change.others)]
                if statement.number in silent and not silent[statement.number].is_empty():
                    parts.append(silent[statement.number])
                for access in statement.reads:
                    if access.buffer == write.buffer and any(_reads(p, access, written) for p in parts):
                        return False
            for change in changes:
                others = silent.get(change.statement.number)
                if others is not None and any(_reads(others, a, written) for a in _old_loads(change, write.buffer)):
                    return False
            for assumption in _assumptions(program, changes, write.buffer):
                if any(_reads(points(assumption.domain), a, written) for a in assumption.reads):
                    return False
        except NotAffine:
            return False
    return True


def _old_loads(change: Change, buffer: Buffer) -> list[Access]:
    """The loads of a memory in what the statement stores in the other program: silent stores rest on them."""
    return [] if change.old is None else [a for a in change.statement.loads(change.old) if a.buffer == buffer]


def _assumptions(program: Program, changes: Sequence[Change], buffer: Buffer) -> list[Statement]:
    """What is assumed of a memory where changed stores may have been made, as what reads it."""
    first = min(c.statement.number for c in changes)
    later = [
        knowing(s) for s in program.assumptions
        if s.number > first or any(common_loops(s, c.statement) for c in changes)
    ]  # fmt: skip
    return [s for s in later if any(a.buffer == buffer for a in s.reads)]


def _reads(instances: IntSet, access: Access, elements: IntSet) -> bool:
    if access.whole:
        return not instances.is_empty()
    known = frozenset(instances.variables)
    for guard in access.guards:
        if is_affine(guard, known):
            instances = instances.where(guard)
    return not instances.image(access.indices, elements.variables).intersect(elements).is_empty()


def end_elements(program: Program, buffer: Buffer) -> IntSet:
    """What the caller sees of a memory; where extents are made of them, with the parameters before the elements."""
    names = element_variables(buffer)
    own = tuple((v, None) for v in program.parameters) if program.given else ()
    everything = points(Domain((*own, *zip(names, buffer.extents, strict=True)), program.given))
    if not any(b.name == buffer.name for b in program.func.buffers):
        return everything.subtract(everything)
    padding = layout_padding(program.func, buffer)
    unseen = binary("or", padding.forbidden, padding.undefined)
    return everything if unseen == const(False) else everything.where(negate(unseen))


def _alive(program: Program, changes: Sequence[Change], split: Sequence[_Stored]) -> Harm | None:
    """Whether a loud store is the last writer of something that is read elsewhere, by dataflow."""
    by_number = {c.statement.number: c for c in changes}
    for _ in range(3):
        moved = False
        writes = [s.change.statement.write for s in split if not s.loud.is_empty()]
        for buffer in dict.fromkeys(write.buffer for write in writes if write is not None):
            seen = _observers(program, buffer, by_number, split)
            for stored, reader, access, instances in seen:
                own = next((s for s in split if reader is not None and s.change.statement is reader), None)
                if own is None or access is None or instances.intersect(own.silent).is_empty():
                    return _observed(program, stored, buffer, reader, by_number)
                own.silent = own.silent.subtract(instances)
                own.loud = own.loud.union(instances)
                moved = True
        if not moved:
            return None
    return Harm("it is unknown whether what it writes is observed")


Observation = tuple[_Stored, Statement | None, Access | None, IntSet]


def _observers(
    program: Program, buffer: Buffer, changes: Mapping[int, Change], split: Sequence[_Stored]
) -> list[Observation]:
    """Instances outside of the loud stores that read what a loud store may have written last."""
    reads: list[Event] = []
    writes: list[Event] = []
    loud: dict[str, _Stored] = {}
    stored_of = {s.change.statement.number: s for s in split}
    changed = (s.change.statement for s in split if not s.loud.is_empty())
    boxes = [s.boxes[s.write] for s in changed if s.write is not None and s.write.buffer == buffer]
    for statement in program.touching(buffer, *boxes):
        change, stored = changes.get(statement.number), stored_of.get(statement.number)
        rest = points(statement.domain if change is None else change.others)
        for access in statement.accesses:
            if access.buffer != buffer:
                continue
            into = writes if access.is_write else reads
            into.append(event(statement, access, rest))
            if change is not None and change.old is not None and access.is_write and stored is not None:
                into.append(event(statement, access, stored.silent, "s"))
            if stored is not None and not access.is_write:
                into.append(event(statement, access, stored.silent, "s"))
            if stored is not None and access.is_write:
                extra = event(statement, access, stored.loud, "e")
                loud[extra.tag] = stored
                into.append(extra)
    for stored in split:
        olds = _old_loads(stored.change, buffer)
        reads += [event(stored.change.statement, a, stored.silent, f"o{n}") for n, a in enumerate(olds)]
    for assumption in _assumptions(program, list(changes.values()), buffer):
        told = (a for a in assumption.accesses if a.buffer == buffer)
        reads += [event(assumption, a, points(assumption.domain), f"a{n}") for n, a in enumerate(told)]
    elements = end_elements(program, buffer)
    if not elements.is_empty():
        reads.append(end_event(buffer, elements, () if program.given else program.parameters))
    flow = last_writers([r for r in reads if not r.domain.is_empty()], [w for w in writes if not w.domain.is_empty()])
    by_tag = {e.tag: e for e in reads}
    return [
        (loud[write], by_tag[read].statement, by_tag[read].access, relation.domain())
        for (read, write), relation in flow.may.items()
        if write in loud
    ]


def _observed(
    program: Program,
    stored: _Stored,
    buffer: Buffer,
    reader: Statement | None,
    changes: Mapping[int, Change],
) -> Harm:
    write = stored.change.statement.write
    assert write is not None
    point = stored.loud.first()
    element = (
        f"`{buffer.name}`" if point is None or write.whole else element_text(write, stored.change.statement, point)
    )
    if reader is None:
        who = "an element of a parameter"
    elif reader.number in changes:
        who = "which another instance reads"
    else:
        who = f"which block {reader.label} reads"
    why = "" if point is None else _why_loud(program, stored.change, point)
    return Harm(f"it would write {element}, {who}, and the value is not neutral{why}", point)


def _why_loud(program: Program, change: Change, point: Point) -> str:
    """What the operands of a store hold at a point, as far as that keeps its value from being neutral."""
    here = change.domain.where(*(v.equal(as_expr(point[v.name], v)) for v in change.statement.variables))
    write = change.statement.write
    found: dict[str, None] = {}
    for access in change.statement.loads(change.statement.value):
        if write is not None and access.buffer == write.buffer and access.indices == write.indices:
            continue
        contents = held(program, Reading(change.statement, access, here))
        state = "may be undef or not finite" if not contents.undefined.is_empty() else "is data"
        for value, where in contents.values:
            if not where.is_empty():
                state = f"is {expr_text(value)}"
        found[f"{element_text(access, change.statement, point)} {state}"] = None
    return f", because {' and '.join(found)}" if found else ""
