"""Values of expressions, by the interpreter, and random expressions with bounds of their variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from random_expressions import ends

from stridesmith.ir import dtypes
from stridesmith.ir.expr import (
    COMPARISONS,
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
    Var,
    const,
    substitute,
)
from stridesmith.ir.functions import BIT_CALLS, INTEGER_CALLS, SHIFT_CALLS, TRUNCATED_CALLS
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.stmt import Block, PrimFunc, Store, loops

Columns = Mapping[Var, NDArray[Any]]
LANES = 4


def values(expr: Expr, columns: Columns) -> NDArray[Any]:
    """The value of `expr` in every row, as the interpreter computes it: (rows,), or (rows, lanes)."""
    rows = len(next(iter(columns.values()))) if columns else 1
    width = dtypes.lanes(expr.dtype)
    row = Var("row")
    inputs = {var: Buffer(f"in_{var.name}", (rows,), var.dtype) for var in columns}
    out = Buffer("out", (rows, width), dtypes.element(expr.dtype))
    value = substitute(expr, {var: Load(buffer, (row,)) for var, buffer in inputs.items()})
    at: Expr = const(0) if width == 1 else Ramp(const(0), const(1), width)
    body = loops([(row, rows)], Store(out, (row, at), value))
    result = np.zeros((rows, width), bool if out.dtype == "bool" else out.dtype)
    func = PrimFunc("f", (*inputs.values(), out), Block("root", (), body))
    interpret(func, *(np.ascontiguousarray(c) for c in columns.values()), result)
    return result[:, 0] if width == 1 else result


def same(a: NDArray[Any], b: NDArray[Any], *, signs: bool = False) -> bool:
    """Whether all values are equal; NaN is equal to itself, and zeros of either sign are unless `signs`."""
    equal = np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    return equal and (not signs or a.dtype.kind != "f" or np.array_equal(np.signbit(a), np.signbit(b)))


class Maker:
    """Draws expressions over a few variables of each type, whose bounds it draws as well."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.bounds: dict[Var, tuple[int, int]] = {}
        for name in "ijk":
            low = draw(st.integers(-10, 10))
            self.bounds[Var(name)] = (low, low + draw(st.sampled_from((0, 1, 3, 5, 7, 15, 40))))
        self.bounds[Var("n", "int8")] = (-128, 127)
        self.free = [Var("x"), Var("m", "int32"), Var("u", "uint8"), Var("c", "bool"), Var("f", "float32")]
        self.free += [Var("v", "uint16"), Var("w", "uint64")]
        self.lets = 0

    def pick(self, items: Any) -> Any:
        return self.draw(st.sampled_from(items))

    def variables(self, dtype: str) -> list[Var]:
        return [v for v in (*self.bounds, *self.free) if v.dtype == dtype]

    def expr(self, dtype: str, depth: int) -> Expr:
        element, width = dtypes.split_dtype(dtype)
        if width > 1:
            return self.vector(element, depth)
        if depth == 0 or self.draw(st.integers(0, 7)) == 0:
            return self.leaf(element)
        if self.draw(st.integers(0, 9)) == 0:
            return self.let(element, depth)
        if self.draw(st.integers(0, 6)) == 0:
            cond, a, b = self.expr("bool", depth - 1), self.expr(dtype, depth - 1), self.expr(dtype, depth - 1)
            return Select(cond, a, b) if self.draw(st.booleans()) else Call("if_then_else", (cond, a, b), dtype)
        if element == "bool":
            return self.condition(depth)
        return self.arithmetic(element, depth)

    def leaf(self, dtype: str) -> Expr:
        if self.variables(dtype) and self.draw(st.integers(0, 9)) < 7:
            return self.pick(self.variables(dtype))
        if dtype == "bool":
            return const(self.draw(st.booleans()))
        if dtypes.is_float(dtype):
            return Const(float(self.pick((0.0, 1.0, -1.5, 3.0))), dtype)
        low, high = dtypes.int_range(dtype)
        if self.draw(st.integers(0, 5)) == 0:
            return Const(self.pick(ends(dtype)), dtype)
        return Const(self.draw(st.integers(max(low, -9), min(high, 40))), dtype)

    def let(self, dtype: str, depth: int) -> Expr:
        self.lets += 1
        var = Var(f"t{self.lets}", self.pick(("int64", "bool", "int32")))
        value = self.expr(var.dtype, depth - 1)
        self.free.append(var)
        body = self.expr(dtype, depth - 1)
        self.free.remove(var)
        return LetExpr(var, value, body)

    def condition(self, depth: int) -> Expr:
        choice = self.draw(st.integers(0, 9))
        if choice == 0:
            return Not(self.expr("bool", depth - 1))
        if choice <= 3:
            return Binary(self.pick(("and", "or")), self.expr("bool", depth - 1), self.expr("bool", depth - 1))
        if choice == 4:
            return Cast("bool", self.expr(self.pick(("int64", "int8")), depth - 1))
        dtype = self.pick(("int64", "int64", "int64", "int8", "uint8", "uint16", "uint64", "float32", "bool"))
        op = self.pick(("==", "!=") if dtype == "bool" else COMPARISONS)
        return Binary(op, self.expr(dtype, depth - 1), self.expr(dtype, depth - 1))

    def arithmetic(self, dtype: str, depth: int) -> Expr:
        a = self.expr(dtype, depth - 1)
        if dtypes.is_float(dtype):
            return Binary(self.pick(("+", "-", "*", "min", "max")), a, self.expr(dtype, depth - 1))
        choice = self.pick(("+", "+", "-", "*", "//", "//", "%", "%", "min", "max", "product", "cast", *INTEGER_CALLS))
        if choice in (*SHIFT_CALLS, *BIT_CALLS):
            by = (0, 1, 2, 5, 7, 8, 31, 64) if choice in SHIFT_CALLS else (1, 3, 7, 15, 63, 127, 5)
            fits = [n for n in by if n <= dtypes.int_range(dtype)[1]]
            drawn = Const(self.pick(fits), dtype) if self.draw(st.integers(0, 3)) else self.expr(dtype, depth - 1)
            return Call(choice, (a, drawn), dtype)
        if choice in TRUNCATED_CALLS:
            by = (1, 2, 3, 8, 12) + (() if dtypes.is_unsigned(dtype) else (-1, -3))
            return Call(choice, (a, Const(self.pick(by), dtype)), dtype)
        if choice in ("//", "%"):
            low = dtypes.int_range(dtype)[0]
            large = tuple(n for n in ends(dtype) if n) if self.draw(st.integers(0, 5)) == 0 else ()
            small = (1, 2, 3, 4, 6, 8, 12, 32) + ((-3,) if low else ())
            return Binary(choice, a, Const(self.pick(large or small), dtype))
        if choice == "*":
            large = ends(dtype) if self.draw(st.integers(0, 5)) == 0 else ()
            return Binary("*", a, Const(self.pick(large or (0, 1, 2, 3, 4, 6, 8)), dtype))
        if choice == "cast":
            kinds = ("int64", "int32", "int8", "uint8", "uint16", "uint64", "bool")
            return Cast(dtype, self.expr(self.pick(kinds), depth - 1))
        if choice == "product" and depth > 2:
            choice = "+"
        return Binary("*" if choice == "product" else choice, a, self.expr(dtype, depth - 1))

    def vector(self, element: str, depth: int) -> Expr:
        dtype = dtypes.with_lanes(element, LANES)
        choice = self.draw(st.integers(0, 3)) if depth else 0
        if choice == 0:
            return Broadcast(self.expr(element, depth), LANES)
        if element == "bool":
            inner = self.pick(("int64", "int32"))
            return Binary(self.pick(COMPARISONS), self.vector(inner, depth - 1), self.vector(inner, depth - 1))
        if choice == 1:
            return Ramp(self.expr(element, depth - 1), Const(self.draw(st.integers(-2, 8)), element), LANES)
        if choice == 2:
            divisor = Broadcast(Const(self.pick((1, 2, 4, 8)), element), LANES)
            return Binary(self.pick(("//", "%")), self.vector(element, depth - 1), divisor)
        other = self.vector(element, depth - 1)
        return Binary(self.pick(("+", "-", "*", "min", "max")), self.expr(dtype, depth - 1), other)

    def columns(self, rows: int, strange: bool = False) -> dict[Var, NDArray[Any]]:
        """Random values of all variables, inside their bounds, those without any also at the ends of their types.

        `strange` adds NaN, infinities and -0.0.
        """
        rng = np.random.default_rng(self.draw(st.integers(0, 2**32 - 1)))
        result: dict[Var, NDArray[Any]] = {}
        for var in (*self.bounds, *self.free):
            if var.dtype == "float32":
                special = [np.nan, np.inf, -np.inf, -0.0] if strange else []
                result[var] = rng.choice([0.0, 1.0, -2.0, 5.5, *special], rows).astype(np.float32)
            elif var.dtype == "bool":
                result[var] = rng.random(rows) < 0.5
            else:
                low, high = self.bounds.get(var, (-100, 100))
                low, high = max(low, dtypes.int_range(var.dtype)[0]), min(high, dtypes.int_range(var.dtype)[1])
                result[var] = rng.integers(low, high + 1, rows).astype(var.dtype)
                if var not in self.bounds:
                    far = rng.choice(np.array(ends(var.dtype), var.dtype), rows)
                    result[var] = np.where(rng.random(rows) < 1 / 3, far, result[var])
        return result


TYPES = (
    "int64", "int64", "int64", "bool", "bool", "int8", "uint8", "int32", "uint16", "uint64", "float32", "int64x4",
    "boolx4", "int32x4",
)  # fmt: skip


@st.composite
def cases(draw: Any, types: tuple[str, ...] = TYPES, rows: int = 16, strange: bool = False, depth: int = 4) -> Any:
    """An expression, the bounds of its variables, and rows of values for them."""
    maker = Maker(draw)
    expr = maker.expr(draw(st.sampled_from(types)), draw(st.integers(1, depth)))
    return expr, maker.bounds, maker.columns(rows, strange)
