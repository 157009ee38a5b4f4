"""What ``T.name(...)`` builds: one table for the parser and for the `T` namespace.

Operands are expressions or Python numbers.  A number takes the type of the
expressions beside it (int64, float32 or bool when there is none); expressions
of different types are promoted as TVM does: integers to floats, fewer bits to
more, a scalar to a vector of the other's lanes.  Nothing is folded.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Union

from .. import dtypes
from ..expr import Binary, Broadcast, Call, Cast, Const, Expr, Load, Not, Ramp, Select, Shuffle, Undef, const
from ..functions import (
    DOT_CALLS,
    INTEGER_CALLS,
    LOAD_WITHIN,
    MASKED_LOAD,
    MATH_CALLS,
    MULTIPLY_ACCUMULATE,
    PACK_4X8,
    PAIR_CALLS,
    PREFETCH,
    REINTERPRET,
    STATEMENT_CALLS,
    SUBGROUP_CALLS,
    TO_INT_CALLS,
    TWO_ARGUMENTS,
)

Operand = Union[Expr, int, float, bool]

ALIASES: Mapping[str, str] = {
    "power": "pow", "fabs": "abs",
    "And": "and", "Or": "or", "Add": "+", "Sub": "-", "Mul": "*", "Div": "/",
    "FloorDiv": "//", "FloorMod": "%", "floordiv": "//", "floormod": "%",
    "EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">=",
    "Min": "min", "Max": "max",
}  # fmt: skip


def number(value: int | float | bool, dtype: str | None = None) -> Const:
    """A literal of type `dtype`, or of its default type.  Raises ValueError where the type cannot hold it."""
    if not isinstance(value, (bool, int, float)):
        raise ValueError(f"expected an expression or a number, but got `{value!r}`")
    try:
        result = const(value, dtype)
    except (OverflowError, ValueError):
        raise ValueError(f"the number {_short(value)} is no {dtype}") from None
    if dtypes.is_int(result.dtype):
        low, high = dtypes.int_range(result.dtype)
        if result.value != value or not low <= result.value <= high:
            raise ValueError(f"the number {_short(value)} is no {result.dtype}")
    elif dtypes.is_float(result.dtype) and dtypes.overflows(result.value, result.dtype):
        raise ValueError(f"the number {_short(value)} is no {result.dtype}")
    return result


def _short(value: int | float | bool) -> str:
    return "of so many digits" if isinstance(value, int) and abs(value) >= 10**40 else repr(value)


def finish(value: Operand, dtype: str | None = None) -> Expr:
    """`value` as an expression; numbers and ``T.undef()`` become `dtype` or their default type."""
    if isinstance(value, Undef) and not value.dtype:
        return Undef(dtype or "float32")
    if isinstance(value, Expr):
        return value
    if dtype is None or dtypes.lanes(dtype) == 1:
        return number(value, dtype)
    return Broadcast(number(value, dtypes.element(dtype)), dtypes.lanes(dtype))


def convert(value: Operand, dtype: str) -> Expr:
    """`value` in type `dtype`, with a cast or a broadcast where it has another."""
    result = finish(value, dtype)
    if dtypes.element(result.dtype) != dtypes.element(dtype):
        result = Cast(dtypes.with_lanes(dtypes.element(dtype), dtypes.lanes(result.dtype)), result)
    lanes = dtypes.lanes(dtype)
    if dtypes.lanes(result.dtype) == 1 and lanes > 1:
        result = Broadcast(result, lanes)
    if dtypes.lanes(result.dtype) != lanes:
        raise ValueError(f"{dtypes.lanes(result.dtype)} lanes do not fit the type {dtype}")
    return result


def match(*values: Operand) -> tuple[Expr, ...]:
    """The operands in their common type."""
    known = [v.dtype for v in values if isinstance(v, Expr) and v.dtype]
    if not known:
        dtype = "float32" if any(isinstance(v, (float, Undef)) for v in values) else None
        return tuple(finish(v, dtype) for v in values)
    common = known[0]
    for dtype in known[1:]:
        common = promote(common, dtype)
    if any(isinstance(v, float) for v in values) and not dtypes.is_float(common):
        common = dtypes.with_lanes("float32", dtypes.lanes(common))
    return tuple(convert(v, common) for v in values)


def promote(a: str, b: str) -> str:
    """The common type: floats before integers before bool, then the wider; lanes of the vector."""

    def rank(dtype: str) -> tuple[int, int, bool]:
        kind = 2 if dtypes.is_float(dtype) else 1 if dtypes.is_int(dtype) else 0
        return kind, dtypes.bits(dtype), dtype.startswith(("bfloat", "u"))

    lanes = {dtypes.lanes(a), dtypes.lanes(b)} - {1}
    if len(lanes) > 1:
        raise ValueError(f"vectors of {dtypes.lanes(a)} and {dtypes.lanes(b)} lanes do not go together")
    winner = a if rank(a) >= rank(b) else b
    return dtypes.with_lanes(dtypes.element(winner), lanes.pop() if lanes else 1)


def operate(op: str, a: Operand, b: Operand) -> Expr:
    """``a op b``."""
    if op in ("and", "or"):
        return Binary(op, finish(a, "bool"), finish(b, "bool"))
    if op == "/" and not isinstance(a, Expr) and not isinstance(b, Expr):
        a = float(number(a, "float64").value)
    left, right = match(a, b)
    return Binary(op, left, right)


def negate(a: Expr) -> Expr:
    """``-a``, as ``0 - a``."""
    return operate("-", 0, a)


def _conditional(cond: Operand, a: Operand, b: Operand) -> Expr:
    left, right = match(a, b)
    return Call("if_then_else", (finish(cond, "bool"), left, right), left.dtype)


def _select(cond: Operand, a: Operand, b: Operand) -> Expr:
    left, right = match(a, b)
    return Select(finish(cond, "bool"), left, right)


def _load(name: str, value: Operand) -> Load:
    if not isinstance(value, Load):
        raise ValueError(f"`T.{name}` takes an element of a buffer, but got `{value!r}`")
    return value


def _masked_load(cond: Operand, load: Operand, other: Operand | None = None) -> Expr:
    read = _load(MASKED_LOAD, load)
    beside = () if other is None else (convert(other, read.dtype),)
    return Call(MASKED_LOAD, (finish(cond, "bool"), read, *beside), read.dtype)


def _of_load(name: str, load: Operand) -> Expr:
    read = _load(name, load)
    return Call(name, (read,), read.dtype)


def _math(name: str, *args: Operand) -> Expr:
    wanted = 3 if name in ("fma", MULTIPLY_ACCUMULATE) else 2 if name in TWO_ARGUMENTS else 1
    if len(args) != wanted:
        raise TypeError(f"takes {wanted} argument{'s' * (wanted > 1)}, but got {len(args)}")
    operands = match(*args)
    if not dtypes.is_float(operands[0].dtype) and all(not isinstance(a, Expr) for a in args):
        operands = tuple(finish(a, "float32") for a in args)
    return Call(name, operands, operands[0].dtype)


def _integers(name: str, *args: Operand) -> Expr:
    wanted = 3 if name in DOT_CALLS else 2
    if len(args) != wanted:
        raise TypeError(f"takes {wanted} arguments, but got {len(args)}")
    operands = match(*args)
    return Call(name, operands, operands[0].dtype)


def _bitwise_not(value: Operand) -> Expr:
    """All bits the other way round: ``a xor -1``, or the largest number of a type without signs."""
    (a,) = match(value)
    if not dtypes.is_int(a.dtype):
        raise ValueError(f"takes an integer, but got a {a.dtype}")
    low, high = dtypes.int_range(a.dtype)
    return Call("bitwise_xor", (a, finish(high if low == 0 else -1, a.dtype)), a.dtype)


def _reinterpret(dtype: str, value: Operand) -> Expr:
    dtypes.split_dtype(dtype)
    return Call(REINTERPRET, (finish(value),), dtype)


def _words(name: str, a: Operand, b: Operand, c: Operand) -> Expr:
    """A dot product of words, added to a number of another type, which the result has."""
    total = finish(c, "float32")
    return Call(name, (finish(a, "int32"), finish(b, "int32"), total), total.dtype)


def _packed(*parts: Operand) -> Expr:
    """Four bytes of one type as a word."""
    if len(parts) != 4:
        raise TypeError(f"takes 4 arguments, but got {len(parts)}")
    found = match(*parts)
    return Call(PACK_4X8, found, dtypes.with_lanes("int32", dtypes.lanes(found[0].dtype)))


def _of_subgroup(name: str, value: Operand) -> Expr:
    part = finish(value)
    return Call(name, (part,), part.dtype)


def _to_int(name: str, value: Operand) -> Expr:
    real = finish(value, "float32")
    return Call(name, (real,), dtypes.with_lanes("int32", dtypes.lanes(real.dtype)))


def _statement(name: str) -> Expr:
    return Call(name, (), "int32")


def _extern(dtype: str, name: str, *args: Operand) -> Expr:
    dtypes.split_dtype(dtype)
    if not isinstance(name, str):
        raise ValueError("the name of the function must be a string")
    return Call(name, tuple(finish(a) for a in args), dtype)


def _chain(op: str, *args: Operand) -> Expr:
    if not args:
        raise TypeError("takes at least one argument")
    result = finish(args[0], "bool")
    for arg in args[1:]:
        result = operate(op, result, arg)
    return result


def _cast(dtype: str, value: Operand) -> Expr:
    """A conversion; ``T.Cast(dtype, T.undef())`` is undef of that type, since TVM's has none."""
    dtypes.split_dtype(dtype)
    if isinstance(value, Undef) and not value.dtype:
        return Undef(dtype)
    return Cast(dtype, finish(value))


def typed(dtype: str, value: Operand | str) -> Expr:
    """What ``T.float32(value)`` builds: a constant for a number, ``"inf"`` or ``"nan"``, a cast for an expression."""
    if isinstance(value, str):
        value = float(value)
    return _cast(dtype, value) if isinstance(value, Expr) else finish(value, dtype)


def _lanes(count: Any) -> int:
    value = count.value if isinstance(count, Const) else count
    if not isinstance(value, int) or not 2 <= value <= dtypes.MAX_LANES:
        raise ValueError(f"the lanes of a vector are a constant of 2 to {dtypes.MAX_LANES}")
    return value


def _scalar(value: Expr) -> Expr:
    if dtypes.lanes(value.dtype) > 1:
        raise ValueError(f"makes a vector of a scalar, but got a {value.dtype}")
    return value


def _ramp(base: Operand, stride: Operand, lanes: int) -> Expr:
    first, step = match(base, stride)
    return Ramp(_scalar(first), step, _lanes(lanes))


def _broadcast(value: Operand, lanes: int) -> Expr:
    return Broadcast(_scalar(finish(value)), _lanes(lanes))


def _shuffle(vectors: Sequence[Operand], lanes: Sequence[Operand]) -> Expr:
    if not all(isinstance(part, (list, tuple)) and part for part in (vectors, lanes)):
        raise ValueError("takes a list of vectors and a list of the numbers of lanes")
    parts = [finish(vector) for vector in vectors]
    if len({part.dtype for part in parts}) > 1:
        raise ValueError(f"takes vectors of one type, but got {' and '.join(part.dtype for part in parts)}")
    return Shuffle(tuple(parts), tuple(finish(number) for number in lanes))


def _undef(dtype: str = "") -> Expr:
    if dtype:
        dtypes.split_dtype(dtype)
    return Undef(dtype)


def _limit(sign: int, dtype: str) -> Expr:
    if dtypes.lanes(dtype) > 1 or dtypes.is_bool(dtype):
        raise ValueError(f"the type {dtype} has no smallest and largest number")
    if dtypes.is_float(dtype):
        return const(sign * dtypes.LARGEST[dtype], dtype)
    return const(dtypes.int_range(dtype)[sign > 0], dtype)


def _infinity(dtype: str = "float32") -> Expr:
    return finish(float("inf"), dtype)


def _not(condition: Operand) -> Expr:
    return Not(finish(condition, "bool"))


def _binary(op: str, a: Operand, b: Operand) -> Expr:
    return operate(op, a, b)


def _likely(condition: Operand) -> Expr:
    return finish(condition, "bool")


def _cast_to(value: Operand, dtype: str) -> Expr:
    return _cast(dtype, value)


def _ceildiv(a: Operand, b: Operand) -> Expr:
    return operate("//", operate("-", operate("+", a, b), 1), b)


def _exp10(value: Operand) -> Expr:
    """``10 ** x``."""
    x = finish(value, "float32")
    return Call("pow", (finish(10.0, x.dtype), x), x.dtype)


def _compared_with_infinity(op: str, value: Operand) -> Expr:
    x = finish(value, "float32")
    return operate(op, Call("abs", (x,), x.dtype), finish(float("inf"), x.dtype))


def _is_nan(value: Operand) -> Expr:
    """NaN alone differs from itself."""
    x = finish(value, "float32")
    return operate("!=", x, x)


TABLE: dict[str, Callable[..., Expr]] = {
    "exp10": _exp10,
    "isnan": _is_nan,
    "isinf": partial(_compared_with_infinity, "=="),
    "isfinite": partial(_compared_with_infinity, "<"),
    "if_then_else": _conditional,
    "Select": _select,
    "Not": _not,
    "min": partial(_binary, "min"),
    "max": partial(_binary, "max"),
    "all": partial(_chain, "and"),
    "any": partial(_chain, "or"),
    "Cast": _cast,
    "cast": _cast_to,
    "Ramp": _ramp,
    "ramp": _ramp,
    "Broadcast": _broadcast,
    "broadcast": _broadcast,
    "Shuffle": _shuffle,
    "undef": _undef,
    "call_extern": _extern,
    "min_value": partial(_limit, -1),
    "max_value": partial(_limit, 1),
    "infinity": _infinity,
    "likely": _likely,
    "ceildiv": _ceildiv,
    MASKED_LOAD: _masked_load,
    **{name: partial(_of_load, name) for name in (LOAD_WITHIN, PREFETCH)},
    **{name: partial(_math, name) for name in (*MATH_CALLS, MULTIPLY_ACCUMULATE)},
    **{name: partial(_of_subgroup, name) for name in SUBGROUP_CALLS.values()},
    **{name: partial(_statement, name) for name in STATEMENT_CALLS},
    **{name: partial(_integers, name) for name in (*INTEGER_CALLS, *DOT_CALLS)},
    "bitwise_not": _bitwise_not,
    REINTERPRET: _reinterpret,
    **{name: partial(_words, name) for name in PAIR_CALLS},
    **{name: partial(_to_int, name) for name in TO_INT_CALLS},
    PACK_4X8: _packed,
}
TABLE.update({alias: TABLE[name] if name in TABLE else partial(_binary, name) for alias, name in ALIASES.items()})


def is_dtype(name: str) -> bool:
    """Whether `name` is an element type or a vector of one."""
    try:
        dtypes.split_dtype(name)
    except ValueError:
        return False
    return True


def apply(build: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """``build(*args, **keywords)``.  Raises ValueError that says in words what it takes.

    ``dtype=`` is the type of the result, and of all operands but conditions where they have another.
    """
    dtype = keywords.get("dtype")
    if isinstance(dtype, str) and dtype and "dtype" not in inspect.signature(build).parameters:
        rest = {key: value for key, value in keywords.items() if key != "dtype"}
        result = apply(build, args, rest)
        if result.dtype == dtype:
            return result
        operands = [a if _is_condition(a) or dtypes.is_bool(dtype) else convert(a, dtype) for a in args]
        result = apply(build, operands, rest)
        if result.dtype != dtype:
            raise ValueError(f"gives a {result.dtype}, but `dtype` is {dtype}")
        return result
    try:
        bound = inspect.signature(build).bind(*args, **keywords)
    except TypeError:
        wanted = ", ".join(p.name for p in inspect.signature(build).parameters.values())
        given = f"{len(args) + len(keywords)} argument{'s' * (len(args) + len(keywords) != 1)}"
        raise ValueError(f"takes ({wanted}), but got {given}") from None
    try:
        return build(*bound.args, **bound.kwargs)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _is_condition(value: Any) -> bool:
    return (
        isinstance(value, bool)
        or not isinstance(value, (Expr, int, float))
        or (isinstance(value, Expr) and dtypes.is_bool(value.dtype))
    )


def lookup(name: str) -> Callable[..., Any] | None:
    """The builder of ``T.<name>``, or None.  A dtype's name builds constants and casts of it."""
    return TABLE.get(name) or (partial(typed, name) if is_dtype(name) else None)
