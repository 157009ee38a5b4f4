"""Random programs over int32 in bounds, some of which read what was never written: for the naive interpreter."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from stridesmith.ir.expr import (
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Select,
    Var,
    const,
)
from stridesmith.ir.stmt import (
    Allocate,
    Block,
    For,
    If,
    Iter,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    loops,
    seq,
)

EXTENT = 4
KINDS = ("serial", "parallel", "vectorized", "unrolled")


class Maker:
    """Draws a function whose every access is in bounds."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.count = draw, 0
        self.buffers = [Buffer("A", (EXTENT, EXTENT), "int32"), Buffer("B", (EXTENT,), "int32")]
        self.variables: list[Var] = []

    def pick(self, items: Any) -> Any:
        return self.draw(st.sampled_from(items))

    def name(self, base: str) -> str:
        self.count += 1
        return f"{base}{self.count}"

    # ------------------------------------------------------------ expressions

    def index(self) -> Expr:
        """An integer in [0, EXTENT)."""
        terms: list[Expr] = [self.pick(self.variables)] if self.variables else [Const(self.draw(st.integers(0, 3)))]
        if self.variables and self.draw(st.booleans()):
            terms.append(self.pick(self.variables))
        total = terms[0] if len(terms) == 1 else Binary(self.pick("+-*"), terms[0], terms[1])
        if len(terms) == 1 and self.draw(st.booleans()):
            return total
        return Binary("%", Binary("+", total, Const(self.draw(st.integers(-2, 2)))), Const(EXTENT))

    def load(self) -> Expr:
        buffer = self.pick(self.buffers)
        return Load(buffer, tuple(self.index() for _ in buffer.shape))

    def value(self, depth: int = 2) -> Expr:
        choice = self.draw(st.integers(0, 7 if depth else 2))
        if choice <= 1:
            return self.load()
        if choice == 2:
            return Const(self.draw(st.integers(-5, 5)), "int32")
        if choice <= 4:
            return Binary(self.pick(("+", "-", "*", "min", "max")), self.value(depth - 1), self.value(depth - 1))
        if choice == 5:
            return Cast("int32", self.index())
        cond, a, b = self.condition(), self.value(depth - 1), self.value(depth - 1)
        return Select(cond, a, b) if choice == 6 else Call("if_then_else", (cond, a, b), "int32")

    def condition(self) -> Expr:
        first = Binary(self.pick(("<", "<=", "==", "!=", ">", ">=")), self.index(), Const(self.draw(st.integers(0, 3))))
        choice = self.draw(st.integers(0, 3))
        if choice == 0:
            return Not(first)
        if choice == 1:
            second = Binary("<", self.index(), self.index())
            return Binary(self.pick(("and", "or")), first, second)
        return first

    # ------------------------------------------------------------ statements

    def store(self) -> Stmt:
        buffer = self.pick(self.buffers)
        indices = tuple(self.index() for _ in buffer.shape)
        if self.draw(st.integers(0, 2)) == 0:
            old = Load(buffer, indices)
            return Store(buffer, indices, Binary(self.pick(("+", "max", "min", "*")), old, self.value(1)))
        return Store(buffer, indices, self.value())

    def stmt(self, depth: int) -> Stmt:
        choice = self.draw(st.integers(0, 9)) if depth else 0
        if choice <= 2:
            return self.store()
        if choice <= 5:
            return self.loop(depth)
        if choice == 6:
            orelse = self.body(depth - 1) if self.draw(st.booleans()) else None
            return If(self.condition(), self.body(depth - 1), orelse)
        if choice == 7:
            return self.block(depth)
        return self.scoped(depth)

    def loop(self, depth: int) -> Stmt:
        var = Var(self.name("i"))
        extent: Expr = Const(self.draw(st.integers(1, EXTENT)))
        if self.variables and self.draw(st.integers(0, 4)) == 0:
            extent = Binary("min", Binary("+", self.pick(self.variables), const(1)), const(EXTENT))
        self.variables.append(var)
        body = self.body(depth - 1)
        self.variables.remove(var)
        notes = (("peel", True), ("pragma", ("x", 1))) if self.draw(st.integers(0, 5)) == 0 else ()
        return For(var, extent, body, self.pick(KINDS), "", notes)

    def block(self, depth: int) -> Stmt:
        iters = []
        for _ in range(self.draw(st.integers(1, 2))):
            iters.append(Iter(Var(self.name("v")), EXTENT, "spatial", self.index()))
        predicate = self.condition() if self.draw(st.booleans()) else const(True)
        outer, self.variables = self.variables, [i.var for i in iters]
        body = self.body(depth - 1)
        self.variables = outer
        return Block(self.name("block"), tuple(iters), body, predicate)

    def scoped(self, depth: int) -> Stmt:
        if self.draw(st.booleans()):
            var, value = Var(self.name("x")), self.index()
            self.variables.append(var)
            body = self.body(depth - 1)
            self.variables.remove(var)
            return Let(var, value, body)
        buffer = Buffer(self.name("L"), (EXTENT,), "int32", "local")
        var = Var(self.name("i"))
        fill = For(var, const(EXTENT), Store(buffer, (var,), Cast("int32", var)))
        self.buffers.append(buffer)
        body = self.body(depth - 1)
        self.buffers.remove(buffer)
        return Allocate(buffer, seq([fill, body]))

    def body(self, depth: int) -> Stmt:
        return seq([self.stmt(depth) for _ in range(self.draw(st.integers(1, 3)))])

    def function(self) -> PrimFunc:
        params = tuple(self.buffers)
        i, j, k = Var("f0"), Var("f1"), Var("f2")
        fill: list[Stmt] = []
        if self.draw(st.integers(0, 5)):
            matrix = Store(params[0], (i, j), Cast("int32", Binary("-", i, j)))
            fill.append(loops([(i, EXTENT), (j, EXTENT)], matrix))
            fill.append(loops([(k, EXTENT)], Store(params[1], (k,), Const(1, "int32"))))
        body = self.body(3)
        rest = body.stmts if isinstance(body, Seq) else (body,)
        return PrimFunc("random", params, Block("root", (), seq([*fill, *rest])))


@st.composite
def integer_programs(draw: Any) -> PrimFunc:
    return Maker(draw).function()
