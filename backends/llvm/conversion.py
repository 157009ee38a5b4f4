"""Floats of a known range as integers: one instruction for a vector, where others must saturate.

::

    int32(nearbyint(max(min(x, hi), lo)))    ->  ord(x) ? lrint(min(max(..))) : 0
    uint8(x)                                 ->  ord(x) ? trunc(fptosi(min(max(x, 0), 255))) : 0

A conversion saturates, and NaN gives 0.  Where a clamp between constants, or one that is put there, keeps the number in
32 bits, nothing but NaN is left to look for; clamps that let it through as the one or the other bound are single
instructions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...ir import dtypes
from ...ir.expr import Binary, Broadcast, Call, Cast, Const, Expr
from .types import literal, value_type

if TYPE_CHECKING:
    from .builder import Builder

_BITS = 32  # of the integers that one instruction makes of floats
_COMPARED = {"min": "olt", "max": "ogt"}


@dataclass(frozen=True)
class Clamped:
    """A float between constants: `value` after each of `steps`, from the inside, and rounded if it `is_rounded`."""

    value: Expr
    steps: tuple[tuple[str, float], ...]
    is_rounded: bool

    @property
    def bounds(self) -> tuple[float, float]:
        """What the number lies between, where it is one."""
        low, high = -math.inf, math.inf
        for op, bound in self.steps:
            choose = min if op == "min" else max
            low, high = choose(low, bound), choose(high, bound)
        return low, high


def clamped(expr: Cast) -> Clamped | None:
    """What a conversion of float32 to integers of at most 32 bits converts; None where it may leave their range."""
    base = dtypes.element(expr.dtype)
    if dtypes.element(expr.a.dtype) != "float32" or not dtypes.is_int(base) or dtypes.bits(base) > _BITS:
        return None
    value, is_rounded = expr.a, False
    if isinstance(value, Call) and value.name == "nearbyint":
        (value,), is_rounded = value.args, True
    steps: list[tuple[str, float]] = []
    while isinstance(value, Binary) and value.op in _COMPARED:
        sides = _number(value.a), _number(value.b)
        bound = sides[1] if sides[0] is None else sides[0]
        if bound is None or math.isnan(bound):
            break
        steps.insert(0, (value.op, bound))
        value = value.a if sides[0] is None else value.b
    low, high = (float(end) for end in dtypes.int_range(base))
    if high > 2.0**31:
        return None
    found = Clamped(value, tuple(steps), is_rounded)
    if low <= found.bounds[0] and found.bounds[1] <= high and (dtypes.bits(base) < _BITS or found.bounds[1] < high):
        return found
    if dtypes.bits(base) == _BITS:  # the largest of 32 bits is no float32
        return None
    return Clamped(value, (*steps, ("min", high), ("max", low)), is_rounded)


def _number(expr: Expr) -> float | None:
    expr = expr.value if isinstance(expr, Broadcast) else expr
    return float(expr.value) if isinstance(expr, Const) else None


def converted(out: Builder, found: Clamped, operand: Callable[[Expr], str], dtype: str) -> str:
    """The integers of type `dtype` that a float becomes."""
    lanes = dtypes.lanes(dtype)
    source, wide, flags = (dtypes.with_lanes(base, lanes) for base in ("float32", "int32", "bool"))
    kind, result, truth = value_type(source), value_type(wide), value_type(flags)
    first = value = operand(found.value)
    for op, bound in found.steps:
        limit = literal(bound, source)
        inside = out.emit(f"fcmp {_COMPARED[op]} {kind} {value}, {limit}")
        value = out.emit(f"select {truth} {inside}, {kind} {value}, {kind} {limit}")
    if found.is_rounded:
        suffix = "i32.f32" if lanes == 1 else f"v{lanes}i32.v{lanes}f32"
        function = out.module.declare(f"llvm.lrint.{suffix}", result, kind)
        whole = out.emit(f"call {result} {function}({kind} {value})")
    else:
        whole = out.emit(f"fptosi {kind} {value} to {result}")
    ordered = out.emit(f"fcmp ord {kind} {first}, {literal(0.0, source)}")
    whole = out.emit(f"select {truth} {ordered}, {result} {whole}, {result} {literal(0, wide)}")
    if dtypes.bits(dtypes.element(dtype)) == _BITS:
        return whole
    return out.emit(f"trunc {result} {whole} to {value_type(dtype)}")
