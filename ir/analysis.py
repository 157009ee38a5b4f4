"""What a program does, counted: floating-point operations, and the accesses of a block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from . import dtypes
from .caches import cached
from .expr import TRUE, Binary, Buffer, Call, Cast, Const, Expr, Load, Not, Select, Var, conjuncts, substitute
from .node import children, walk
from .stmt import Assume, Block, For, If, Let, PrimFunc, Stmt, Store

_ARITHMETIC = frozenset(("+", "-", "*", "/", "min", "max"))
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Access:
    """One load or store of a block."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    is_write: bool


@cached(4096)
def accesses(block: Block) -> tuple[Access, ...]:
    """Every distinct load and store in the block's init and body, in program order; assumptions read nothing."""
    found: dict[Access, None] = {}
    for part in (block.init, block.body):
        if part is not None:
            found.update(dict.fromkeys(_accesses(part)))
    return tuple(found)


def _accesses(node: Stmt | Expr) -> Iterator[Access]:
    if isinstance(node, Assume):
        return
    for child in children(node):
        if isinstance(child, (Stmt, Expr)):
            yield from _accesses(child)
    if isinstance(node, (Load, Store)):
        yield Access(node.buffer, node.indices, isinstance(node, Store))


def count_flops(program: PrimFunc | Stmt) -> int:
    """Floating-point operations of one call: each add, subtract, multiply, divide, min, max and call is one, fma two.

    An operation on vectors counts each lane.  Instances that a predicate or an If over loop variables leaves
    out do not count, nor does the init of a reduction.  Of a conditional value the dearer side counts.
    Raises ValueError for conditions over more than 2**32 points at once.
    """
    return _statement(program.body if isinstance(program, PrimFunc) else program, (), (), {})


def _statement(
    stmt: Stmt, loops: tuple[tuple[Var, int], ...], conds: tuple[Expr, ...], env: dict[Var, Expr]
) -> int:
    if isinstance(stmt, For):
        extent, bound = _extent(stmt, dict(loops))
        conds = conds if bound is None else (*conds, bound)
        return _statement(stmt.body, (*loops, (stmt.var, extent)), conds, env)
    if isinstance(stmt, Block):
        inner = {**env, **{i.var: substitute(i.binding, env) for i in stmt.iters}}
        predicate = substitute(stmt.predicate, env)
        return _statement(stmt.body, loops, (*conds, *conjuncts(predicate)), inner)
    if isinstance(stmt, Let):
        own = _expression(stmt.value) * _instances(loops, conds)
        return own + _statement(stmt.body, loops, conds, {**env, stmt.var: substitute(stmt.value, env)})
    if isinstance(stmt, If):
        cond = substitute(stmt.cond, env)
        total = _expression(cond) * _instances(loops, conds)
        total += _statement(stmt.then, loops, (*conds, *conjuncts(cond)), env)
        return total if stmt.orelse is None else total + _statement(stmt.orelse, loops, (*conds, Not(cond)), env)
    total = own = 0
    for child in children(stmt):
        if isinstance(child, Stmt):
            total += _statement(child, loops, conds, env)
        elif isinstance(child, Expr) and not isinstance(stmt, Assume):
            own += _expression(child)
    return total + (own * _instances(loops, conds) if own else 0)


def _extent(loop: For, outer: dict[Var, int]) -> tuple[int, Expr | None]:
    """The extent, and for one that varies the largest and the condition that is left."""
    from .arith.simplify import bound

    if isinstance(loop.extent, Const):
        return int(loop.extent.value), None
    high = bound(loop.extent, {v: (0, n - 1) for v, n in outer.items()})[1]
    return high, Binary("<", loop.var, loop.extent)


def _expression(expr: Expr) -> int:
    """Operations in one evaluation."""
    if isinstance(expr, Select) or (isinstance(expr, Call) and expr.name == "if_then_else"):
        cond, a, b = (expr.cond, expr.a, expr.b) if isinstance(expr, Select) else expr.args
        return _expression(cond) + max(_expression(a), _expression(b))
    total = sum(_expression(child) for child in children(expr) if isinstance(child, Expr))
    if not dtypes.is_float(expr.dtype):
        return total
    if isinstance(expr, Call):
        return total + dtypes.lanes(expr.dtype) * (2 if expr.name == "fma" else 1)
    return total + dtypes.lanes(expr.dtype) * (isinstance(expr, Binary) and expr.op in _ARITHMETIC)


def _instances(loops: tuple[tuple[Var, int], ...], conds: tuple[Expr, ...]) -> int:
    """The number of iterations at which every condition over loop variables holds."""
    extents = dict(loops)
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
        order = tuple(v for v, _ in loops if v in names)
        total *= _satisfying(order, tuple(extents[v] for v in order), tuple(tests))
    return total


@cached(1024)
def _satisfying(order: tuple[Var, ...], extents: tuple[int, ...], conds: tuple[Expr, ...]) -> int:
    points = prod(extents)
    if points > 1 << 32:
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
