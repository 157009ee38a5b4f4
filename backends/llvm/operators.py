"""Operators on indices, scalars and in lanes, and comparisons, each of which is made once where it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir import dtypes
from ...ir.arith.compare import decide_zero
from ...ir.expr import COMPARISONS
from ..errors import CodegenError
from . import arith
from .index import INLINE, ZERO, Lanes, Linear, Ramped, difference, from_lanes
from .masks import compare_ramps

if TYPE_CHECKING:
    from .builder import Builder, Value

_INT_COMPARE = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}


def compare_values(out: Builder, op: str, left: str, right: str, dtype: str) -> str:
    """``left op right`` of operands of a type, in each lane."""
    key = ("compare", op, left, right, dtype)
    if key not in out.region:
        out.region[key] = arith.compare(out, op, left, right, dtype)
    return str(out.region[key])


def index_binary(out: Builder, op: str, a: Value, b: Value) -> Value:
    """``a op b`` of scalar or vector indices."""
    if isinstance(a, Linear) and isinstance(b, Linear):
        return linear_binary(out, op, a, b)
    assert isinstance(a, (Linear, Ramped, Lanes)) and isinstance(b, (Linear, Ramped, Lanes))
    count = a.lanes if isinstance(a, (Ramped, Lanes)) else b.lanes  # type: ignore[union-attr]
    if op in "+-*":
        ramp = _ramp_binary(op, _ramped(a, count), _ramped(b, count))
        if ramp is not None:
            return ramp
    if op in COMPARISONS:
        mask = compare_ramps(out, op, _ramped(a, count), _ramped(b, count))
        if mask is not None:
            return mask
    left = [a if isinstance(a, Linear) else a.lane(n) for n in range(count)]
    right = [b if isinstance(b, Linear) else b.lane(n) for n in range(count)]
    lanes = [linear_binary(out, op, x, y) for x, y in zip(left, right, strict=True)]
    if op in COMPARISONS:
        if all(isinstance(v, bool) for v in lanes) and len(set(lanes)) == 1:
            return lanes[0]
        dtype = dtypes.with_lanes(dtypes.INDEX, count)
        return compare_values(out, op, out.materialise(a, dtype), out.materialise(b, dtype), dtype)
    return from_lanes(v for v in lanes if isinstance(v, Linear))


def _ramped(value: Linear | Ramped | Lanes, count: int) -> Ramped | None:
    if isinstance(value, Linear):
        return Ramped(value, ZERO, count)
    return value if isinstance(value, Ramped) else None


def _ramp_binary(op: str, a: Ramped | None, b: Ramped | None) -> Ramped | None:
    """``+``, ``-`` and scaling of ramps lane by lane, where the result is a ramp again."""
    if a is None or b is None:
        return None
    if op == "+":
        return Ramped(a.base + b.base, a.stride + b.stride, a.lanes)
    if op == "-":
        return Ramped(a.base - b.base, a.stride - b.stride, a.lanes)
    for one, other in ((a, b), (b, a)):
        if other.stride == ZERO and other.base.is_const:
            factor = other.base.const
            return Ramped(one.base * factor, one.stride * factor, one.lanes)
    return None


def linear_binary(out: Builder, op: str, a: Linear, b: Linear) -> Value:
    """``a op b`` of scalar indices."""
    if op == "+":
        return a + b
    if op == "-":
        return a - b
    if op == "*":
        return arith.multiply(out, a, b)
    if op == "//":
        return arith.floor_div(out, a, b)
    if op == "%":
        return arith.floor_mod(out, a, b)
    if op in ("min", "max"):
        return arith.extremum(out, op, a, b)
    if op in COMPARISONS:
        return _linear_compare(out, op, a, b)
    raise CodegenError(f"`{op}` of integers is not defined; use `//` for the quotient")


def _linear_compare(out: Builder, op: str, a: Linear, b: Linear) -> bool | str:
    apart = difference(a, b)
    if apart is not None:
        decided = decide_zero(op, *apart.bounds())
        if decided is not None:
            return decided
        if apart.bounded:
            a, b = Linear(0, apart.terms), Linear(-apart.const)
    text = f"icmp {_INT_COMPARE[op]} i64 {out.scalar(a)}, {out.scalar(b)}"
    return condition(out, text, max(a.depth, b.depth))


def condition(out: Builder, text: str, depth: int) -> str:
    """A pure condition: at the head of the loop that it depends on, or here for the innermost one."""
    if depth >= len(out.scopes) - 1:
        depth = INLINE
    name = str(out.shared(("condition", text), depth, lambda into: out.emit(text, into)))
    out.depths[name] = depth
    return name
