"""Expressions as OpenCL C.

A scalar is one C expression.  A vector is asked for piece by piece, ``lanes [start,
start + count)`` with a native `count`; what has no vector form (conditions by lane, accesses with
large strides) is assembled from its lanes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ...ir import dtypes
from ...ir.arith.linear import as_ramp
from ...ir.arith.simplifier import simplifier_for
from ...ir.expr import (
    COMPARISONS,
    DOT_CALLS,
    LOGIC,
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Select,
    Shuffle,
    Undef,
    Var,
    binary,
    const,
)
from ...ir.node import walk
from ..llvm.types import CodegenError
from ..neighbours import Picks, picks
from ..passes.roundings import EXACT
from .access import lane, shuffled
from .exact import exact_operation
from .masks import Masks
from .types import bare, dot_builtin, literal, memory_type, narrow_value

_BITWISE = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
_UNARY = {
    "exp": "exp", "log": "log", "sqrt": "sqrt", "rsqrt": "rsqrt", "tanh": "tanh", "erf": "erf",
    "abs": "fabs", "floor": "floor", "ceil": "ceil", "nearbyint": "rint", "pow": "pow", "fma": "fma",
    "multiply_accumulate": "fma",
}  # fmt: skip


def _is_short(text: str) -> bool:
    """Whether the text may stand in two places: in an expression of many levels, longer ones would double at each."""
    return re.fullmatch(r"[\w.]+(\[\w+\])?", bare(text)) is not None


class Expressions(Masks):
    """Writes expressions of one kernel."""

    # ------------------------------------------------------------ scalars

    def scalar(self, expr: Expr) -> str:
        """The C expression of a scalar, in parentheses where it needs them."""
        if dtypes.lanes(expr.dtype) != 1:
            raise CodegenError(f"expected a scalar, but got {expr.dtype}: {expr!r}")
        if expr.dtype == dtypes.INDEX:
            self.check_index(expr)
        if isinstance(expr, Const):
            if expr.dtype in self.emulated:
                return literal(narrow_value(float(expr.value), expr.dtype), "float32", self.index_type)
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
            cond = self._settled(expr.cond)
            if isinstance(cond, Const):
                return self.scalar(expr.a if cond.value else expr.b)
            return self._conditional(cond, expr.a, expr.b, self.scalar)
        if isinstance(expr, Cast):
            return self._cast(expr)
        if isinstance(expr, Load):
            return self._scalar_load(expr)
        if isinstance(expr, Call):
            if expr.name == "if_then_else":
                cond, a, b = self._settled(expr.args[0]), *expr.args[1:]
                if isinstance(cond, Const):
                    return self.scalar(a if cond.value else b)

                def choose() -> str:
                    return self.load_or_constant(cond, a, b) or self._conditional(cond, a, b, self.scalar)

                return self.steady(expr, self.ctype(expr.dtype), 0, 1, choose)
            if expr.name in DOT_CALLS:
                return self._dot(expr, self.scalar, 1)
            if expr.name == EXACT:
                return self._exact(expr.args[0], self.scalar, 1)
            return self._call(expr.name, [self.scalar(a) for a in expr.args], expr.dtype, 1)
        if isinstance(expr, Shuffle):
            return self.scalar(shuffled(expr, 0))
        if isinstance(expr, Undef):
            return literal(0, "float32" if expr.dtype in self.emulated else expr.dtype, self.index_type)
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
        return self._arithmetic(expr, a, b)

    def _arithmetic(self, expr: Binary, a: str, b: str) -> str:
        op, dtype = expr.op, expr.dtype
        if dtypes.is_bool(dtype):
            if op not in ("+", "*"):
                raise CodegenError(f"`{op}` of bool is not defined")
            return f"({a} {'|' if op == '+' else '&'} {b})"
        if dtypes.is_float(dtype):
            return self.rounded(f"({a} {op} {b})", dtype)
        if dtype == "int32":  # wraps around, where C's signed arithmetic has no meaning
            return f"((int)((uint){a} {op} (uint){b}))"
        if dtype != dtypes.INDEX:
            return f"(({memory_type(dtype)})({a} {op} {b}))"
        if self.facts.stays(expr):
            return f"({a} {op} {b})"
        return f"((long)((ulong){a} {op} (ulong){b}))"

    def rounded(self, text: str, dtype: str) -> str:
        """A float32 result rounded to a type that is emulated; any other as it is."""
        return self.helpers.round_narrow(dtype, text) if dtype in self.emulated else text

    def _extremum(self, op: str, left: Expr, right: Expr, a: str, b: str, count: int) -> str:
        base = dtypes.element(left.dtype)
        if not dtypes.is_float(base) and count == 1:
            kind = self.ctype(base)
            return f"{op}(({kind}){a}, ({kind}){b})"
        sign = "<" if op == "min" else ">"
        for known, other, value in ((a, b, left), (b, a, right)):
            constant = value.value if isinstance(value, Broadcast) else value
            if isinstance(constant, Const) and constant.value == constant.value:
                # With a constant first, the comparison is false for NaN, which is then the result.
                if _is_short(other):
                    return f"(({known} {sign} {other}) ? {known} : {other})"
                return f"{self.helpers.choice(op, self.value_type(base), count)}({known}, {bare(other)})"
        return f"{self.helpers.extremum(op, self.value_type(base), count)}({a}, {b})"

    def _floor_division(self, expr: Binary, a: str, b: str) -> str:
        if not dtypes.is_int(expr.dtype):
            raise CodegenError(f"`{expr.op}` divides integers, but got {expr.dtype}")
        if self.facts.interval(expr.a)[0] >= 0 and self.facts.interval(expr.b)[0] > 0:
            return f"({a} {'/' if expr.op == '//' else '%'} {b})"
        return f"{self.helpers.floor_division(expr.op, self.ctype(expr.dtype))}({a}, {b})"

    def _settled(self, cond: Expr) -> Expr:
        """A condition without what is known to hold, as most of the conditions of an unrolled tile are."""
        settled: Expr = simplifier_for(self.facts).expr(cond)
        return settled.value if isinstance(settled, Broadcast) else settled

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
        value, source, target = self.scalar(expr.a), expr.a.dtype, expr.dtype
        if dtypes.is_bool(target):
            return f"({value} != 0)"
        if dtypes.is_float(source) and dtypes.is_int(target):
            return f"convert_{self.ctype(target)}_sat({self.helpers.no_nan(self.value_type(source), 1)}({value}))"
        if target in self.emulated and source == "float64":
            return self.rounded(f"{self.helpers.odd_float()}({value})", target)
        if target in self.emulated and source == target:
            return value
        return self.rounded(f"(({self.ctype(target)}){value})", target)

    def _scalar_load(self, expr: Load) -> str:
        def write() -> str:
            if self.is_image(expr):
                return self.component(expr)
            return self.read(expr.buffer, self.position(expr.buffer, expr.indices))

        return self.steady(expr, self.ctype(expr.dtype), 0, 1, write)

    def _call(self, name: str, args: list[str], dtype: str, count: int) -> str:
        base = dtypes.element(dtype)
        kind = self.ctype(base) if count == 1 else f"{self.value_type(base)}{count}"
        if name in _BITWISE:
            bits = f"({args[0]} {_BITWISE[name]} {args[1]})"
            return f"(({kind}){bits})" if count == 1 else bits
        if name == "abs" and dtypes.is_int(base):
            if count == 1:
                return f"(({kind})abs({args[0]}))"
            own = memory_type(base)
            unsigned = own if own.startswith("u") else f"u{own}"
            absolute = self.helpers.built_in("abs", own, unsigned, count)
            return f"{self.helpers.built_in(f'convert_{own}{{n}}', unsigned, own, count)}({absolute}({args[0]}))"
        if not dtypes.is_float(base):
            raise CodegenError(f"`{name}` is defined for floats, but got {dtype}; cast the argument first")
        if name == "sigmoid" and kind.startswith("half"):  # whose exponential overflows for arguments of -12
            widen = self.helpers.built_in("convert_float{n}", "half", "float", count) if count > 1 else "(float)"
            narrow = self.helpers.built_in("convert_half{n}", "float", "half", count) if count > 1 else "(half)"
            wide = dtypes.with_lanes("float32", count)
            return f"({narrow}({self._call(name, [f'{widen}({args[0]})'], wide, count)}))"
        if name == "sigmoid":
            one = f"(({kind})(1.0f))"
            return self.rounded(f"({one} / ({one} + {self._exponential(base, count)}(-{args[0]})))", base)
        if name == "exp":
            return self.rounded(f"{self._exponential(base, count)}({bare(args[0])})", base)
        if name not in _UNARY:
            raise CodegenError(f"there is no function `{name}` in OpenCL code")
        own = self.value_type(base)
        function = self.helpers.built_in(_UNARY[name], own, own, count, len(args))
        return self.rounded(f"{function}({', '.join(args)})", base)

    def _exact(self, expr: Expr, write: Callable[[Expr], str], count: int) -> str:
        """An operation that is rounded once, and not combined with others."""
        assert isinstance(expr, (Binary, Call))
        own = self.value_type(expr.dtype)

        def function(op: str) -> str:
            return exact_operation(self.helpers, op, own, count)

        if isinstance(expr, Binary):
            text = f"{function(expr.op)}({bare(write(expr.a))}, {bare(write(expr.b))})"
        else:
            text = f"{function('sqrt')}({bare(write(expr.args[0]))})"
            if expr.name == "rsqrt":
                one = literal(1.0, "float32", self.index_type)
                text = f"{function('/')}(({own if count == 1 else f'{own}{count}'})({one}), {text})"
        return self.rounded(text, dtypes.element(expr.dtype))

    def _exponential(self, base: str, count: int) -> str:
        """The function for ``e**x``: on a CPU our own, which is code in place of a call."""
        own = self.value_type(base)
        ours = self.is_cpu and own == "float"
        return self.helpers.exponential(count) if ours else self.helpers.built_in("exp", own, own, count)

    def _dot(self, expr: Call, write: Callable[[Expr], str], count: int) -> str:
        """A number and the sum of the four products of bytes of two words, or of each lane."""
        a, b, own = expr.args
        total, left, right = write(own), write(a), write(b)
        signs = expr.name[-2:]
        if count == 1:
            return f"((int)((uint){total} + (uint){dot_builtin(signs)}((uint){left}, (uint){right})))"
        added = f"{self.helpers.dot(signs, count, self.is_cpu)}({bare(left)}, {bare(right)})"
        return f"as_int{count}(as_uint{count}({total}) + as_uint{count}({added}))"

    # ------------------------------------------------------------ vectors

    def vector(self, expr: Expr, start: int, count: int) -> str:
        """Lanes ``[start, start + count)`` of a vector, or a scalar in every lane."""
        if count == 1:
            return self._lane(expr, start)
        if dtypes.lanes(expr.dtype) == 1:
            return self.splat(self.scalar(expr), expr.dtype, count)
        if isinstance(expr, Broadcast):
            if dtypes.lanes(expr.value.dtype) != 1:
                raise CodegenError(f"a broadcast repeats a scalar, but got {expr.value.dtype}: {expr!r}")
            return self.splat(self.scalar(expr.value), expr.dtype, count)
        if dtypes.element(expr.dtype) in self.by_lane:
            return self._by_lane(expr, start, count)
        if isinstance(expr, Load):
            return self._vector_load(expr, start, count)
        if isinstance(expr, Binary) and expr.op in ("+", "-", "*", "/", "min", "max"):
            a, b = (self.vector(e, start, count) for e in (expr.a, expr.b))
            if expr.op in ("min", "max"):
                return self._extremum(expr.op, expr.a, expr.b, a, b, count)
            kind = self.value_type(expr.dtype)
            if expr.dtype.startswith("int"):  # wraps around, where C's signed arithmetic has no meaning
                return f"as_{kind}{count}(as_u{kind}{count}({a}) {expr.op} as_u{kind}{count}({b}))"
            return f"({a} {expr.op} {b})"
        if isinstance(expr, Call) and expr.name in DOT_CALLS:
            return self._dot(expr, lambda e: self.vector(e, start, count), count)
        if isinstance(expr, Call) and expr.name == EXACT:
            return self._exact(expr.args[0], lambda operand: self.vector(operand, start, count), count)
        if isinstance(expr, Call) and expr.name != "if_then_else":
            return self._call(expr.name, [self.vector(a, start, count) for a in expr.args], expr.dtype, count)
        if isinstance(expr, Cast) and dtypes.element(expr.a.dtype) not in self.by_lane:
            truncates = dtypes.is_float(expr.a.dtype) and dtypes.is_int(expr.dtype)
            source, wanted = memory_type(expr.a.dtype), memory_type(expr.dtype)
            function = self.helpers.built_in(f"convert_{wanted}{{n}}{'_sat' * truncates}", source, wanted, count)
            value = self.vector(expr.a, start, count)
            return f"{function}({self.helpers.no_nan(source, count)}({value}))" if truncates else f"{function}({value})"
        if isinstance(expr, (Select, Call)):
            chosen = expr

            def choose() -> str:
                return self._choice(chosen, start, count) or self._lanes(chosen, start, count)

            return self.steady(expr, f"{self.value_type(expr.dtype)}{count}", start, count, choose)
        return self._by_lane(expr, start, count)

    def splat(self, scalar: str, dtype: str, count: int) -> str:
        return f"(({self.value_type(dtype)}{count})({scalar}))"

    def _by_lane(self, expr: Expr, start: int, count: int) -> str:
        kind = f"{self.value_type(expr.dtype)}{count}"

        return self.steady(expr, kind, start, count, lambda: self._lanes(expr, start, count))

    def _lanes(self, expr: Expr, start: int, count: int) -> str:
        kind = self.value_type(expr.dtype)
        lanes = ", ".join(self._lane(expr, k) for k in range(start, start + count))
        return f"(({kind}{count})({lanes}))"

    def _lane(self, expr: Expr, number: int) -> str:
        """One lane; where its condition does not hold nothing is evaluated."""
        cond = const(True, "bool") if self.under is None else lane(self.under, number)
        if isinstance(cond, Const):
            return self.scalar(lane(expr, number) if cond.value else const(0, dtypes.element(expr.dtype)))
        return self._conditional(cond, lane(expr, number), const(0, dtypes.element(expr.dtype)), self.scalar)

    def _choice(self, expr: Select | Call, start: int, count: int) -> str | None:
        """A choice between vectors; None where the condition is one that each lane has to decide."""
        cond, a, b = (expr.cond, expr.a, expr.b) if isinstance(expr, Select) else expr.args
        cond, other = self._settled(cond), b.value if isinstance(b, Broadcast) else b
        if isinstance(cond, Const):
            return self.vector(a if cond.value else b, start, count)
        is_one = dtypes.lanes(cond.dtype) == 1
        if isinstance(a, Load) and isinstance(other, Const) and not self.is_image(a):
            read = self.masked_load if is_one else self.guarded_load
            text = read(cond, a, other, start, count)
            if text is None and is_one:
                text = self.load_or_constant(cond, a, other, start, count)
            if text is not None or not is_one:
                return text
        if is_one:
            return self._conditional(cond, a, b, lambda side: self.vector(side, start, count))
        if isinstance(expr, Call) and any(isinstance(n, Load) for side in (a, b) for n in walk(side)):
            return None
        left, right = (self.vector(side, start, count) for side in (a, b))
        return self.chosen(cond, left, right, expr.dtype, start, count)

    def _vector_load(self, expr: Load, start: int, count: int) -> str:
        if self.is_image(expr):
            whole = self.components(expr, start, count) if self.under is None else None
            return whole or self._by_lane(expr, start, count)
        position = as_ramp(self.position(expr.buffer, expr.indices))
        if position is None or not isinstance(position[1], Const) or dtypes.is_bool(expr.dtype):
            return self._by_lane(expr, start, count)
        base, stride = binary("+", position[0], binary("*", position[1], start)), int(position[1].value)
        kind = f"{memory_type(expr.dtype)}{count}"
        under = self.under
        if stride == 1 and under is not None:

            def read() -> str:
                masked = self.masked_load(under, expr, const(0, dtypes.element(expr.dtype)), start, count)
                return masked or self.read_within(expr.buffer, base, count) or self._lanes(expr, start, count)

            return self.steady(expr, kind, start, count, read)
        if stride == 1:
            return self.steady(expr, kind, start, count, lambda: self.read_vector(expr.buffer, base, count))
        # Private arrays that are read in overlapping vectors do not stay in registers, and a GPU reads lane by lane.
        apart = self.is_cpu and self.under is None and self.space(expr.buffer) != "private"
        chosen = picks([stride * number for number in range(count)]) if apart else None
        if chosen is None:
            return self._by_lane(expr, start, count)
        return self.steady(expr, kind, start, count, lambda: self._picked(expr, base, chosen))

    def _picked(self, load: Load, base: Expr, chosen: Picks) -> str:
        """The lanes that were chosen from a base on, out of vectors of neighbours."""
        vectors = [self.read_vector(load.buffer, binary("+", base, first), chosen.length) for first in chosen.starts]
        return f"{self.helpers.pick(memory_type(load.dtype), chosen)}({', '.join(vectors)})"
