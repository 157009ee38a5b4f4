"""Statements over nests of lanes.

Every statement runs over all of its iteration points at once where that gives
what serial execution gives (`hazards`), and otherwise over parts of
them, down to single points, which is serial execution itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..expr import Buffer, Call, Not, Var
from ..functions import PREFETCH, STATEMENT_CALLS
from ..stmt import (
    Allocate,
    Assert,
    Assume,
    Attr,
    Block,
    Declare,
    Evaluate,
    For,
    If,
    Let,
    Opaque,
    Seq,
    Stmt,
    Store,
    While,
)
from ..text import expr_text
from .hazards import independent, separate
from .lanes import lane_of_statement
from .memory import UNINITIALISED, InterpreterError, Memory, Storage
from .nest import Index, Loop, Nest
from .opaque import Given, run_opaque
from .points import Part
from .stores import Stores
from .values import wide

LANES = 1 << 18  # iterations at once, a choice: arrays of 2 MiB
LARGEST_COPIES = 1 << 22  # elements of private memory of all lanes together, a choice


class Machine(Stores):
    """Runs statements on `memory`, by buffer name; allocations start in the state `fresh`."""

    def __init__(
        self, memory: dict[str, Memory], body: Stmt, fresh: int = UNINITIALISED, given: Given | None = None
    ) -> None:
        super().__init__(memory, body)
        self.fresh, self.given = fresh, given or {}

    def run(self, nest: Nest, stmt: Stmt) -> None:
        if nest.n == 0:
            return
        _RUN[type(stmt)](self, nest, stmt)

    # ------------------------------------------------------------ order

    def sequence(self, nest: Nest, split: Callable[[Nest], Iterator[Part]]) -> None:
        """Run the parts that `split` makes of the lanes, one after the other."""
        if nest.n == 1:
            for start, stmt in split(nest):
                self.run(start, stmt)
            return
        parts = list(split(nest))
        sizes = {name: len(memory.storage.state) for name, memory in self.memory.items()}
        if independent(nest, parts, self.accesses, sizes):
            for start, stmt in parts:
                self.run(start, stmt)
        else:
            self.serially(nest, lambda part: self.sequence(part, split))

    # ------------------------------------------------------------ statements

    def _seq(self, nest: Nest, stmt: Seq) -> None:
        self.sequence(nest, lambda part: ((part, s) for s in stmt.stmts))

    def _for(self, nest: Nest, stmt: For) -> None:
        if nest.n > 1 and not self.settled(stmt.extent, stmt.body):
            self.serially(nest, lambda part: self._for(part, stmt))
            return
        total = self.lanes_of(nest, stmt)
        if total > LANES and nest.n > 1:
            self.serially(nest, lambda part: self._for(part, stmt), max(1, nest.n * LANES // total))
            return
        if total > LANES:
            self._long_loop(nest, stmt, total)
            return
        self.run(self.loop(nest, stmt), stmt.body)

    def _long_loop(self, nest: Nest, stmt: For, extent: int) -> None:
        for low in range(0, extent, LANES):
            part = Loop(stmt.var, lambda _: extent, low, min(low + LANES, extent))(nest)
            self.run(part, stmt.body)

    def _if(self, nest: Nest, stmt: If) -> None:
        branches = (stmt.then,) if stmt.orelse is None else (stmt.then, stmt.orelse)
        lanes = dtypes.lanes(stmt.cond.dtype)
        if lanes > 1:
            self.sequence(nest, lambda part: ((part, lane_of_statement(stmt, number)) for number in range(lanes)))
        elif nest.n == 1:
            taken = self.value.data(nest, stmt.cond, "the condition")
            branch = stmt.then if np.all(taken) else stmt.orelse
            if branch is not None:
                self.run(nest, branch)
        elif not self.settled(stmt.cond, *branches):
            self.serially(nest, lambda part: self._if(part, stmt))
        else:
            conds = (stmt.cond, Not(stmt.cond))
            self.sequence(nest, lambda part: ((self.guard(part, c), b) for c, b in zip(conds, branches, strict=False)))

    def _let(self, nest: Nest, stmt: Let) -> None:
        if nest.n > 1 and not self.settled(stmt.value, stmt.body):
            self.serially(nest, lambda part: self._let(part, stmt))
        else:
            self.run(self.bind(nest, stmt.var, stmt.value), stmt.body)

    def _evaluate(self, nest: Nest, stmt: Evaluate) -> None:
        if not (isinstance(stmt.value, Call) and stmt.value.name in (PREFETCH, *STATEMENT_CALLS)):
            self.value(nest, stmt.value)

    def _while(self, nest: Nest, stmt: While) -> None:
        if nest.n > 1:
            self.serially(nest, lambda part: self._while(part, stmt))
            return
        while np.all(self.value.data(nest, stmt.cond, "the condition")):
            self.run(nest, stmt.body)

    def _opaque(self, nest: Nest, stmt: Opaque) -> None:
        if nest.n > 1:
            self.serially(nest, lambda part: self._opaque(part, stmt))
        else:
            run_opaque(self.value, nest, stmt, self.given)

    def _assert(self, nest: Nest, stmt: Assert) -> None:
        holds = self.value.data(nest, stmt.cond, "the condition")
        if not np.all(holds):
            text = f"`{expr_text(stmt.cond)}` does not hold" + (f": {stmt.message}" if stmt.message else "")
            raise self.value.error(nest, text, np.logical_not(holds))

    def _assume(self, nest: Nest, stmt: Assume) -> None:
        holds = self.value.assumed(nest, stmt.cond)
        if not np.all(holds):
            text = f"the assumption `{expr_text(stmt.cond)}` does not hold"
            raise self.value.error(nest, text, np.logical_not(holds))

    def _allocate(self, nest: Nest, stmt: Allocate) -> None:
        self.allocated(nest, (stmt.buffer,), lambda inner: self.run(inner, stmt.body))

    def allocated(self, nest: Nest, buffers: Sequence[Buffer], action: Callable[[Nest], None]) -> None:
        """`action` with memory for `buffers` in every lane; in parts, if all their copies would be too large."""
        size = sum(b.size for b in buffers)
        if nest.n > 1 and nest.n * size > LARGEST_COPIES:
            part = max(1, LARGEST_COPIES // size)
            self.serially(nest, lambda inner: self.allocated(inner, buffers, action), part)
            return
        owner = None
        if nest.n > 1:
            # The pick keeps the numbering fixed when the lanes are taken apart further below.
            owner = Var(f"lane of {', '.join(b.name for b in buffers)}")
            nest = nest.number(owner).pick(np.arange(nest.n))
        for buffer in buffers:
            storage = Storage((buffer, *self.views.get(buffer.name, ())), None, self.fresh, nest.n)
            storage.owner = owner
            self.memory[buffer.name] = Memory(buffer, storage)
        action(nest)
        for buffer in buffers:
            del self.memory[buffer.name]

    def _attr(self, nest: Nest, stmt: Attr) -> None:
        self.run(nest, stmt.body)

    def _declare(self, nest: Nest, stmt: Declare) -> None:
        buffer, owner = stmt.buffer, self.memory.get(stmt.buffer.data)
        if owner is None:
            raise InterpreterError(f"`{buffer.name}` is declared over `{buffer.data}`, which is not allocated here")
        if buffer.nbytes > owner.storage.nbytes:
            raise InterpreterError(f"`{buffer.name}` of {buffer.nbytes} bytes views `{buffer.data}`, "
                                   f"which has {owner.storage.nbytes}")  # fmt: skip
        self.memory[buffer.name] = Memory(buffer, owner.storage)
        self.run(nest, stmt.body)
        del self.memory[buffer.name]

    # ------------------------------------------------------------ blocks

    def _block(self, nest: Nest, block: Block) -> None:
        bindings = (block.predicate, *(i.binding for i in block.iters))
        inner = block.body if block.init is None else Seq((block.init, block.body))
        if nest.n > 1 and not all(self.settled(b, inner) for b in bindings):
            self.serially(nest, lambda part: self._block(part, block))
            return
        context = self.value.context
        self.value.context = f"block `{block.name}`: " if block.iters or block.name != "root" else ""
        points = self.points(nest, block)
        if points.n and block.allocs:
            self.allocated(points, block.allocs, lambda part: self._instances(part, block))
        elif points.n:
            self._instances(points, block)
        self.value.context = context

    def _instances(self, nest: Nest, block: Block) -> None:
        """The body, and before it, where all reduce iterators are 0, the init."""
        if block.init is None:
            self.run(nest, block.body)
            return
        # The lanes in which all reduce iterators are 0.
        starts = np.ones(nest.n, np.bool_)
        for one in block.reduce:
            starts &= np.equal(self.value.data(nest, one.var, "the iterator"), 0)
        rows = np.flatnonzero(starts)
        parts: list[Part] = [(nest, block.body)]
        if len(rows):
            parts.insert(0, (nest.pick(rows), block.init))
        sizes = {name: len(memory.storage.state) for name, memory in self.memory.items()}
        apart = separate(block) and self._once(nest, block, rows)
        if nest.n > 1 and not apart and not independent(nest, parts, self.accesses, sizes):
            self.serially(nest, lambda part: self._instances(part, block))
            return
        for start, stmt in parts:
            self.run(start, stmt)

    def _once(self, nest: Nest, block: Block, rows: Index) -> bool:
        """Whether no spatial point is started twice, nor touched before it is."""
        point: Any = np.zeros(nest.n, np.intp)
        for one in block.spatial:
            point = point * one.extent + wide(self.value.data(nest, one.var, "the iterator"))
        where = np.asarray(point, np.intp).reshape(-1)
        points, first = np.unique(where, return_index=True)
        started = np.unique(where[rows])
        return len(started) == len(rows) and bool(np.isin(first[np.isin(points, started)], rows).all())


_RUN: dict[type[Stmt], Callable[..., None]] = {
    Seq: Machine._seq, For: Machine._for, If: Machine._if, Let: Machine._let, Store: Machine.store,
    Evaluate: Machine._evaluate, Assume: Machine._assume, Allocate: Machine._allocate,
    Declare: Machine._declare, Block: Machine._block, Attr: Machine._attr, While: Machine._while,
    Opaque: Machine._opaque, Assert: Machine._assert,
}  # fmt: skip
