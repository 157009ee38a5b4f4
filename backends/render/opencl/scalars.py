"""Scalars: for each type of expression the function that gives its C expression, in parentheses where it needs them."""

from __future__ import annotations

from ....ir import dtypes
from ....ir.expr import (
    COMPARISONS,
    LOGIC,
    Binary,
    Call,
    Cast,
    Const,
    Load,
    Not,
    Select,
    Shuffle,
    Undef,
    Var,
    as_int,
)
from ....ir.functions import DOT_CALLS, MASKED_LOAD, REINTERPRET
from ....ir.numbers import HALF_BYTES
from ...errors import CodegenError
from ...legal.lanes import position
from ...passes.roundings import EXACT
from .calls import call, dot, exact, extremum, rounded
from .kernel import Kernel, Table
from .masks import load_masked
from .memory import read
from .texels import component, is_texel
from .types import bare, literal, memory_type, narrow_value

INTEGERS = {1: "uchar", 2: "ushort"}
"""The types of the bits of floats that are held as float, by their bytes."""


def _const(k: Kernel, e: Const) -> str:
    if e.dtype in k.types.emulated:
        return literal(narrow_value(float(e.value), e.dtype), "float32", k.types.index)
    return k.types.literal(e.value, e.dtype)


def _var(k: Kernel, e: Var) -> str:
    if e not in k.variables:
        raise CodegenError(f"variable `{e.name}` is used outside of the loop or let that defines it")
    return k.variables[e]


def _undef(k: Kernel, e: Undef) -> str:
    return k.types.literal(0, "float32" if e.dtype in k.types.emulated else e.dtype)


def _not(k: Kernel, e: Not) -> str:
    return f"(!{k.scalar(e.a)})"


def _select(k: Kernel, e: Select) -> str:
    return k.conditional(e.cond, e.a, e.b, k.scalar)


def _shuffle(k: Kernel, e: Shuffle) -> str:
    """A lane of a vector that is held, or of a texel."""
    (vector, *others), (number,) = e.vectors, e.lanes
    if is_texel(k, vector):
        return k.writer.steady(e, k.types.scalar(e.dtype), lambda: component(k, e))
    if others or not isinstance(vector, Var):
        raise CodegenError(f"a lane is taken of a vector that is held: {e!r}")
    return f"{k.variables[vector]}.s{as_int(number):x}"


def _load(k: Kernel, e: Load) -> str:
    place = position(e.buffer, e.indices)
    return k.writer.steady(e, k.types.scalar(e.dtype), lambda: read(k, e.buffer, place))


def _cast(k: Kernel, e: Cast) -> str:
    value, source, target = k.scalar(e.a), e.a.dtype, e.dtype
    if dtypes.is_bool(target):
        return f"({value} != 0)"
    if target in HALF_BYTES:
        return _in_four_bits(k, value, source, target)
    if dtypes.is_float(source) and dtypes.is_int(target):
        return f"convert_{k.types.scalar(target)}_sat({k.helpers.no_nan(k.types.lane(source), 1)}({value}))"
    if target in k.types.emulated and source == "float64":
        return rounded(k, f"{k.helpers.odd_float()}({value})", target)
    if target in k.types.emulated and source == target:
        return value
    return rounded(k, f"(({k.types.scalar(target)}){value})", target)


def _in_four_bits(k: Kernel, value: str, source: str, target: str) -> str:
    """A number as one of 4 bits: a float the nearest end where it is beyond them, an integer its lowest bits."""
    kind = memory_type(target)
    if not dtypes.is_float(source):
        return f"{k.helpers.in_four_bits(kind)}(({kind}){value})"
    low, high = (k.types.literal(end, target) for end in dtypes.int_range(target))
    whole = f"convert_{kind}_sat({k.helpers.no_nan(k.types.lane(source), 1)}({value}))"
    return f"max({low}, min({high}, {whole}))"


def _reinterpret(k: Kernel, e: Call) -> str:
    source, target = e.args[0].dtype, e.dtype
    value, wanted = k.scalar(e.args[0]), memory_type(target)
    if source in k.types.emulated:
        value = f"{k.helpers.to_bits(source)}({bare(value)})"
    bits = INTEGERS[dtypes.nbytes(target)] if target in k.types.emulated else wanted
    held = INTEGERS[dtypes.nbytes(source)] if source in k.types.emulated else memory_type(source)
    same = f"as_{bits}(({held}){value})"
    if target in k.types.emulated:
        return f"{k.helpers.from_bits(target)}({same})"
    return f"{k.helpers.in_four_bits(wanted)}({same})" if target in HALF_BYTES else same


def _call(k: Kernel, e: Call) -> str:
    if e.name == "if_then_else":
        cond, a, b = e.args
        return k.writer.steady(e, k.types.scalar(e.dtype), lambda: k.conditional(cond, a, b, k.scalar))
    if e.name == MASKED_LOAD:
        return k.writer.steady(e, k.types.scalar(e.dtype), lambda: load_masked(k, e))
    if e.name == REINTERPRET:
        return _reinterpret(k, e)
    if e.name in DOT_CALLS:
        return dot(k, e, k.scalar, 1)
    if e.name == EXACT:
        return exact(k, e.args[0], k.scalar, 1)
    return call(k, e.name, [k.scalar(a) for a in e.args], e.dtype, 1)


def _binary(k: Kernel, e: Binary) -> str:
    op, dtype = e.op, e.a.dtype
    if op in LOGIC:
        return f"({k.scalar(e.a)} {'&&' if op == 'and' else '||'} {k.scalar(e.b)})"
    a, b = k.scalar(e.a), k.scalar(e.b)
    if op in COMPARISONS:
        return f"({a} {op} {b})"
    if op in ("min", "max"):
        return extremum(k, e, a, b, 1)
    if op in ("//", "%"):
        return _floor_division(k, e, a, b)
    if op == "/" and not dtypes.is_float(dtype):
        raise CodegenError(f"`/` divides floats, but got {dtype}; use `//`")
    return _arithmetic(k, e, a, b)


def _arithmetic(k: Kernel, e: Binary, a: str, b: str) -> str:
    op, dtype = e.op, e.dtype
    if dtypes.is_bool(dtype):
        if op not in ("+", "*"):
            raise CodegenError(f"`{op}` of bool is not defined")
        return f"({a} {'|' if op == '+' else '&'} {b})"
    if dtypes.is_float(dtype):
        return rounded(k, f"({a} {op} {b})", dtype)
    if dtype == "int32":  # wraps around, where C's signed arithmetic has no meaning
        return f"((int)((uint){a} {op} (uint){b}))"
    if dtype == "uint16":  # of which C makes int before it multiplies
        return f"((ushort)((uint){a} {op} (uint){b}))"
    if dtype != dtypes.INDEX:
        return f"(({memory_type(dtype)})({a} {op} {b}))"
    if k.facts.stays(e):
        return f"({a} {op} {b})"
    return f"((long)((ulong){a} {op} (ulong){b}))"


def _floor_division(k: Kernel, e: Binary, a: str, b: str) -> str:
    if not dtypes.is_int(e.dtype):
        raise CodegenError(f"`{e.op}` divides integers, but got {e.dtype}")
    if k.facts.interval(e.a)[0] >= 0 and k.facts.interval(e.b)[0] > 0:
        return f"({a} {'/' if e.op == '//' else '%'} {b})"
    return f"{k.helpers.floor_division(e.op, k.types.scalar(e.dtype))}({a}, {b})"


SCALARS: Table = {
    Const: _const, Var: _var, Undef: _undef, Not: _not, Select: _select, Load: _load, Cast: _cast, Call: _call,
    Binary: _binary, Shuffle: _shuffle,
}  # fmt: skip
