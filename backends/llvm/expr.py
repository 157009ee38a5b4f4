"""Expressions to LLVM values.

An int64 is a linear form (`Linear`), a vector of them `Ramped` or `Lanes`, a condition that is
decided at generation time a Python bool, and everything else the text of an LLVM operand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...ir import dtypes
from ...ir.arith.compare import decide_zero
from ...ir.arith.linear import shared_form
from ...ir.expr import (
    COMPARISONS,
    DOT_CALLS,
    LOGIC,
    PAIR_CALLS,
    Binary,
    Broadcast,
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
    can_fail,
    reads_memory,
)
from ...ir.node import walk
from ..passes.roundings import EXACT
from . import arith
from .conversion import clamped, converted
from .dots import dot_of_words
from .index import INLINE, INT64_MAX, INT64_MIN, ZERO, Lanes, Linear, Ramped, combined, difference, from_lanes
from .load import Loads, Value
from .math import call_math
from .types import CodegenError, ModuleText, literal, value_type, vector_literal

_BITWISE = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
_INT_COMPARE = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}


class Expressions(Loads):
    """A builder that evaluates expressions under the bindings `env`."""

    def __init__(self, module: ModuleText, name: str, parameters: Iterable[str]) -> None:
        super().__init__(module, name, parameters)
        self.env: dict[str, Value] = {}
        self._stamps: dict[str, int] = {}
        self._clock = 0
        self._forms: dict[int, _Form] = {}
        self._plans: dict[int, Callable[[Any], Value]] = {}
        self._eval: dict[type, Callable[[Any], Value]] = {
            Var: self._var, Const: self._const, Not: self._not, Select: self._select,
            Call: self._call, Cast: self._cast, Load: self.load, Ramp: self._ramp, Broadcast: self._broadcast,
            Undef: self._undef,
        }  # fmt: skip

    def bind(self, var: Var, value: Value) -> None:
        """`var` means `value` from here on."""
        self.env[var.name] = value
        self._clock += 1
        self._stamps[var.name] = self._clock

    def unbind(self, var: Var) -> None:
        """`var` means nothing from here on."""
        self.env.pop(var.name, None)

    def value(self, expr: Expr) -> Value:
        """The value of `expr` in its best form."""
        plan = self._plans.get(id(expr))
        if plan is None:
            plan = self._plans[id(expr)] = self._plan(expr)
            self.keep(expr)
        return plan(expr)

    def _plan(self, expr: Expr) -> Callable[[Any], Value]:
        """What evaluates `expr`; looked up once for all the times that an unrolled loop writes it."""
        if isinstance(expr, Binary):
            if expr.op in LOGIC:
                return self._logic
            is_index = expr.op not in COMPARISONS and self.dtype(expr) == dtypes.INDEX
            return self._index if is_index else self._binary
        try:
            return self._eval[type(expr)]
        except KeyError:
            raise CodegenError(f"no code for a {type(expr).__name__} expression: {expr!r}") from None

    def operand(self, expr: Expr) -> str:
        """The LLVM operand that holds `expr`."""
        return self.materialise(self.value(expr), self.dtype(expr))

    def linear(self, expr: Expr) -> Linear:
        """A scalar int64 as a linear form."""
        value = self.value(expr)
        if isinstance(value, Linear):
            return value
        raise CodegenError(f"expected a scalar int64, but got {self.dtype(expr)}: {expr!r}")

    # --- leaves -------------------------------------------------------------------------------

    def _var(self, expr: Var) -> Value:
        try:
            return self.env[expr.name]
        except KeyError:
            raise CodegenError(f"variable `{expr.name}` is used outside of the loop or let that defines it") from None

    def _const(self, expr: Const) -> Value:
        if expr.dtype == dtypes.INDEX:
            return Linear(int(expr.value))
        if expr.dtype == "bool":
            return bool(expr.value)
        return literal(expr.value, expr.dtype)

    def _undef(self, expr: Undef) -> Value:
        """Any value does."""
        if expr.dtype == dtypes.INDEX:
            return ZERO
        return False if expr.dtype == "bool" else literal(0, expr.dtype)

    def _ramp(self, expr: Ramp) -> Value:
        base, stride = self.value(expr.base), self.value(expr.stride)
        if isinstance(base, Linear) and isinstance(stride, Linear):
            return Ramped(base, stride, expr.lanes) if expr.lanes > 1 else base
        dtype = self.dtype(expr)
        kind, base_dtype = value_type(dtype), dtypes.element(dtype)
        first, step = (self.splat(self.materialise(v, base_dtype), dtype) for v in (base, stride))
        numbers = vector_literal(tuple(literal(n, base_dtype) for n in range(expr.lanes)), base_dtype)
        return self.emit(f"add {kind} {first}, {self.emit(f'mul {kind} {step}, {numbers}')}")

    def _broadcast(self, expr: Broadcast) -> Value:
        value = self.value(expr.value)
        if isinstance(value, bool) or expr.lanes == 1:
            return value
        if isinstance(value, Linear):
            return Ramped(value, ZERO, expr.lanes)
        if isinstance(value, str) and dtypes.lanes(self.dtype(expr.value)) == 1:
            return self.splat(value, self.dtype(expr))
        raise CodegenError(f"a broadcast repeats a scalar, but got {self.dtype(expr.value)}: {expr!r}")

    # --- operators ----------------------------------------------------------------------------

    def _binary(self, expr: Binary) -> Value:
        a, b = self.value(expr.a), self.value(expr.b)
        dtype = self.dtype(expr.a)
        if not isinstance(a, str) and not isinstance(b, str) and dtypes.element(dtype) == dtypes.INDEX:
            return self.index_binary(expr.op, a, b)
        left, right = self.materialise(a, dtype), self.materialise(b, dtype)
        if expr.op in COMPARISONS:
            return self._compare(expr.op, left, right, dtype)
        return self.wrapped(arith.binary(self, expr.op, left, right, dtype), dtype)

    def _index(self, expr: Binary) -> Value:
        """Index arithmetic, evaluated once for each binding of its variables, and sums term by term."""
        form = self._forms.get(id(expr))
        if form is None:
            form = self._forms[id(expr)] = _Form(expr)
        stamp, stamps = 0, self._stamps
        for name in form.variables:
            if stamps.get(name, 0) > stamp:
                stamp = stamps[name]
        if form.pure and form.stamp == stamp:
            return form.value
        if len(form.terms) == 1 and form.terms[0][0] is expr:
            value = self._operation(expr)
        else:
            value = combined(form.const, [(self._atom(atom), factor) for atom, factor in form.terms])
        if form.pure and isinstance(value, Linear) and value.depth != INLINE:
            form.stamp, form.value = stamp, value
        return value

    def _atom(self, expr: Expr) -> Linear:
        """`linear`, quick for what is bound."""
        value = self.env.get(expr.name) if type(expr) is Var else None
        return value if type(value) is Linear else self.linear(expr)

    def _operation(self, expr: Binary) -> Value:
        """An operation on indices that is not a sum: a quotient, a product of variables, a minimum."""
        return self._linear_binary(expr.op, self.linear(expr.a), self.linear(expr.b))

    def _compare(self, op: str, left: str, right: str, dtype: str) -> str:
        key = ("compare", op, left, right, dtype)
        if key not in self.region:
            self.region[key] = arith.compare(self, op, left, right, dtype)
        return str(self.region[key])

    def _logic(self, expr: Binary) -> Value:
        if expr.op == "and" and isinstance(expr.a, Broadcast):
            return self._where(expr)
        a = self.value(expr.a)
        absorbing = expr.op == "or"
        if isinstance(a, bool):
            return a if a is absorbing else self.value(expr.b)
        b = self.value(expr.b)
        if isinstance(b, bool):
            return b if b is absorbing else a
        kind = value_type(self.dtype(expr))
        left, right = (self.materialise(v, self.dtype(expr)) for v in (a, b))
        depth = max(self.depths.get(left, INLINE), self.depths.get(right, INLINE))
        return self._condition(f"{expr.op} {kind} {left}, {right}", depth)

    def _where(self, expr: Binary) -> Value:
        """The lanes of a condition where a scalar one holds, too."""
        assert isinstance(expr.a, Broadcast)
        flag, mask = self.value(expr.a.value), self.value(expr.b)
        if isinstance(flag, bool):
            return mask if flag else False
        if isinstance(mask, bool) and not mask:
            return False
        dtype = self.dtype(expr)
        return self.mask_where(self.materialise(flag, "bool"), self.materialise(mask, dtype), value_type(dtype))

    def _not(self, expr: Not) -> Value:
        a = self.value(expr.a)
        if isinstance(a, bool):
            return not a
        dtype = self.dtype(expr)
        return self.emit(f"xor {value_type(dtype)} {self.materialise(a, dtype)}, {literal(True, dtype)}")

    def index_binary(self, op: str, a: Value, b: Value) -> Value:
        if isinstance(a, Linear) and isinstance(b, Linear):
            return self._linear_binary(op, a, b)
        assert isinstance(a, (Linear, Ramped, Lanes)) and isinstance(b, (Linear, Ramped, Lanes))
        count = a.lanes if isinstance(a, (Ramped, Lanes)) else b.lanes  # type: ignore[union-attr]
        if op in "+-*":
            ramp = _ramp_binary(op, _ramped(a, count), _ramped(b, count))
            if ramp is not None:
                return ramp
        if op in COMPARISONS:
            mask = self.compare_ramps(op, _ramped(a, count), _ramped(b, count))
            if mask is not None:
                return mask
        left = [a if isinstance(a, Linear) else a.lane(n) for n in range(count)]
        right = [b if isinstance(b, Linear) else b.lane(n) for n in range(count)]
        lanes = [self._linear_binary(op, x, y) for x, y in zip(left, right, strict=True)]
        if op in COMPARISONS:
            if all(isinstance(v, bool) for v in lanes) and len(set(lanes)) == 1:
                return lanes[0]
            dtype = dtypes.with_lanes(dtypes.INDEX, count)
            return self._compare(op, self.materialise(a, dtype), self.materialise(b, dtype), dtype)
        return from_lanes(v for v in lanes if isinstance(v, Linear))

    def _linear_binary(self, op: str, a: Linear, b: Linear) -> Value:
        if op == "+":
            return a + b
        if op == "-":
            return a - b
        if op == "*":
            return arith.multiply(self, a, b)
        if op == "//":
            return arith.floor_div(self, a, b)
        if op == "%":
            return arith.floor_mod(self, a, b)
        if op in ("min", "max"):
            return arith.extremum(self, op, a, b)
        if op in COMPARISONS:
            return self._linear_compare(op, a, b)
        raise CodegenError(f"`{op}` of integers is not defined; use `//` for the quotient")

    def _linear_compare(self, op: str, a: Linear, b: Linear) -> bool | str:
        apart = difference(a, b)
        if apart is not None:
            decided = decide_zero(op, *apart.bounds())
            if decided is not None:
                return decided
            if apart.bounded:
                a, b = Linear(0, apart.terms), Linear(-apart.const)
        text = f"icmp {_INT_COMPARE[op]} i64 {self.scalar(a)}, {self.scalar(b)}"
        return self._condition(text, max(a.depth, b.depth))

    def _condition(self, text: str, depth: int) -> str:
        """A pure condition: at the head of the loop that it depends on, or here for the innermost one."""
        if depth >= len(self.scopes) - 1:
            depth = INLINE
        name = str(self.shared(("condition", text), depth, lambda into: self.emit(text, into)))
        self.depths[name] = depth
        return name

    # --- conditionals -------------------------------------------------------------------------

    def _select(self, expr: Select) -> Value:
        cond = self.value(expr.cond)
        if isinstance(cond, bool):
            return self.value(expr.a if cond else expr.b)
        return self._chosen(self.materialise(cond, "bool"), expr.cond, expr.a, expr.b, self.dtype(expr))

    def _chosen(self, flag: str, cond: Expr, left: Expr, right: Expr, dtype: str) -> Value:
        """Both sides evaluated, and one of them taken."""
        a, b = self.value(left), self.value(right)
        kind = value_type(dtype)
        sides = f"{kind} {self.materialise(a, dtype)}, {kind} {self.materialise(b, dtype)}"
        text = f"select {value_type(self.dtype(cond))} {flag}, {sides}"
        if dtype != dtypes.INDEX:
            return self.emit(text)
        assert isinstance(a, Linear) and isinstance(b, Linear)
        (alo, ahi), (blo, bhi) = a.bounds(), b.bounds()
        return self.opaque(self.emit(text), min(alo, blo), max(ahi, bhi))

    def _if_then_else(self, expr: Call) -> Value:
        """Lazy: a scalar condition branches unless neither side can fail, a vector one masks the loads.

        A load beside a constant needs no branch where its index reads no memory: that is evaluated in any case.
        """
        cond_expr, a, b = expr.args
        cond = self.value(cond_expr)
        if isinstance(cond, bool):
            return self.value(a if cond else b)
        mask, dtype = self.materialise(cond, "bool"), self.dtype(expr)
        if dtypes.lanes(self.dtype(cond_expr)) > 1:
            return self._masked(mask, cond_expr, a, b, dtype)
        if not can_fail(a) and not can_fail(b):
            return self._chosen(mask, cond_expr, a, b, dtype)
        other = b.value if isinstance(b, Broadcast) else b
        if (
            self.mask is None
            and isinstance(a, Load)
            and isinstance(other, Const)
            and not any(map(reads_memory, a.indices))
        ):
            offset = self.flat(a.buffer, a.indices)
            if isinstance(offset, Linear) or (isinstance(offset, Ramped) and offset.stride == Linear(1)):
                return self.load_or_constant(mask, a.buffer, offset, self.operand(b), dtype)
        name = self.choose(mask, lambda: self.operand(a), lambda: self.operand(b), value_type(dtype))
        return self.wrapped(name, dtype)

    def _masked(self, mask: str, cond: Expr, a: Expr, b: Expr, dtype: str) -> str:
        """Each side in its own lanes; a load beside a value that reads nothing takes it in the other lanes."""
        outer, kind, vector = self.mask, value_type(self.dtype(cond)), value_type(dtype)
        inverse = mask
        if any(isinstance(n, Load) for n in walk(b)):
            inverse = self.emit(f"xor {kind} {mask}, {literal(True, self.dtype(cond))}")
        elif isinstance(a, Load) and dtypes.lanes(self.dtype(a)) > 1:
            other = self.operand(b)
            with self.under(mask, kind):
                return self.materialise(self.load(a, other), dtype)
        sides = []
        for side, own in ((a, mask), (b, inverse)):
            with self.under(own, kind):
                sides.append(self.operand(side))
        assert self.mask == outer
        return self.emit(f"select {kind} {mask}, {vector} {sides[0]}, {vector} {sides[1]}")

    # --- calls and casts ----------------------------------------------------------------------

    def _call(self, expr: Call) -> Value:
        if expr.name == "if_then_else":
            return self._if_then_else(expr)
        if expr.name == EXACT:
            return self._exact(expr.args[0])
        operands = [self.operand(a) for a in expr.args]
        if expr.name in (*DOT_CALLS, *PAIR_CALLS):
            return dot_of_words(self, expr.name, operands, expr.dtype)
        if expr.name in _BITWISE:
            text = f"{_BITWISE[expr.name]} {value_type(expr.dtype)} {', '.join(operands)}"
            return self.wrapped(self.emit(text), expr.dtype)
        return self.wrapped(call_math(self, expr.name, operands, expr.dtype), expr.dtype)

    def _exact(self, expr: Expr) -> Value:
        """An operation without the flags of others; functions have none."""
        if not isinstance(expr, Binary):
            return self.value(expr)
        dtype = self.dtype(expr)
        a, b = self.operand(expr.a), self.operand(expr.b)
        return self.wrapped(arith.binary(self, expr.op, a, b, dtype, exact=True), dtype)

    def _cast(self, expr: Cast) -> Value:
        source, target = self.dtype(expr.a), expr.dtype
        if dtypes.is_float(source) and (bounded := clamped(expr)) is not None:
            return converted(self, bounded, self.operand, target)
        value = self.value(expr.a)
        if source == target:
            return value
        name = arith.cast(self, self.materialise(value, source), source, target)
        if target != dtypes.INDEX:
            return name
        lo, hi = (0, 1) if source == "bool" else (INT64_MIN, INT64_MAX)
        if dtypes.is_int(source):
            lo, hi = dtypes.int_range(source)
        return self.opaque(name, lo, hi)

class _Form:
    """An index expression as a sum, and its value under the bindings of time `stamp`."""

    __slots__ = ("const", "pure", "stamp", "terms", "value", "variables")

    def __init__(self, expr: Expr) -> None:
        terms, self.const = shared_form(expr)
        self.terms = tuple(terms.items())
        nodes = list(walk(expr))
        self.variables = tuple({n.name for n in nodes if isinstance(n, Var)})
        self.pure = not any(isinstance(n, (Load, Call)) for n in nodes)
        self.stamp, self.value = -1, ZERO


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

