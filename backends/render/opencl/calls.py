"""Functions of numbers and of vectors alike: a `count` of lanes tells which, and 1 is a number."""

from __future__ import annotations

import re
from collections.abc import Callable

from ....ir import dtypes
from ....ir.expr import Binary, Broadcast, Call, Const, Expr
from ....ir.functions import LIBRARY_CALLS, ROUND_TO_INT32, SHIFT_CALLS, TO_INT_CALLS, TRUNCATED_CALLS
from ...errors import CodegenError
from .exact import exact_operation
from .helpers import dot_builtin
from .kernel import Kernel, NeedsLong
from .types import bare, memory_type

BITWISE = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
FUNCTIONS = {
    "exp": "exp", "log": "log", "sqrt": "sqrt", "rsqrt": "rsqrt", "tanh": "tanh", "erf": "erf",
    "abs": "fabs", "floor": "floor", "ceil": "ceil", "nearbyint": "rint", "pow": "pow", "fma": "fma", "fmod": "fmod",
    "multiply_accumulate": "fma", "sin": "sin", "cos": "cos", "atan": "atan",
    **{name: name for name in (*LIBRARY_CALLS, "round", "trunc", "copysign")},
}  # fmt: skip
"""The built-in functions of OpenCL C for floats."""


def call(k: Kernel, name: str, args: list[str], dtype: str, count: int) -> str:
    """The function `name` of operands of its own type."""
    base = dtypes.element(dtype)
    kind = k.types.scalar(base) if count == 1 else k.types.vector(base, count)
    if name in BITWISE:
        bits = f"({args[0]} {BITWISE[name]} {args[1]})"
        return f"(({kind}){bits})" if count == 1 else bits
    if name in TO_INT_CALLS:
        mode = "_rte" if name == ROUND_TO_INT32 else "_rtz"
        function = k.helpers.built_in(f"convert_int{'{n}' * (count > 1)}{mode}", "float", "int", count)
        return f"{function}({bare(args[0])})"
    if name in SHIFT_CALLS:
        if base == dtypes.INDEX and k.types.index == "int":
            raise NeedsLong
        own = k.types.scalar(base) if count == 1 else memory_type(base)
        return f"{k.helpers.shift(name, own, count)}({', '.join(map(bare, args))})"
    if name in TRUNCATED_CALLS:
        if dtypes.is_unsigned(base):
            function = k.helpers.floor_division(TRUNCATED_CALLS[name], kind)
        else:
            function = k.helpers.truncated_division(name, kind)
        return f"{function}({', '.join(map(bare, args))})"
    if name == "abs" and dtypes.is_int(base):
        return f"(({kind})abs({args[0]}))" if count == 1 else _absolute(k, args[0], base, count)
    if not dtypes.is_float(base):
        raise CodegenError(f"`{name}` is defined for floats, but got {dtype}; cast the argument first")
    if name == "sigmoid" and kind.startswith("half"):  # whose exponential overflows for arguments of -12
        widen = k.helpers.built_in("convert_float{n}", "half", "float", count) if count > 1 else "(float)"
        narrow = k.helpers.built_in("convert_half{n}", "float", "half", count) if count > 1 else "(half)"
        wide = dtypes.with_lanes("float32", count)
        return f"({narrow}({call(k, name, [f'{widen}({args[0]})'], wide, count)}))"
    if name == "sigmoid":
        one = f"(({kind})(1.0f))"
        return rounded(k, f"({one} / ({one} + {_exponential(k, base, count)}(-{args[0]})))", base)
    if name == "exp":
        return rounded(k, f"{_exponential(k, base, count)}({bare(args[0])})", base)
    if name not in FUNCTIONS:
        raise CodegenError(f"there is no function `{name}` in OpenCL code")
    own = k.types.lane(base)
    function = k.helpers.built_in(FUNCTIONS[name], own, own, count, len(args))
    return rounded(k, f"{function}({', '.join(args)})", base)


def rounded(k: Kernel, text: str, dtype: str) -> str:
    """A float32 result rounded to a type that is emulated; any other as it is."""
    return k.helpers.round_narrow(dtype, text) if dtype in k.types.emulated else text


def _absolute(k: Kernel, arg: str, base: str, count: int) -> str:
    own = memory_type(base)
    unsigned = own if own.startswith("u") else f"u{own}"
    absolute = k.helpers.built_in("abs", own, unsigned, count)
    return f"{k.helpers.built_in(f'convert_{own}{{n}}', unsigned, own, count)}({absolute}({arg}))"


def _exponential(k: Kernel, base: str, count: int) -> str:
    """The function for ``e**x``: our own, which is code in place of a call, where a device's is a call."""
    own = k.types.lane(base)
    ours = k.execution.calls_a_library and own == "float"
    return k.helpers.exponential(count) if ours else k.helpers.built_in("exp", own, own, count)


def extremum(k: Kernel, e: Binary, a: str, b: str, count: int) -> str:
    """``min`` or ``max`` of the operands of `e`, whose texts are given."""
    op, base = e.op, dtypes.element(e.a.dtype)
    if not dtypes.is_float(base) and count == 1:
        kind = k.types.scalar(base)
        return f"{op}(({kind}){a}, ({kind}){b})"
    sign = "<" if op == "min" else ">"
    for known, other, value in ((a, b, e.a), (b, a, e.b)):
        constant = value.value if isinstance(value, Broadcast) else value
        if isinstance(constant, Const) and constant.value == constant.value:
            # With a constant first, the comparison is false for NaN, which is then the result.
            if _is_short(other):
                return f"(({known} {sign} {other}) ? {known} : {other})"
            return f"{k.helpers.choice(op, k.types.lane(base), count)}({known}, {bare(other)})"
    return f"{k.helpers.extremum(op, k.types.lane(base), count)}({a}, {b})"


def _is_short(text: str) -> bool:
    """Whether the text may stand in two places: in an expression of many levels, longer ones would double at each."""
    return re.fullmatch(r"[\w.]+(\[\w+\])?", bare(text)) is not None


def exact(k: Kernel, e: Expr, write: Callable[[Expr], str], count: int) -> str:
    """An operation that is rounded once, and not combined with others."""
    assert isinstance(e, (Binary, Call))
    own = k.types.lane(e.dtype)
    if isinstance(e, Binary):
        function = exact_operation(k.helpers, e.op, own, count)
        text = f"{function}({bare(write(e.a))}, {bare(write(e.b))})"
    else:
        text = f"{exact_operation(k.helpers, 'sqrt', own, count)}({bare(write(e.args[0]))})"
        if e.name == "rsqrt":
            one, quotient = k.types.literal(1.0, "float32"), exact_operation(k.helpers, "/", own, count)
            text = f"{quotient}(({k.types.vector(e.dtype, count)})({one}), {text})"
    return rounded(k, text, dtypes.element(e.dtype))


def dot(k: Kernel, e: Call, write: Callable[[Expr], str], count: int) -> str:
    """A number and the sum of the four products of bytes of two words, or of each lane."""
    a, b, own = e.args
    total, left, right = write(own), write(a), write(b)
    signs = e.name[-2:]
    if count == 1:
        return f"((int)((uint){total} + (uint){dot_builtin(signs)}((uint){left}, (uint){right})))"
    added = f"{k.helpers.dot(signs, count, k.execution.adds_pairs)}({bare(left)}, {bare(right)})"
    return f"as_int{count}(as_uint{count}({total}) + as_uint{count}({added}))"
