"""Who puts something in a memory: stores, assumptions, and the function's entry.

Knowledge lives in the program.  Writers of a memory are its stores, split at the
conditions of the stored value; the assumptions ``assume(not pad(p) or A[p] == v)``,
virtual writes of what is already there; and the entry, which gives inputs their data and
their padding what the layout promises.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import ProgramError
from .. import dtypes
from ..affine.sets import Domain, IntSet, is_affine, points
from ..arith.constants import is_finite_constant
from ..arith.intervals import negate
from ..arith.simplify import simplify
from ..caches import cached
from ..expr import (
    FALSE,
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    LetExpr,
    Load,
    Select,
    Undef,
    Var,
    binary,
    conjuncts,
    free_variables,
    in_type,
)
from ..layout.layout import Layout
from ..node import walk
from ..stmt import Assume, Let, PrimFunc, Store, memories_read
from ..text import expr_text
from .accesses import Access, element_variables
from .instances import Program, Statement
from .pollution import as_domain, has_padding, spread


class Contradiction(ProgramError, ValueError):
    """Two assumptions, or an assumption and a store, that cannot both hold."""


@dataclass(frozen=True)
class Piece:
    """The instances of a writer that satisfy `conditions` store `value`; None is computed data."""

    conditions: tuple[Expr, ...]
    value: Expr | None


@dataclass(frozen=True)
class Writer:
    """Instances that put something in a memory: a store, an assumption, or the entry (no statement)."""

    statement: Statement | None
    domain: Domain
    indices: tuple[Expr, ...] | None
    owners: tuple[Var, ...]
    pieces: tuple[Piece, ...]
    exact: bool

    @property
    def number(self) -> int:
        return -1 if self.statement is None else self.statement.number

    @property
    def is_assumption(self) -> bool:
        return self.statement is not None and isinstance(self.statement.stmt, Assume)


@cached(512)
def writers(program: Program, buffer: Buffer) -> tuple[Writer, ...]:
    """The writers of a memory in program order, the entry first."""
    found: list[Writer] = list(_entry(program, buffer))
    is_parameter = any(b.name == buffer.name for b in program.func.buffers)
    spoken = program.assumptions if is_parameter else ()
    for statement in sorted((*program.touching(buffer), *spoken), key=lambda s: s.number):
        if isinstance(statement.stmt, Assume):
            found.extend(assumptions(statement, buffer))
            continue
        access = statement.write
        if access is not None and access.buffer == buffer:
            found.append(_store(statement, access))
    return tuple(found)


def pollution(program: Program, buffer: Buffer) -> Writer | None:
    """The polluted elements of a memory, as a writer whose `undef` may be found whatever is written later."""
    elements = _polluted(program).get(buffer) if has_padding(program) else None
    if elements is None:
        return None
    piece = Piece((), Undef(buffer.dtype))
    return Writer(None, as_domain(buffer, elements), element_variables(buffer), (), (piece,), False)


def undefined_names(program: Program) -> frozenset[str]:
    """The names of what may be undef somewhere, or computed from undef: memories, and variables of let bindings."""
    if not has_padding(program):
        return frozenset()
    buffers = {a.buffer for s in program.statements for a in s.accesses}
    stored = {b for b in buffers for w in writers(program, b) for p in w.pieces if isinstance(p.value, Undef)}
    found = {b.name for b in stored | _polluted(program).keys()}
    for node in walk(program.func.body):
        if isinstance(node, (Let, LetExpr)):
            names = memories_read(node.value) | {v.name for v in free_variables(node.value)}
            found |= set() if found.isdisjoint(names) else {node.var.name}
    return frozenset(found)


@cached(128)
def _polluted(program: Program) -> dict[Buffer, IntSet]:
    may_be_undef: dict[Buffer, IntSet] = {}
    padding: dict[Buffer, IntSet] = {}
    buffers = {a.buffer for s in program.statements for a in s.accesses}
    for buffer in sorted(buffers, key=lambda b: b.name):
        for writer in writers(program, buffer):
            for piece in writer.pieces:
                opaque = writer.statement is not None and writer.statement.region is not None
                if piece.value is None and not opaque:
                    continue
                elements = image(writer.domain.where(*piece.conditions), writer.indices, (), buffer)
                into = padding if is_finite_value(piece.value) and not opaque else may_be_undef
                into[buffer] = elements if buffer not in into else into[buffer].union(elements)
    return spread(program, may_be_undef, padding)


def _store(statement: Statement, access: Access) -> Writer:
    known = frozenset(statement.variables)
    affine = not access.whole and all(is_affine(i, known) for i in access.indices)
    if statement.region is not None:
        pieces: tuple[Piece, ...] = (Piece((), None),)
    else:
        assert isinstance(statement.stmt, Store)
        pieces = _stored(statement.resolve(statement.stmt.value, strict=True), known, affine)
    owners = tuple(v for v in access.owners if v in known)
    return Writer(
        statement, statement.domain, access.indices if affine else None, owners, pieces, statement.exact and affine
    )


@cached(1 << 13)
def _stored(value: Expr, known: frozenset[Var], affine: bool) -> tuple[Piece, ...]:
    """The pieces of a stored value; one where it is not known which element holds it."""
    if affine:
        return tuple(_pieces(value, (), known))
    return (Piece((), Undef(value.dtype) if any(isinstance(n, Undef) for n in walk(value)) else None),)


def _pieces(value: Expr, conditions: tuple[Expr, ...], known: frozenset[Var]) -> Iterator[Piece]:
    """A stored value split at its outer conditionals."""
    if isinstance(value, Select) or (isinstance(value, Call) and value.name == "if_then_else"):
        cond, then, orelse = (value.cond, value.a, value.b) if isinstance(value, Select) else value.args
        if is_affine(cond, known) and dtypes.lanes(cond.dtype) == 1:
            yield from _pieces(then, conditions + conjuncts(cond), known)
            yield from _pieces(orelse, conditions + conjuncts(negate(cond)), known)
            return
    if isinstance(value, Cast) and not isinstance(value.a, (Const, Undef)):
        inner = list(_pieces(value.a, conditions, known))
        if len(inner) > 1:
            for piece in inner:
                cast = None if piece.value is None else Cast(value.dtype, piece.value)
                yield Piece(piece.conditions, cast if cast is None else simplify(cast, strict=True))
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
            owners = tuple(v for v in dict(statement.owners).get(buffer.name, ()) if v in known)
            yield Writer(statement, domain, indices, owners, pieces, True)


def _implication(cond: Expr) -> tuple[tuple[Expr, ...], Binary | None]:
    """``not c1 or ... or A[p] == v`` as the conditions ``c`` and the equation; None for anything else."""
    parts = _disjuncts(cond)
    equations = [p for p in parts if any(isinstance(n, Load) for n in walk(p))]
    if len(equations) != 1:
        return (), None
    held = equations[0]
    if not (isinstance(held, Binary) and held.op == "=="):
        return (), None
    held = _widened(held)
    if isinstance(held.b, Load) and not isinstance(held.a, Load):
        held = Binary("==", held.b, held.a)
    if not isinstance(held.a, Load) or any(isinstance(n, Load) for i in held.a.indices for n in walk(i)):
        return (), None
    return tuple(negate(p) for p in parts if p is not equations[0]), held


def _widened(equation: Binary) -> Binary:
    """``cast(A[p]) == v`` of an integer that a wider type holds as ``A[p] == cast(v)``: `v` is one of its numbers."""
    for a, b in ((equation.a, equation.b), (equation.b, equation.a)):
        if not isinstance(a, Cast) or not isinstance(a.a, Load) or dtypes.lanes(a.dtype) > 1:
            continue
        if dtypes.is_int(a.dtype) and dtypes.is_int(a.a.dtype) and dtypes.widens(a.a.dtype, a.dtype):
            return Binary("==", a.a, in_type(b, a.a.dtype))
    return equation


def _disjuncts(cond: Expr) -> tuple[Expr, ...]:
    if isinstance(cond, Binary) and cond.op == "or":
        return _disjuncts(cond.a) + _disjuncts(cond.b)
    return (cond,)


def _entry(program: Program, buffer: Buffer) -> Iterator[Writer]:
    """What a parameter holds when the function starts: an input data; its padding what the layout says.

    A promised value is known through the assumption that the program makes of it; before
    that the padding holds something.  Like every statement, the entry has the scalar parameters as dimensions.
    """
    if not any(b.name == buffer.name for b in program.func.buffers) or buffer in program.written:
        return
    names = element_variables(buffer)
    dims = (*((v, None) for v in program.parameters), *zip(names, buffer.extents, strict=True))
    padding = layout_padding(program.func, buffer)
    readable = binary("or", padding.undefined, padding.promised)
    for where, value in ((negate(padding.everywhere), None), (readable, Undef(buffer.dtype))):
        if where != FALSE:
            pieces, conditions = (Piece((), value),), (*program.given, *conjuncts(where))
            yield Writer(None, Domain(dims, conditions), names, program.parameters, pieces, True)


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


def layout_padding(func: PrimFunc, buffer: Buffer) -> Padding:
    """What the layout of a parameter says of its padding."""
    layout = func.layout_of(buffer.name)
    return Padding() if layout is None else _padding(layout, buffer)


@cached(512)
def _padding(layout: Layout, buffer: Buffer) -> Padding:
    names = element_variables(buffer)
    padding = layout.padding(names)
    parts: dict[str, Expr] = {}
    for cond, value in layout.pad(buffer, names).at(names):
        kind = "forbidden" if value is None else "undefined" if isinstance(value, Undef) else "promised"
        parts[kind] = binary("or", parts.get(kind, FALSE), binary("and", padding, cond))
    return Padding(padding, **parts)


@cached(1 << 12)
def image(domain: Domain, indices: tuple[Expr, ...] | None, marks: tuple[Var, ...], buffer: Buffer) -> IntSet:
    names = element_variables(buffer)
    if indices is None:
        marked = tuple((v, dict(domain.dims)[v]) for v in marks)
        return points(Domain((*marked, *zip(names, buffer.shape, strict=True))))
    return points(domain).image((*marks, *indices), (*marks, *names))


def is_finite_value(value: Expr | None) -> bool:
    """Whether a piece is data or a value that is not undef, infinite or NaN."""
    if isinstance(value, Undef):
        return False
    return not isinstance(value, Const) or is_finite_constant(value)


@cached(512)
def check_contradictions(program: Program, buffer: Buffer) -> None:
    """Two assumptions at the function's start that give one element different constants."""
    names = element_variables(buffer)
    given: list[tuple[Writer, Piece]] = [
        (w, p) for w in writers(program, buffer) if w.is_assumption for p in w.pieces if isinstance(p.value, Const)
    ]
    for k, (one, a) in enumerate(given):
        for other, b in given[:k]:
            if a.value == b.value or buffer in program.written:
                continue
            meet = image(one.domain.where(*a.conditions), one.indices, (), buffer).intersect(
                image(other.domain.where(*b.conditions), other.indices, (), buffer)
            )
            point = meet.first()
            if point is not None:
                where = ", ".join(str(point[n.name]) for n in names)
                raise Contradiction(
                    f"contradictory assumptions: `{buffer.name}[{where}]` is assumed to be both "
                    f"{_text(a.value)} and {_text(b.value)}"
                )


def _text(value: Expr | None) -> str:
    return "data" if value is None else expr_text(value)
