"""When may instances appear or vanish?

Let E be the instances in question.  They are harmless if each store of E is

- *silent*: it stores what the element holds already (`reduced`), or
- *dead*: no instance outside of E's dead stores, nor the function's end, has its last
  writer there.  Elements that nobody else touches decide quickly, exact dataflow the rest.

The end reads every logical element of an output, and its padding where a pad value is
promised.  Instances that appear are executed, so that for them

1. every access is inside of its buffer;
2. everything read has been written, or is data or padding that may be read; what decides
   an index, a condition or an integer division is known not to be undef;
3. nothing is written to padding that holds nothing (`pad_value` None);
4. a block's init still runs first.

What is not affine is unknown, and unknown refuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .. import dtypes
from ..arith.intervals import negate
from ..arith.simplify import simplify
from ..expr import (
    Binary,
    Buffer,
    Const,
    Expr,
    Load,
    Var,
    all_of,
    as_expr,
    binary,
    conjuncts,
    const,
    substitute,
)
from ..node import walk
from ..script.printer import expr_text
from ..stmt import Assume, Store
from .accesses import Access
from .contents import Reading, held
from .dataflow import Event, end_event, event, last_writers
from .guard import NotAffine, Unknown
from .instances import Program, Statement
from .reduced import cells, is_silent
from .sets import Domain, IntSet, is_affine, points, violations
from .writers import Contradiction, element_variables, layout_padding

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


def appearing(program: Program, changes: Sequence[Change], strict: bool = False) -> Harm | None:
    """Why the changed instances may not run in `program`, which has them; None if they may."""
    try:
        found = [c for c in changes if not points(c.domain).is_empty()]
        for change in found:
            harm = _assumed(change) or _outside(change) or _forbidden(program, change) or _unread(program, change)
            if harm is not None:
                return harm
        return _late_init(found) or _effect(program, found, strict, True)
    except (NotAffine, Unknown) as error:
        return Harm(f"it is unknown whether that is legal: {error}")
    except Contradiction as error:
        return Harm(str(error))


def vanishing(program: Program, changes: Sequence[Change], strict: bool = False) -> Harm | None:
    """Why the changed instances of `program` may not be left out; None if they may."""
    try:
        found = [c for c in changes if not points(c.domain).is_empty()]
        return _skipped_init(found) or _effect(program, found, strict, False)
    except (NotAffine, Unknown) as error:
        return Harm(f"it is unknown whether that is legal: {error}")
    except Contradiction as error:
        return Harm(str(error))


# ---------------------------------------------------------------- accesses of instances that appear


def _evaluated(change: Change, access: Access) -> Domain:
    known = frozenset(change.statement.variables)
    return change.domain.where(*(g for g in access.guards if is_affine(g, known)))


def _assumed(change: Change) -> Harm | None:
    """An assumption does not grow: it may be inserted only where it is proven."""
    if not isinstance(change.statement.stmt, Assume):
        return None
    return Harm("something would be assumed of more elements", points(change.domain).first())


def _outside(change: Change) -> Harm | None:
    for access in change.statement.accesses:
        buffer = access.node.buffer
        indices = [change.statement.resolve(i) for i in access.node.indices]
        inside = all_of([c for i, e in zip(indices, buffer.shape, strict=True) for c in (i >= 0, i < e)])
        inside = simplify(inside, change.statement.bounds)
        if inside == const(True):
            continue
        point = violations(_evaluated(change, access), inside).first()
        if point is not None:
            verb = "write" if access.is_write else "read"
            return Harm(f"the body would {verb} {_element(access, change, point)}, outside of its shape", point)
    return None


def _element(access: Access, change: Change, point: Point) -> str:
    values: dict[Var, Expr] = {v: as_expr(point[v.name], v) for v in change.statement.variables if v.name in point}
    indices = (change.statement.resolve(i) for i in access.node.indices)
    numbers = ", ".join(expr_text(simplify(substitute(i, values))) for i in indices)
    return f"{access.node.buffer.name}[{numbers}]"


def _forbidden(program: Program, change: Change) -> Harm | None:
    """(3) Padding of a parameter that holds nothing is not written."""
    write = change.statement.write
    if write is None or not any(b.name == write.buffer.name for b in program.func.buffers):
        return None
    forbidden = layout_padding(program.func, write.buffer).forbidden
    if forbidden == const(False):
        return None
    if write.whole:
        raise Unknown("which element is written is not known")
    meant = substitute(forbidden, dict(zip(element_variables(write.buffer), write.indices, strict=True)))
    point = points(change.domain).where(meant).first()
    if point is None:
        return None
    return Harm(f"the body would write {_element(write, change, point)}, whose pad_value is None", point)


def _unread(program: Program, change: Change) -> Harm | None:
    """(2) Everything that the instances read may be read."""
    statement = change.statement
    divisors = _divisors(statement)
    for access in statement.reads:
        read = Reading(statement, access, _evaluated(change, access))
        contents = held(program, read)
        point = contents.missing.first()
        if point is not None:
            contents = held(program, read, exact=True)
            point = contents.missing.first()
        if point is not None:
            why = _why_missing(program, access.buffer)
            return Harm(f"the body would read {_element(access, change, point)}, {why}", point)
        decides = access.is_control or access.node in divisors
        point = contents.undefined.first() if decides else None
        if point is not None:
            what = "divide by" if access.node in divisors else "decide by"
            return Harm(f"the body would {what} {_element(access, change, point)}, which may be undef", point)
        if access.node in divisors:
            zero = _zeros(contents.values, points(read.domain))
            if zero is not None:
                return Harm(f"the body would divide by {_element(access, change, zero)}, which may be 0", zero)
    return None


def _why_missing(program: Program, buffer: Buffer) -> str:
    is_input = any(b.name == buffer.name for b in program.func.buffers) and buffer not in program.written
    if is_input and layout_padding(program.func, buffer).everywhere != const(False):
        return "whose pad_value is None"
    return "which nothing has written"


def _divisors(statement: Statement) -> frozenset[Load]:
    """Loads that decide the divisor of an integer division."""
    if not isinstance(statement.stmt, Store):
        return frozenset()
    found = (
        n.b for n in walk(statement.value)
        if isinstance(n, Binary) and n.op in ("//", "%", "/") and dtypes.is_int(n.dtype)
    )  # fmt: skip
    return frozenset(load for divisor in found for load in walk(divisor) if isinstance(load, Load))


def _zeros(values: Sequence[tuple[Expr, IntSet]], everything: IntSet) -> Point | None:
    """An instance whose divisor is not known to be another number than 0."""
    for value, where in values:
        if isinstance(value, Const) and value.value != 0:
            everything = everything.subtract(where)
    return everything.first()


# ---------------------------------------------------------------- the init of blocks


def _late_init(changes: Sequence[Change]) -> Harm | None:
    """(4) Where an instance of a reduction appears, the one with all reduce iterators 0 runs, and before it."""
    for change in changes:
        block = change.statement.block
        if block is None or block.init is None or change.statement.is_init:
            continue
        harm = _first_point(change, change.statement.domain)
        if harm is not None:
            return harm
    return None


def _skipped_init(changes: Sequence[Change]) -> Harm | None:
    """(4) What is left of a reduction still starts where all reduce iterators are 0."""
    for change in changes:
        block = change.statement.block
        if block is None or block.init is None or change.statement.is_init:
            continue
        harm = _first_point(change, change.others)
        if harm is not None:
            return harm
    return None


def _first_point(change: Change, domain: Domain) -> Harm | None:
    statement, block = change.statement, change.statement.block
    assert block is not None
    spatial = {n for i in block.spatial for n in walk(statement.resolve(i.binding)) if isinstance(n, Var)}
    bindings = [statement.resolve(i.binding) for i in block.reduce]
    loops = {n for e in bindings for n in walk(e) if isinstance(n, Var)}
    if loops & spatial:
        return Harm("the init of a reduction that shares loops with spatial iterators may not run first")
    zero: dict[Var, Expr] = {v: as_expr(0, v) for v in loops}
    for cond in domain.conditions:
        if loops.isdisjoint(n for n in walk(cond) if isinstance(n, Var)):
            continue
        first = simplify(substitute(cond, zero), statement.bounds)
        point = None if first == const(True) else violations(domain, first).first()
        if point is not None:
            return Harm(f"the first point of the reduction of block `{block.name}` would be skipped", point)
    return None


# ---------------------------------------------------------------- effects


@dataclass
class _Stored:
    """The instances of one changed store that are not silent, and those that are."""

    change: Change
    loud: IntSet
    silent: IntSet


def _effect(program: Program, changes: Sequence[Change], strict: bool, appears: bool) -> Harm | None:
    """Why something that is observed would change; the cheap questions first."""
    stores = [c for c in changes if c.statement.write is not None]
    if _untouched(program, changes, [_all_loud(c) for c in stores]):
        return None
    split = [_split(program, c, changes, strict, appears, exact=False) for c in stores]
    if all(s.loud.is_empty() for s in split) or _untouched(program, changes, split):
        return None
    split = [
        s if s.loud.is_empty() else _split(program, s.change, changes, strict, appears, exact=True) for s in split
    ]
    return None if all(s.loud.is_empty() for s in split) else _alive(program, changes, split)


def _all_loud(change: Change) -> _Stored:
    everything = points(change.domain)
    return _Stored(change, everything, everything.subtract(everything))


def _split(
    program: Program, change: Change, changes: Sequence[Change], strict: bool, appears: bool, exact: bool
) -> _Stored:
    """The silent instances are found from what all other instances leave."""
    only = {c.statement.number: c.keep for c in changes if c.old is None}
    everything = points(change.domain)
    silent = everything.subtract(everything)
    exprs = [change.statement.value] + ([] if change.old is None else [change.old])
    for cell in cells(program, change.statement, change.domain, exprs, only, strict, exact):
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
            if not written.intersect(_end_elements(program, write.buffer)).is_empty():
                return False
            for statement in program.touching(write.buffer):
                change = by_number.get(statement.number)
                parts = [points(statement.domain if change is None else change.others)]
                if statement.number in silent and not silent[statement.number].is_empty():
                    parts.append(silent[statement.number])
                for access in statement.reads:
                    if access.buffer == write.buffer and any(_reads(p, access, written) for p in parts):
                        return False
        except NotAffine:
            return False
    return True


def _reads(instances: IntSet, access: Access, elements: IntSet) -> bool:
    if access.whole:
        return not instances.is_empty()
    known = frozenset(instances.variables)
    for guard in access.guards:
        if is_affine(guard, known):
            instances = instances.where(guard)
    return not instances.image(access.indices, elements.variables).intersect(elements).is_empty()


def _end_elements(program: Program, buffer: Buffer) -> IntSet:
    """What the caller sees of a memory."""
    names = element_variables(buffer)
    everything = points(Domain(tuple(zip(names, buffer.shape, strict=True))))
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
        for buffer in {_memory(s): None for s in split if not s.loud.is_empty()}:
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


def _memory(stored: _Stored) -> Buffer:
    write = stored.change.statement.write
    assert write is not None
    return write.buffer


Observation = tuple[_Stored, Statement | None, Access | None, IntSet]


def _observers(
    program: Program, buffer: Buffer, changes: Mapping[int, Change], split: Sequence[_Stored]
) -> list[Observation]:
    """Instances outside of the loud stores that read what a loud store may have written last."""
    reads: list[Event] = []
    writes: list[Event] = []
    loud: dict[str, _Stored] = {}
    stored_of = {s.change.statement.number: s for s in split}
    for statement in program.touching(buffer):
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
    elements = _end_elements(program, buffer)
    if not elements.is_empty():
        reads.append(end_event(buffer, elements))
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
    element = f"`{buffer.name}`" if point is None or write.whole else _element(write, stored.change, point)
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
        found[f"{_element(access, change, point)} {state}"] = None
    return f", because {' and '.join(found)}" if found else ""
