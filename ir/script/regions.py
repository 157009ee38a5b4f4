"""``T.reads`` and ``T.writes`` against what a block does.

What a block reads and writes is derived from its body and never stored, so a
declaration is only checked.  It holds if

1. every buffer that it names is accessed in that way, and
2. every access lies in a declared region of its buffer, for all values of the
   iterators and loops around it, and of what it reads from memory, at which it is in bounds.

As in TVM, a block's own allocations are left out.  What a block with an init writes, and what
an assumption speaks of, may be declared as read but need not be.  A region of one buffer covers
the views of its memory.  A block without iterators whose declarations are all empty declares
nothing: so TVM prints it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from .. import dtypes
from ..analysis import evaluate
from ..arith.simplify import simplify
from ..expr import (
    TRUE,
    Binary,
    Broadcast,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Ramp,
    Select,
    Var,
    as_expr,
    as_index,
    binary,
    conjuncts,
    const,
)
from ..extents import dims as as_dims
from ..node import rebuild, walk
from ..stmt import Allocate, Assume, Block, Store
from ..text import expr_text

if TYPE_CHECKING:
    from ..affine.sets import Extent
    from ..dataflow.instances import Statement

LARGEST_COUNT = 1 << 16
LARGEST_VECTOR = 16


@dataclass(frozen=True)
class Region:
    """``[begin, end)`` in each dimension of `buffer`."""

    buffer: Buffer
    ranges: tuple[tuple[Expr, Expr], ...]

    def __str__(self) -> str:
        return f"{self.buffer.name}[{', '.join(_range_text(*r) for r in self.ranges) or '()'}]"


@dataclass(frozen=True)
class Declared:
    """The regions of one ``T.reads`` or ``T.writes``, called `kind`, which stands at `where`."""

    where: ast.AST
    kind: str
    regions: tuple[Region, ...]


@dataclass(frozen=True)
class Place:
    """One access and the points at which it happens: `dims` with their extents (None if unknown), and conditions.

    `implied` if it need not be declared.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    dims: tuple[tuple[Var, Extent], ...]
    conditions: tuple[Expr, ...] = ()
    implied: bool = False

    def __str__(self) -> str:
        return f"{self.buffer.name}[{', '.join(map(expr_text, self.indices)) or '()'}]"


def length(begin: Expr, end: Expr) -> Expr:
    """How many elements a range has.  Of ends in a narrow type modulo its range: both wrap around alike."""
    narrow = binary("-", end, begin)
    atoms: dict[Expr, Expr] = {}

    def unlimited(e: Expr) -> Expr:
        if isinstance(e, Const):
            return const(int(e.value))
        if isinstance(e, Binary) and e.op in ("+", "-", "*"):
            return Binary(e.op, unlimited(e.a), unlimited(e.b))
        return atoms.setdefault(e, Var(f"{len(atoms)}"))

    found = simplify(Binary("-", unlimited(end), unlimited(begin)))
    if isinstance(found, Const):
        return const(dtypes.wrap(int(found.value), narrow.dtype))
    result: Expr = simplify(as_index(narrow))
    return result


def is_silent(block: Block, declared: Iterable[Declared]) -> bool:
    """Whether the declarations of a block say nothing."""
    return not block.iters and not any(d.regions for d in declared)


def check_regions(block: Block, declared: Declared, around: Sequence[tuple[Var, Expr]]) -> str:
    """What is wrong with the declaration, with both sides and a point; empty if it holds.

    `around` are the loops around the block, which a block without iterators sees.
    """
    own = {b.name for b in block.allocs}
    own |= {b.name for n in walk(block.body) if isinstance(n, Block) for b in n.allocs}
    own |= {n.buffer.name for n in walk(block.body) if isinstance(n, Allocate)}
    places = [p for p in _accesses(block, declared.kind, around) if p.buffer.memory not in own]
    derived = ", ".join(dict.fromkeys(str(p) for p in places if not p.implied))
    both = f"declared is `T.{declared.kind}({', '.join(map(str, declared.regions))})`, derived is " \
           f"`T.{declared.kind}({derived})`"  # fmt: skip
    verb = declared.kind
    touched = {p.buffer.memory for p in places}
    for region in declared.regions:
        if region.buffer.memory not in touched:
            return f"its body {'does not read' if verb == 'reads' else 'does not write'} `{region.buffer.name}`; {both}"
    for place in places:
        regions = [r for r in declared.regions if r.buffer.memory == place.buffer.memory]
        if place.implied:
            continue
        if not regions:
            return f"its body {verb} `{place}`, which is not declared; {both}"
        speaks_of_views = any(r.buffer != place.buffer for r in regions)
        fault = "" if speaks_of_views else _outside(place, regions)
        if fault:
            return f"its body {verb} `{place}` outside of the declared region{fault}; {both}"
    return ""


def _range_text(begin: Expr, end: Expr) -> str:
    if end == begin + 1:
        return expr_text(begin)
    return f"{expr_text(begin)}:{expr_text(end)}"


# ---------------------------------------------------------------- accesses


def _accesses(block: Block, kind: str, around: Sequence[tuple[Var, Expr]]) -> list[Place]:
    from ..dataflow.instances import statements

    dims: list[tuple[Var, Extent]] = [*around, *((i.var, i.limit) for i in block.iters)]
    parts = (part for part in (block.init, block.body) if part is not None)
    return [place for part in parts for s in statements(part) for place in _of_statement(s, kind, dims, block)]


def _of_statement(s: Statement, kind: str, dims: Sequence[tuple[Var, Extent]], block: Block) -> Iterator[Place]:
    """What a statement below a block touches itself; the predicates and bindings of blocks do not count."""
    from ..dataflow.accesses import inlined, loads_of, own_expressions

    if isinstance(s.stmt, Block):
        return
    own = (d for d in s.dims if d[0] != s.lane)
    env = dict(s.env)
    nodes: list[tuple[Load | Store, tuple[Expr, ...]]] = []
    if kind == "writes":
        nodes = [(s.stmt, ())] if isinstance(s.stmt, Store) else []
    else:
        exprs = [s.stmt.cond] if isinstance(s.stmt, Assume) else [e for e, _ in own_expressions(s.stmt)]
        nodes = [(load, guards) for e in exprs for load, guards, _ in loads_of(e)]
    initialised = {n.buffer.memory for b in (block, *s.path) if isinstance(b, Block) and b.init is not None
                   for n in walk(b.body) if isinstance(n, Store)}  # fmt: skip
    dims = (*dims, *own)
    for node, guards in nodes:
        conds = (*s.conditions, *(c for g in guards for c in conjuncts(inlined(g, env))))
        implied = isinstance(s.stmt, Assume) or node.buffer.memory in initialised
        yield Place(node.buffer, tuple(inlined(i, env) for i in node.indices), dims, conds, implied)


# ---------------------------------------------------------------- containment


def _outside(place: Place, regions: Sequence[Region]) -> str:
    """A point at which the access is in none of `regions`, as text; empty if there is none."""
    if any(_plainly_inside(place, r) for r in regions):
        return ""
    from ..affine.sets import Domain, NotAffine, Unknown, counterexample

    inside: Expr = const(False)
    try:
        for region in regions:
            inside = Binary("or", inside, _contains(region, place))
    except ValueError as error:
        return f" (it cannot be decided: {error})"
    unknown: dict[Expr, Var] = {}
    inside = _opaque(inside, unknown)
    bounds = _contains(Region(place.buffer, tuple((const(0), e) for e in as_dims(place.buffer.extents))), place)
    conditions = (*place.conditions, *conjuncts(bounds))
    place = replace(place, conditions=tuple(_opaque(c, unknown) for c in conditions))
    dims = list(place.dims)
    known = {v for v, _ in dims}
    used = {n for e in (inside, *place.conditions) for n in walk(e) if isinstance(n, Var)}
    dims[:0] = [(v, None) for v in sorted(used - known, key=lambda v: v.name)]
    domain = Domain(tuple(dims), place.conditions, frozenset(v for v in used - known if v.dtype == dtypes.INDEX))
    relaxed = domain.relaxed()
    try:
        point, exact = counterexample(relaxed, inside), relaxed == domain
    except (NotAffine, Unknown) as error:
        try:
            point, exact = _by_points(domain.dims, place.conditions, inside), True
        except ValueError:
            return f" (it cannot be decided: {error})"
    if point is None:
        return ""
    names = {n.name for e in (inside, *place.conditions) for n in walk(e) if isinstance(n, Var)}
    values = ", ".join(f"{k}={v}" for k, v in point.items() if k in names)
    return f" {'at' if exact else 'perhaps at'} {values}" if values else " always"


def _opaque(e: Expr, unknown: dict[Expr, Var]) -> Expr:
    """`e` with what it takes from memory as variables: the same element has the same value, whatever it is."""
    if dtypes.is_int(e.dtype) and isinstance(e, (Load, Cast)) and any(isinstance(n, Load) for n in walk(e)):
        return unknown.setdefault(e, Var(expr_text(e), e.dtype))
    result: Expr = rebuild(e, lambda child: _opaque(child, unknown) if isinstance(child, Expr) else child)
    return result


def _by_points(
    dims: Sequence[tuple[Var, Expr | int | None]], conditions: Sequence[Expr], inside: Expr
) -> dict[str, int] | None:
    """The first point at which `inside` fails, gone through one by one.  Raises ValueError if they are too many."""
    extents = [int(e.value) if isinstance(e, Const) else e if isinstance(e, int) else 0 for _, e in dims]
    if not 0 < prod(extents) <= LARGEST_COUNT:
        raise ValueError("the points cannot be gone through one by one")
    grid = np.indices(extents, dtype=np.int64).reshape(len(extents), -1)
    values = {var: row for (var, _), row in zip(dims, grid, strict=True)}
    fails = np.logical_not(np.broadcast_to(evaluate(inside, values), grid.shape[1:]))
    for cond in conditions:
        fails = fails & np.asarray(evaluate(cond, values), dtype=bool)
    found = np.flatnonzero(fails)
    return {var.name: int(row[found[0]]) for var, row in values.items()} if len(found) else None


def _plainly_inside(place: Place, region: Region) -> bool:
    return all(
        (begin == Const(0) and end == as_expr(extent)) or (index == begin and end == begin + 1)
        for index, (begin, end), extent in zip(place.indices, region.ranges, place.buffer.extents, strict=True)
    )


def _contains(region: Region, place: Place) -> Expr:
    result: Expr = TRUE
    for index, (begin, end) in zip(place.indices, region.ranges, strict=True):
        for point in _ends(index):
            for cond in (Binary("<=", begin, point), Binary("<", point, end)):
                result = cond if result == TRUE else Binary("and", result, cond)
    return result


def _ends(index: Expr) -> tuple[Expr, ...]:
    """Indices between which lie all that a vector of indices holds."""
    count = dtypes.lanes(index.dtype)
    if isinstance(index, Ramp):
        return _lane(index, 0), _lane(index, count - 1)
    if count > LARGEST_VECTOR:
        raise ValueError(f"`{expr_text(index)}` has {count} lanes")
    return tuple(_lane(index, number) for number in range(count))


def _lane(e: Expr, number: int) -> Expr:
    """One of the values of a vector.  Raises ValueError where it comes from memory."""
    if dtypes.lanes(e.dtype) == 1:
        return e
    if isinstance(e, Ramp):
        return e.base + e.stride * const(number, e.base.dtype)
    if isinstance(e, Broadcast):
        return e.value
    if isinstance(e, Cast):
        return Cast(dtypes.element(e.dtype), _lane(e.a, number))
    if isinstance(e, (Binary, Not, Select)):
        result: Expr = rebuild(e, lambda child: _lane(child, number))
        return result
    raise ValueError(f"the lanes of `{expr_text(e)}` are unknown")
