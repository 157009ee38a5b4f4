"""What a memory is known to hold where an instance reads it.

Knowledge lives in the program.  Writers of a memory are its stores, split at the
conditions of the stored value; the assumptions ``assume(not pad(p) or A[p] == v)``,
virtual writes of what is already there; and the function's entry, which gives inputs
their data, and their padding what the layout promises.  What an instance finds is what
the last of these wrote.  Later writes invalidate what earlier ones left.

Two ways to find the last writer.  The quick one looks at images only: with L the loops
that a writer w shares with the reader,

1. an element that w surely wrote in the same iteration of L has been written;
2. it holds the constant of w unless another piece touches it that may come later: one of
   the same iteration of the shorter of the shared loop nests.

The exact one is `dataflow.last_writers`.  Both only ever lose knowledge.
"""

from __future__ import annotations

import math
from abc import ABC
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from .. import dtypes
from ..arith.intervals import negate
from ..expr import (
    FALSE,
    Binary,
    Buffer,
    Call,
    Const,
    Expr,
    Load,
    Select,
    Undef,
    Var,
    binary,
    conjuncts,
)
from ..node import walk
from ..stmt import Assume, For, PrimFunc, Store
from .dataflow import Event, IntMap, common_loops, last_writers
from .guard import Unknown
from .index_map import IndexMap
from .instances import Access, Program, Statement
from .pad_value import PadValue
from .pollution import as_domain, has_padding, spread
from .sets import Domain, IntSet, access_map, is_affine, points

Removed = Mapping[int, Expr]
"""Statements by number, with the condition under which their instances count."""


class Contradiction(ValueError):
    """Two assumptions, or an assumption and a store, that cannot both hold."""


@dataclass(frozen=True)
class Piece:
    """The instances of a writer that satisfy `conditions` store `value`; None is computed data."""

    conditions: tuple[Expr, ...]
    value: Expr | None


@dataclass(frozen=True)
class Writer:
    """Instances that put something in a memory: a store, an assumption, or the entry (no statement).

    A `lasting` one stands for polluted elements: these may be found whatever is written later.
    """

    statement: Statement | None
    domain: Domain
    indices: tuple[Expr, ...] | None
    owners: tuple[Var, ...]
    pieces: tuple[Piece, ...]
    exact: bool
    lasting: bool = False

    @property
    def number(self) -> int:
        return -1 if self.statement is None else self.statement.number

    @property
    def is_assumption(self) -> bool:
        return self.statement is not None and isinstance(self.statement.stmt, Assume)


@dataclass(frozen=True)
class Reading:
    """Instances of a statement that look at one element each: an access, or the element of a store."""

    statement: Statement
    access: Access
    domain: Domain


class Held(ABC):
    """What the instances of a reading find, as sets of instances.

    `values` are certain; in `undefined` the element may be undef, infinite or computed from
    such; in `missing` it may hold nothing at all.  Elsewhere it holds data.
    """

    values: tuple[tuple[Expr, IntSet], ...]
    undefined: IntSet
    missing: IntSet


@lru_cache(maxsize=512)
def writers(program: Program, buffer: Buffer) -> tuple[Writer, ...]:
    """The writers of a memory in program order, the entry first; what is polluted stands before them."""
    own = _plain_writers(program, buffer)
    elements = _polluted(program).get(buffer) if has_padding(program.func) else None
    if elements is None:
        return own
    names = element_variables(buffer)
    piece = Piece((), Undef(buffer.dtype))
    return (Writer(None, as_domain(buffer, elements), names, (), (piece,), False, True), *own)


@lru_cache(maxsize=128)
def _polluted(program: Program) -> dict[Buffer, IntSet]:
    doubtful: dict[Buffer, IntSet] = {}
    padding: dict[Buffer, IntSet] = {}
    buffers = {a.buffer for s in program.statements for a in s.accesses}
    for buffer in sorted(buffers, key=lambda b: b.name):
        for writer in _plain_writers(program, buffer):
            for piece in writer.pieces:
                if piece.value is None:
                    continue
                elements = _image(writer.domain.where(*piece.conditions), writer.indices, (), buffer)
                into = padding if is_finite_value(piece.value) else doubtful
                into[buffer] = elements if buffer not in into else into[buffer].union(elements)
    return spread(program, doubtful, padding)


@lru_cache(maxsize=512)
def _plain_writers(program: Program, buffer: Buffer) -> tuple[Writer, ...]:
    found: list[Writer] = list(_entry(program, buffer))
    is_parameter = any(b.name == buffer.name for b in program.func.buffers)
    for statement in program.statements:
        if isinstance(statement.stmt, Assume):
            if is_parameter:
                found.extend(assumptions(statement, buffer))
            continue
        access = statement.write
        if access is not None and access.buffer == buffer:
            found.append(_store(statement, access))
    return tuple(found)


def _store(statement: Statement, access: Access) -> Writer:
    assert isinstance(statement.stmt, Store)
    known = frozenset(statement.variables)
    affine = not access.whole and all(is_affine(i, known) for i in access.indices)
    value = statement.resolve(statement.stmt.value)
    pieces = tuple(_pieces(value, (), known)) if affine else (Piece((), None),)
    owners = tuple(v for v in access.owners if v in known)
    return Writer(
        statement, statement.domain, access.indices if affine else None, owners, pieces, statement.exact and affine
    )


def _pieces(value: Expr, conditions: tuple[Expr, ...], known: frozenset[Var]) -> Iterator[Piece]:
    """A stored value split at its outer conditionals."""
    if isinstance(value, Select) or (isinstance(value, Call) and value.name == "if_then_else"):
        cond, then, orelse = (value.cond, value.a, value.b) if isinstance(value, Select) else value.args
        if is_affine(cond, known) and dtypes.lanes(cond.dtype) == 1:
            yield from _pieces(then, conditions + conjuncts(cond), known)
            yield from _pieces(orelse, conditions + conjuncts(negate(cond)), known)
            return
    if any(isinstance(n, Undef) for n in walk(value)):
        yield Piece(conditions, Undef(value.dtype))
    elif isinstance(value, Const) or not any(isinstance(n, (Load, Call)) for n in walk(value)):
        yield Piece(conditions, value)
    else:
        yield Piece(conditions, None)


def assumptions(statement: Statement, buffer: Buffer) -> Iterator[Writer]:
    """``assume(a and (not pad or buffer[p] == v))`` as writers of ``v`` on ``pad``."""
    assert isinstance(statement.stmt, Assume)
    for part in conjuncts(statement.stmt.cond):
        where, equation = _implication(part)
        load = None if equation is None else equation.a
        if equation is None or not isinstance(load, Load) or load.buffer != buffer:
            continue
        indices = tuple(statement.resolve(i) for i in load.indices)
        domain = statement.domain.where(*(statement.resolve(c) for c in where))
        known = frozenset(statement.variables)
        if domain.relaxed() != domain or not statement.exact or not all(is_affine(i, known) for i in indices):
            continue
        value = statement.resolve(equation.b)
        pieces = tuple(_pieces(value, (), known))
        if all(p.value is not None for p in pieces):
            yield Writer(statement, domain, indices, (), pieces, True)


def _implication(cond: Expr) -> tuple[tuple[Expr, ...], Binary | None]:
    """``not c1 or ... or A[p] == v`` as the conditions ``c`` and the equation; None for anything else."""
    parts = _disjuncts(cond)
    equations = [p for p in parts if any(isinstance(n, Load) for n in walk(p))]
    if len(equations) != 1:
        return (), None
    held = equations[0]
    if not (isinstance(held, Binary) and held.op == "=="):
        return (), None
    if isinstance(held.b, Load) and not isinstance(held.a, Load):
        held = Binary("==", held.b, held.a)
    if not isinstance(held.a, Load) or any(isinstance(n, Load) for i in held.a.indices for n in walk(i)):
        return (), None
    return tuple(negate(p) for p in parts if p is not equations[0]), held


def _disjuncts(cond: Expr) -> tuple[Expr, ...]:
    if isinstance(cond, Binary) and cond.op == "or":
        return _disjuncts(cond.a) + _disjuncts(cond.b)
    return (cond,)


def _entry(program: Program, buffer: Buffer) -> Iterator[Writer]:
    """What a parameter holds when the function starts: an input data; its padding what the layout says.

    A promised value is known through the assumption that the program makes of it; before
    that the padding holds something.
    """
    if not any(b.name == buffer.name for b in program.func.buffers) or buffer in program.written:
        return
    names = element_variables(buffer)
    dims = tuple(zip(names, buffer.shape, strict=True))
    padding = layout_padding(program.func, buffer)
    yield _entry_writer(Domain(dims, conjuncts(negate(padding.everywhere))), names, None)
    readable = binary("or", padding.undefined, padding.promised)
    if readable != FALSE:
        yield _entry_writer(Domain(dims, conjuncts(readable)), names, Undef(buffer.dtype))


def _entry_writer(domain: Domain, names: tuple[Var, ...], value: Expr | None) -> Writer:
    return Writer(None, domain, names, (), (Piece((), value),), True)


def element_variables(buffer: Buffer) -> tuple[Var, ...]:
    """Names for the coordinates of an element."""
    return tuple(Var(f"p{d}") for d in range(len(buffer.shape)))


@dataclass(frozen=True)
class Padding:
    """The padding of a parameter as conditions over `element_variables`: all of it, and by what the layout says.

    What is `forbidden` may not be touched, `undefined` may hold anything, and what is
    `promised` holds a pad value.  All are false without a layout.
    """

    everywhere: Expr = FALSE
    forbidden: Expr = FALSE
    undefined: Expr = FALSE
    promised: Expr = FALSE


@lru_cache(maxsize=512)
def layout_padding(func: PrimFunc, buffer: Buffer) -> Padding:
    """What the layout of a parameter says of its padding."""
    names = element_variables(buffer)
    for layout in func.layouts:
        if layout.param == buffer.name:
            index_map = IndexMap.parse(layout.index_map)
            padding = index_map.non_surjective_inverse(layout.logical_shape, buffer.shape)[1].at(names)
            parts: dict[str, Expr] = {}
            for cond, value in PadValue.parse(layout.pad_value, buffer, names).at(names):
                kind = "forbidden" if value is None else "undefined" if isinstance(value, Undef) else "promised"
                parts[kind] = binary("or", parts.get(kind, FALSE), binary("and", padding, cond))
            return Padding(padding, **parts)
    return Padding()


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
    found = [_restricted(w, only or {}) for w in writers(program, buffer)]
    _check_contradictions(program, buffer)
    if read.access.whole or not all(is_affine(i, frozenset(read.statement.variables)) for i in read.access.indices):
        return _Nothing(read)
    if exact:
        return _ByDataflow(read, found)
    if within is not None:
        found = [w for w in found if within.var in _before(w, read)]
    key = (_key(read), tuple(_writer_key(w, read) for w in found), _orders(found))
    if key not in _known:
        _known[key] = _ByImages(read, found)
        if len(_known) > _KEPT:
            _known.popitem(last=False)
    _known.move_to_end(key)
    return _known[key]


_KEPT = 4096
_known: OrderedDict[Any, Held] = OrderedDict()


def _key(read: Reading) -> tuple[Any, ...]:
    """What the answer to a reading depends on, apart from the writers."""
    return read.domain, read.access.indices, read.access.owners, read.access.buffer, read.statement.parameters


def _writer_key(writer: Writer, read: Reading) -> tuple[Any, ...]:
    place = (writer.number < read.statement.number, writer.is_assumption)
    loops = (_shared_loops(writer, read), _before(writer, read))
    return writer.domain, writer.indices, writer.owners, writer.pieces, writer.exact, writer.lasting, place, loops


def _orders(found: Sequence[Writer]) -> tuple[int, ...]:
    """How many loops each two writers share."""
    return tuple(_common(one, other) for k, one in enumerate(found) for other in found[:k])


def _restricted(writer: Writer, only: Removed) -> Writer:
    cond = only.get(writer.number)
    if cond is None or writer.statement is None:
        return writer
    domain = writer.domain.where(*conjuncts(cond))
    return replace(writer, domain=domain)


# ---------------------------------------------------------------- by images


class _Nothing(Held):
    """Nothing is known."""

    def __init__(self, read: Reading) -> None:
        self.values = ()
        self.undefined = self.missing = points(read.domain)


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
        doubtful = [(w, p) for w in self.found for p in w.pieces if not is_finite_value(p.value)]
        certain = self._certain() if doubtful else []
        for writer, piece in doubtful:
            result = result.union(_may_hold(self.read, writer, piece, certain))
        for _, where in self.values if doubtful else ():
            result = result.subtract(where)
        return result

    def _certain(self) -> list[tuple[int, IntSet]]:
        """Where an element has surely been written, with the loops in which that was the same iteration."""
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
                rest = rest.subtract(_image(writer.domain, writer.indices, marks, read.access.buffer))
            if rest.is_empty():
                return left.subtract(left)
            left = access_map(left, (*marks, *read.access.indices)).preimage(rest)
        return left


def _may_hold(read: Reading, writer: Writer, piece: Piece, certain: Sequence[tuple[int, IntSet]]) -> IntSet:
    """Where the reader may find what a piece left: of this iteration, or of an earlier one and not written since."""
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
    image = _image(writer.domain.where(*conditions), writer.indices, marks, read.access.buffer)
    return access_map(points(read.domain), (*marks, *read.access.indices)).preimage(image)


def _marks(read: Reading, writer: Writer, loops: tuple[Var, ...]) -> tuple[Var, ...]:
    """What the two instances have in common: parameters, the given loops, and the loops around the allocation."""
    parameters = tuple(v for v in read.statement.parameters if v in writer.domain.variables)
    return tuple(dict.fromkeys((*parameters, *loops, *(v for v in read.access.owners if v in writer.owners))))


@lru_cache(maxsize=1 << 12)
def _image(domain: Domain, indices: tuple[Expr, ...] | None, marks: tuple[Var, ...], buffer: Buffer) -> IntSet:
    names = element_variables(buffer)
    if indices is None:
        marked = tuple((v, dict(domain.dims)[v]) for v in marks)
        return points(Domain((*marked, *zip(names, buffer.shape, strict=True))))
    return points(domain).image((*marks, *indices), (*marks, *names))


def is_finite_value(value: Expr | None) -> bool:
    """Whether a piece is data or a value that is not undef, infinite or NaN."""
    if isinstance(value, Undef):
        return False
    return not isinstance(value, Const) or math.isfinite(float(value.value))


# ---------------------------------------------------------------- by dataflow


class _ByDataflow(Held):
    """Everything from one run of exact dataflow."""

    def __init__(self, read: Reading, found: Sequence[Writer]) -> None:
        if not all(is_affine(g, frozenset(read.statement.variables)) for g in read.access.guards):
            raise Unknown("the condition of the read is not affine")
        everything = points(read.domain)
        nothing = everything.subtract(everything)
        coordinates = (*read.access.owners, *read.access.indices)
        sink = _event("R", read.statement, read.domain, coordinates, read.access)
        lasting = [w for w in found if w.lasting]
        found = [w for w in found if not w.lasting]
        sources = [_source(k, writer, read.access) for k, writer in enumerate(found)]
        flow = last_writers([sink], sources)
        self.missing = flow.unwritten["R"]
        reached: dict[Expr | None, IntSet] = {}
        for writer, source in zip(found, sources, strict=True):
            relation = flow.of(sink, source)
            for piece in writer.pieces if relation is not None else ():
                assert relation is not None
                key = piece.value if isinstance(piece.value, (Const, Undef)) else None
                reached[key] = reached.get(key, nothing).union(_into(relation, writer, piece))
        self.values = tuple(_certain_values(reached, self.missing))
        self.undefined = nothing
        for value, where in reached.items():
            if not is_finite_value(value):
                self.undefined = self.undefined.union(where)
        for writer in lasting:
            self.undefined = self.undefined.union(_meets(read, writer, (), ()))
        for _, where in self.values:
            self.undefined = self.undefined.subtract(where)


def _certain_values(reached: Mapping[Expr | None, IntSet], missing: IntSet) -> Iterator[tuple[Expr, IntSet]]:
    """Where only one value can be found."""
    for value, where in reached.items():
        if value is None:
            continue
        certain = where.subtract(missing)
        for other, elsewhere in reached.items():
            if other != value:
                certain = certain.subtract(elsewhere)
        if not certain.is_empty():
            yield value, certain


def _into(relation: IntMap, writer: Writer, piece: Piece) -> IntSet:
    return relation.into(points(writer.domain.where(*piece.conditions)))


def _source(number: int, writer: Writer, access: Access) -> Event:
    names = writer.domain.variables
    time = (-1,) if writer.statement is None else writer.statement.schedule
    coordinates = None if writer.indices is None else (*writer.owners, *writer.indices)
    shape = _shape(writer.statement, writer.owners, access.buffer)
    return Event(f"W{number}", names, points(writer.domain), coordinates, shape, time, writer.exact, writer.statement)


def _event(tag: str, statement: Statement, domain: Domain, coordinates: tuple[Expr, ...], access: Access) -> Event:
    shape = _shape(statement, access.owners, access.buffer)
    time = statement.schedule
    return Event(tag, domain.variables, points(domain), coordinates, shape, time, True, statement, access)


def _shape(statement: Statement | None, owners: Sequence[Var], buffer: Buffer) -> tuple[int, ...]:
    bounds = {} if statement is None else statement.bounds
    return (*(bounds.get(v, (0, 0))[1] + 1 for v in owners), *buffer.shape)


# ---------------------------------------------------------------- assumptions


@lru_cache(maxsize=512)
def _check_contradictions(program: Program, buffer: Buffer) -> None:
    """Two assumptions at the function's start that give one element different constants."""
    names = element_variables(buffer)
    given: list[tuple[Writer, Piece]] = [
        (w, p) for w in writers(program, buffer) if w.is_assumption for p in w.pieces if isinstance(p.value, Const)
    ]
    for k, (one, a) in enumerate(given):
        for other, b in given[:k]:
            if a.value == b.value or buffer in program.written:
                continue
            meet = _image(one.domain.where(*a.conditions), one.indices, (), buffer).intersect(
                _image(other.domain.where(*b.conditions), other.indices, (), buffer)
            )
            point = meet.first()
            if point is not None:
                where = ", ".join(str(point[n.name]) for n in names)
                raise Contradiction(
                    f"contradictory assumptions: `{buffer.name}[{where}]` is assumed to be both "
                    f"{_text(a.value)} and {_text(b.value)}"
                )


def _text(value: Expr | None) -> str:
    from ..script.printer import expr_text

    return "data" if value is None else expr_text(value)

