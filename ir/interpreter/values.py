"""Expressions over all lanes of a nest.

A value is a pair of data and undef flags (None: nothing is undef).  Data is one
Python or NumPy number for all lanes, an array (n,), or (n, L) for vectors of L.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from .. import dtypes
from ..caches import cached
from ..expr import (
    LOGIC,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    LetExpr,
    Load,
    Not,
    Ramp,
    Select,
    Shuffle,
    Undef,
    Var,
    as_conditional,
)
from ..extents import where_within
from ..functions import (
    DOT_CALLS,
    LOAD_WITHIN,
    MASKED_LOAD,
    MULTIPLY_ACCUMULATE,
    PACK_4X8,
    PAIR_CALLS,
    REINTERPRET,
    ROUND_TO_INT32,
    SUBGROUP_CALLS,
    TO_INT_CALLS,
    TRUNCATED_CALLS,
)
from ..node import walk
from ..numbers import (
    convert,
    dot_of_bytes,
    dot_of_pairs,
    fused,
    numpy_dtype,
    packed_4x8,
    poison,
    reinterpreted,
    round_to,
    shifted,
    truncated_quotient,
    truncated_rest,
)
from ..text import expr_text
from .lanes import lane_of
from .memory import FORBIDDEN, UNDEF, UNINITIALISED, Data, Flags, InterpreterError, Memory
from .nest import Nest, Value

_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "min": np.minimum, "max": np.maximum, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip
_erf = np.frompyfunc(math.erf, 1, 1)


def _pow(x: Any, y: Any) -> Any:
    """``x ** y`` as IEEE 754 has it; for one exponent 0.5 NumPy takes square roots, so that -inf would become NaN."""
    shape = np.broadcast_shapes(np.shape(x), np.shape(y))
    full = shape or (1,)
    return np.power(np.broadcast_to(x, full), np.array(np.broadcast_to(y, full))).reshape(shape)[()]


def _round(x: Any) -> Any:
    """The nearest whole number, of two the one that is farther from 0; what is at least 2**52 is one already."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1, x), whole).astype(np.asarray(x).dtype)[()]


_MATH: Mapping[str, Callable[..., Any]] = {
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "tanh": np.tanh, "abs": np.abs,
    "sin": np.sin, "cos": np.cos, "atan": np.arctan, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "exp2": np.exp2, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "round": _round, "trunc": np.trunc, "atan2": np.arctan2, "hypot": np.hypot, "copysign": np.copysign,
    "floor": np.floor, "ceil": np.ceil, "nearbyint": np.rint, "pow": _pow, "fmod": np.fmod,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": lambda x: np.asarray(_erf(np.asarray(x, np.float64))).astype(np.float64),
    **dict.fromkeys(("fma", MULTIPLY_ACCUMULATE), fused),
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "shift_left": partial(shifted, True), "shift_right": partial(shifted, False),
    "truncdiv": truncated_quotient, "truncmod": truncated_rest,
    **dict.fromkeys(SUBGROUP_CALLS.values(), np.positive),
    **{name: partial(dot_of_bytes, name[-2] == "s", name[-1] == "s") for name in DOT_CALLS},
    **dict.fromkeys(PAIR_CALLS, dot_of_pairs),
    PACK_4X8: packed_4x8,
}  # fmt: skip


def join(*flags: Flags) -> Flags:
    """Undef if any operand is."""
    result: Flags = None
    for flag in flags:
        if flag is not None and flag is not False:
            result = flag if result is None else np.logical_or(result, flag)
    return result


def wide(index: Data) -> Data:
    """An index of any integer type in 64 bits, in which the number of an element does not overflow."""
    return index if type(index) is int else np.asarray(index, np.int64)[()]


def any_true(flags: Flags | Data) -> bool:
    return flags is not None and bool(np.any(flags))


@cached(65536)
def _is_vector(indices: tuple[Expr, ...]) -> bool:
    return any(dtypes.lanes(i.dtype) > 1 for i in indices)


@cached(65536)
def reads_nothing(exprs: tuple[Expr, ...]) -> bool:
    """Whether the values read no memory, so that no store changes them."""
    return not any(isinstance(node, Load) for e in exprs for node in walk(e))


def outside(value: Data, extent: int) -> Any:
    """The mask of the lanes in which `value` is not in [0, extent); None if there are none."""
    if isinstance(value, np.ndarray):
        inside = bool(value.min() >= 0) and bool(value.max() < extent)
    else:
        inside = 0 <= value < extent
    return None if inside else np.logical_or(np.less(value, 0), np.greater_equal(value, extent))


def shift(nest: Nest, memory: Memory, location: Any) -> Any:
    """`location` in the copy of the memory that each lane owns."""
    assert memory.owner is not None
    start: Any = nest.get(memory.owner)[0]
    if np.ndim(location) > 1 and np.ndim(start) == 1:
        start = np.reshape(start, (-1, 1))
    return location + start * memory.stride


class Evaluator:
    """Evaluates expressions; `memory` maps a buffer's name to its allocation."""

    def __init__(self, memory: dict[str, Memory]) -> None:
        self.memory = memory
        self.context = ""

    def __call__(self, nest: Nest, e: Expr) -> Value:
        value: Value = _METHODS[type(e)](self, nest, e)
        return value

    def data(self, nest: Nest, e: Expr, what: str) -> Data:
        """The value of what decides where the program goes; it must not be undef."""
        data, undef = self(nest, e)
        if undef is not None and any_true(undef):
            raise self.error(nest, f"{what} `{expr_text(e)}` depends on an undef value", undef)
        return data

    def error(self, nest: Nest, message: str, wrong: Flags | Data) -> InterpreterError:
        """`message` with the first lane where `wrong` is true."""
        lane = 0
        if isinstance(wrong, np.ndarray) and wrong.ndim > 0 and len(wrong) == nest.n:
            lane = int(np.argmax(wrong.reshape(len(wrong), -1).any(axis=1)))
        point = {}
        for var in nest.variables():
            if not var.name.isidentifier():
                continue
            data = nest.get(var)[0]
            point[var.name] = data[lane] if isinstance(data, np.ndarray) and len(data) == nest.n else data
        where = ", ".join(f"{name}={value}" for name, value in point.items())
        return InterpreterError(f"{self.context}{message}" + (f", at {where}" if where else ""))

    # ------------------------------------------------------------ leaves

    def _var(self, nest: Nest, e: Var) -> Value:
        try:
            return nest.get(e)
        except KeyError:
            raise InterpreterError(f"{self.context}variable `{e.name}` is not defined") from None

    def _const(self, _nest: Nest, e: Const) -> Value:
        if e.dtype == dtypes.INDEX or e.dtype == "bool":
            return e.value, None
        return round_to(e.dtype, numpy_dtype(e.dtype).type(e.value)), None

    def _undef(self, _nest: Nest, e: Undef) -> Value:
        return poison(e.dtype), True

    def _load(self, nest: Nest, e: Load) -> Value:
        memory, location = self.locate(nest, e.buffer, e.indices, "read")
        state = memory.states(location)
        data = memory.read(location)
        lanes = dtypes.lanes(e.dtype)
        if lanes > 1:
            data, state = np.reshape(data, (-1, lanes)), np.reshape(state, (-1, lanes))
        undef: Flags = None
        if (state.min() if isinstance(state, np.ndarray) else state) <= UNDEF:
            for bad, word in ((UNINITIALISED, "was never written"), (FORBIDDEN, "is padding that holds nothing")):
                if np.any(state == bad):
                    raise self.error(nest, f"`{expr_text(e)}` is read, but {word}", state == bad)
            undef = state == UNDEF
        return data, undef

    def locate(self, nest: Nest, buffer: Buffer, indices: tuple[Expr, ...], verb: str) -> tuple[Memory, Any]:
        """The memory of `buffer` and the flat element of each lane, proven inside it."""
        memory = self.memory.get(buffer.name)
        if memory is None:
            raise InterpreterError(f"{self.context}buffer `{buffer.name}` is not allocated here")
        if nest.n == 1 or not reads_nothing(indices):
            return memory, self._locate(nest, memory, buffer, indices, verb)
        key = (buffer, indices)
        location = nest.located.get(key)
        if location is None:
            location = nest.located[key] = self._locate(nest, memory, buffer, indices, verb)
        return memory, location

    def _locate(self, nest: Nest, memory: Memory, buffer: Buffer, indices: tuple[Expr, ...], verb: str) -> Any:
        if len(indices) != buffer.rank:
            raise InterpreterError(f"{self.context}`{buffer.name}` has {buffer.rank} dimensions, "
                                   f"but {len(indices)} indices are given")  # fmt: skip
        location: Any = 0
        vector = _is_vector(indices)
        for axis, (index, extent, stride) in enumerate(zip(indices, buffer.shape, buffer.strides, strict=True)):
            value = self.data(nest, index, "the index")
            if vector and np.ndim(value) == 1:
                value = np.reshape(value, (-1, 1))
            wrong = outside(value, extent)
            if wrong is not None:
                text = f"{buffer.name}[{', '.join(map(expr_text, indices))}]"
                first = np.ravel(value)[np.argmax(np.ravel(wrong))]
                raise self.error(nest, f"`{text}` {verb}s index {first} of dimension {axis}, "
                                 f"which has extent {extent}", wrong)  # fmt: skip
            value = wide(value)
            location = location + value * stride if stride != 1 else location + value
        return location if memory.owner is None else shift(nest, memory, location)

    # ------------------------------------------------------------ operations

    def _binary(self, nest: Nest, e: Binary) -> Value:
        (a, ua), (b, ub) = self(nest, e.a), self(nest, e.b)
        undef = join(ua, ub) if ua is not None or ub is not None else None
        if undef is not None and e.op in LOGIC:
            return _BINARY[e.op](a, b), _open(e.op, (a, ua), (b, ub))
        function = _BINARY.get(e.op)
        if function is not None:
            return round_to(e.dtype, function(a, b)), undef
        if dtypes.is_float(e.a.dtype):
            divide = {"/": np.divide, "//": np.floor_divide, "%": np.mod}[e.op]
            return round_to(e.dtype, divide(a, b)), undef
        if e.op == "/":
            raise InterpreterError(f"{self.context}`{expr_text(e)}` divides integers; use `//`")
        zero = np.equal(b, 0)
        if any_true(zero):
            raise self.error(nest, f"`{expr_text(e)}` divides by zero", zero)
        return round_to(e.dtype, a // b if e.op == "//" else a % b), undef

    def _not(self, nest: Nest, e: Not) -> Value:
        data, undef = self(nest, e.a)
        return np.logical_not(data), undef

    def _select(self, nest: Nest, e: Select) -> Value:
        cond = self.data(nest, e.cond, "the condition")
        (a, ua), (b, ub) = self(nest, e.a), self(nest, e.b)
        if not isinstance(cond, np.ndarray):
            return (a, ua) if cond else (b, ub)
        if cond.ndim == 1 and dtypes.lanes(e.dtype) > 1:
            cond = cond.reshape(-1, 1)
        undef = None if ua is None and ub is None else np.where(cond, _flag(ua), _flag(ub))
        return np.where(cond, a, b), undef

    def _cast(self, nest: Nest, e: Cast) -> Value:
        data, undef = self(nest, e.a)
        result = convert(e.a.dtype, e.dtype, data)
        return (int(result) if e.dtype == dtypes.INDEX and np.ndim(result) == 0 else result), undef

    def _ramp(self, nest: Nest, e: Ramp) -> Value:
        (base, ua), (stride, ub) = self(nest, e.base), self(nest, e.stride)
        data = np.reshape(base, (-1, 1)) + np.reshape(stride, (-1, 1)) * np.arange(e.lanes).astype(numpy_dtype(e.dtype))
        return data.astype(numpy_dtype(e.dtype)), _widen(join(ua, ub), e.lanes)

    def _broadcast(self, nest: Nest, e: Broadcast) -> Value:
        data, undef = self(nest, e.value)
        return np.repeat(np.reshape(data, (-1, 1)), e.lanes, axis=1), _widen(undef, e.lanes)

    def _shuffle(self, nest: Nest, e: Shuffle) -> Value:
        """Lanes from their places among those of all vectors, one behind the other."""
        count = dtypes.lanes(e.vectors[0].dtype)
        numbers = []
        for lane in e.lanes:
            number = self.data(nest, lane, "the lane")
            wrong = outside(number, count * len(e.vectors))
            if wrong is not None:
                first = np.ravel(number)[np.argmax(np.ravel(wrong))]
                raise self.error(nest, f"`{expr_text(e)}` takes lane {first} of {count * len(e.vectors)}", wrong)
            numbers.append(np.broadcast_to(number, nest.n))
        chosen = np.stack(numbers, axis=1)
        values = [self(nest, vector) for vector in e.vectors]

        def gathered(parts: list[Any]) -> Any:
            rows = [np.broadcast_to(np.reshape(p, (-1, count)) if np.ndim(p) else p, (nest.n, count)) for p in parts]
            taken = np.take_along_axis(np.concatenate(rows, axis=1), chosen, axis=1)
            return taken if len(e.lanes) > 1 else taken[:, 0]

        flags = None if all(undef is None for _, undef in values) else gathered([_flag(undef) for _, undef in values])
        return gathered([data for data, _ in values]).astype(numpy_dtype(e.dtype), copy=False), flags

    def _call(self, nest: Nest, e: Call) -> Value:
        if e.name == "if_then_else":
            return self._conditional(nest, e)
        if e.name in (MASKED_LOAD, LOAD_WITHIN):
            masked = where_within(e) if e.name == LOAD_WITHIN else e
            return self._conditional(nest, as_conditional(masked))
        if e.name in TO_INT_CALLS:
            return self._to_int(nest, e)
        if e.name == REINTERPRET:
            given, undef = self(nest, e.args[0])
            found = reinterpreted(e.args[0].dtype, e.dtype, given)
            return (int(found) if e.dtype == dtypes.INDEX and np.ndim(found) == 0 else found), undef
        function = _MATH.get(e.name)
        if function is None:
            raise InterpreterError(f"{self.context}the function `{e.name}` is unknown; known are {', '.join(_MATH)}")
        values = [self(nest, a) for a in e.args]
        data = [v[0] for v in values]
        if e.name in TRUNCATED_CALLS and any_true(zero := np.equal(data[1], 0)):
            raise self.error(nest, f"`{expr_text(e)}` divides by zero", zero)
        if dtypes.element(e.dtype) == "float16":
            data = [np.asarray(d, np.float32) for d in data]
        result = np.asarray(function(*data))
        if dtypes.bits(e.dtype) == 16 and dtypes.is_float(e.dtype):
            result = result.astype(np.float32, copy=False)
        result = result.astype(numpy_dtype(e.dtype), copy=False)[()]
        return round_to(e.dtype, result), join(*(v[1] for v in values))

    def _to_int(self, nest: Nest, e: Call) -> Value:
        """The conversion of a real number to int32; undef where the number does not fit."""
        real, undef = self(nest, e.args[0])
        whole = np.rint(real) if e.name == ROUND_TO_INT32 else np.asarray(real)
        fits = (whole >= -(2.0**31)) & (whole < 2.0**31)
        missing = None if np.all(fits) else np.logical_not(fits)
        return convert(e.args[0].dtype, e.dtype, whole), join(undef, missing)

    def _let(self, nest: Nest, e: LetExpr) -> Value:
        inner = Nest(nest, None, None, nest.n)
        inner.values[e.var] = self(nest, e.value)
        return self(inner, e.body)

    def _conditional(self, nest: Nest, e: Call) -> Value:
        """Each side is evaluated only in the lanes that choose it."""
        args, dtype = e.args, e.dtype
        if dtypes.lanes(args[0].dtype) > 1:
            return self._conditional_lanes(nest, e)
        cond = self.data(nest, args[0], "the condition")
        if not isinstance(cond, np.ndarray):
            return self(nest, args[1] if cond else args[2])
        cond = cond.reshape(-1)
        if len(cond) != nest.n or cond.all() or not cond.any():
            return self(nest, args[1] if cond.all() else args[2])
        width = dtypes.lanes(dtype)
        shape: tuple[int, ...] = (nest.n, width) if width > 1 else (nest.n,)
        data = np.empty(shape, numpy_dtype(dtype))
        undef = np.zeros(shape, np.bool_)
        tainted = False
        for rows, side in ((np.flatnonzero(cond), args[1]), (np.flatnonzero(~cond), args[2])):
            data[rows], flags = self(nest.pick(rows), side)
            if flags is not None:
                undef[rows] = flags
                tainted = True
        return data, undef if tainted else None

    def _conditional_lanes(self, nest: Nest, e: Call) -> Value:
        """The lanes one after the other, each with its own condition."""
        lanes = [self(nest, lane_of(e, number)) for number in range(dtypes.lanes(e.dtype))]
        data = np.stack([np.broadcast_to(value, nest.n) for value, _ in lanes], axis=1)
        undef = np.stack([np.broadcast_to(np.asarray(_flag(flags)), nest.n) for _, flags in lanes], axis=1)
        return data.astype(numpy_dtype(e.dtype), copy=False), undef if undef.any() else None

    # ------------------------------------------------------------ assumptions

    def assumed(self, nest: Nest, e: Expr) -> Data:
        """Whether an assumption holds: ``and`` and ``or`` are lazy, and ``x == undef`` says nothing about memory."""
        if isinstance(e, Binary) and e.op in ("and", "or"):
            first = np.broadcast_to(self.assumed(nest, e.a), nest.n).copy()
            rows = np.flatnonzero(first if e.op == "and" else ~first)
            if len(rows):
                first[rows] = self.assumed(nest.pick(rows), e.b)
            return first
        if isinstance(e, Not):
            return np.logical_not(self.assumed(nest, e.a))
        if isinstance(e, Binary) and e.op == "==" and any(isinstance(x, Undef) for x in (e.a, e.b)):
            return True
        return self.data(nest, e, "the assumption")


def _open(op: str, *operands: Value) -> Flags:
    """Whether a conjunction or disjunction is undef: an operand is, and no other one decides the result."""
    decided = [np.logical_and(np.equal(data, op == "or"), np.logical_not(_flag(undef))) for data, undef in operands]
    some = np.logical_or(*(_flag(undef) for _, undef in operands))
    result: Flags = np.logical_and(some, np.logical_not(np.logical_or(*decided)))
    return result


def _flag(undef: Flags) -> Any:
    return False if undef is None else undef


def _widen(undef: Flags, lanes: int) -> Flags:
    return undef if undef is None or isinstance(undef, bool) else np.repeat(np.reshape(undef, (-1, 1)), lanes, axis=1)


_METHODS: Mapping[type[Expr], Callable[..., Value]] = {
    Var: Evaluator._var, Const: Evaluator._const, Undef: Evaluator._undef, Load: Evaluator._load,
    Binary: Evaluator._binary, Not: Evaluator._not, Select: Evaluator._select, Cast: Evaluator._cast,
    Ramp: Evaluator._ramp, Broadcast: Evaluator._broadcast, Shuffle: Evaluator._shuffle, Call: Evaluator._call,
    LetExpr: Evaluator._let,
}  # fmt: skip
