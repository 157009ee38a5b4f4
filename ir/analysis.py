"""What a program does, counted in floating-point operations."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from . import dtypes
from .caches import cached
from .expr import (
    TRUE,
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Select,
    Var,
    conjuncts,
    substitute,
    variables,
)
from .node import children, walk
from .stmt import Evaluate, If, Let, PrimFunc, Stmt, Store

if TYPE_CHECKING:
    from .dataflow.accesses import Dims

_ARITHMETIC = frozenset(("+", "-", "*", "/", "min", "max"))
_CHUNK = 1 << 20


def count_operations(program: PrimFunc | Stmt) -> int:
    """`count_flops`, or the same of integers on what is stored, where a program has more of these."""
    return max(count_flops(program), count_integer_operations(program))


def count_integer_operations(program: PrimFunc | Stmt) -> int:
    """What `count_flops` counts, of integers in what a program stores; those of indices and conditions do not count."""
    return _count(program, _integer_operations)


def product_dtype(program: PrimFunc | Stmt) -> str | None:
    """The narrowest type that holds both factors of a product which is summed; None where nothing adds products.

    It is what bounds the speed of a program: a machine may multiply pairs of bfloat16 and fours of bytes at once, and
    sum them in 32 bits.
    """
    body = program.body if isinstance(program, PrimFunc) else program
    products = [factors for n in walk(body) if isinstance(n, Store) and len(factors := _added_factors(n)) > 1]
    return min((max(map(_held, p), key=dtypes.bits) for p in products), key=dtypes.bits, default=None)


def _held(factor: Expr) -> str:
    """The type that a factor is held in: of ``int32(x) - 114``, or of a choice at a border, that of `x`."""
    same = dtypes.is_float(factor.dtype)
    loads = [n.dtype for n in walk(factor) if isinstance(n, Load) and dtypes.is_float(n.dtype) == same]
    return max(loads, key=dtypes.bits, default=factor.dtype)


def count_flops(program: PrimFunc | Stmt) -> int:
    """Floating-point operations of one call: each add, subtract, multiply, divide, min, max and call is one, fma two.

    An operation on vectors counts each lane.  Instances that a predicate or an If over loop variables leaves
    out do not count, nor does the init of a reduction.  Of a conditional value the dearer side counts.  Products with
    zeros that stand between the elements of an input, as in a transposed convolution, are none of its definition and
    do not count, whether they are read from a buffer that holds them or chosen by ``t % s == 0``; products with a
    border around an input do, as is usual for convolutions.
    Where they could only be counted one by one, among more than 2**24 points, they count.
    Raises ValueError for conditions over more than 2**32 points at once.
    """
    return _count(program, _operations)


def _count(program: PrimFunc | Stmt, operations: Callable[[Expr], int]) -> int:
    """How many operations of a kind a call makes, which are so many in one evaluation of an expression."""
    from .dataflow.accesses import own_expressions
    from .dataflow.instances import statements

    total = 0
    body = program.body if isinstance(program, PrimFunc) else program
    spread = _spread(body)
    for s in statements(body, lambda e: operations(e) > 0):
        if not s.is_init and isinstance(s.stmt, (Store, Evaluate, If, Let)):
            indices = s.stmt.indices if isinstance(s.stmt, Store) else ()
            once = sum(operations(e) for e, _ in own_expressions(s.stmt) if e not in indices)
            of_data = tuple(s.resolve(c) for c in _not_of_zeros(s.stmt, spread))
            total += once * _needed(tuple(d for d in s.dims if d[0] != s.lane), s.conditions, of_data) if once else 0
    return total


_Spread = Mapping[Buffer, tuple[tuple[Expr, ...], tuple[Expr, ...]]]
"""Buffers that hold zeros between elements: the indices of an element, and the conditions of one that is none."""


def _spread(body: Stmt) -> _Spread:
    stores = [n for n in walk(body) if isinstance(n, Store)]
    written = Counter(store.buffer for store in stores)
    found = {}
    for store in stores:
        periodic = _periodic(store.value)
        if written[store.buffer] == 1 and {v for c in periodic for v in variables(c)} <= set(store.indices):
            found[store.buffer] = (store.indices, periodic)
    return {buffer: (indices, periodic) for buffer, (indices, periodic) in found.items() if periodic}


def _not_of_zeros(stmt: Stmt, spread: _Spread) -> tuple[Expr, ...]:
    """Conditions without which what a statement adds to a sum is a product with a zero between elements."""
    found: list[Expr] = []
    for factor in _added_factors(stmt):
        found += _periodic(factor)
        if isinstance(factor, Load) and factor.buffer in spread:
            indices, periodic = spread[factor.buffer]
            there = {i: at for i, at in zip(indices, factor.indices, strict=True) if isinstance(i, Var)}
            found += [substitute(c, there) for c in periodic]
    return tuple(found)


def _periodic(value: Expr) -> tuple[Expr, ...]:
    """The conjuncts with a remainder in the condition without which a value is 0; empty for other values."""
    if not (isinstance(value, Call) and value.name == "if_then_else"):
        return ()
    cond, _, other = value.args
    if not (isinstance(other, Const) and other.value == 0):
        return ()
    return tuple(c for c in conjuncts(cond) if _is_remainder(c) and is_countable(c))


def _is_remainder(cond: Expr) -> bool:
    """Whether a condition is ``x % k == r``: any other one with a remainder may be that of a border."""
    if not (isinstance(cond, Binary) and cond.op == "=="):
        return False
    return any(isinstance(side, Binary) and side.op == "%" for side in (cond.a, cond.b))


def is_countable(cond: Expr) -> bool:
    """Whether `evaluate` knows all operations of a condition: those of integers, without calls and reads of memory."""
    kinds = (Var, Const, Binary, Not, Select)
    return all(isinstance(n, kinds) and (dtypes.is_int(n.dtype) or dtypes.is_bool(n.dtype)) for n in walk(cond))


def _added_factors(stmt: Stmt) -> list[Expr]:
    """The factors of what a statement adds to an element of a sum, without their casts; none of another statement."""
    if not (isinstance(stmt, Store) and isinstance(stmt.value, Binary) and stmt.value.op == "+"):
        return []
    own = Load(stmt.buffer, stmt.indices)
    added = [side for side in (stmt.value.a, stmt.value.b) if side != own]
    return _factors(added[0]) if len(added) == 1 else []


def _factors(value: Expr) -> list[Expr]:
    if isinstance(value, Cast):
        return _factors(value.a)
    if isinstance(value, Binary) and value.op == "*":
        return _factors(value.a) + _factors(value.b)
    return [value]


def _operations(expr: Expr) -> int:
    """Operations in one evaluation."""
    if isinstance(expr, Select) or (isinstance(expr, Call) and expr.name == "if_then_else"):
        cond, a, b = (expr.cond, expr.a, expr.b) if isinstance(expr, Select) else expr.args
        return _operations(cond) + max(_operations(a), _operations(b))
    total = sum(_operations(child) for child in children(expr) if isinstance(child, Expr))
    if not dtypes.is_float(expr.dtype):
        return total
    if isinstance(expr, Call):
        return total + dtypes.lanes(expr.dtype) * (2 if expr.name == "fma" else 1)
    return total + dtypes.lanes(expr.dtype) * (isinstance(expr, Binary) and expr.op in _ARITHMETIC)


def _integer_operations(expr: Expr) -> int:
    """Operations of integers in one evaluation, without those of indices and conditions."""
    if isinstance(expr, Load) or not dtypes.is_int(expr.dtype):
        return 0
    if isinstance(expr, Select) or (isinstance(expr, Call) and expr.name == "if_then_else"):
        return max(map(_integer_operations, (expr.a, expr.b) if isinstance(expr, Select) else expr.args[1:]))
    total = sum(_integer_operations(child) for child in children(expr) if isinstance(child, Expr))
    is_counted = isinstance(expr, Call) or (isinstance(expr, Binary) and expr.op in _ARITHMETIC)
    return total + dtypes.lanes(expr.dtype) * is_counted


def _needed(dims: Dims, conds: tuple[Expr, ...], of_data: tuple[Expr, ...]) -> int:
    """The points that `_instances` counts, without those at which `of_data` says that a factor is 0."""
    if of_data:
        with contextlib.suppress(ValueError):
            return _instances(dims, (*conds, *of_data), 1 << 24)
    return _instances(dims, conds)


def _instances(dims: Dims, conds: tuple[Expr, ...], most: int = 1 << 32) -> int:
    """The number of points at which every condition over the loops holds; what reads memory counts as true."""
    from .arith.simplify import bound

    extents: dict[Var, int] = {}
    for var, extent in dims:
        if isinstance(extent, Expr):
            conds = (*conds, Binary("<", var, extent))
            extent = bound(extent, {v: (0, n - 1) for v, n in extents.items()})[1]
        extents[var] = 0 if extent is None else extent
    groups: list[tuple[set[Var], list[Expr]]] = []
    for cond in conds:
        names = {n for n in walk(cond) if isinstance(n, Var)}
        if cond == TRUE or not names <= extents.keys() or any(isinstance(n, Load) for n in walk(cond)):
            continue
        touching = [g for g in groups if not g[0].isdisjoint(names)]
        groups = [g for g in groups if g[0].isdisjoint(names)]
        joined = (names.union(*(g[0] for g in touching)), [cond, *(c for g in touching for c in g[1])])
        groups.append(joined)
    free = extents.keys() - {v for group in groups for v in group[0]}
    total = prod(extents[v] for v in free)
    for names, tests in groups:
        order = tuple(v for v in extents if v in names)
        total *= _satisfying(order, tuple(extents[v] for v in order), tuple(tests), most)
    return total


@cached(1024)
def _satisfying(order: tuple[Var, ...], extents: tuple[int, ...], conds: tuple[Expr, ...], most: int) -> int:
    points = prod(extents)
    if points > most:
        names = ", ".join(v.name for v in order)
        raise ValueError(f"cannot count the {points} points over {names} one by one; split the condition")
    total = 0
    for start in range(0, points, _CHUNK):
        rest = np.arange(start, min(start + _CHUNK, points), dtype=np.int64)
        values: dict[Var, NDArray[np.int64]] = {}
        for var, extent in reversed(list(zip(order, extents, strict=True))):
            values[var] = rest % extent
            rest = rest // extent
        holds = np.ones(len(rest), dtype=bool)
        for cond in conds:
            holds &= np.broadcast_to(evaluate(cond, values), holds.shape).astype(bool)
        total += int(holds.sum())
    return total


_UFUNCS = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.mod,
    "min": np.minimum, "max": np.maximum, "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal,
    ">": np.greater, ">=": np.greater_equal, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


def evaluate(expr: Expr, values: Mapping[Var, NDArray[np.int64]]) -> NDArray[np.int64] | NDArray[np.bool_]:
    """An index or condition at many points at once.  Raises ValueError for what depends on more than variables."""
    if isinstance(expr, Var):
        return values[expr]
    if isinstance(expr, Const):
        return np.asarray(int(expr.value))
    if isinstance(expr, Binary) and expr.op in _UFUNCS:
        result: NDArray[np.int64] = _UFUNCS[expr.op](evaluate(expr.a, values), evaluate(expr.b, values))
        return result
    if isinstance(expr, Not):
        return np.logical_not(evaluate(expr.a, values))
    if isinstance(expr, Cast):
        return evaluate(expr.a, values)
    if isinstance(expr, Select) or (isinstance(expr, Call) and expr.name == "if_then_else"):
        cond, a, b = (expr.cond, expr.a, expr.b) if isinstance(expr, Select) else expr.args
        return np.where(evaluate(cond, values), evaluate(a, values), evaluate(b, values))
    raise ValueError(f"cannot count the instances of a condition with {type(expr).__name__}")
