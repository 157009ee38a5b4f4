"""Vectors: for each type of expression the function that gives lanes ``[start, start + count)`` of it.

What has no vector form (conditions by lane, accesses with large strides) is assembled from its lanes.
"""

from __future__ import annotations

from ....ir import dtypes
from ....ir.arith.linear import as_ramp
from ....ir.expr import Binary, Broadcast, Call, Cast, Const, Expr, Load, Select, binary, const
from ....ir.functions import DOT_CALLS, REINTERPRET, TRUNCATED_CALLS
from ....ir.node import walk
from ...neighbours import Picks, picks
from ...passes.roundings import EXACT
from .calls import call, dot, exact, extremum
from .kernel import Kernel, Vectors
from .masks import chosen, guarded_load, load_or_constant, masked_load, read_within
from .memory import position, read_vector
from .texels import components, is_image
from .types import memory_type

ARITHMETIC = ("+", "-", "*", "/", "min", "max")


def _binary(k: Kernel, e: Binary, start: int, count: int) -> str:
    if e.op not in ARITHMETIC:
        return k.by_lane(e, start, count)
    a, b = (k.vector(side, start, count) for side in (e.a, e.b))
    if e.op in ("min", "max"):
        return extremum(k, e, a, b, count)
    kind = k.types.lane(e.dtype)
    if e.dtype.startswith("int"):  # wraps around, where C's signed arithmetic has no meaning
        return f"as_{kind}{count}(as_u{kind}{count}({a}) {e.op} as_u{kind}{count}({b}))"
    return f"({a} {e.op} {b})"


def _cast(k: Kernel, e: Cast, start: int, count: int) -> str:
    if dtypes.element(e.a.dtype) in k.types.by_lane:
        return k.by_lane(e, start, count)
    truncates = dtypes.is_float(e.a.dtype) and dtypes.is_int(e.dtype)
    source, wanted = memory_type(e.a.dtype), memory_type(e.dtype)
    function = k.helpers.built_in(f"convert_{wanted}{{n}}{'_sat' * truncates}", source, wanted, count)
    value = k.vector(e.a, start, count)
    return f"{function}({k.helpers.no_nan(source, count)}({value}))" if truncates else f"{function}({value})"


def _call(k: Kernel, e: Call, start: int, count: int) -> str:
    def write(operand: Expr) -> str:
        return k.vector(operand, start, count)

    if e.name in DOT_CALLS:
        return dot(k, e, write, count)
    if e.name == EXACT:
        return exact(k, e.args[0], write, count)
    if e.name in TRUNCATED_CALLS:
        return k.by_lane(e, start, count)
    if e.name == REINTERPRET:
        if dtypes.element(e.args[0].dtype) in k.types.by_lane:
            return k.by_lane(e, start, count)
        return f"as_{memory_type(e.dtype)}{count}({write(e.args[0])})"
    if e.name != "if_then_else":
        return call(k, e.name, [write(a) for a in e.args], e.dtype, count)
    return _choice(k, e, start, count)


def _choice(k: Kernel, e: Select | Call, start: int, count: int) -> str:
    def choose() -> str:
        return _chosen(k, e, start, count) or k.lanes(e, start, count)

    return k.writer.steady(e, k.types.vector(e.dtype, count), start, count, choose)


def _chosen(k: Kernel, e: Select | Call, start: int, count: int) -> str | None:
    """A choice between vectors; None where the condition is one that each lane has to decide."""
    cond, a, b = (e.cond, e.a, e.b) if isinstance(e, Select) else e.args
    cond, other = k.known.settled(cond), b.value if isinstance(b, Broadcast) else b
    if isinstance(cond, Const):
        return k.vector(a if cond.value else b, start, count)
    is_one = dtypes.lanes(cond.dtype) == 1
    if isinstance(a, Load) and isinstance(other, Const) and not is_image(k, a):
        read = masked_load if is_one else guarded_load
        text = read(k, cond, a, other, start, count)
        if text is None and is_one:
            text = load_or_constant(k, cond, a, other, start, count)
        if text is not None or not is_one:
            return text
    if is_one:
        return k.conditional(cond, a, b, lambda side: k.vector(side, start, count))
    if isinstance(e, Call) and any(isinstance(n, Load) for side in (a, b) for n in walk(side)):
        return None
    left, right = (k.vector(side, start, count) for side in (a, b))
    return chosen(k, cond, left, right, e.dtype, start, count)


def _load(k: Kernel, e: Load, start: int, count: int) -> str:
    if is_image(k, e):
        whole = components(k, e, start, count) if k.under is None else None
        return whole or k.by_lane(e, start, count)
    ramp = as_ramp(position(e.buffer, e.indices))
    if ramp is None or not isinstance(ramp[1], Const) or dtypes.is_bool(e.dtype):
        return k.by_lane(e, start, count)
    base, stride = binary("+", ramp[0], binary("*", ramp[1], start)), int(ramp[1].value)
    kind, under = f"{memory_type(e.dtype)}{count}", k.under
    if stride == 1 and under is not None:

        def read() -> str:
            masked = masked_load(k, under, e, const(0, dtypes.element(e.dtype)), start, count)
            return masked or read_within(k, e.buffer, base, count) or k.lanes(e, start, count)

        return k.writer.steady(e, kind, start, count, read)
    if stride == 1:
        return k.writer.steady(e, kind, start, count, lambda: read_vector(k, e.buffer, base, count))
    # Private arrays that are read in overlapping vectors do not stay in registers.
    apart = k.execution.has_vectors and under is None and k.space(e.buffer) != "private"
    found = picks([stride * number for number in range(count)]) if apart else None
    if found is None:
        return k.by_lane(e, start, count)
    return k.writer.steady(e, kind, start, count, lambda: _picked(k, e, base, found))


def _picked(k: Kernel, e: Load, base: Expr, found: Picks) -> str:
    """The lanes that were chosen from a base on, out of vectors of neighbours."""
    vectors = [read_vector(k, e.buffer, binary("+", base, first), found.length) for first in found.starts]
    return f"{k.helpers.pick(memory_type(e.dtype), found)}({', '.join(vectors)})"


VECTORS: Vectors = {Binary: _binary, Cast: _cast, Call: _call, Select: _choice, Load: _load}
