"""Random valid programs over the whole grammar, as hypothesis strategies, so that failures shrink and print their seed.

Every access is in bounds and reads what was written; conditions and indices depend on
nothing undef; assumptions hold.  `exact` programs leave out what machines round
differently, so that the interpreter and compiled code agree bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import strategies as st
from random_expressions import LANES, ExpressionMaker

from stridesmith.ir import dtypes
from stridesmith.ir.expr import TRUE, Binary, Buffer, Cast, Const, Expr, Load, Not, Select, Undef, Var, variables
from stridesmith.ir.layout.index_map import IndexMap
from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.node import walk
from stridesmith.ir.stmt import (
    LOOP_KINDS,
    THREAD_AXES,
    Allocate,
    Assume,
    Attr,
    Block,
    Declare,
    Evaluate,
    For,
    If,
    Iter,
    Let,
    Module,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    seq,
)

SHAPES = ((8,), (4, 4), (2, 3, 2), (16,), (5,), ())
LOOPS = 4
"""The largest extent of a loop."""


class ProgramMaker(ExpressionMaker):
    """Draws statements; `targets` are the buffers that may be written, all of whose elements are."""

    def __init__(self, draw: Any, exact: bool) -> None:
        super().__init__(draw, exact)
        self.targets: list[Buffer] = []
        self.unsure = 0

    @contextmanager
    def under(self, *exprs: Expr) -> Iterator[None]:
        """Inside, what runs depends on `exprs`; where they read memory, no reduction is known to start at its first."""
        reads = any(isinstance(n, Load) for e in exprs for n in walk(e))
        self.unsure += reads
        yield
        self.unsure -= reads

    # ------------------------------------------------------------ memory

    def new_buffer(self, base: str, scope: str = "global") -> Buffer:
        shape = self.pick(SHAPES)
        separators = (1,) if len(shape) > 1 and self.chance(8) else ()
        return Buffer(self.name(base), shape, self.dtype(vectors=True), scope, separators)

    def filled(self, buffer: Buffer) -> Stmt:
        """Every element gets a value of its own."""
        loops = [(Var(self.name("f")), extent) for extent in buffer.shape]
        number: Expr = Const(self.number(-2, 2))
        for var, extent in loops:
            number = Binary("+", Binary("*", number, Const(extent)), var)
        base, lanes = dtypes.split_dtype(buffer.dtype)
        indices: tuple[Expr, ...] = tuple(var for var, _ in loops)
        body: Stmt = Store(buffer, indices, self.every(Cast(base, number), lanes))
        for var, extent in reversed(loops):
            body = For(var, Const(extent), body)
        return body

    @contextmanager
    def usable(self, buffer: Buffer, target: bool = True) -> Iterator[None]:
        self.buffers.append(buffer)
        lists = [self.buffers, self.targets if target else self.inputs]
        lists[1].append(buffer)
        yield
        for known in lists:
            known.remove(buffer)

    def view(self, owner: Buffer) -> Buffer:
        """A buffer over the memory of `owner`: another shape, number of lanes, or element type of the same kind."""
        base, lanes = dtypes.split_dtype(owner.dtype)
        kind = self.number(0, 2)
        if kind == 1:
            lanes = 1 if lanes > 1 else self.pick(LANES)
        elif kind == 2:
            readable = owner.name in {b.name for b in self.inputs}
            family = [t for t in dtypes.SCALAR_TYPES if readable or (dtypes.is_float(t) == dtypes.is_float(base))]
            base = base if dtypes.is_float(base) and not readable else self.pick(family)
        if dtypes.nbytes(dtypes.with_lanes(base, lanes)) > owner.nbytes:
            base, lanes = dtypes.split_dtype(owner.dtype)
        dtype = dtypes.with_lanes(base, lanes)
        count = owner.nbytes // dtypes.nbytes(dtype)
        shape = (2, count // 2) if count % 2 == 0 and self.chance(2) else (count,)
        return Buffer(self.name("V"), shape, dtype, owner.scope, (), owner.memory)

    # ------------------------------------------------------------ statements

    def store(self) -> Stmt:
        buffer = self.pick(self.targets)
        lanes = self.pick(LANES) if self.chance(4) else 1
        indices = self.place(buffer, lanes)
        if indices is None:
            indices = self.place(buffer, 1)
        assert indices is not None
        old = Load(buffer, indices)
        if self.chance(12):
            value: Expr = Undef(old.dtype)
            if self.chance(2):
                value = Select(self.certainly(), self.value(old.dtype), value)
            return Store(buffer, indices, value)
        if self.chance(3) and not dtypes.is_bool(old.dtype) and not dtypes.is_storage(old.dtype):
            op = self.pick(("+", "-", "max", "min", "*"))
            return Store(buffer, indices, Binary(op, old, self.value(old.dtype, 2)))
        return Store(buffer, indices, self.value(old.dtype))

    def stmt(self, depth: int) -> Stmt:
        makers: list[Callable[[int], Stmt]] = [lambda depth: self.store(), self.loop, self.loop, self.branch]
        makers += [self.block, self.let, self.memory, self.memory, self.note, self.reduction]
        return self.store() if depth <= 0 else self.pick(makers)(depth - 1)

    def body(self, depth: int) -> Stmt:
        return seq([self.stmt(depth) for _ in range(self.number(1, 2))])

    def loop(self, depth: int) -> Stmt:
        dtype = self.pick(("int32", "int16")) if self.chance(8) else dtypes.INDEX
        var, extent = Var(self.name("i"), dtype), self.number(1, LOOPS)
        end: Expr = Const(extent, dtype)
        if self.chance(4) and dtype == dtypes.INDEX:
            index = self.index(extent)  # the script form reads a range of constants as one number
            end = Binary("+", index, Const(1)) if variables(index) else end
        kind = self.pick(LOOP_KINDS)
        thread = self.pick(THREAD_AXES) if kind == "thread_binding" else ""
        notes = (("peel", True), ("pragma", ("x", 1))) if self.chance(8) else ()
        with self.counting(var, extent), self.under(end):
            return For(var, end, self.body(depth), kind, thread, notes)

    def branch(self, depth: int) -> Stmt:
        cond = self.certainly()
        with self.under(cond):
            orelse = self.body(depth) if self.chance(2) else None
            return If(cond, self.body(depth), orelse)

    def let(self, depth: int) -> Stmt:
        if self.chance(2):
            extent, var = self.number(1, LOOPS), Var(self.name("n"))
            value = self.index(extent)
            with self.counting(var, extent), self.under(value):
                return Let(var, value, self.body(depth))
        var = Var(self.name("w"), self.dtype(vectors=True))
        value = self.value(var.dtype)
        self.lets.append(var)
        body = self.body(depth)
        self.lets.remove(var)
        return Let(var, value, body)

    def memory(self, depth: int) -> Stmt:
        if self.chance(2):
            view = self.view(self.pick([b for b in self.buffers if not b.data]))
            with self.usable(view, any(b.name == view.data for b in self.targets)):
                return Declare(view, self.body(depth))
        buffer = self.new_buffer("L", self.pick(("global", "local")))
        fill = self.filled(buffer)
        with self.usable(buffer):
            return Allocate(buffer, seq([fill, self.body(depth)]))

    def note(self, depth: int) -> Stmt:
        kind = self.number(0, 4)
        if kind == 0:
            return Evaluate(self.value(self.dtype()))
        if kind == 1:
            return Attr(self.name("key"), self.pick(("fast", Const(3))), self.body(depth))
        if kind == 2 and self.inputs:
            load = self.load(self.pick([dtypes.element(b.dtype) for b in self.inputs]), 1)
            if load is not None:
                return Assume(Binary("==", load, Undef(load.dtype)))
        if self.extents:
            var, extent = self.pick(list(self.extents.items()))
            return Assume(Binary("<", var, Const(extent, var.dtype)))
        return Assume(Not(Binary("<", Const(3), self.index(3))))

    # ------------------------------------------------------------ blocks

    def block(self, depth: int) -> Stmt:
        name = self.name("block")
        notes = (("tag", 1),) if self.chance(8) else ()
        if self.chance(3):
            return Block(name, (), self.body(depth), TRUE, None, (), notes)
        iters = []
        for _ in range(self.number(1, 2)):
            extent = self.number(1, LOOPS)
            kind = "opaque" if self.chance(4) else "spatial"
            iters.append(Iter(Var(self.name("v")), extent, kind, self.index(extent)))
        predicate = self.certainly() if self.chance(3) else TRUE
        with self.only(iters), self.under(predicate, *(one.binding for one in iters)):
            if self.chance(3):
                buffer = self.new_buffer("P")
                fill = self.filled(buffer)
                with self.usable(buffer):
                    return Block(name, tuple(iters), seq([fill, self.body(depth)]), predicate, None, (buffer,), notes)
            return Block(name, tuple(iters), self.body(depth), predicate, None, (), notes)

    @contextmanager
    def only(self, iters: list[Iter]) -> Iterator[None]:
        """Inside, the block's own iterators are the only counting variables."""
        outer = self.extents  # type: ignore[has-type]
        self.extents = {one.var: one.extent for one in iters}
        yield
        self.extents = outer

    def reduction(self, depth: int) -> Stmt:
        """Loops in any order around a block that initialises and updates an element for each spatial point."""
        kept = ("bool", *dtypes.STORAGE)
        found = [b for b in self.targets if b.dtype not in kept and dtypes.lanes(b.dtype) == 1]
        if not found or self.unsure:
            return self.store()
        buffer = self.pick(found)
        iters: list[Iter] = []
        loops: list[tuple[Var, int]] = []
        for extent in (*buffer.shape, self.number(1, 3)):
            loop = Var(self.name("r"))
            kind = "reduce" if len(iters) == len(buffer.shape) else "spatial"
            iters.append(Iter(Var(self.name("v")), extent, kind, loop))
            loops.append((loop, extent))
        limit = Binary("<", loops[0][0], Const(self.number(1, loops[0][1])))
        predicate = limit if self.chance(3) else TRUE
        point = tuple(one.var for one in iters[:-1])
        with self.only(iters):
            op = self.pick(("+", "max", "min", "-"))
            update = Store(buffer, point, Binary(op, Load(buffer, point), self.value(buffer.dtype, 2)))
            with self.only(iters[:-1]):
                init = Store(buffer, point, self.leaf(buffer.dtype))
        result: Stmt = Block(self.name("sum"), tuple(iters), update, predicate, init)
        start = self.number(0, len(loops) - 1)
        for var, extent in reversed(loops[start:] + loops[:start]):
            result = For(var, Const(extent), result, self.pick(("serial", "unrolled")))
        return result

    # ------------------------------------------------------------ functions

    def function(self) -> PrimFunc:
        self.extents, self.lets, self.buffers, self.inputs, self.targets = {}, [], [], [], []
        inputs = [self.new_buffer("A") for _ in range(self.number(1, 3))]
        outputs = [self.new_buffer("B") for _ in range(self.number(1, 2))]
        scalars = [Var(self.name("s"), self.dtype()) for _ in range(self.number(0, 2))]
        layouts = tuple(
            (b.name, Layout(b.shape, IndexMap.parse("lambda i, j: [j, i]"), b.shape)) for b in inputs
            if b.shape == (4, 4) and dtypes.lanes(b.dtype) == 1 and self.chance(2)
        )  # fmt: skip
        self.inputs += inputs
        self.buffers += inputs
        self.lets += scalars
        fill = [self.filled(b) for b in outputs]
        self.buffers += outputs
        self.targets += outputs
        body = seq([*fill, *(self.stmt(3) for _ in range(self.number(1, 3)))])
        attrs = (("tag", 3),) if self.chance(4) else ()
        body = body if isinstance(body, Seq) else Seq((body,))
        return PrimFunc(self.name("f"), (*inputs, *scalars, *outputs), Block("root", (), body), layouts, attrs)


@st.composite
def programs(draw: Any, exact: bool = False) -> PrimFunc:
    """A function."""
    return ProgramMaker(draw, exact).function()


@st.composite
def modules(draw: Any) -> PrimFunc | Module:
    """A function, or one to three of them in a module."""
    maker = ProgramMaker(draw, False)
    if maker.number(0, 3):
        return maker.function()
    return Module(tuple(maker.function() for _ in range(maker.number(1, 3))))
