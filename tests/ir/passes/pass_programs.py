"""Small random programs in which passes find something to do, as a hypothesis strategy.

Nests of one or two loops over ``A`` (an input), ``B`` and ``C`` (outputs) and ``S`` (an
allocation), all of eight integers: bare, or with a block for each store.  Conditions are over
loops or over memory, invariant or not; bodies overwrite, write back, and repeat each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from stridesmith.ir.calls import Pointer, Region, Text
from stridesmith.ir.expr import TRUE, Binary, Buffer, Expr, Load, Not, Var, binary, const, if_then_else
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.stmt import (
    Assert,
    Assume,
    Block,
    For,
    If,
    Iter,
    Let,
    Opaque,
    PrimFunc,
    Stmt,
    Store,
    While,
    seq,
    written_buffers,
)

SIZE = 8
A, B, C, S = (Buffer(name, (SIZE,), "int32") for name in "ABCS")
WRITTEN = (B, C, S)


class Maker:
    """Draws a function whose every access is in bounds and reads what was written."""

    def __init__(self, draw: Any, calls: bool = False) -> None:
        self.draw, self.count, self.calls = draw, 0, calls
        self.variables: list[tuple[Var, int]] = []

    def pick(self, *items: Any) -> Any:
        return self.draw(st.sampled_from(items))

    def number(self, low: int, high: int) -> int:
        result: int = self.draw(st.integers(low, high))
        return result

    def fresh(self, base: str) -> str:
        self.count += 1
        return f"{base}{self.count}"

    # ------------------------------------------------------------ expressions

    def index(self) -> Expr:
        """An element's index, mostly a loop's variable."""
        if not self.variables or self.number(0, 5) == 0:
            return const(self.number(0, SIZE - 1))
        var, extent = self.pick(*self.variables)
        shift = self.number(-2, 2)
        if self.number(0, 1) or shift == 0:
            return var
        if 0 <= shift <= SIZE - extent:
            return binary("+", var, shift)
        return Binary("%", Binary("+", var, const(shift % SIZE)), const(SIZE))

    def load(self) -> Load:
        return self.pick(A, A, B, C, S)[self.index()]

    def value(self) -> Expr:
        kind = self.number(0, 5)
        if kind <= 1:
            return const(self.number(-2, 2), "int32")
        if kind == 2:
            return self.load()
        if kind == 3:
            return if_then_else(self.condition(), self.load(), self.load())
        return Binary(self.pick("+", "max"), self.load(), const(self.number(0, 2), "int32"))

    def condition(self) -> Expr:
        kind = self.number(0, 7)
        if kind == 0 or not self.variables:
            return Binary(self.pick("<", ">="), self.load(), const(self.number(-1, 2), "int32"))
        var, extent = self.pick(*self.variables)
        simple = Binary(self.pick("<", ">=", "==", "!=", "<"), self.form(var), const(self.number(0, extent)))
        if kind == 1:
            return Not(simple)
        if kind == 2:
            other, size = self.pick(*self.variables)
            return Binary(self.pick("and", "or"), simple, Binary(">=", other, const(self.number(0, size - 1))))
        return simple

    def form(self, var: Var) -> Expr:
        return self.pick(var, var, Binary("//", var, const(2)), Binary("%", var, const(3)))

    # ------------------------------------------------------------ statements

    def store(self) -> Store:
        buffer, index = self.pick(*WRITTEN), self.index()
        if self.number(0, 5) == 0:
            return Store(buffer, (index,), buffer[index])
        return Store(buffer, (index,), self.value())

    def call(self) -> Stmt:
        """A call of what is not known, by the regions that it reads and writes; or a `while` around a store; or an
        assertion that holds.
        """
        kind = self.number(0, 7)
        if kind == 0:
            index = self.index()
            return Assert(Binary("==", S[index], S[index]), "it is what it is")
        if kind <= 2:
            index = const(self.number(0, SIZE - 1))
            step = Store(S, (index,), Binary("+", S[index], const(1, "int32")))
            # From the other end of its type the number would take very long to come here.
            is_near = Binary("<=", const(-SIZE, "int32"), S[index])
            cond = Binary("and", is_near, Binary("<", S[index], const(self.number(-1, 4), "int32")))
            return While(cond, seq([self.store_elsewhere(S, index), step]))
        reads, writes = (self.region(self.pick(*own)) for own in ((A, B, C, S), WRITTEN))
        args = (Text("mix"), Pointer(reads.buffer), Pointer(writes.buffer))
        return Opaque("call_packed", args, None, (reads,), (writes,))

    def region(self, buffer: Buffer) -> Region:
        """Up to four elements from an index on; all of the buffer where that may leave it."""
        length = self.number(1, 4)
        index = self.index()
        fits = isinstance(index, Var) and dict(self.variables)[index] + length <= SIZE + 1
        if not fits:
            return Region(buffer, (const(0),), (const(SIZE),))
        return Region(buffer, (index,), (const(length),))

    def store_elsewhere(self, buffer: Buffer, index: Expr) -> Stmt:
        """A store to another buffer."""
        target = self.pick(*(b for b in WRITTEN if b != buffer))
        return Store(target, (self.index(),), buffer[index])

    def leaf(self, blocks: bool) -> Stmt:
        if not blocks or not self.variables:
            return self.store()
        outer = self.variables
        iters = [(Var(f"v{var.name}_{self.count}"), var, extent) for var, extent in outer]
        self.count += 1
        self.variables = [(v, extent) for v, _, extent in iters]
        body: Stmt = self.store()
        if self.number(0, 3) == 0:
            body = If(self.condition(), body)
        self.variables = outer
        predicate = self.condition() if self.number(0, 2) == 0 else TRUE
        made = tuple(Iter(v, extent, "spatial", var) for v, var, extent in iters)
        return Block(self.fresh("block"), made, body, predicate)

    def statement(self, depth: int, blocks: bool) -> Stmt:
        kind = self.number(0, 9)
        if self.calls and self.number(0, 4) == 0:
            return self.call()
        if kind <= 2 or not self.variables:
            return self.leaf(blocks)
        if kind <= 6:
            return self.conditional(depth, blocks) if depth else self.leaf(blocks)
        if kind == 7:
            flag = Var(self.fresh("x"), "bool")
            return Let(flag, self.condition(), If(flag, self.leaf(blocks)))
        return self.loop(depth, blocks) if depth else self.leaf(blocks)

    def conditional(self, depth: int, blocks: bool) -> Stmt:
        cond = self.condition()
        first = If(cond, self.body(depth - 1, blocks), self.leaf(blocks) if self.number(0, 1) else None)
        kind = self.number(0, 3)
        if kind == 0:
            return seq([first, If(self.pick(cond, Not(cond)), self.leaf(blocks))])
        if kind == 1:
            same = self.store()
            return If(cond, same, same)
        return first

    def body(self, depth: int, blocks: bool) -> Stmt:
        return seq([self.statement(max(depth, 0), blocks) for _ in range(self.number(1, 2))])

    def loop(self, depth: int, blocks: bool) -> Stmt:
        var, extent = Var(self.fresh("i")), self.pick(SIZE, SIZE, 4, 1)
        self.variables = [*self.variables, (var, extent)]
        body = self.body(depth - 1, blocks)
        self.variables = self.variables[:-1]
        return For(var, const(extent), body, self.pick("serial", "serial", "serial", "unrolled"))

    def function(self) -> PrimFunc:
        """Everything is filled first; then up to three nests, and ``S`` is used at the end, perhaps."""
        fill = []
        for buffer, value in ((B, 0), (C, 1), (S, 2)):
            var = Var(self.fresh("f"))
            fill.append(For(var, const(SIZE), Store(buffer, (var,), const(value, "int32"))))
        parts: list[Stmt] = [*fill]
        if self.number(0, 3) == 0:
            parts.append(Assume(Binary("==", B[const(0)], const(0, "int32"))))
        parts += [self.loop(2, self.number(0, 2) == 0) for _ in range(self.number(1, 3))]
        if self.number(0, 1):
            var = Var(self.fresh("f"))
            parts.append(For(var, const(SIZE), Store(C, (var,), S[var])))
        return PrimFunc("random", (A, B, C), Block("root", (), seq(parts), allocs=(S,)))


@st.composite
def pass_programs(draw: Any, calls: bool = False) -> PrimFunc:
    """`calls` also makes calls of what is not known, `while`, and assertions."""
    return Maker(draw, calls).function()


def mix(reads: Sequence[NDArray[Any]], writes: Sequence[NDArray[Any]]) -> None:
    """What the calls of these programs do: every second element becomes a sum that tells what was read."""
    weights = np.arange(1, reads[0].size + 1, dtype=np.int32)
    writes[0][::2] = (np.dot(reads[0].astype(np.int32), weights) + weights.size) % 1009


CALLS = {"mix": mix}


def outputs(func: PrimFunc, seed: int) -> dict[str, NDArray[Any]]:
    """What the function computes from random inputs; outputs start with what must not be read."""
    rng = np.random.default_rng(seed)
    written = {b.name for b in written_buffers(func)}
    arrays = {b.name: rng.integers(-3, 4, b.shape).astype(b.dtype) for b in func.params if isinstance(b, Buffer)}
    for name in written & arrays.keys():
        arrays[name][...] = 77
    interpret(func, *arrays.values(), calls=CALLS)
    return arrays
