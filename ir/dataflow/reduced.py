"""What an expression comes to on instances whose loads are known.

The instances of a statement are cut into cells, on each of which every load either
surely holds one constant or is left as it is, and every affine condition of a choice
between two values is decided.  In a cell

    0 * x -> 0  if x is finite       x + 0, x - 0 -> x       x * 1, x / 1 -> x
    max(x, lowest) -> x              min(x, highest) -> x    c op d -> its value

For floats, finiteness must be known: data is finite by assumption, a pad value if it is
a finite number; `undef`, padding that holds nothing, and the results of partial
functions (division, logarithms, ...) are not known to be.  Memory can hold NaN, and
0 * NaN is NaN.  In strict mode ``0 * x`` stays for floats, and only -0.0 is the neutral
value of a sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..affine.guard import NotAffine, Unknown
from ..affine.sets import Domain, IntSet, is_affine, points
from ..arith.constants import is_finite_constant, neutral, rounded
from ..arith.simplify import simplify
from ..expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Select,
    Undef,
    Var,
    binary,
    const,
    reads_memory,
    substitute,
)
from ..node import children, walk
from ..stmt import Store
from .accesses import Access
from .contents import Held, Reading, Removed, held
from .instances import Program, Statement
from .pollution import TOTAL, is_total

LARGEST_CELLS = 16


@dataclass(frozen=True)
class Cell:
    """Instances on which the loads in `known` hold these values, and those in `finite` finite ones.

    `held` is what the element holds that the statement stores to, if that is known: a number, or an expression over
    the statement's variables; `decided`
    says of conditions in the expressions whether they hold.
    """

    instances: IntSet
    known: Mapping[Load, Expr]
    finite: frozenset[Load]
    held: Expr | None
    decided: Mapping[Expr, bool] = field(default_factory=dict)
    scalars: frozenset[Var] = frozenset()
    strict: bool = False


class Part(NamedTuple):
    """Some instances of a statement."""

    statement: Statement
    domain: Domain


def cells(
    program: Program, part: Part, exprs: Sequence[Expr], only: Removed | None = None, exact: bool = False
) -> tuple[Cell, ...]:
    """Instances of a statement, cut by what the loads of `exprs` and its own element hold.

    Contents are those that the instances in `only` leave (see `contents.held`).  Raises
    Unknown, NotAffine and Contradiction.
    """
    statement, domain = part
    accesses = tuple(dict.fromkeys(a for e in exprs for a in statement.loads(e) if isinstance(a.node, Load)))
    found = [(a, _held(program, part, a, only, exact)) for a in accesses]
    own = None
    if statement.write is not None:
        own = held(program, Reading(statement, statement.write, domain), only, exact)
    parts = [Cell(where, {}, frozenset(), None, decided) for where, decided in _decisions(statement, domain, exprs)]
    for access, contents in found:
        assert isinstance(access.node, Load)
        if len(parts) > LARGEST_CELLS:
            break
        numbers = [(value, where) for value, where in contents.values if isinstance(value, (Const, Undef))]
        parts = [
            replace(cell, instances=where, known=cell.known if value is None else {**cell.known, access.node: value})
            for cell in parts
            for where, value in _cut(cell.instances, numbers)
        ]
    if own is not None:
        parts = [replace(p, instances=w, held=value) for p in parts for w, value in _cut(p.instances, own.values)]
    scalars = frozenset(program.func.scalars)
    return tuple(replace(p, finite=_finite(p, found), scalars=scalars, strict=program.func.is_strict) for p in parts)


def _decisions(statement: Statement, domain: Domain, exprs: Sequence[Expr]) -> list[tuple[IntSet, dict[Expr, bool]]]:
    """The instances cut by the affine conditions of choices in `exprs`, with what is decided on each part."""
    parts: list[tuple[IntSet, dict[Expr, bool]]] = [(points(domain), {})]
    known = frozenset(statement.variables)
    for cond in dict.fromkeys(_choice(n)[0] for e in exprs for n in walk(e) if _is_choice(n)):
        resolved = statement.resolve(cond)
        if not is_affine(resolved, known) or len(parts) > LARGEST_CELLS:
            continue
        cut = []
        for instances, decided in parts:
            holds = instances.where(resolved)
            for where, truth in ((holds, True), (instances.subtract(holds), False)):
                if not where.is_empty():
                    cut.append((where, {**decided, cond: truth}))
        parts = cut
    return parts


def _held(program: Program, part: Part, access: Access, only: Removed | None, exact: bool) -> Held:
    statement, domain = part
    known = frozenset(statement.variables)
    guards = tuple(g for g in access.guards if is_affine(g, known))
    return held(program, Reading(statement, access, domain.where(*guards)), only, exact)


def _cut(instances: IntSet, values: Sequence[tuple[Expr, IntSet]]) -> list[tuple[IntSet, Expr | None]]:
    """The parts of `instances` on which one value is held, and the rest."""
    parts: list[tuple[IntSet, Expr | None]] = []
    rest = instances
    for value, where in values:
        own = instances.intersect(where)
        if not own.is_empty():
            parts.append((own, value))
            rest = rest.subtract(own)
    if not rest.is_empty():
        parts.append((rest, None))
    return parts


def _finite(part: Cell, found: Sequence[tuple[Access, Held]]) -> frozenset[Load]:
    """The loads that hold finite values on all instances of a part, wherever they are evaluated."""
    loads, unproven = set(), set()
    for access, contents in found:
        assert isinstance(access.node, Load)
        loads.add(access.node)
        if not part.instances.intersect(contents.undefined.union(contents.missing)).is_empty():
            unproven.add(access.node)
    return frozenset(loads - unproven - part.known.keys())


def _is_choice(node: object) -> bool:
    """Whether a node chooses between two values by a condition."""
    return isinstance(node, Select) or (isinstance(node, Call) and node.name == "if_then_else")


def _choice(node: Any) -> tuple[Expr, Expr, Expr]:
    """A choice's condition, its value where that holds, and elsewhere."""
    return (node.cond, node.a, node.b) if isinstance(node, Select) else tuple(node.args)


def reduced(expr: Expr, cell: Cell) -> Expr:
    """`expr` with what is known in a cell, as far as the rules above reach."""
    if isinstance(expr, Load):
        value = cell.known.get(expr, expr)
        return expr if isinstance(value, Undef) else value
    if isinstance(expr, Binary):
        return _binary(expr, reduced(expr.a, cell), reduced(expr.b, cell), cell)
    if isinstance(expr, Call) and expr.name == "fma":
        a, b, c = expr.args
        product = reduced(Binary("*", a, b), cell)
        if not isinstance(product, Binary) or product.op != "*":
            return reduced(Binary("+", product, c), cell)
        return expr
    if isinstance(expr, Cast):
        a = reduced(expr.a, cell)
        return expr if a is expr.a else _cast(expr.dtype, a)
    if isinstance(expr, Broadcast):
        value = reduced(expr.value, cell)
        return expr if value is expr.value else Broadcast(value, expr.lanes)
    if _is_choice(expr):
        cond, a, b = _choice(expr)
        if cond in cell.decided:
            return reduced(a if cell.decided[cond] else b, cell)
        chosen = [reduced(a, cell), reduced(b, cell)]
        if chosen[0] == chosen[1]:
            return chosen[0]
        if isinstance(expr, Select):
            return Select(cond, *chosen)
        return Call("if_then_else", (cond, *chosen), expr.dtype)
    return expr


def _binary(expr: Binary, a: Expr, b: Expr, cell: Cell) -> Expr:
    if isinstance(a, Undef) or isinstance(b, Undef):
        return expr
    x, y = _number(a), _number(b)
    if x is not None and y is not None:
        folded = _fold(expr.op, x, y, expr.dtype)
        if folded is not None:
            return folded
    if expr.op == "+" and y is not None and _is_zero_of_sum(y, expr.dtype, cell):
        return a
    if expr.op == "+" and x is not None and _is_zero_of_sum(x, expr.dtype, cell):
        return b
    if expr.op == "-" and y is not None and y.value == 0 and not (cell.strict and _is_negative_zero(y)):
        return a
    if expr.op == "*":
        for number, other in ((x, b), (y, a)):
            if number is not None and number.value == 1:
                return other
            if number is not None and number.value == 0 and _vanishes(other, cell):
                return const(0, expr.dtype) if dtypes.lanes(expr.dtype) == 1 else number
    if expr.op in ("/", "//") and y is not None and y.value == 1:
        return a
    if expr.op in ("min", "max"):
        for number, other in ((x, b), (y, a)):
            if number is not None and _is_end(number, expr.op):
                return other
    return expr if a is expr.a and b is expr.b else Binary(expr.op, a, b)


def _number(expr: Expr) -> Const | None:
    while isinstance(expr, Broadcast):
        expr = expr.value
    return expr if isinstance(expr, Const) else None


def _vanishes(other: Expr, cell: Cell) -> bool:
    """Whether ``0 * x`` is 0: always for integers, for floats if x, reduced, is known to be finite."""
    if not dtypes.is_float(other.dtype):
        return True
    return not cell.strict and _is_finite_in(cell, other)


def _is_zero_of_sum(number: Const, dtype: str, cell: Cell) -> bool:
    if number.value != 0:
        return False
    return not (cell.strict and dtypes.is_float(dtype)) or _is_negative_zero(number)


def _is_negative_zero(number: Const) -> bool:
    return isinstance(number.value, float) and number.value == 0 and math.copysign(1, number.value) < 0


def _is_end(number: Const, op: str) -> bool:
    """Whether a number is the neutral element of min or max."""
    return not dtypes.is_bool(number.dtype) and number.value == neutral(op, number.dtype).value


def is_finite(expr: Expr, loaded: Callable[[Load], bool], scalars: Collection[Var] = ()) -> bool:
    """Whether a float expression surely has a finite value, given that data is finite.

    `loaded` says it of what a load reads; `scalars` are parameters.
    """
    if isinstance(expr, Load):
        return loaded(expr)
    if isinstance(expr, Const):
        return is_finite_constant(expr)
    if isinstance(expr, Undef):
        return False
    if not dtypes.is_float(expr.dtype):
        return not isinstance(expr, Call) or expr.name == "if_then_else"
    if isinstance(expr, Var):
        return expr in scalars
    if not isinstance(expr, (Binary, Call, Cast, Select, Broadcast, Not)) or not is_total(expr):
        return False
    return all(is_finite(c, loaded, scalars) for c in children(expr) if isinstance(c, Expr))


def _is_finite_in(cell: Cell, expr: Expr) -> bool:
    """Whether a value is finite in a cell."""

    def loaded(load: Load) -> bool:
        value = cell.known.get(load)
        return is_finite_constant(value) if isinstance(value, Const) else value is None and load in cell.finite

    return is_finite(expr, loaded, cell.scalars)


def _cast(dtype: str, value: Expr) -> Expr:
    number = value if isinstance(value, Const) else None
    if number is None or dtypes.lanes(dtype) > 1 or (dtypes.is_float(number.dtype) and not dtypes.is_float(dtype)):
        return Cast(dtype, value)
    if dtypes.is_int(dtype) and not _fits(int(number.value), dtype):
        return Cast(dtype, value)
    return const(rounded(float(number.value), dtype) if dtypes.is_float(dtype) else number.value, dtype)


def _fits(value: int, dtype: str) -> bool:
    low, high = dtypes.int_range(dtype)
    return low <= value <= high


def _fold(op: str, a: Const, b: Const, dtype: str) -> Const | None:
    """``a op b`` as the machine computes it; None for what is left alone."""
    if op not in TOTAL or dtypes.lanes(dtype) > 1 or dtype == "bfloat16" or dtypes.is_bool(dtype):
        return None
    if dtypes.is_int(dtype):
        x, y = int(a.value), int(b.value)
        value = {"+": x + y, "-": x - y, "*": x * y, "min": min(x, y), "max": max(x, y)}[op]
        return const(value, dtype) if _fits(value, dtype) else None
    kind = np.dtype(dtype).type
    ufunc = {"+": np.add, "-": np.subtract, "*": np.multiply, "min": np.minimum, "max": np.maximum}[op]
    with np.errstate(all="ignore"):
        result = float(ufunc(kind(a.value), kind(b.value)))
    return None if math.isnan(result) else const(result, dtype)


def is_silent(statement: Statement, cell: Cell, old: Expr | None = None, appears: bool = True) -> bool:
    """Whether storing changes nothing in a cell: the value is held already, or is what `old` comes to.

    A store that appears may put anything where `undef` is held; one that stores `undef`
    changes what is known, so it is silent only there.
    """
    write = statement.write
    assert write is not None
    value = reduced(statement.value, cell)
    if old is not None:
        return _same(value, reduced(old, cell), cell.strict)
    holds_undef = isinstance(cell.held, Undef)
    if any(isinstance(n, Undef) for n in walk(value)):
        return holds_undef
    if isinstance(value, Load) and value.buffer == write.node.buffer and value.indices == write.node.indices:
        return True
    if holds_undef:
        return appears
    if cell.held is not None and _same(value, cell.held, cell.strict):
        return True
    return _is_there(statement, value, cell)


def _is_there(statement: Statement, value: Expr, cell: Cell) -> bool:
    """Whether the element that is stored to is the one that the value is loaded from, or holds an equal expression.

    Both are compared over the variables of the statement, of which those that have but one value in the cell are
    that number: ``A[0] = A[0] + i * i`` is ``A[0] = A[0]`` where ``i == 0``.
    """
    store = statement.stmt
    assert isinstance(store, Store)
    if cell.held is None and all(load.buffer != store.buffer for load in walk(value) if isinstance(load, Load)):
        return False
    try:
        pinned = {var: const(number, var.dtype) for var, number in cell.instances.fixed().items()}
    except Unknown:
        return False

    def there(expr: Expr) -> Expr:
        plain: Expr = statement.resolve(expr, strict=True)
        return simplify(substitute(plain, pinned), statement.bounds, strict=True) if pinned else plain

    plain = there(value)
    if isinstance(plain, Load) and plain.buffer == store.buffer:
        pairs = zip(plain.indices, map(there, store.indices), strict=True)
        return all(_equal_in(a, b, cell.instances) for a, b in pairs)
    if cell.held is None or isinstance(cell.held, Undef) or plain.dtype != cell.held.dtype or reads_memory(plain):
        return False
    held = simplify(substitute(cell.held, pinned), statement.bounds, strict=True) if pinned else cell.held
    return _equal_in(plain, held, cell.instances) and not any(isinstance(n, Undef) for n in walk(plain))


def _equal_in(a: Expr, b: Expr, instances: IntSet) -> bool:
    """Whether two expressions have one value at every point of a set; of floats, whether they are the same."""
    if a == b:
        return True
    if not (dtypes.is_int(a.dtype) and a.dtype == b.dtype) or reads_memory(a) or reads_memory(b):
        return False
    try:
        return instances.where(binary("!=", a, b)).is_empty()
    except (NotAffine, Unknown):
        return False


def _same(a: Expr, b: Expr, strict: bool) -> bool:
    if a == b:
        return not any(isinstance(n, Undef) for n in (a, b))
    x, y = _number(a), _number(b)
    return x is not None and y is not None and not strict and bool(x.value == y.value)
