"""Expressions as OpenCL C.

A scalar is one C expression.  A vector is asked for piece by piece, ``lanes [start,
start + count)`` with a native `count`; what has no vector form (conditions by lane, strided
accesses) is assembled from its lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...ir import dtypes
from ...ir.arith.intervals import Facts
from ...ir.arith.linear import build, shared_form
from ...ir.expr import (
    COMPARISONS,
    LOGIC,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Ramp,
    Select,
    Undef,
    Var,
    binary,
    const,
    refold,
    variables,
)
from ...ir.node import rebuild, walk
from ..llvm.types import CodegenError
from .types import Helpers, Names, bare, literal, memory_type

INT32 = dtypes.int_range("int32")

_UNARY = {
    "exp": "exp", "log": "log", "sqrt": "sqrt", "rsqrt": "rsqrt", "tanh": "tanh", "erf": "erf",
    "abs": "fabs", "floor": "floor", "ceil": "ceil", "pow": "pow", "fma": "fma",
}  # fmt: skip


class NeedsLong(Exception):
    """An index expression that may leave 32 bits."""


class Expressions:
    """Writes expressions of one kernel; `index_type` is the C type that stands for int64."""

    def __init__(self, index_type: str, helpers: Helpers) -> None:
        self.index_type = index_type
        self.helpers = helpers
        self.facts = Facts({})
        self.constants: dict[Var, Expr] = {}
        self.variables: dict[Var, str] = {}
        self.pointers: dict[Buffer, str] = {}
        self.spaces: dict[Buffer, str] = {}
        self.names = Names()
        self.written: frozenset[Buffer] = frozenset()
        self.lines: list[str] = []
        self.depth = 1
        self._held: list[dict[Any, str]] = [{}]
        self._lazy = 0
        self._fixed: dict[tuple[Expr, tuple[Expr, ...]], Expr] = {}
        self._unrolled: dict[Expr, tuple[Var, ...]] = {}
        self._changing: dict[Expr, bool] = {}

    def line(self, text: str) -> None:
        """Write one line at the present depth."""
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def braces(self, head: str) -> Iterator[None]:
        """A block of C after `head`; values that are held in it end with it."""
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        self._held.append({})
        yield
        self._held.pop()
        self.depth -= 1
        self.line("}")

    def held(self, text: str, kind: str) -> str:
        """The name of a constant that holds the value of `text`, one for all its uses in this block."""
        name = self._known(text)
        if name is None:
            name = self.names.fresh("t")
            self.line(f"const {kind} {name} = {bare(text)};")
            self._held[-1][text] = name
        return name

    def _known(self, key: Any) -> str | None:
        return next((known[key] for known in self._held if key in known), None)

    def _steady(self, expr: Expr, kind: str, start: int, count: int, write: Callable[[], str]) -> str:
        """What `write` gives, held if the statement evaluates it in any case and what it reads never changes.

        The same lanes of the same expression are written once in a block.
        """
        if self._lazy or self._changes(expr):
            return write()
        key = (expr, start, count)
        name = self._known(key)
        if name is None:
            name = self._held[-1][key] = self.held(write(), kind)
        return name

    def _changes(self, expr: Expr) -> bool:
        """Whether the expression reads memory that the kernel writes."""
        result = self._changing.get(expr)
        if result is None:
            result = any(isinstance(n, Load) and n.buffer in self.written for n in walk(expr))
            self._changing[expr] = result
        return result

    @contextmanager
    def knowing(self, facts: Facts) -> Iterator[None]:
        """Within, `facts` hold."""
        before, self.facts = self.facts, facts
        try:
            yield
        finally:
            self.facts = before

    def fixed(self, expr: Expr) -> Expr:
        """`expr` with the variables of unrolled loops at their present values."""
        if not self.constants:
            return expr
        used = self._unrolled.get(expr)
        if used is None:
            used = self._unrolled[expr] = tuple(sorted(variables(expr), key=lambda v: v.name))
        values = tuple(self.constants.get(v, v) for v in used)
        if values == used:
            return expr
        key = (expr, values)
        result = self._fixed.get(key)
        if result is None:
            result = values[0] if isinstance(expr, Var) else refold(rebuild(expr, self._fixed_node))
            self._fixed[key] = result
        return result

    def _fixed_node(self, node: Any) -> Any:
        return self.fixed(node) if isinstance(node, Expr) else node

    def ctype(self, dtype: str) -> str:
        """The C type of a scalar value; conditions are int."""
        base = dtypes.element(dtype)
        if base == "bool":
            return "int"
        return self.index_type if base == dtypes.INDEX else memory_type(base)

    # ------------------------------------------------------------ scalars

    def scalar(self, expr: Expr) -> str:
        """The C expression of a scalar, in parentheses where it needs them."""
        if dtypes.lanes(expr.dtype) != 1:
            raise CodegenError(f"expected a scalar, but got {expr.dtype}: {expr!r}")
        if expr.dtype == dtypes.INDEX and self.index_type == "int":
            low, high = self.facts.interval(expr)
            if low < INT32[0] or high > INT32[1]:
                raise NeedsLong
        if isinstance(expr, Const):
            return literal(expr.value, expr.dtype, self.index_type)
        if isinstance(expr, Var):
            if expr not in self.variables:
                raise CodegenError(f"variable `{expr.name}` is used outside of the loop or let that defines it")
            return self.variables[expr]
        if isinstance(expr, Binary):
            return self._binary(expr)
        if isinstance(expr, Not):
            return f"(!{self.scalar(expr.a)})"
        if isinstance(expr, Select):
            return self._conditional(expr.cond, expr.a, expr.b, self.scalar)
        if isinstance(expr, Cast):
            return self._cast(expr)
        if isinstance(expr, Load):
            return self._scalar_load(expr)
        if isinstance(expr, Call):
            if expr.name == "if_then_else":
                cond, a, b = expr.args
                return self._steady(
                    expr, self.ctype(expr.dtype), 0, 1, lambda: self._conditional(cond, a, b, self.scalar)
                )
            return self._call(expr.name, [self.scalar(a) for a in expr.args], expr.dtype, 1)
        if isinstance(expr, Undef):
            return literal(0, expr.dtype, self.index_type)
        raise CodegenError(f"no OpenCL code for a {type(expr).__name__} expression: {expr!r}")

    def _binary(self, expr: Binary) -> str:
        op, dtype = expr.op, expr.a.dtype
        if op in LOGIC:
            return f"({self.scalar(expr.a)} {'&&' if op == 'and' else '||'} {self.scalar(expr.b)})"
        a, b = self.scalar(expr.a), self.scalar(expr.b)
        if op in COMPARISONS:
            return f"({a} {op} {b})"
        if op in ("min", "max"):
            return self._extremum(op, expr.a, expr.b, a, b, 1)
        if op in ("//", "%"):
            return self._floor_division(expr, a, b)
        if op == "/" and not dtypes.is_float(dtype):
            raise CodegenError(f"`/` divides floats, but got {dtype}; use `//`")
        return self._arithmetic(op, dtype, a, b)

    def _arithmetic(self, op: str, dtype: str, a: str, b: str) -> str:
        if dtypes.is_float(dtype) or dtype == dtypes.INDEX:
            return f"({a} {op} {b})"
        if dtype == "int32":  # wraps around, where C's signed arithmetic has no meaning
            return f"((int)((uint){a} {op} (uint){b}))"
        return f"(({memory_type(dtype)})({a} {op} {b}))"

    def _extremum(self, op: str, left: Expr, right: Expr, a: str, b: str, count: int) -> str:
        base = dtypes.element(left.dtype)
        kind = self.ctype(base) if count == 1 else f"{memory_type(base)}{count}"
        if not dtypes.is_float(base):
            return f"{op}(({kind}){a}, ({kind}){b})" if count == 1 else f"{op}({a}, {b})"
        sign = "<" if op == "min" else ">"
        for known, other, value in ((a, b, left), (b, a, right)):
            constant = value.value if isinstance(value, Broadcast) else value
            if isinstance(constant, Const) and constant.value == constant.value:
                # With a constant first, the comparison is false for NaN, which is then the result.
                return f"(({known} {sign} {other}) ? {known} : {other})"
        return f"{self.helpers.extremum(op, memory_type(base), count)}({a}, {b})"

    def _floor_division(self, expr: Binary, a: str, b: str) -> str:
        if not dtypes.is_int(expr.dtype):
            raise CodegenError(f"`{expr.op}` divides integers, but got {expr.dtype}")
        if self.facts.interval(expr.a)[0] >= 0 and self.facts.interval(expr.b)[0] > 0:
            return f"({a} {'/' if expr.op == '//' else '%'} {b})"
        return f"{self.helpers.floor_division(expr.op, self.ctype(expr.dtype))}({a}, {b})"

    def _conditional(self, cond: Expr, a: Expr, b: Expr, write: Callable[[Expr], str]) -> str:
        """``cond ? a : b`` with a scalar condition; only the chosen side is evaluated."""
        test = self.scalar(cond)
        self._lazy += 1
        with self.knowing(self.facts.assuming(cond)):
            left = write(a)
        with self.knowing(self.facts.assuming(cond, False)):
            right = write(b)
        self._lazy -= 1
        return f"({test} ? {left} : {right})"

    def _cast(self, expr: Cast) -> str:
        value = self.scalar(expr.a)
        if dtypes.is_bool(expr.dtype):
            return f"({value} != 0)"
        return f"(({self.ctype(expr.dtype)}){value})"

    def _scalar_load(self, expr: Load) -> str:
        def write() -> str:
            text = self.element(expr.buffer, self.position(expr.buffer, expr.indices))
            return f"({text} != 0)" if dtypes.is_bool(expr.dtype) else text

        return self._steady(expr, self.ctype(expr.dtype), 0, 1, write)

    def _call(self, name: str, args: list[str], dtype: str, count: int) -> str:
        base = dtypes.element(dtype)
        kind = self.ctype(base) if count == 1 else f"{memory_type(base)}{count}"
        if name == "abs" and dtypes.is_int(base):
            return f"(({kind})abs({args[0]}))" if count == 1 else f"convert_{kind}(abs({args[0]}))"
        if not dtypes.is_float(base):
            raise CodegenError(f"`{name}` is defined for floats, but got {dtype}; cast the argument first")
        if name == "sigmoid":
            one = f"(({kind})({literal(1.0, base, self.index_type)}))"
            return f"({one} / ({one} + exp(-{args[0]})))"
        if name not in _UNARY:
            raise CodegenError(f"there is no function `{name}` in OpenCL code")
        return f"{_UNARY[name]}({', '.join(args)})"

    # ------------------------------------------------------------ memory

    def pointer(self, buffer: Buffer) -> str:
        if buffer not in self.pointers:
            raise CodegenError(f"buffer `{buffer.name}` is neither a parameter, a workspace nor allocated here")
        return self.pointers[buffer]

    def position(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """The row-major position; a buffer of several physical axes is linear memory, too."""
        width = max(dtypes.lanes(i.dtype) for i in indices)
        total = widened(indices[0], width)
        for index, extent in zip(indices[1:], buffer.shape[1:], strict=True):
            total = total * widened(const(extent), width) + widened(index, width)
        return total

    def element(self, buffer: Buffer, position: Expr) -> str:
        """The element at a scalar position."""
        return f"{self.pointer(buffer)}[{bare(self._offset(position))}]"

    def address(self, buffer: Buffer, position: Expr) -> str:
        """The address of the element at a scalar position."""
        offset = self._offset(position)
        return self.pointer(buffer) if offset == "0" else f"{self.pointer(buffer)} + {offset}"

    def _offset(self, position: Expr) -> str:
        """A position as one variable plus a constant, so that the accesses of a tile share an address."""
        terms, constant = shared_form(position)
        if not terms:
            return str(constant)
        text = self.scalar(build((terms, 0)))
        if not text.isidentifier() and not any(isinstance(n, Load) for n in walk(position)):
            text = self.held(text, self.index_type)
        return text if constant == 0 else f"{text} {'+' if constant > 0 else '-'} {abs(constant)}"

    # ------------------------------------------------------------ vectors

    def vector(self, expr: Expr, start: int, count: int) -> str:
        """Lanes ``[start, start + count)`` of a vector, or a scalar in every lane."""
        if count == 1:
            return self.scalar(lane(expr, start))
        if dtypes.lanes(expr.dtype) == 1:
            return self.splat(self.scalar(expr), expr.dtype, count)
        if isinstance(expr, Broadcast):
            if dtypes.lanes(expr.value.dtype) != 1:
                raise CodegenError(f"a broadcast repeats a scalar, but got {expr.value.dtype}: {expr!r}")
            return self.splat(self.scalar(expr.value), expr.dtype, count)
        if dtypes.element(expr.dtype) in ("bool", dtypes.INDEX):
            return self._by_lane(expr, start, count)
        if isinstance(expr, Load):
            return self._vector_load(expr, start, count)
        if isinstance(expr, Binary) and expr.op in ("+", "-", "*", "/", "min", "max"):
            a, b = (self.vector(e, start, count) for e in (expr.a, expr.b))
            if expr.op in ("min", "max"):
                return self._extremum(expr.op, expr.a, expr.b, a, b, count)
            return f"({a} {expr.op} {b})"
        if isinstance(expr, Call) and expr.name != "if_then_else":
            return self._call(expr.name, [self.vector(a, start, count) for a in expr.args], expr.dtype, count)
        if isinstance(expr, Cast) and dtypes.element(expr.a.dtype) not in ("bool", dtypes.INDEX):
            return f"convert_{memory_type(expr.dtype)}{count}({self.vector(expr.a, start, count)})"
        if isinstance(expr, (Select, Call)):
            cond, a_, b_ = (expr.cond, expr.a, expr.b) if isinstance(expr, Select) else expr.args
            if isinstance(cond, Broadcast):
                cond = cond.value
            if dtypes.lanes(cond.dtype) == 1:
                write = lambda: self._conditional(cond, a_, b_, lambda side: self.vector(side, start, count))  # noqa: E731
                return self._steady(expr, f"{memory_type(expr.dtype)}{count}", start, count, write)
        return self._by_lane(expr, start, count)

    def splat(self, scalar: str, dtype: str, count: int) -> str:
        return f"(({memory_type(dtype)}{count})({scalar}))"

    def _by_lane(self, expr: Expr, start: int, count: int) -> str:
        kind = f"{memory_type(expr.dtype)}{count}"

        def write() -> str:
            lanes = ", ".join(self.scalar(lane(expr, k)) for k in range(start, start + count))
            return f"(({kind})({lanes}))"

        return self._steady(expr, kind, start, count, write)

    def _vector_load(self, expr: Load, start: int, count: int) -> str:
        position = as_ramp(self.position(expr.buffer, expr.indices))
        if position is None or position[1] != const(1) or dtypes.is_bool(expr.dtype):
            return self._by_lane(expr, start, count)
        base, kind = position[0], memory_type(expr.dtype)

        def write() -> str:
            macro = self.helpers.load(kind, count, self.spaces[expr.buffer])
            return f"{macro}({self.address(expr.buffer, binary('+', base, start))})"

        return self._steady(expr, f"{kind}{count}", start, count, write)


def lane(expr: Expr, number: int) -> Expr:
    """Lane `number` of a vector expression, as a scalar expression."""
    if isinstance(expr, Ramp):
        return binary("+", expr.base, binary("*", expr.stride, number))
    if isinstance(expr, Broadcast):
        return expr.value
    if dtypes.lanes(expr.dtype) == 1:
        return expr
    if isinstance(expr, Var):
        raise CodegenError(f"a vector variable must be written out before code generation: `{expr.name}`")
    if isinstance(expr, Const):
        return Const(expr.value, dtypes.element(expr.dtype))
    if isinstance(expr, Undef):
        return Undef(dtypes.element(expr.dtype))
    if isinstance(expr, Cast):
        return Cast(dtypes.element(expr.dtype), lane(expr.a, number))
    if isinstance(expr, Call):
        return Call(expr.name, tuple(lane(a, number) for a in expr.args), dtypes.element(expr.dtype))
    result: Expr = refold(rebuild(expr, lambda child: lane(child, number) if isinstance(child, Expr) else child))
    return result


def as_ramp(expr: Expr) -> tuple[Expr, Expr] | None:
    """``(base, stride)`` of an index that is a ramp plus or times scalars; None for other vectors."""
    if isinstance(expr, Ramp):
        return expr.base, expr.stride
    if isinstance(expr, Broadcast):
        return expr.value, const(0)
    if dtypes.lanes(expr.dtype) == 1:
        return expr, const(0)
    if not isinstance(expr, Binary) or expr.op not in ("+", "-", "*"):
        return None
    a, b = as_ramp(expr.a), as_ramp(expr.b)
    if a is None or b is None:
        return None
    if expr.op != "*":
        return binary(expr.op, a[0], b[0]), binary(expr.op, a[1], b[1])
    if b[1] != const(0):
        a, b = b, a
    return None if b[1] != const(0) else (binary("*", a[0], b[0]), binary("*", a[1], b[0]))


def widened(expr: Expr, lanes: int) -> Expr:
    """A scalar in every lane; a vector stays."""
    return expr if lanes == 1 or dtypes.lanes(expr.dtype) > 1 else Broadcast(expr, lanes)
