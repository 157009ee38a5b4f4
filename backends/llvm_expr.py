"""Expressions to LLVM values.

An int64 is a linear form (`Linear`), a vector of them `Ramped` or `Lanes`, a condition that is
decided at generation time a Python bool, and everything else the text of an LLVM operand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..ir import dtypes
from ..ir.expr import (
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
    Var,
)
from ..ir.linear import shared_form
from ..ir.node import walk
from . import llvm_arith as arith
from .llvm_builder import Builder
from .llvm_index import INLINE, INT64_MAX, INT64_MIN, ZERO, Lanes, Linear, Ramped, from_lanes
from .llvm_math import call_math
from .llvm_types import CodegenError, ModuleText, literal, memory_type, suffix, value_type

Value = Linear | Ramped | Lanes | bool | str
_INT_COMPARE = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}


class Expressions(Builder):
    """A builder that evaluates expressions under the bindings `env`."""

    def __init__(self, module: ModuleText, name: str, parameters: Iterable[str]) -> None:
        super().__init__(module, name, parameters)
        self.env: dict[str, Value] = {}
        self.mask: str | None = None
        self._depths: dict[str, int] = {}
        self._types: dict[int, str] = {}
        self._stamps: dict[str, int] = {}
        self._clock = 0
        self._forms: dict[int, _Form] = {}
        self._eval: dict[type, Callable[[Any], Value]] = {
            Var: self._var, Const: self._const, Binary: self._binary, Not: self._not, Select: self._select,
            Call: self._call, Cast: self._cast, Load: self._load, Ramp: self._ramp, Broadcast: self._broadcast,
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
        try:
            method = self._eval[type(expr)]
        except KeyError:
            raise CodegenError(f"no code for a {type(expr).__name__} expression: {expr!r}") from None
        return method(expr)

    def operand(self, expr: Expr) -> str:
        """The LLVM operand that holds `expr`."""
        return self.materialise(self.value(expr), self.dtype(expr))

    def linear(self, expr: Expr) -> Linear:
        """A scalar int64 as a linear form."""
        value = self.value(expr)
        if isinstance(value, Linear):
            return value
        raise CodegenError(f"expected a scalar int64, but got {self.dtype(expr)}: {expr!r}")

    def materialise(self, value: Value, dtype: str) -> str:
        """`value` as the operand of an instruction on `dtype`."""
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return literal(value, dtype)
        if isinstance(value, Linear):
            scalar = self.scalar(value)
            return scalar if dtypes.lanes(dtype) == 1 else self.splat(scalar, dtype)
        if isinstance(value, Ramped):
            return self.vector(value)
        return self.gathered([self.scalar(v) for v in value.values], dtype)

    def gathered(self, scalars: list[str], dtype: str) -> str:
        """A vector of type `dtype` built from its lanes."""
        kind, one = value_type(dtype), value_type(dtypes.element(dtype))
        result = "poison"
        for lane, scalar in enumerate(scalars):
            result = self.emit(f"insertelement {kind} {result}, {one} {scalar}, i64 {lane}")
        return result

    def dtype(self, expr: Expr) -> str:
        """The type of `expr`; remembered, because a derived one costs a walk."""
        try:
            return self._types[id(expr)]
        except KeyError:
            result = self._types[id(expr)] = expr.dtype
            return result

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

    def _ramp(self, expr: Ramp) -> Value:
        base, stride = self.value(expr.base), self.value(expr.stride)
        if isinstance(base, Linear) and isinstance(stride, Linear):
            return Ramped(base, stride, expr.lanes) if expr.lanes > 1 else base
        raise CodegenError(f"a ramp counts in int64, but got {self.dtype(expr.base)}: {expr!r}")

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
        if expr.op in LOGIC:
            return self._logic(expr)
        if expr.op not in COMPARISONS and self.dtype(expr) == dtypes.INDEX:
            return self._index(expr)
        a, b = self.value(expr.a), self.value(expr.b)
        dtype = self.dtype(expr.a)
        if not isinstance(a, str) and not isinstance(b, str) and dtypes.element(dtype) == dtypes.INDEX:
            return self._index_binary(expr.op, a, b)
        left, right = self.materialise(a, dtype), self.materialise(b, dtype)
        if expr.op in COMPARISONS:
            return self._compare(expr.op, left, right, dtype)
        return self._wrap(arith.binary(self, expr.op, left, right, dtype), dtype)

    def _index(self, expr: Binary) -> Value:
        """Index arithmetic, evaluated once for each binding of its variables, and sums term by term."""
        form = self._forms.get(id(expr))
        if form is None:
            form = self._forms[id(expr)] = _Form(expr)
        stamp = max(map(self._stamp, form.variables), default=0)
        if form.pure and form.stamp == stamp:
            return form.value
        if len(form.terms) == 1 and form.terms[0][0] is expr:
            value = self._operation(expr)
        else:
            value = Linear(form.const)
            for atom, factor in form.terms:
                value = value + self.linear(atom) * factor
        if form.pure and isinstance(value, Linear) and value.depth != INLINE:
            form.stamp, form.value = stamp, value
        return value

    def _stamp(self, name: str) -> int:
        return self._stamps.get(name, 0)

    def _operation(self, expr: Binary) -> Value:
        """An operation on indices that is not a sum: a quotient, a product of variables, a minimum."""
        return self._linear_binary(expr.op, self.linear(expr.a), self.linear(expr.b))

    def _compare(self, op: str, left: str, right: str, dtype: str) -> str:
        key = ("compare", op, left, right)
        if key not in self.region:
            self.region[key] = arith.compare(self, op, left, right, dtype)
        return str(self.region[key])

    def _wrap(self, name: str, dtype: str) -> Value:
        """A computed int64 becomes an atom, so that index arithmetic on it folds."""
        return self.opaque(name, INT64_MIN, INT64_MAX) if dtype == dtypes.INDEX else name

    def _logic(self, expr: Binary) -> Value:
        a = self.value(expr.a)
        absorbing = expr.op == "or"
        if isinstance(a, bool):
            return a if a is absorbing else self.value(expr.b)
        b = self.value(expr.b)
        if isinstance(b, bool):
            return b if b is absorbing else a
        kind = value_type(self.dtype(expr))
        left, right = self.materialise(a, "bool"), self.materialise(b, "bool")
        depth = max(self._depths.get(left, INLINE), self._depths.get(right, INLINE))
        return self._condition(f"{expr.op} {kind} {left}, {right}", depth)

    def _not(self, expr: Not) -> Value:
        a = self.value(expr.a)
        if isinstance(a, bool):
            return not a
        dtype = self.dtype(expr)
        return self.emit(f"xor {value_type(dtype)} {self.materialise(a, dtype)}, {literal(True, dtype)}")

    def _index_binary(self, op: str, a: Value, b: Value) -> Value:
        if isinstance(a, Linear) and isinstance(b, Linear):
            return self._linear_binary(op, a, b)
        assert isinstance(a, (Linear, Ramped, Lanes)) and isinstance(b, (Linear, Ramped, Lanes))
        count = a.lanes if isinstance(a, (Ramped, Lanes)) else b.lanes  # type: ignore[union-attr]
        if op in "+-*":
            ramp = _ramp_binary(op, _ramped(a, count), _ramped(b, count))
            if ramp is not None:
                return ramp
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
        difference = a - b
        decided = arith.decide(op, *difference.bounds()) if a.bounded and b.bounded else None
        if decided is not None:
            return decided
        if difference.bounded:
            a, b = Linear(0, difference.terms), Linear(-difference.const)
        text = f"icmp {_INT_COMPARE[op]} i64 {self.scalar(a)}, {self.scalar(b)}"
        return self._condition(text, max(a.depth, b.depth))

    def _condition(self, text: str, depth: int) -> str:
        """A pure condition: at the head of the loop that it depends on, or here for the innermost one."""
        if depth >= len(self.scopes) - 1:
            depth = INLINE
        name = str(self.shared(("condition", text), depth, lambda into: self.emit(text, into)))
        self._depths[name] = depth
        return name

    # --- conditionals -------------------------------------------------------------------------

    def _select(self, expr: Select) -> Value:
        cond = self.value(expr.cond)
        if isinstance(cond, bool):
            return self.value(expr.a if cond else expr.b)
        a, b = self.value(expr.a), self.value(expr.b)
        dtype = self.dtype(expr)
        left, right = self.materialise(a, dtype), self.materialise(b, dtype)
        kind, flag = value_type(dtype), value_type(self.dtype(expr.cond))
        text = f"select {flag} {self.materialise(cond, 'bool')}, {kind} {left}, {kind} {right}"
        if dtype != dtypes.INDEX:
            return self.emit(text)
        assert isinstance(a, Linear) and isinstance(b, Linear)
        (alo, ahi), (blo, bhi) = a.bounds(), b.bounds()
        return self.opaque(self.emit(text), min(alo, blo), max(ahi, bhi))

    def _if_then_else(self, expr: Call) -> Value:
        """Lazy: a scalar condition branches unless neither side can fail, a vector one masks the loads."""
        cond_expr, a, b = expr.args
        cond = self.value(cond_expr)
        if isinstance(cond, bool):
            return self.value(a if cond else b)
        mask = self.materialise(cond, "bool")
        if dtypes.lanes(self.dtype(cond_expr)) > 1:
            return self._masked(mask, cond_expr, a, b, self.dtype(expr))
        if not any(_can_fail(n) for side in (a, b) for n in walk(side)):
            return self._select(Select(cond_expr, a, b))
        dtype = self.dtype(expr)
        other = b.value if isinstance(b, Broadcast) else b
        if self.mask is None and isinstance(a, Load) and isinstance(other, Const):
            offset = self.flat(a.buffer, a.indices)
            if isinstance(offset, Linear) or (isinstance(offset, Ramped) and offset.stride == Linear(1)):
                return self._load_or_constant(mask, a.buffer, offset, self.operand(b), dtype)
        name = self.choose(mask, lambda: self.operand(a), lambda: self.operand(b), value_type(dtype))
        return self._wrap(name, dtype)

    def _load_or_constant(self, cond: str, buffer: Buffer, offset: Linear | Ramped, value: str, dtype: str) -> Value:
        """``buffer[offset] if cond else value`` without a branch: a load from the element or from a constant."""
        kind = memory_type(dtype)
        base = offset if isinstance(offset, Linear) else offset.base
        stored = value if not dtypes.is_bool(dtype) else literal(value.count("true") > 0, dtype.replace("bool", "int8"))
        other = self.module.constant(kind, stored)
        pointer = self.emit(f"select i1 {cond}, ptr {self.address(buffer, base)}, ptr {other}")
        align = min(self.alignment(buffer, base), dtypes.nbytes(dtypes.element(dtype)))
        return self._wrap(self._read(pointer, dtype, align), dtype)

    def _masked(self, mask: str, cond: Expr, a: Expr, b: Expr, dtype: str) -> str:
        outer, kind = self.mask, value_type(self.dtype(cond))
        inverse = self.emit(f"xor {kind} {mask}, {literal(True, self.dtype(cond))}")
        sides = []
        for side, own in ((a, mask), (b, inverse)):
            self.mask = own if outer is None else self.emit(f"and {kind} {outer}, {own}")
            sides.append(self.operand(side))
        self.mask = outer
        vector = value_type(dtype)
        return self.emit(f"select {kind} {mask}, {vector} {sides[0]}, {vector} {sides[1]}")

    # --- calls and casts ----------------------------------------------------------------------

    def _call(self, expr: Call) -> Value:
        if expr.name == "if_then_else":
            return self._if_then_else(expr)
        operands = [self.operand(a) for a in expr.args]
        return self._wrap(call_math(self, expr.name, operands, expr.dtype), expr.dtype)

    def _cast(self, expr: Cast) -> Value:
        source, target = self.dtype(expr.a), expr.dtype
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

    # --- memory -------------------------------------------------------------------------------

    def flat(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Linear | Ramped | Lanes:
        """The offset of an access in elements of the buffer."""
        offset: Value = ZERO
        for index, stride in zip(indices, buffer.strides, strict=True):
            value = self.value(index)
            if isinstance(value, str):
                value = self._unpacked(value, dtypes.lanes(self.dtype(index)))
            scaled = value if stride == 1 else self._index_binary("*", value, Linear(stride))
            offset = scaled if offset is ZERO else self._index_binary("+", offset, scaled)
        assert isinstance(offset, (Linear, Ramped, Lanes))
        return offset

    def _unpacked(self, vector: str, count: int) -> Ramped | Lanes:
        kind = value_type(dtypes.with_lanes(dtypes.INDEX, count))
        names = [self.emit(f"extractelement {kind} {vector}, i64 {n}") for n in range(count)]
        return from_lanes(self.opaque(name, INT64_MIN, INT64_MAX) for name in names)

    def _load(self, expr: Load) -> Value:
        buffer, dtype = expr.buffer, self.dtype(expr)
        offset = self.flat(buffer, expr.indices)
        if isinstance(offset, Ramped) and offset.stride == ZERO and self.mask is None:
            return self.splat(self._load_plain(buffer, offset.base, None, buffer.dtype), dtype)
        if isinstance(offset, Linear):
            if self.mask is not None:
                raise CodegenError(f"a scalar load of `{buffer.name}` under a condition that differs between lanes")
            return self._wrap(self._load_plain(buffer, offset, None, dtype), dtype)
        if self.mask is not None:
            return self._load_masked(buffer, offset, dtype)
        if isinstance(offset, Ramped):
            return self._load_plain(buffer, offset.base, offset.stride, dtype)
        return self._load_lanes(buffer, offset, dtype)

    def _load_plain(self, buffer: Buffer, base: Linear, stride: Linear | None, dtype: str) -> str:
        """A scalar (no stride) or strided vector load, unless it is known already."""
        known = self.memory.setdefault(self.root(buffer), {})
        key = (base, stride, dtypes.lanes(dtype))
        if key in known:
            return known[key]
        if stride is None or stride == Linear(1):
            name = self._load_here(buffer, base, dtype)
        else:
            name = self._load_lanes(buffer, Ramped(base, stride, dtypes.lanes(dtype)), dtype)
        known[key] = name
        self._bytes[name] = dtypes.nbytes(dtype) if dtypes.is_float(dtype) else 0
        return name

    def _load_here(self, buffer: Buffer, offset: Linear, dtype: str) -> str:
        return self._read(self.address(buffer, offset), dtype, self.alignment(buffer, offset))

    def _read(self, pointer: str, dtype: str, align: int) -> str:
        name = self.emit(f"load {memory_type(dtype)}, ptr {pointer}, align {align}")
        if not dtypes.is_bool(dtype):
            return name
        zero = literal(0, dtypes.with_lanes("int8", dtypes.lanes(dtype)))
        return self.emit(f"icmp ne {memory_type(dtype)} {name}, {zero}")

    def _load_lanes(self, buffer: Buffer, offset: Ramped | Lanes, dtype: str) -> str:
        if dtypes.lanes(buffer.dtype) != 1:
            raise CodegenError(f"`{buffer.name}` holds {buffer.dtype}, which only scalar indices can address")
        one = dtypes.element(dtype)
        lanes = [self._load_plain(buffer, offset.lane(n), None, one) for n in range(offset.lanes)]
        return self.gathered(lanes, dtype)

    def _load_masked(self, buffer: Buffer, offset: Ramped | Lanes, dtype: str) -> str:
        """Lanes outside of the mask read nothing and are zero."""
        kind, count = memory_type(dtype), offset.lanes
        align = dtypes.nbytes(dtypes.element(buffer.dtype))
        mask_type = f"<{count} x i1>"
        tag = suffix(dtype.replace("bool", "int8"))
        if isinstance(offset, Ramped) and offset.stride == Linear(1):
            function = self.module.declare(f"llvm.masked.load.{tag}.p0", kind, "ptr", "i32", mask_type, kind)
            place = f"ptr {self.address(buffer, offset.base)}"
        else:
            pointers = [self.address(buffer, offset.lane(n)) for n in range(count)]
            vector = "poison"
            for lane, pointer in enumerate(pointers):
                vector = self.emit(f"insertelement <{count} x ptr> {vector}, ptr {pointer}, i64 {lane}")
            name = f"llvm.masked.gather.{tag}.v{count}p0"
            function = self.module.declare(name, kind, f"<{count} x ptr>", "i32", mask_type, kind)
            place = f"<{count} x ptr> {vector}"
        arguments = f"{place}, i32 {align}, {mask_type} {self.mask}, {kind} zeroinitializer"
        loaded = self.emit(f"call {kind} {function}({arguments})")
        if dtypes.is_bool(dtype):
            return self.emit(f"icmp ne {kind} {loaded}, zeroinitializer")
        return loaded


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


def _can_fail(node: Any) -> bool:
    """Reading memory, or dividing integers by what may be zero."""
    if isinstance(node, Load):
        return True
    return isinstance(node, Binary) and node.op in ("//", "%") and not isinstance(node.b, Const)


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

