"""Programs whose extents are expressions of integer parameters, and the numbers that one call gives these.

::

    A: Buffer((n, 32)), B: Buffer((m*4,))      n is the first extent of the array for A, m another parameter
    assume(1 <= n and n <= 512)                at the top of the function, over its integers alone

An extent is at least 1 and at most `LONGEST`, as memory is, and the integers in it are no larger.  What the function
assumes of its integers at its top are **preconditions**: they are checked where the function is called, so that proofs
may rest on them, as they may not on other assumptions.  A function without such extents has none, and its assumptions
stay promises.

`fixed` is the meaning of such a function: with the values of a call written in, it is one of fixed shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import ProgramError
from . import dtypes
from .arith.constants import rounded
from .arith.statements import assumed
from .expr import (
    TRUE,
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    Extent,
    Var,
    const,
    fold_constants,
    free_variables,
    in_type,
    refold,
    substitute,
)
from .extents import widened
from .node import rebuild, remembered
from .statements import LONGEST
from .stmt import Assume, Block, Iter, PrimFunc, Seq, seq
from .text import expr_text, extent_text, shape_text, uncast


class WrongSizes(ProgramError, ValueError):
    """The arrays and numbers of a call are none that the function takes."""


@remembered
def preconditions(func: PrimFunc) -> tuple[Expr, ...]:
    """What every call of the function keeps: conditions over its integers, those of its extents first."""
    stated = tuple(dict.fromkeys(func.stated))
    if not stated:
        return ()
    own = frozenset(func.integers)
    found: list[Expr] = []
    for var in sorted({v for e in stated for v in free_variables(e)}, key=lambda v: v.name):
        found += _between(-LONGEST, widened(var), LONGEST)  # so that no sum of few of them wraps around
    for extent in stated:
        found += _between(1, extent, LONGEST)
    body = func.body.body
    for item in body.stmts if isinstance(body, Seq) else (body,):
        if isinstance(item, Assume):
            found += [c for c in assumed(item) if free_variables(c) and free_variables(c) <= own]
    return tuple(found)


def _between(low: int, value: Expr, high: int) -> tuple[Expr, Expr]:
    return Binary("<=", const(low), value), Binary("<=", value, const(high))


def unknown_sizes(func: PrimFunc) -> tuple[Var, ...]:
    """The sizes that stand alone in no extent of a parameter, so that no array gives their value."""
    alone = {v for e in func.stated if (v := alone_in(e)) is not None}
    return tuple(v for v in func.sizes if v not in alone)


def alone_in(extent: Extent) -> Var | None:
    """The variable that an extent is."""
    if isinstance(extent, Cast):
        return alone_in(extent.a)
    return extent if isinstance(extent, Var) else None


Values = Mapping[Var, int]


def values_of(func: PrimFunc, shapes: Mapping[str, Sequence[int]], scalars: Mapping[str, int]) -> dict[Var, int]:
    """The values of the function's integers in a call: `scalars` by name, sizes as the extents of arrays.

    `shapes` are those of the arrays that are given.  Raises WrongSizes, in one sentence, for arrays that disagree with
    each other or with the scalars, and for values that do not meet the preconditions.
    """
    values = {v: scalars[v.name] for v in func.integers if v.name in scalars}
    given_by: dict[Var, str] = {}
    given = [buffer for buffer in func.buffers if buffer.name in shapes]
    for buffer in given:
        shape = tuple(shapes[buffer.name])
        if len(shape) != buffer.rank:
            raise WrongSizes(f"`{buffer.name}` has the extents {shape_text(buffer.extents)}, "
                             f"but the array has {shape_text(shape)}")  # fmt: skip
        for dim, (extent, size) in enumerate(zip(buffer.extents, shape, strict=True)):
            var = alone_in(extent)
            if var is not None and var not in values:
                values[var] = size
                given_by[var] = f"axis {dim} of `{buffer.name}`"
    missing = next((v for v in func.integers if v not in values), None)
    if missing is not None:
        raise WrongSizes(f"no array that is given has the extent `{missing.name}`; pass the outputs as well")
    for buffer in given:
        for dim, (extent, size) in enumerate(zip(buffer.extents, shapes[buffer.name], strict=True)):
            wanted = valued(extent, values)
            if wanted != size:
                why = "" if isinstance(extent, int) else f", where {_origin(extent, values, given_by)}"
                raise WrongSizes(
                    f"axis {dim} of `{buffer.name}` must be {extent_text(extent)}"
                    f"{f' = {wanted}' if why else ''}{why}, but the array has {shape_text(shapes[buffer.name])}"
                )
    for cond in preconditions(func):
        if not valued(cond, values):
            names = _origin(cond, values, given_by)
            raise WrongSizes(f"`{func.name}` is only for `{expr_text(uncast(cond))}`, but {names}")
    return values


def _origin(expr: Expr, values: Values, given_by: Mapping[Var, str]) -> str:
    """``n = 5, from axis 0 of `A```."""
    used = sorted(free_variables(expr), key=lambda v: v.name)
    return " and ".join(f"{v.name} = {values[v]}" + (f", from {given_by[v]}" if v in given_by else "") for v in used)


def valued(expr: Extent, values: Values) -> int:
    """The value of an extent or a condition over integers."""
    if not isinstance(expr, Expr):
        return expr
    found = _folded(substitute(expr, {v: const(value, v.dtype) for v, value in values.items()}))
    if not isinstance(found, Const):
        raise WrongSizes(f"`{expr_text(expr)}` has no value: an integer is missing, or it divides by zero")
    return int(found.value)


def _folded(expr: Any) -> Any:
    """An expression of constants as one constant."""
    below = rebuild(expr, _folded)
    if isinstance(below, Binary) and isinstance(below.a, Const) and isinstance(below.b, Const):
        value = fold_constants(below.op, below.a, below.b)
        return below if value is None else value
    if isinstance(below, Cast) and isinstance(below.a, Const):
        return in_type(below.a, below.dtype)
    return below


def fixed(func: PrimFunc, values: Values) -> PrimFunc:
    """The function of fixed shapes that `func` is where its integers have these `values`; it takes the same scalars.

    Preconditions that hold then are left out.
    """
    mapping = {v: const(value, v.dtype) for v, value in values.items()}

    def write_in(node: Any) -> Any:
        if isinstance(node, Buffer) and not node.is_fixed:
            extents = tuple(valued(e, values) for e in node.extents)
            return Buffer(node.name, extents, node.dtype, node.scope, node.axis_separators, node.data)
        below = rebuild(node, write_in)
        if isinstance(below, Iter) and isinstance(below.limit, Expr):
            return Iter(below.var, valued(below.limit, values), below.kind, below.binding)
        if isinstance(below, Cast) and isinstance(below.a, Const) and dtypes.lanes(below.dtype) == 1:
            value = below.a.value
            is_float = dtypes.is_float(below.dtype)
            return const(rounded(value, below.dtype), below.dtype) if is_float else in_type(below.a, below.dtype)
        return refold(below)

    params = tuple(p if isinstance(p, Var) else write_in(p) for p in func.params)
    body = write_in(substitute(func.body, mapping))
    assert isinstance(body, Block)
    if isinstance(body.body, Seq):
        body = replace(body, body=seq([s for s in body.body.stmts if not (isinstance(s, Assume) and s.cond == TRUE)]))
    return PrimFunc(func.name, params, body, func.layouts, func.attrs)
