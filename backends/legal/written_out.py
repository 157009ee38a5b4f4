"""Unrolled loops of OpenCL kernels, written out: a copy of the body for each value of the variable.

::

    for i in 4 {unrolled}: S(i)                 ->  S(0); S(1); S(2); S(3)
    if c: S                                     ->  S, or nothing                  where c is known then
    let v = e: S(v)                             ->  S(e)                           of vectors, constants and variables
    for k in K {unrolled}: T[i] += a[k] * b[k]  ->  T[i] += a[0] * b[0]; signal_fence(); T[i] += a[1] * b[1]; ..

*Squares* of elements that are copied become vectors and shuffles (see `backends.squares`), where vectors have lanes.

*Fences*: compilers load an element once for all its uses, and keep it as long as there are any: of a convolution over
three unrolled rows, each pixel three times, in a whole register.  Where registers are scarce they spill, accumulators
too.  Loading again is free where multiply-adds wait for each other.  So between two iterations of a loop that updates a
tile, where more has been loaded than fits beside it, stands a fence for signal handlers: no instruction, but what
memory held before it counts as unknown behind it, unless a pointer says that nothing else changes it.

With 14 accumulators of 16 floats a convolution of 256 channels of 14x14, on two threads of an AMD EPYC (Zen 4), took
1330 us on PoCL and 1370 on Intel's runtime without fences, and 1010 and 1000 with them.  Our own code generator, which
does the same (`reliefs`), takes 1030.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...ir import dtypes
from ...ir.arith.intervals import Facts
from ...ir.arith.simplifier import simplifier_for
from ...ir.expr import (
    Buffer,
    Call,
    Const,
    Expr,
    Load,
    Ramp,
    Var,
    as_int,
    const,
    refold,
    substitute,
    variables,
)
from ...ir.functions import SIGNAL_FENCE
from ...ir.node import Node, rebuild, walk
from ...ir.stmt import (
    Allocate,
    Declare,
    Evaluate,
    For,
    If,
    Let,
    Seq,
    Stmt,
    Store,
    memories_read,
    memories_written,
    names_below,
    seq,
)
from ...ir.target import Target
from ..registers import accumulators, registers_of
from ..squares import Square, square_of
from .lanes import NATIVE_LANES
from .transposes import exchanged

FENCE = Call(SIGNAL_FENCE, (), "int32")
NOTHING = Seq(())


def written_out(kernel: Stmt, target: Target, images: frozenset[str], registers: int, facts: Facts) -> Stmt:
    """A kernel with its unrolled loops written out; `images` are the memories that it reads as images.

    What is loaded has `registers` beside tiles; 0 places no fences.  A kernel is one statement: several that follow
    each other stand in an unrolled loop of one iteration.
    """
    taken = names_below(kernel)
    names = (name for number in range(1 << 30) if (name := f"held{number}") not in taken)
    writer = _Writer(target, images, names, registers, facts)
    made = writer.statement(kernel)
    return For(Var(next(names)), const(1), made, "unrolled") if isinstance(made, Seq) else made


class Values:
    """Expressions in which the variables of unrolled loops have their present values."""

    def __init__(self) -> None:
        self.present: dict[Var, Expr] = {}
        self._made: dict[tuple[Expr, tuple[Expr, ...]], Expr] = {}
        self._used: dict[Expr, tuple[Var, ...]] = {}

    def __call__(self, expr: Expr) -> Expr:
        if not self.present:
            return expr
        used = self._used.get(expr)
        if used is None:
            used = self._used[expr] = tuple(sorted(variables(expr), key=lambda v: v.name))
        values = tuple(self.present.get(v, v) for v in used)
        if values == used:
            return expr
        key = (expr, values)
        result = self._made.get(key)
        if result is None:
            result = values[0] if isinstance(expr, Var) else refold(rebuild(expr, self._node))
            self._made[key] = result
        return result

    def _node(self, node: Any) -> Any:
        return self(node) if isinstance(node, Expr) else node


@dataclass
class _Writer:
    """Writes one kernel out; `facts` are those of the place, `loads` what was loaded since the last fence."""

    target: Target
    images: frozenset[str]
    names: Iterator[str]
    registers: int
    facts: Facts

    def __post_init__(self) -> None:
        self.values, self.loads, self.masked = Values(), set[Load](), False

    def statement(self, stmt: Stmt) -> Stmt:
        made: Stmt = _STATEMENTS.get(type(stmt), _Writer._other)(self, stmt)
        return made

    def _other(self, stmt: Stmt) -> Stmt:
        def visit(child: Node) -> Any:
            return self.values(child) if isinstance(child, Expr) else child

        return rebuild(stmt, visit)  # type: ignore[no-any-return]

    def _sequence(self, stmt: Seq) -> Stmt:
        return seq([self.statement(item) for item in stmt.stmts])

    def _store(self, stmt: Store) -> Stmt:
        made = replace(stmt, indices=tuple(map(self.values, stmt.indices)), value=self.values(stmt.value))
        if self.registers:
            self.loads.update(n for n in walk(made.value) if isinstance(n, Load) and n.buffer != stmt.buffer)
        return made

    def _inside(self, stmt: Stmt, facts: Facts) -> Stmt:
        """A statement where `facts` hold."""
        around, self.facts = self.facts, facts
        made = self.statement(stmt)
        self.facts = around
        return made

    def _for(self, stmt: For) -> Stmt:
        extent = self.values(stmt.extent)
        if stmt.kind == "unrolled" and isinstance(extent, Const):
            square = self._square(stmt)
            return self._copies(stmt, as_int(extent)) if square is None else exchanged(square, self.names)
        if not stmt.thread:
            self.loads.clear()
        facts = self.facts.looping(stmt.var, extent)
        facts = facts if isinstance(extent, Const) else facts.assuming(stmt.var < extent)
        return replace(stmt, extent=extent, body=self._inside(stmt.body, facts))

    def _copies(self, stmt: For, extent: int) -> Stmt:
        """The iterations, with a fence before those in front of which more was loaded than `spare` registers hold."""
        register_bytes = self.target.vector_bits // 8
        taken = accumulators(stmt, register_bytes) if self.registers else 0
        spare = self.registers - taken if 0 < taken <= self.registers else None
        made: list[Stmt] = []
        for value in range(extent):
            sizes = (dtypes.nbytes(load.dtype) for load in self.loads)
            if value and spare is not None and registers_of(sizes, register_bytes) > spare:
                self.loads.clear()
                made.append(Evaluate(FENCE))
            self.values.present[stmt.var] = const(value)
            made.append(self.statement(stmt.body))
        self.values.present.pop(stmt.var, None)
        return seq(made)

    def _if(self, stmt: If) -> Stmt:
        cond: Expr = simplifier_for(self.facts).expr(self.values(stmt.cond))
        if isinstance(cond, Const):
            chosen = stmt.then if cond.value else stmt.orelse
            return NOTHING if chosen is None else self.statement(chosen)
        if dtypes.lanes(cond.dtype) > 1:
            around, self.masked = self.masked, True
            then = self.statement(stmt.then)
            orelse = None if stmt.orelse is None else self.statement(stmt.orelse)
            self.masked = around
            return If(cond, then, orelse)
        then = self._inside(stmt.then, self.facts.assuming(cond))
        if stmt.orelse is None:
            return If(cond, then)
        return If(cond, then, self._inside(stmt.orelse, self.facts.assuming(cond, False)))

    def _let(self, stmt: Let) -> Stmt:
        value = self.values(stmt.value)
        if not isinstance(value, (Const, Var)) and dtypes.lanes(stmt.var.dtype) == 1:
            return Let(stmt.var, value, self._inside(stmt.body, self.facts.binding(stmt.var, value)))
        if memories_read(value).isdisjoint(memories_written(stmt.body)):
            return self.statement(substitute(stmt.body, {stmt.var: value}))
        # A vector that memory may change is kept in an array.
        base, lanes = dtypes.split_dtype(value.dtype)
        kept, all_lanes = Buffer(stmt.var.name, (lanes,), base, "local"), (Ramp(const(0), const(1), lanes),)
        body: Stmt = substitute(stmt.body, {stmt.var: Load(kept, all_lanes)})
        return self.statement(Allocate(kept, Seq((Store(kept, all_lanes, value), body))))

    def _memory(self, stmt: Allocate | Declare) -> Stmt:
        return replace(stmt, body=self.statement(stmt.body))

    def _square(self, loop: For) -> Square | None:
        """The square that a loop copies from one memory to another; None where it copies none, or lanes are masked."""
        if not self.target.execution.has_vectors or self.masked or not isinstance(loop.body, Store):
            return None
        store = replace(
            loop.body, value=self.values(loop.body.value), indices=tuple(map(self.values, loop.body.indices))
        )
        found = square_of(replace(loop, body=store))
        if found is None or found.source.memory == found.target.memory:
            return None
        if found.source.dtype in self.target.computed_as_float or found.lanes not in NATIVE_LANES:
            return None
        return None if {found.source.memory, found.target.memory} & self.images else found


_STATEMENTS: Mapping[type[Stmt], Any] = {
    Seq: _Writer._sequence, Store: _Writer._store, For: _Writer._for, If: _Writer._if,
    Let: _Writer._let, Allocate: _Writer._memory, Declare: _Writer._memory,
}  # fmt: skip
