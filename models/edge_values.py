"""What a program stores past the last element of the last block of a layout: whether that is 0 without being filled.

    y[c // B, .., c % B] = relu(sum over k of x[k] * w[c, k])      for c past the end: w is padded with 0, and so is y

A product with 0 is 0 where its other factor is finite: data, or padding that holds a number.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..errors import ProgramError
from ..ir.affine.sets import Domain, NotAffine, Unknown, points
from ..ir.arith.intervals import negate
from ..ir.dataflow.reduced import is_finite
from ..ir.expr import TRUE, Binary, Call, Cast, Const, Expr, Load, Var, free_variables, substitute
from ..ir.functions import TO_INT_CALLS
from ..ir.layout.layout import Dim, Layout
from ..ir.node import walk
from ..ir.stmt import Block, PrimFunc, Store
from ..space.design.program import product_factors
from ..space.primitives.reduction import update_of
from ..space.tree import block_stores, find_block, producers

KEEP_ZERO = ("tanh", "erf", "abs", "sqrt", "floor", "ceil", "nearbyint", "sin", "atan", *TO_INT_CALLS)
OPERATIONS: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "min": min, "max": max,
}  # fmt: skip


@dataclass(frozen=True)
class _Edge:
    """The instances of a block for which a condition over its iterators holds."""

    block: Block
    cond: Expr

    def implies(self, other: Expr) -> bool:
        """Whether another condition holds for all of them."""
        domain = Domain(tuple((i.var, i.extent) for i in self.block.iters), (self.cond, negate(other)))
        try:
            return points(domain).first() is None
        except (NotAffine, Unknown):
            return False


def is_zero_over_the_edge(func: PrimFunc, writer: str, layout: Layout) -> bool:
    """Whether a result is 0 past the last element of the last block of each dimension.

    There the block reads weights and inputs past their own last element, where they are 0 if their layout says so, and
    sums, which are 0 if each product has such a factor.
    """
    block = find_block(func, writer)
    if block.predicate != TRUE or not isinstance(block.body, Store) or not layout.blocks:
        return False
    for dim, size in layout.blocks.items():
        if layout.logical_shape[dim] % size == 0:
            continue
        outer, inner = (block.body.indices[layout.dims.index(Dim(dim, part, size))] for part in ("block", "inner"))
        edge = _Edge(block, outer * size + inner >= layout.logical_shape[dim])
        if not (_sums_zero(func, edge) if block.reduce else _value(func, block.body.value, edge) == 0):
            return False
    return True


def _is_zero(func: PrimFunc, load: Load, edge: _Edge) -> bool:
    """Whether what is read at the edge is 0."""
    if load.buffer in func.params:
        layout = func.layout_of(load.buffer.name)
        return layout is not None and layout.pad_number == 0 and edge.implies(layout.padding(load.indices))
    writers = producers(func, load.buffer)
    if len(writers) != 1 or not writers[0].reduce:
        return False
    stored = block_stores(writers[0])[0].indices
    same = {v: s for v, s in zip(load.indices, stored, strict=True) if isinstance(v, Var) and isinstance(s, Var)}
    if not free_variables(edge.cond) <= set(same):
        return False
    return _sums_zero(func, _Edge(writers[0], substitute(edge.cond, same)))


def _sums_zero(func: PrimFunc, edge: _Edge) -> bool:
    """Whether a block adds up products of which each has a factor that is 0 at the edge."""
    try:
        _, op, value = update_of(edge.block)
    except ProgramError:
        return False
    init = edge.block.init
    if not isinstance(init, Store) or not isinstance(init.value, Const) or init.value.value != 0:
        return False
    if op != "+" or edge.block.predicate != TRUE or not _is_finite(func, value, edge):
        return False
    return any(isinstance(f, Load) and _is_zero(func, f, edge) for f in product_factors(value))


def _value(func: PrimFunc, expr: Expr, edge: _Edge) -> float | None:
    """The value of an expression at the edge; None if it is not known."""
    if isinstance(expr, Const):
        return float(expr.value)
    if isinstance(expr, Load):
        return 0.0 if _is_zero(func, expr, edge) else None
    if isinstance(expr, Cast):
        return _value(func, expr.a, edge)
    if isinstance(expr, Call) and expr.name in KEEP_ZERO:
        return 0.0 if _value(func, expr.args[0], edge) == 0 else None
    if not isinstance(expr, Binary):
        return None
    a, b = _value(func, expr.a, edge), _value(func, expr.b, edge)
    if expr.op == "*" and 0 in (a, b):
        return 0.0 if _is_finite(func, expr.b if a == 0 else expr.a, edge) else None
    if a is None or b is None or expr.op not in OPERATIONS or (expr.op == "/" and b == 0):
        return None
    return OPERATIONS[expr.op](a, b)


def _is_finite(func: PrimFunc, expr: Expr, edge: _Edge) -> bool:
    """Whether an expression is a finite number at the edge, where data is: 0 times anything else may be NaN."""
    return is_finite(expr, lambda load: _is_finite_load(func, load, edge))


def _is_finite_load(func: PrimFunc, load: Load, edge: _Edge) -> bool:
    """Data is finite, and so is padding that holds a finite number; what a block computes of these alone is, too."""
    if load.buffer not in func.params:
        return all(_writes_finite(func, writer) for writer in producers(func, load.buffer))
    layout = func.layout_of(load.buffer.name)
    if layout is None or (layout.pad_number is not None and math.isfinite(layout.pad_number)):
        return True
    return edge.implies(negate(layout.padding(load.indices)))


def _writes_finite(func: PrimFunc, block: Block) -> bool:
    """Whether all that a block writes is finite, where data is."""
    everywhere = _Edge(block, block.predicate)
    try:
        value = update_of(block)[2] if block.reduce else block_stores(block)[0].value
    except (ProgramError, IndexError):
        return False
    written = {store.buffer for store in block_stores(block)}
    reads_itself = any(isinstance(n, Load) and n.buffer in written for n in walk(value))
    init = block.init.value if isinstance(block.init, Store) else None
    started = not block.reduce or (isinstance(init, Const) and math.isfinite(float(init.value)))
    return len(written) == 1 and started and not reads_itself and _is_finite(func, value, everywhere)
