"""What a memory is known to hold where an instance reads it.

What an instance finds is what the last of the memory's `writers` wrote; later writes
invalidate what earlier ones left.  Two ways to find the last writer.  The quick one looks
at images only: with L the loops that a writer w shares with the reader,

1. an element that w surely wrote in the same iteration of L has been written;
2. it holds the constant of w unless another piece touches it that may come later: one of
   the same iteration of the shorter of the shared loop nests.

The exact one is `dataflow.last_writers`.  Both only ever lose knowledge.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ..affine.guard import NotAffine, Unknown
from ..affine.sets import Domain, IntSet, access_map, is_affine, points
from ..arith.simplify import simplify
from ..caches import Recent
from ..expr import Buffer, Const, Expr, Extent, Undef, Var, conjuncts, free_variables, in_type, substitute
from ..node import walk
from ..stmt import For
from .accesses import Access, element_variables
from .boxes import box_of
from .dependence import Event, IntMap, common_loops, last_writers
from .instances import Program, Statement
from .writers import Piece, Writer, check_contradictions, image, is_finite_value, pollution, writers

Removed = Mapping[int, Expr]
"""Statements by number, with the condition under which their instances count."""


@dataclass(frozen=True)
class Reading:
    """Instances of a statement that look at one element each: an access, or the element of a store."""

    statement: Statement
    access: Access
    domain: Domain


class Held(ABC):
    """What the instances of a reading find, as sets of instances.

    `values` are certain, numbers or, where exact dataflow finds them, expressions over the variables of the reader's
    statement, which load nothing; in `undefined` the element may be undef, infinite or computed from
    such; in `missing` it may hold nothing at all.  Elsewhere it holds data.
    """

    values: tuple[tuple[Expr, IntSet], ...]
    undefined: IntSet
    missing: IntSet


def reading(statement: Statement, access: Access, *conditions: Expr) -> Reading:
    """The instances of a statement that evaluate an access, where `conditions` hold."""
    known = frozenset(statement.variables)
    guards = tuple(g for g in access.guards if is_affine(g, known))
    return Reading(statement, access, statement.domain.where(*conditions, *guards))


def held(
    program: Program, read: Reading, only: Removed | None = None, exact: bool = False, within: For | None = None
) -> Held:
    """What `read` finds.  `only` restricts writers, by statement, to the instances where a condition holds.

    `exact` asks for dataflow instead of images; `within` forgets what was written before the
    iteration of that loop.  Raises Unknown and Contradiction.
    """
    buffer = read.access.buffer
    check_contradictions(program, buffer)
    if read.access.whole or not all(is_affine(i, frozenset(read.statement.variables)) for i in read.access.indices):
        return _Nothing(read)
    box = box_of(read.access, read.statement.dims)
    near = frozenset(s.number for s in program.touching(buffer, box))
    known = (w for w in writers(program, buffer) if w.statement is None or w.is_assumption or w.number in near)
    found = [_restricted(w, only or {}) for w in known]
    if within is not None:
        found = [w for w in found if within.var in _before(w, read)]
    scalars = frozenset(program.func.scalars)
    return _Polluted(program, read, _ByDataflow(read, found, scalars) if exact else _by_images(read, found))


def _by_images(read: Reading, found: Sequence[Writer]) -> Held:
    """Remembered between programs: the answer depends on the writers and on their order alone."""
    asked = (read.domain, read.access.indices, read.access.owners, read.access.buffer, read.statement.parameters)
    shared = tuple(_common(one, other) for k, one in enumerate(found) for other in found[:k])
    key = (asked, tuple(_writer_key(w, read) for w in found), shared)
    return _known.get(key) or _known.keep(key, _ByImages(read, found))


_known: Recent[Any, Held] = Recent(4096)


def _writer_key(writer: Writer, read: Reading) -> tuple[Any, ...]:
    place = (writer.number < read.statement.number, writer.is_assumption)
    loops = (_shared_loops(writer, read), _before(writer, read))
    return writer.domain, writer.indices, writer.owners, writer.pieces, writer.exact, place, loops


def _restricted(writer: Writer, only: Removed) -> Writer:
    cond = only.get(writer.number)
    if cond is None or writer.statement is None:
        return writer
    domain = writer.domain.where(*conjuncts(cond))
    return replace(writer, domain=domain)


def _numbers(values: Sequence[tuple[Expr, IntSet]]) -> Iterator[IntSet]:
    """The instances that surely find a number; where undef is certain, what is found may be anything."""
    return (where for value, where in values if isinstance(value, Const))


# ---------------------------------------------------------------- by images


class _Nothing(Held):
    """Nothing is known."""

    def __init__(self, read: Reading) -> None:
        self.values = ()
        self.undefined = self.missing = points(read.domain)


class _Polluted(Held):
    """What was found, and that polluted elements are not known to hold finite data."""

    def __init__(self, program: Program, read: Reading, found: Held) -> None:
        self.program, self.read, self.found = program, read, found

    @property
    def values(self) -> tuple[tuple[Expr, IntSet], ...]:  # type: ignore[override]
        return self.found.values

    @property
    def missing(self) -> IntSet:  # type: ignore[override]
        return self.found.missing

    @cached_property
    def undefined(self) -> IntSet:  # type: ignore[override]
        polluted = pollution(self.program, self.read.access.buffer)
        if polluted is None:
            return self.found.undefined
        touched = _meets(self.read, polluted, (), ())
        for where in _numbers(self.found.values):
            touched = touched.subtract(where)
        return self.found.undefined.union(touched)


class _ByImages(Held):
    """Each answer is computed when it is asked for."""

    def __init__(self, read: Reading, found: Sequence[Writer]) -> None:
        self.read, self.found = read, found

    @cached_property
    def values(self) -> tuple[tuple[Expr, IntSet], ...]:  # type: ignore[override]
        if not any(isinstance(p.value, (Const, Undef)) for w in self.found for p in w.pieces):
            return ()
        everything = points(self.read.domain)
        return _constants(self.read, self.found, everything.subtract(everything))

    @cached_property
    def undefined(self) -> IntSet:  # type: ignore[override]
        everything = points(self.read.domain)
        result = everything.subtract(everything)
        unproven = [(w, p) for w in self.found for p in w.pieces if not is_finite_value(p.value)]
        certain = self._certain() if unproven else []
        for writer, piece in unproven:
            result = result.union(_may_hold(self.read, writer, piece, certain))
        for where in _numbers(self.values) if unproven else ():
            result = result.subtract(where)
        return result

    def _certain(self) -> list[tuple[int, IntSet]]:
        """The elements that have surely been written, with the number of loops in whose same iteration that was."""
        result = []
        for writer in self.found:
            if writer.number < self.read.statement.number and writer.exact:
                marks = _before(writer, self.read)
                depth = _leading(_shared_loops(writer, self.read), marks)
                result.append((depth, _meets(self.read, writer, (), marks)))
        return result

    @cached_property
    def missing(self) -> IntSet:  # type: ignore[override]
        """What is read is compared with what is written as sets of elements, which are small."""
        read = self.read
        groups: dict[tuple[Var, ...], list[Writer]] = {}
        for writer in self.found:
            if writer.number < read.statement.number and writer.exact:
                groups.setdefault(_marks(read, writer, _before(writer, read)), []).append(writer)
        left = points(read.domain)
        for marks, own in sorted(groups.items(), key=lambda item: len(item[0])):
            names = (*marks, *element_variables(read.access.buffer))
            rest = left.image((*marks, *read.access.indices), names)
            for writer in own:
                rest = rest.subtract(image(writer.domain, writer.indices, marks, read.access.buffer))
            if rest.is_empty():
                return left.subtract(left)
            left = access_map(left, (*marks, *read.access.indices)).preimage(rest)
        return left


def _may_hold(read: Reading, writer: Writer, piece: Piece, certain: Sequence[tuple[int, IntSet]]) -> IntSet:
    """The instances at which the reader may find what a piece left, and nothing surely wrote over since."""
    loops = _shared_loops(writer, read)
    result = _meets(read, writer, piece.conditions, ())
    if writer.number < read.statement.number:
        own = _meets(read, writer, piece.conditions, loops)
        if not loops:
            return own
        for depth, where in certain:
            result = result.subtract(where) if depth >= len(loops) else result
        return result.union(own)
    if not loops:
        return result.subtract(result)
    for depth, where in certain:
        result = result.subtract(where) if depth >= len(loops) else result
    return result


def _constants(read: Reading, found: Sequence[Writer], nothing: IntSet) -> tuple[tuple[Expr, IntSet], ...]:
    values: dict[Expr, IntSet] = {}
    for writer in found:
        if writer.number >= read.statement.number or not writer.exact:
            continue
        for piece in writer.pieces:
            if not isinstance(piece.value, (Const, Undef)):
                continue
            depth = _shared(writer, read)
            where = _meets(read, writer, piece.conditions, _shared_loops(writer, read))
            for other in found:
                where = _without(read, where, writer, piece.value, other, depth)
            if not where.is_empty():
                values[piece.value] = values.get(piece.value, nothing).union(where)
    return tuple(values.items())


def _without(read: Reading, where: IntSet, writer: Writer, value: Expr, other: Writer, depth: int) -> IntSet:
    """`where` less the instances whose element another piece may have overwritten since."""
    shared = _shared(other, read)
    later = other.number >= read.statement.number
    if (later and shared <= depth) or (other is writer and len(writer.pieces) == 1):
        return where
    if other.number < writer.number and max(shared, _common(other, writer)) <= depth:
        return where  # it ran before in this iteration, and in earlier ones
    for piece in other.pieces:
        if piece.value != value:
            loops = _shared_loops(other, read)[: min(depth, shared)]
            where = where.subtract(_meets(read, other, piece.conditions, loops))
    return where


def _common(one: Writer, other: Writer) -> int:
    if one.statement is None or other.statement is None:
        return 0
    return len(common_loops(one.statement, other.statement))


def _shared(writer: Writer, read: Reading) -> int:
    return len(_shared_loops(writer, read))


def _shared_loops(writer: Writer, read: Reading) -> tuple[Var, ...]:
    """The variables of loops around both, parameters included."""
    if writer.statement is None:
        return ()
    return tuple(loop.var for loop in common_loops(writer.statement, read.statement))


def _before(writer: Writer, read: Reading) -> tuple[Var, ...]:
    """Loops in which an instance that runs before the reader agrees with it: the shared ones.

    The init of a block runs before all of its reduction, so it is bound to the spatial loops only.
    """
    shared = _shared_loops(writer, read)
    statement = writer.statement
    if statement is None or not statement.is_init or read.statement.block is not statement.block:
        return shared
    assert statement.block is not None
    rest = {n for i in statement.block.reduce for n in walk(statement.resolve(i.binding)) if isinstance(n, Var)}
    return tuple(v for v in shared if v not in rest)


def _leading(loops: Sequence[Var], marks: Sequence[Var]) -> int:
    """How many of the outermost loops are among `marks`."""
    count = 0
    while count < len(loops) and loops[count] in marks:
        count += 1
    return count


def _meets(read: Reading, writer: Writer, conditions: tuple[Expr, ...], loops: tuple[Var, ...]) -> IntSet:
    """The reader's instances whose element some instance of a piece touches, in the same iteration of `loops`."""
    marks = _marks(read, writer, loops)
    elements = image(writer.domain.where(*conditions), writer.indices, marks, read.access.buffer)
    return access_map(points(read.domain), (*marks, *read.access.indices)).preimage(elements)


def _marks(read: Reading, writer: Writer, loops: tuple[Var, ...]) -> tuple[Var, ...]:
    """What the two instances have in common: parameters, the given loops, and the loops around the allocation."""
    parameters = tuple(v for v in read.statement.parameters if v in writer.domain.variables)
    return tuple(dict.fromkeys((*parameters, *loops, *(v for v in read.access.owners if v in writer.owners))))


# ---------------------------------------------------------------- by dataflow


class _ByDataflow(Held):
    """Everything from one run of exact dataflow."""

    def __init__(self, read: Reading, found: Sequence[Writer], scalars: frozenset[Var]) -> None:
        if not all(is_affine(g, frozenset(read.statement.variables)) for g in read.access.guards):
            raise Unknown("the condition of the read is not affine")
        everything = points(read.domain)
        nothing = everything.subtract(everything)
        coordinates = (*read.access.owners, *read.access.indices)
        sink = _event("R", read.statement, read.domain, coordinates, read.access)
        sources = [_source(k, writer, read.access) for k, writer in enumerate(found)]
        flow = last_writers([sink], sources)
        self.missing = flow.unwritten["R"]
        reached: dict[Expr | None, IntSet] = {}
        for writer, source in zip(found, sources, strict=True):
            relation = flow.of(sink, source)
            for piece in writer.pieces if relation is not None else ():
                assert relation is not None
                stored = points(writer.domain.where(*piece.conditions))
                key = piece.value
                if key is not None and not isinstance(key, (Const, Undef)):
                    key = _for_reader(key, read.statement, relation, stored, scalars)
                reached[key] = reached.get(key, nothing).union(relation.into(stored))
        self.values = tuple(_certain_values(reached, self.missing))
        self.undefined = nothing
        for value, where in reached.items():
            if not is_finite_value(value):
                self.undefined = self.undefined.union(where)
        for where in _numbers(self.values):
            self.undefined = self.undefined.subtract(where)


def _for_reader(
    value: Expr, reader: Statement, relation: IntMap, stored: IntSet, scalars: frozenset[Var]
) -> Expr | None:
    """What instances in `stored` write, as an expression over the variables of the reader that finds it.

    None where an instance of the reader does not tell the writer's, or the value takes what only the writer sees.
    """
    used = free_variables(value) - scalars
    if not used:
        return value
    try:
        sources = relation.sources(stored)
    except NotAffine:
        return None
    if sources is None or not used <= sources.keys():
        return None
    there = {var: in_type(sources[var], var.dtype) for var in used}
    new: Expr = simplify(substitute(value, there), reader.bounds, strict=True)
    return new


def _certain_values(reached: Mapping[Expr | None, IntSet], missing: IntSet) -> Iterator[tuple[Expr, IntSet]]:
    """Each value, with the instances at which no other one can be found."""
    for value, where in reached.items():
        if value is None:
            continue
        certain = where.subtract(missing)
        for other, elsewhere in reached.items():
            if other != value:
                certain = certain.subtract(elsewhere)
        if not certain.is_empty():
            yield value, certain


def _source(number: int, writer: Writer, access: Access) -> Event:
    names = writer.domain.variables
    time = (-1,) if writer.statement is None else writer.statement.schedule
    coordinates = None if writer.indices is None else (*writer.owners, *writer.indices)
    shape = _shape(writer.statement, writer.owners, access.buffer)
    domain = points(writer.domain)
    return Event(
        f"W{number}", names, domain, coordinates, shape, time, writer.exact, writer.statement, owners=writer.owners
    )


def _event(tag: str, statement: Statement, domain: Domain, coordinates: tuple[Expr, ...], access: Access) -> Event:
    shape = _shape(statement, access.owners, access.buffer)
    time = statement.schedule
    return Event(tag, domain.variables, points(domain), coordinates, shape, time, True, statement, access)


def _shape(statement: Statement | None, owners: Sequence[Var], buffer: Buffer) -> tuple[Extent, ...]:
    bounds = {} if statement is None else statement.bounds
    return (*(bounds.get(v, (0, 0))[1] + 1 for v in owners), *buffer.extents)
