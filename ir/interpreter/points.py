"""From statements to iteration points: the steps of a nest, and the accesses below a statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import dtypes
from ..expr import TRUE, Buffer, Expr, Load, Not, Var, variables
from ..node import children, walk
from ..stmt import (
    Allocate,
    Attr,
    Block,
    Declare,
    For,
    If,
    Let,
    Opaque,
    Seq,
    Stmt,
    Store,
    While,
    memories_read,
    memories_written,
)
from ..text import expr_text
from .hazards import LARGEST_CHECK, Access, Hazard, views
from .memory import Memory
from .nest import Bind, Guard, Loop, Nest
from .values import Evaluator, outside, reads_nothing, shift, wide

Part = tuple[Nest, Stmt]


class Points:
    """Makes nests for the statements of `body`, whose buffers are in `memory`."""

    def __init__(self, memory: dict[str, Memory], body: Stmt) -> None:
        self.memory = memory
        self.value = Evaluator(memory)
        self.views = views(body)

    def serially(self, nest: Nest, action: Callable[[Nest], None], lanes: int = 1) -> None:
        """`action` on parts of the lanes, in program order."""
        for part in nest.parts(lanes):
            action(part)

    def guard(self, nest: Nest, cond: Expr) -> Nest:
        if cond == TRUE:
            return nest
        step = Guard(lambda parent: self.value.data(parent, cond, "the condition"))
        return step(nest)

    def loop(self, nest: Nest, stmt: For) -> Nest:
        return Loop(stmt.var, lambda parent: self.value.data(parent, stmt.extent, "the extent"))(nest)

    def lanes_of(self, nest: Nest, stmt: For) -> int:
        """How many lanes a loop makes."""
        count = self.value.data(nest, stmt.extent, "the extent")
        return int(np.sum(np.maximum(count, 0))) if isinstance(count, np.ndarray) else max(0, int(count)) * nest.n

    def bind(self, nest: Nest, var: Var, value: Expr) -> Nest:
        return Bind(var, value, self.value)(nest)

    def settled(self, cond: Expr, *stmts: Stmt) -> bool:
        """Whether `cond` stays what it is while `stmts` run."""
        if reads_nothing((cond,)):
            return True
        return not any(memories_read(cond) & memories_written(stmt) for stmt in stmts)

    def points(self, nest: Nest, block: Block) -> Nest:
        """The instances that the predicate lets through, with the iterators bound and checked."""
        nest = self.guard(nest, block.predicate)
        for one in block.iters if nest.n else ():
            nest = self.bind(nest, one.var, one.binding)
            data = self.value.data(nest, one.var, "the iterator")
            wrong = outside(data, one.extent)
            if wrong is not None:
                text = f"iterator `{one.var.name}` = `{expr_text(one.binding)}` leaves its range [0, {one.extent})"
                raise self.value.error(nest, text, wrong)
        return nest

    # ------------------------------------------------------------ accesses

    def view(self, buffer: Buffer) -> Memory:
        """The memory of a buffer, also of one that is declared further below."""
        memory = self.memory.get(buffer.name)
        return Memory(buffer, self.memory[buffer.memory].storage) if memory is None else memory

    def unchecked(self, nest: Nest, buffer: Buffer, indices: tuple[Expr, ...]) -> Any:
        """Element numbers, clipped into the buffer: what a guard excludes may lie outside.

        Raises Hazard for indices over what a let expression binds.
        """
        if not all(nest.knows(var) for index in indices for var in variables(index)):
            raise Hazard
        location: Any = 0
        values = [self.value.data(nest, i, "the index") for i in indices]
        vector = any(np.ndim(v) > 1 for v in values)
        for value, extent, stride in zip(values, buffer.shape, buffer.strides, strict=True):
            shaped = np.reshape(value, (-1, 1)) if vector and np.ndim(value) == 1 else value
            location = location + np.clip(wide(shaped), 0, extent - 1) * stride
        memory = self.view(buffer)
        return location if memory.owner is None else shift(nest, memory, location)

    def accesses(self, nest: Nest, stmt: Stmt, names: frozenset[str]) -> Iterator[Access]:
        """The accesses below `stmt` to the memories `names`, a superset where guards read memory."""
        if nest.n == 0 or names.isdisjoint(memories_read(stmt) | memories_written(stmt)):
            return
        if nest.n > LARGEST_CHECK or isinstance(stmt, (Opaque, While)):
            raise Hazard
        for child in children(stmt):
            if isinstance(child, Expr):
                yield from self._reads(nest, child, names)
        if isinstance(stmt, Store):
            yield from self._access(nest, stmt.buffer, stmt.indices, names, True)
        for start, inner in self._below(nest, stmt):
            yield from self.accesses(start, inner, names)

    def _below(self, nest: Nest, stmt: Stmt) -> Iterator[Part]:
        match stmt:
            case Seq():
                yield from ((nest, s) for s in stmt.stmts)
            case For():
                self._fixed(stmt.extent)
                if self.lanes_of(nest, stmt) > LARGEST_CHECK:
                    raise Hazard
                yield self.loop(nest, stmt), stmt.body
            case If():
                known = reads_nothing((stmt.cond,)) and dtypes.lanes(stmt.cond.dtype) == 1
                yield (self.guard(nest, stmt.cond) if known else nest), stmt.then
                if stmt.orelse is not None:
                    yield (self.guard(nest, Not(stmt.cond)) if known else nest), stmt.orelse
            case Let():
                self._fixed(stmt.value)
                yield self.bind(nest, stmt.var, stmt.value), stmt.body
            case Block():
                self._fixed(stmt.predicate, *(i.binding for i in stmt.iters))
                inner = self.points(nest, stmt)
                yield from ((inner, s) for s in (stmt.init, stmt.body) if s is not None)
            case Allocate() | Declare() | Attr():
                yield nest, stmt.body

    def _fixed(self, *exprs: Expr) -> None:
        if not reads_nothing(exprs):
            raise Hazard

    def _reads(self, nest: Nest, e: Expr, names: frozenset[str]) -> Iterator[Access]:
        for node in walk(e):
            if isinstance(node, Load):
                yield from self._access(nest, node.buffer, node.indices, names, False)

    def _access(
        self, nest: Nest, buffer: Buffer, indices: tuple[Expr, ...], names: frozenset[str], write: bool
    ) -> Iterator[Access]:
        name = buffer.memory
        if name in names and nest.n:
            self._fixed(*indices)
            yield name, self.view(buffer).places(self.unchecked(nest, buffer, indices)), nest, write
