"""`pass_programs` with more kinds of nodes: floats, bools, narrow sums, vectors, views, gathers, reductions.

Beside the buffers there are ``F`` (an input), ``G`` (an output) and ``H`` (an allocation) of eight floats, ``P`` of
eight bools, ``V`` and ``W``, which are ``S`` as (2, 4) int32 and as 32 int8, and two int32 parameters, ``n`` and ``m``.
Half of the programs are strict about floats: these have NaN, infinities and negative zeros, also among their inputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from ir.passes.pass_programs import CALLS, SIZE, A, B, C, Maker, S
from numpy.typing import NDArray

from stridesmith.ir.expr import (
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Expr,
    LetExpr,
    Load,
    Not,
    Ramp,
    Select,
    Var,
    const,
    if_then_else,
)
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.stmt import Block, Declare, For, Iter, Let, PrimFunc, Stmt, Store, seq, written_buffers

F, G, H = (Buffer(name, (SIZE,), "float32") for name in "FGH")
P = Buffer("P", (SIZE,), "bool")
V, W = Buffer("V", (2, 4), "int32", data="S"), Buffer("W", (32,), "int8", data="S")
N, M = Var("n", "int32"), Var("m", "int32")
INTEGERS = (-(2**31), -(2**31) + 1, -3, -1, 0, 1, 2, 5, 2**31 - 2, 2**31 - 1)
FINITE, SPECIAL = (0.0, 1.0, -0.5, 2.0), (-0.0, float("inf"), float("-inf"), float("nan"))
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


class WideMaker(Maker):
    """Draws a function; some of them do what the language does not allow, such as races of scattered lanes."""

    variables: list[tuple[Var, int]]

    def __init__(self, draw: Any) -> None:
        super().__init__(draw, calls=True)
        self.is_strict = bool(self.number(0, 1))
        self.named: list[Var] = []

    # ------------------------------------------------------------ expressions

    def whole(self) -> Expr:
        """An int32 without operations: a load, a parameter, a bound name, a number, or a gathered element."""
        kind = self.number(0, 6)
        if kind == 0:
            return const(self.pick(*INTEGERS), "int32")
        if kind == 1:
            return self.pick(N, M)
        if kind == 2 and self.named:
            return self.pick(*self.named)
        if kind == 3:
            return self.pick(A, B, S)[self.gathered()]
        if kind == 4:
            return V[const(self.number(0, 1)), const(self.number(0, 3))]
        return self.load()

    def gathered(self) -> Expr:
        return Cast("int64", Binary("%", self.load(), const(SIZE, "int32")))

    def value(self) -> Expr:
        kind = self.number(0, 11)
        if kind == 0:
            return Binary(self.pick("-", "*", "min"), self.whole(), self.whole())
        if kind == 1:
            return Binary(self.pick("//", "%"), self.whole(), const(self.pick(-3, -1, 2, 4), "int32"))
        if kind == 2:
            return Cast("int32", Cast(self.pick("int8", "uint8"), self.whole()))
        if kind == 3:
            shift = Call(
                self.pick("shift_left", "shift_right"), (self.whole(), const(self.number(0, 4), "int32")), "int32"
            )
            return self.pick(shift, Call("abs", (self.whole(),), "int32"))
        if kind == 4:
            return Cast("int32", self.condition())
        if kind == 5:
            return Select(self.condition(), self.whole(), self.whole())
        if kind == 6:
            name = Var(self.fresh("y"), "int32")
            return LetExpr(name, self.whole(), Binary("+", name, const(self.number(-2, 2), "int32")))
        return self.whole() if kind == 7 else super().value()

    def floating(self) -> Expr:
        kind = self.number(0, 6)
        if kind == 0:
            return const(self.pick(*FINITE, *(SPECIAL if self.is_strict else ())), "float32")
        if kind == 1:
            return Binary(self.pick("+", "-", "min", "max", "*"), self.pick(F, G, H)[self.index()], self.floating())
        if kind == 2:
            return if_then_else(self.condition(), self.floating(), self.pick(F, G, H)[self.index()])
        return self.pick(F, F, G, H)[self.index()]

    def condition(self) -> Expr:
        kind = self.number(0, 9)
        if kind == 0:
            return Binary(self.pick(*COMPARISONS), self.floating(), self.floating())
        if kind == 1:
            sums = (Binary("+", side, const(self.number(-2, 5), "int32")) for side in (N, M))
            return Binary(self.pick(*COMPARISONS), *sums)
        if kind == 2:
            return Binary(self.pick(*COMPARISONS), self.whole(), self.whole())
        if kind == 3:
            return self.pick(P[self.index()], Not(P[self.index()]))
        if kind == 4:
            return Binary(self.pick("and", "or"), self.condition(), self.condition())
        return super().condition()

    # ------------------------------------------------------------ statements

    def store(self) -> Store:
        kind = self.number(0, 9)
        if kind <= 1:
            return Store(self.pick(G, H), (self.index(),), self.floating())
        if kind == 2:
            return Store(P, (self.index(),), self.condition())
        if kind == 3:
            return Store(self.pick(B, C, S), (self.gathered(),), self.value())
        if kind == 4:
            return Store(self.pick(B, C, S), (self.ramp(),), self.vector())
        if kind == 5:
            byte = Store(W, (const(self.number(0, 31)),), const(self.number(-1, 1), "int8"))
            return self.pick(byte, Store(V, (const(self.number(0, 1)), const(self.number(0, 3))), self.value()))
        return super().store()

    def ramp(self) -> Ramp:
        begin, stride = self.pick((self.number(0, 4), 1), (self.number(3, 7), -1), (self.number(0, 1), 2))
        return Ramp(const(begin), const(stride), 4)

    def vector(self) -> Expr:
        """Four int32."""
        counted = Ramp(const(self.number(-2, 2), "int32"), const(self.number(0, 1), "int32"), 4)
        return self.pick(Broadcast(self.whole(), 4), counted, Load(self.pick(A, B, S), (self.ramp(),)))

    def statement(self, depth: int, blocks: bool) -> Stmt:
        kind = self.number(0, 13)
        if kind == 0:
            name = Var(self.fresh("z"), "int32")
            value = self.value()
            self.named.append(name)
            body = self.body(depth - 1, blocks)
            self.named.remove(name)
            return Let(name, value, body)
        if kind == 1:
            var = Var(self.fresh("d"))
            steps = Cast("int64", Binary("%", self.load(), const(SIZE + 1, "int32")))
            self.variables = [*self.variables, (var, SIZE)]
            body = self.store()
            self.variables = self.variables[:-1]
            return For(var, steps, body)
        if kind == 2:
            var = Var(self.fresh("l"))
            beside = Binary(self.pick("+", "-", "max"), A[var], self.pick(N, M, const(self.number(-1, 1), "int32")))
            return For(var, const(SIZE), Store(self.pick(B, C), (var,), beside), self.pick("vectorized", "parallel"))
        return super().statement(depth, blocks)

    def reduction(self) -> Stmt:
        """Every element of `B` or `C` from four of `A`, with an init."""
        i, k, vi, vk = (Var(self.fresh(name)) for name in ("i", "k", "vi", "vk"))
        into = self.pick(B, C)
        term = A[Binary("%", Binary("+", vi, vk), const(SIZE))]
        init = Store(into, (vi,), const(self.number(-1, 1), "int32"))
        step = Store(into, (vi,), Binary(self.pick("+", "max"), into[vi], self.pick(term, term * 0)))
        iters = (Iter(vi, SIZE, "spatial", i), Iter(vk, 4, "reduce", k))
        nest = For(k, const(4), Block(self.fresh("sum"), iters, step, init=init))
        return For(i, const(SIZE), nest)

    def after(self) -> list[Stmt]:
        """A reduction at the end, or a nest, or nothing."""
        kind = self.number(0, 3)
        return [self.reduction()] if kind == 0 else [self.loop(1, False)] if kind == 1 else []

    def function(self) -> PrimFunc:
        func = super().function()
        zero = const(-0.0 if self.is_strict else 0.0, "float32")
        fill = []
        for buffer, value in ((G, zero), (H, const(1.0, "float32")), (P, const(False))):
            var = Var(self.fresh("f"))
            fill.append(For(var, const(SIZE), Store(buffer, (var,), value)))
        if self.number(0, 2) == 0:
            fill.append(self.reduction())
        body = Declare(V, Declare(W, seq([*fill, func.body.body, *self.after()])))
        root = Block("root", (), body, allocs=(S, H))
        attrs = (("strict_float", True),) if self.is_strict else ()
        return PrimFunc("random", (N, M, A, F, B, C, G, P), root, attrs=attrs)


@st.composite
def wide_programs(draw: Any) -> PrimFunc:
    return WideMaker(draw).function()


def wide_outputs(func: PrimFunc, seed: int) -> dict[str, NDArray[Any]]:
    """What the function computes from inputs at which sums wrap around; of strict ones the signs of floats as well."""
    rng = np.random.default_rng(seed)
    written = {b.name for b in written_buffers(func)}
    strict = dict(func.attrs).get("strict_float", False)
    floats = np.asarray(FINITE + SPECIAL if strict and seed % 2 else FINITE, "float32")
    given: dict[str, Any] = {}
    for param in func.params:
        if isinstance(param, Var):
            given[param.name] = int(rng.choice(INTEGERS))
        elif param.dtype == "float32":
            given[param.name] = rng.choice(floats, param.shape)
        else:
            ends = rng.random(param.shape) < 0.2
            small = rng.integers(-3, 4, param.shape)
            given[param.name] = np.where(ends, rng.choice(INTEGERS, param.shape), small).astype(param.dtype)
    for name in written:
        if name in given:
            given[name][...] = 77
    interpret(func, *given.values(), calls=CALLS)
    found = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}
    if strict:
        signs = {f"signs of {n}": np.signbit(a) & ~np.isnan(a) for n, a in found.items() if a.dtype == np.float32}
        return {**found, **signs}
    return found
