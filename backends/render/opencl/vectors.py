"""Vectors: for each type of expression the function that gives its C expression."""

from __future__ import annotations

from ....ir import dtypes
from ....ir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Load,
    Ramp,
    Select,
    Shuffle,
    Var,
    as_int,
)
from ....ir.functions import DOT_CALLS, LOAD_WITHIN, MASKED_LOAD, REINTERPRET
from ...errors import CodegenError
from ...neighbours import Picks
from ...passes.roundings import EXACT
from .calls import call, dot, exact, extremum
from .kernel import Kernel, Table
from .masks import first, lane_bytes, load_masked, load_within, mask, read_in_place
from .memory import read_vector
from .texels import converted, is_texel, texel_lanes
from .types import memory_type


def _var(k: Kernel, e: Var) -> str:
    if e not in k.variables:
        raise CodegenError(f"a vector variable must be written out before code generation: `{e.name}`")
    return k.variables[e]


def _broadcast(k: Kernel, e: Broadcast) -> str:
    return f"(({k.types.vector(e.dtype, e.lanes)})({k.scalar(e.value)}))"


def _ramp(k: Kernel, e: Ramp) -> str:
    """Indices that fit 32 bits."""
    kind, stride = k.types.vector(e.dtype, e.lanes), as_int(e.stride)
    base = f"(({kind}){k.scalar(e.base)})"
    return f"({base} + ({kind})({', '.join(str(stride * n) for n in range(e.lanes))}))" if stride else base


def _binary(k: Kernel, e: Binary) -> str:
    a, b = k.vector(e.a), k.vector(e.b)
    count = dtypes.lanes(e.dtype)
    if e.op in ("min", "max"):
        return extremum(k, e, a, b, count)
    if e.op not in ("+", "-", "*", "/"):
        raise CodegenError(f"`{e.op}` of vectors has no OpenCL code: {e!r}")
    kind = k.types.lane(e.dtype)
    if e.dtype.startswith("int"):  # wraps around, where C's signed arithmetic has no meaning
        return f"as_{kind}{count}(as_u{kind}{count}({a}) {e.op} as_u{kind}{count}({b}))"
    return f"({a} {e.op} {b})"


def _cast(k: Kernel, e: Cast) -> str:
    count, truncates = dtypes.lanes(e.dtype), dtypes.is_float(e.a.dtype) and dtypes.is_int(e.dtype)
    source, wanted = memory_type(e.a.dtype), memory_type(e.dtype)
    function = k.helpers.built_in(f"convert_{wanted}{{n}}{'_sat' * truncates}", source, wanted, count)
    value = k.vector(e.a)
    return f"{function}({k.helpers.no_nan(source, count)}({value}))" if truncates else f"{function}({value})"


def _call(k: Kernel, e: Call) -> str:
    count, kind = dtypes.lanes(e.dtype), k.types.vector(e.dtype, dtypes.lanes(e.dtype))
    if e.name in DOT_CALLS:
        return dot(k, e, k.vector, count)
    if e.name == EXACT:
        return exact(k, e.args[0], k.vector, count)
    if e.name == MASKED_LOAD:
        return k.writer.steady(e, kind, lambda: load_masked(k, e))
    if e.name == LOAD_WITHIN:
        return k.writer.steady(e, kind, lambda: load_within(k, e))
    if e.name == "if_then_else":
        cond, a, b = e.args
        return k.writer.steady(e, kind, lambda: k.conditional(cond, a, b, k.vector))
    if e.name == REINTERPRET:
        return f"as_{memory_type(e.dtype)}{count}({k.vector(e.args[0])})"
    return call(k, e.name, [k.vector(a) for a in e.args], e.dtype, count)


def _select(k: Kernel, e: Select) -> str:
    def choose() -> str:
        if dtypes.lanes(e.cond.dtype) == 1:
            return k.conditional(e.cond, e.a, e.b, k.vector)
        beside = isinstance(e.b, Broadcast) and isinstance(e.b.value, Const)
        left = (read_in_place(k, e.a) if beside else None) or k.vector(e.a)
        right = k.vector(e.b)
        return f"({mask(k, e.cond, lane_bytes(k, e.dtype))} ? {left} : {right})"

    return k.writer.steady(e, k.types.vector(e.dtype, dtypes.lanes(e.dtype)), choose)


def _load(k: Kernel, e: Load) -> str:
    count = dtypes.lanes(e.dtype)
    if is_texel(k, e):
        return converted(k, texel_lanes(k, Shuffle((e,), tuple(map(Const, range(count))))), e.dtype)
    kind = f"{memory_type(e.dtype)}{count}"
    return k.writer.steady(e, kind, lambda: read_vector(k, e.buffer, first(e), count))


def _shuffle(k: Kernel, e: Shuffle) -> str:
    count, one = len(e.lanes), e.vectors[0]
    kind = k.types.vector(e.dtype, count)
    if dtypes.lanes(one.dtype) == 1:
        return k.writer.steady(e, kind, lambda: f"(({kind})({', '.join(_chosen_scalars(k, e))}))")
    if is_texel(k, one):
        return converted(k, texel_lanes(k, e), e.dtype)
    numbers, length = [as_int(lane) for lane in e.lanes], dtypes.lanes(one.dtype)
    if len(e.vectors) == 1 and isinstance(one, Var):
        # Lane by lane: compilers make one instruction of it, and oclgrind takes `.s89ab` for undefined.
        return f"(({kind})({', '.join(f'{k.variables[one]}.s{number:x}' for number in numbers)}))"
    starts = tuple(length * number for number in range(len(e.vectors)))
    picks = Picks(starts, length, tuple(n // length for n in numbers), tuple(n % length for n in numbers))
    function = k.helpers.pick(memory_type(e.dtype), picks)

    def pick() -> str:
        return f"{function}({', '.join(read_in_place(k, v) or k.vector(v) for v in e.vectors)})"

    return pick() if all(isinstance(v, Var) for v in e.vectors) else k.writer.steady(e, kind, pick)


def _chosen_scalars(k: Kernel, e: Shuffle) -> list[str]:
    return [k.scalar(e.vectors[as_int(lane)]) for lane in e.lanes]


VECTORS: Table = {
    Var: _var, Broadcast: _broadcast, Ramp: _ramp, Binary: _binary, Cast: _cast, Call: _call, Select: _select,
    Load: _load, Shuffle: _shuffle,
}  # fmt: skip
