"""Elements that may hold what was computed from `undef`, infinity or a partial function of padding.

Data is finite by assumption; what overcompute leaves in padding is no data.  An element is
polluted if some store may fill it from

1. an element that may be undef or not finite, or that is polluted, or
2. padding (an element with a known value), through a function that is not defined or not
   finite everywhere: a division, a logarithm, an exponential, ...

The order of stores does not count: once polluted, an element stays so.  Programs without
`undef`, assumptions and layouts have no padding, and nothing in them is polluted.
"""

from __future__ import annotations

from itertools import count

from .. import dtypes
from ..affine.guard import NotAffine, Unknown
from ..affine.sets import Domain, IntSet, access_map, is_affine, points
from ..caches import cached
from ..expr import Binary, Buffer, Call, Cast, Const, Expr, Undef, const
from ..node import walk
from ..stmt import Assume, Stmt, Store
from .accesses import Access, element_variables
from .instances import Program, Statement

TOTAL = frozenset(("+", "-", "*", "min", "max"))
TOTAL_CALLS = frozenset((
    "tanh", "sigmoid", "erf", "abs", "floor", "ceil", "nearbyint", "fma", "sin", "cos", "atan", "if_then_else",
    "tan", "asinh", "round", "trunc", "atan2", "copysign",
))  # fmt: skip
_ROUNDS = 4


def is_total(expr: Expr) -> bool:
    """Whether finite operands always give a finite value: sums, products, minima, and bounded functions."""
    if isinstance(expr, Binary) and dtypes.is_float(expr.dtype) and expr.op not in TOTAL:
        return expr.op == "/" and isinstance(expr.b, Const) and expr.b.value != 0
    if isinstance(expr, Cast) and dtypes.is_float(expr.dtype) and dtypes.is_storage(expr.dtype):
        return False  # whose numbers end at a few hundred or thousand
    return not isinstance(expr, Call) or expr.name in TOTAL_CALLS or not dtypes.is_float(expr.dtype)


@cached(128)
def has_padding(program: Program) -> bool:
    """Whether anything in a function speaks of padding."""
    return bool(program.func.layouts) or any(_speaks_of_padding(s.stmt) for s in program.statements)


@cached(1 << 12)
def _speaks_of_padding(stmt: Stmt) -> bool:
    return isinstance(stmt, Assume) or (isinstance(stmt, Store) and any(isinstance(n, Undef) for n in walk(stmt.value)))


def spread(program: Program, may_be_undef: dict[Buffer, IntSet], padding: dict[Buffer, IntSet]) -> dict[Buffer, IntSet]:
    """The polluted elements of each memory, from those that may be undef and those that are padding.

    After some rounds whole memories are polluted, of which there are few, so that it ends.
    """
    polluted: dict[Buffer, IntSet] = {}
    stores = [s for s in program.statements if s.write is not None]
    partial = {s.number for s in stores if not all(is_total(n) for n in walk(s.value) if isinstance(n, Expr))}
    for number in count():
        changed = False
        for statement in stores:
            for access in statement.loads(statement.value):
                sources = [may_be_undef.get(access.buffer), polluted.get(access.buffer)]
                if statement.number in partial:
                    sources.append(padding.get(access.buffer))
                for source in sources:
                    if source is not None and _fill(statement, access, source, polluted, number >= _ROUNDS):
                        changed = True
        if not changed:
            break
    return polluted


def _fill(statement: Statement, access: Access, source: IntSet, polluted: dict[Buffer, IntSet], whole: bool) -> bool:
    """Pollute what the statement stores where it reads `source`; whether that is more than before."""
    write = statement.write
    assert write is not None
    elements = _reached(statement, access, write, source, whole)
    if elements is None:
        return False
    before = polluted.get(write.buffer)
    if before is not None and elements.is_subset(before):
        return False
    polluted[write.buffer] = elements if before is None else before.union(elements)
    return True


def _reached(statement: Statement, access: Access, write: Access, source: IntSet, whole: bool) -> IntSet | None:
    names = element_variables(write.buffer)
    known = frozenset(statement.variables)
    instances = points(statement.domain)
    try:
        if not access.whole:
            guards = (g for g in access.guards if is_affine(g, known))
            instances = access_map(points(statement.domain.where(*guards)), access.indices).preimage(source)
    except NotAffine:
        pass
    if instances.is_empty():
        return None
    try:
        if write.whole or whole:
            raise NotAffine("any element")
        return instances.image(write.indices, names)
    except NotAffine:
        return points(Domain(tuple(zip(names, _largest(write.buffer), strict=True))))


def _largest(buffer: Buffer) -> tuple[int | None, ...]:
    """Extents that hold those of every call; None where they are expressions."""
    return tuple(None if isinstance(e, Expr) else e for e in buffer.extents)


def as_domain(buffer: Buffer, elements: IntSet) -> Domain:
    """Elements as a domain over their coordinates; all of them where no text describes them."""
    dims = tuple(zip(elements.variables, _largest(buffer), strict=True))
    try:
        return Domain(dims, (elements.condition(),))
    except (NotAffine, Unknown):
        return Domain(dims, (const(True),))
