"""When may instances appear or vanish?

Let E be the instances in question.  They are harmless if each store of E is

- *silent*: it stores what the element holds already (`reduced`), or
- *dead*: no instance outside of E's dead stores, nor the function's end, has its last
  writer there.  Elements that nobody else touches decide quickly, exact dataflow the rest.

The end reads every logical element of an output, and its padding where a pad value is
promised.  Instances that appear are executed, so that for them

1. every access is inside of its buffer;
2. everything read has been written, is data or padding that may be read, or is read in any
   case before anything is written there; what decides an index, a condition or an integer
   division is known not to be undef;
3. nothing is written to padding that holds nothing (`pad_value` None);
4. a block's init still runs first;
5. iterators of blocks stay in their ranges, and no integer is divided by 0, also in what
   conditions further inside would leave out: they are evaluated later.

What is not affine is unknown, and unknown refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .. import dtypes
from ..affine.guard import NotAffine, Unknown
from ..affine.sets import Domain, IntSet, access_map, is_affine, points, violations
from ..arith.intervals import negate
from ..arith.simplify import simplify
from ..expr import (
    TRUE,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Var,
    all_of,
    as_expr,
    binary,
    conjuncts,
    const,
    divisor_of,
    substitute,
)
from ..node import children, walk
from ..stmt import Assume, Block, Store
from ..text import expr_text, extent_text
from .accesses import Access, element_variables, inlined, own_expressions
from .contents import Reading, held
from .effects import Change, Harm, Point, effect, element_text
from .instances import Program, Statement
from .writers import Contradiction, layout_padding

__all__ = ["Change", "Harm", "appearing", "vanishing"]


def appearing(program: Program, changes: Sequence[Change], around: Sequence[Change] = ()) -> Harm | None:
    """Why the changed instances may not run in `program`, which has them; None if they may.

    `around` are the loops, conditions, let bindings and blocks that would be evaluated at more points.
    """
    try:
        for change in around:
            harm = None if points(change.domain).is_empty() else _beyond(change) or _undivided(change)
            if harm is not None:
                return harm
        found = [c for c in changes if not points(c.domain).is_empty()]
        for change in found:
            harm = (
                _assumed(change) or _outside(change) or _forbidden(program, change) or _unread(program, change, found)
            )
            if harm is not None:
                return harm
        return _late_init(found) or effect(program, found, appears=True)
    except (NotAffine, Unknown) as error:
        return Harm(f"it is unknown whether that is legal: {error}")
    except Contradiction as error:
        return Harm(str(error))


def vanishing(program: Program, changes: Sequence[Change]) -> Harm | None:
    """Why the changed instances of `program` may not be left out; None if they may."""
    try:
        found = [c for c in changes if not points(c.domain).is_empty()]
        return _skipped_init(found) or effect(program, found, appears=False)
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
        inside = all_of([c for i, e in zip(indices, buffer.extents, strict=True) for c in (i >= 0, i < e)])
        inside = simplify(inside, change.statement.bounds)
        if inside == const(True):
            continue
        point = violations(_evaluated(change, access), inside).first()
        if point is not None:
            verb = "write" if access.is_write else "read"
            room = f"outside of its shape, where `transform_layout` of `{buffer.name}` could make room"
            return Harm(f"the body would {verb} {element_text(access, change.statement, point)}, {room}", point)
    return None


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
    return Harm(f"the body would write {element_text(write, change.statement, point)}, whose pad_value is None", point)


def _unread(program: Program, change: Change, changes: Sequence[Change]) -> Harm | None:
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
        if point is not None and not _is_given(program, changes, access, contents.missing):
            why = _why_missing(program, access.buffer)
            return Harm(f"the body would read {element_text(access, change.statement, point)}, {why}", point)
        decides = access.is_control or access.node in divisors
        point = contents.undefined.first() if decides else None
        if point is not None:
            what = "divide by" if access.node in divisors else "decide by"
            return Harm(
                f"the body would {what} {element_text(access, change.statement, point)}, which may be undef", point
            )
        if access.node in divisors:
            zero = _zeros(contents.values, points(read.domain))
            if zero is not None:
                return Harm(
                    f"the body would divide by {element_text(access, change.statement, zero)}, which may be 0", zero
                )
    return _undivided(change)


def _is_given(program: Program, changes: Sequence[Change], access: Access, instances: IntSet) -> bool:
    """Whether what these instances read is read in any case before it is written, so that the caller has put it there.

    A program that does so is one for callers who give something in each output (`interpret` with
    ``strict_state=False``), and an error for all others.
    """
    buffer = access.buffer
    if program.parameters or access.whole or all(b.name != buffer.name for b in program.func.buffers):
        return False
    if program.func.layout_of(buffer.name) is not None:
        return False
    only = {c.statement.number: c.keep for c in changes}
    names = element_variables(buffer)
    missing = instances.image(access.indices, names)
    for statement in program.touching(buffer):
        known = frozenset(statement.variables)
        for other in statement.reads if statement.exact else ():
            if other.buffer != buffer or other.whole or not all(is_affine(g, known) for g in other.guards):
                continue
            domain = statement.domain.where(*conjuncts(only.get(statement.number, TRUE)), *other.guards)
            first = held(program, Reading(statement, other, domain), only, exact=True).missing
            missing = missing.subtract(first.image(other.indices, names))
            if missing.is_empty():
                return True
    return False


def _beyond(change: Change) -> Harm | None:
    """(5) The iterators of a block stay in their ranges wherever its predicate holds."""
    block = change.statement.stmt
    for item in block.iters if isinstance(block, Block) else ():
        value = change.statement.resolve(item.binding)
        inside = simplify(all_of([value >= 0, value < item.limit]), change.statement.bounds)
        if inside == const(True):
            continue
        try:
            point = violations(_bound(change), inside).first()
        except (NotAffine, Unknown) as error:
            return Harm(f"it is unknown whether iterator `{item.var.name}` stays in its range: {error}")
        if point is not None:
            return Harm(f"iterator `{item.var.name}` would leave its range [0, {extent_text(item.limit)})", point)
    return None


def _bound(change: Change) -> Domain:
    """The points of a block at which its iterators are bound: those where its predicate holds."""
    statement, block = change.statement, change.statement.stmt
    predicate = statement.resolve(block.predicate) if isinstance(block, Block) else const(True)
    return change.domain.where(*(c for c in conjuncts(predicate) if is_affine(c, frozenset(statement.variables))))


def _undivided(change: Change) -> Harm | None:
    """(5) No integer is divided by 0; divisors that are loaded are asked about with what is read."""
    statement, bound = change.statement, dict(change.statement.env)
    known, block = frozenset(statement.variables), statement.stmt
    own = [e for e, _ in own_expressions(statement.stmt)]
    bindings = {i.binding for i in block.iters} if isinstance(block, Block) else set()
    for expr in (*bound.values(), *statement.conditions, *own):
        where = _bound(change) if expr in bindings else change.domain
        for divisor, guards in _divisions(inlined(expr, bound), ()):
            plain = divisor
            while isinstance(plain, Cast):
                plain = plain.a
            if isinstance(plain, Load):
                continue
            conditions = (statement.resolve(g) for g in guards)
            domain = where.where(*(c for c in conditions if is_affine(c, known)))
            number = statement.resolve(divisor)
            point = violations(domain, binary("!=", number, const(0, number.dtype))).first()
            if point is not None:
                return Harm(f"the body would divide by {expr_text(divisor)}, which is 0", point)
    return None


def _divisions(expr: Expr, guards: tuple[Expr, ...]) -> Iterator[tuple[Expr, tuple[Expr, ...]]]:
    """The integer divisors that are no constants, each with the conditions under which it divides."""
    if isinstance(expr, Call) and expr.name == "if_then_else":
        cond, a, b = expr.args
        yield from _divisions(cond, guards)
        yield from _divisions(a, (*guards, cond))
        yield from _divisions(b, (*guards, negate(cond)))
        return
    divisor = divisor_of(expr)
    if divisor is not None and dtypes.is_int(expr.dtype):
        yield from () if isinstance(divisor, Const) and divisor.value else ((divisor, guards),)
    for child in children(expr):
        if isinstance(child, Expr):
            yield from _divisions(child, guards)


def _why_missing(program: Program, buffer: Buffer) -> str:
    is_input = any(b.name == buffer.name for b in program.func.buffers) and buffer not in program.written
    if is_input and layout_padding(program.func, buffer).everywhere != const(False):
        return "whose pad_value is None"
    return "which nothing has written"


def _divisors(statement: Statement) -> frozenset[Load]:
    """Loads that decide the divisor of an integer division."""
    if not isinstance(statement.stmt, Store):
        return frozenset()
    found = [d for n in walk(statement.value) if (d := divisor_of(n)) is not None and dtypes.is_int(d.dtype)]
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
    """Why the first point of a reduction does not run: the one with all reduce loops 0, else by comparing points."""
    statement, block = change.statement, change.statement.block
    assert block is not None
    spatial = {n for i in block.spatial for n in walk(statement.resolve(i.binding)) if isinstance(n, Var)}
    bindings = [statement.resolve(i.binding) for i in block.reduce]
    loops = {n for e in bindings for n in walk(e) if isinstance(n, Var)}
    zero: dict[Var, Expr] = {v: as_expr(0, v) for v in loops}
    if loops & spatial or any(simplify(substitute(e, zero)) != const(0, e.dtype) for e in bindings):
        return _before_init(statement, block, domain)
    for cond in domain.conditions:
        if loops.isdisjoint(n for n in walk(cond) if isinstance(n, Var)):
            continue
        first = simplify(substitute(cond, zero), statement.bounds)
        point = None if first == const(True) else violations(domain, first).first()
        if point is not None:
            return Harm(f"the first point of the reduction of block `{block.name}` would be skipped", point)
    return None


def _before_init(statement: Statement, block: Block, domain: Domain) -> Harm | None:
    """An instance whose spatial point is never initialised, or only after it."""
    spatial = tuple(statement.resolve(i.binding) for i in block.spatial)
    starts = domain.where(*(binary("==", statement.resolve(i.binding), const(0)) for i in block.reduce))
    names = tuple(Var(f"s{k}") for k in range(len(spatial)))
    initialised = points(starts).image(spatial, names)
    missing = access_map(points(domain), spatial).preimage(points(domain).image(spatial, names).subtract(initialised))
    point = missing.first()
    if point is not None:
        return Harm(f"no first point of the reduction of block `{block.name}` would run", point)
    later: dict[Var, Expr] = {v: Var(v.name + "'", v.dtype) for v in domain.variables}
    dims = (*domain.dims, *((Var(v.name + "'", v.dtype), e) for v, e in domain.dims if not isinstance(e, Expr)))
    same = [binary("==", e, substitute(e, later)) for e in spatial]
    both = (*domain.conditions, *(substitute(c, later) for c in starts.conditions), *same)
    if len(dims) != 2 * len(domain.dims):
        raise Unknown("the order of a reduction in loops of varying extents")
    for depth, var in enumerate(domain.variables):
        equal = [binary("==", v, later[v]) for v in domain.variables[:depth]]
        point = points(Domain(dims, (*both, *equal, binary("<", var, later[var])))).first()
        if point is not None:
            here = {v.name: point[v.name] for v in domain.variables}
            return Harm(f"the init of block `{block.name}` would run later", here)
    return None
