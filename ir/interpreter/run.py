"""Statements over nests of lanes.

Every statement runs over all of its iteration points at once where that gives
what serial execution gives (`interpreter_hazards`), and otherwise over parts of
them, down to single points, which is serial execution itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..expr import Buffer, Not, Var
from ..node import walk
from ..script.printer import expr_text
from ..stmt import Allocate, Assume, Attr, Block, Declare, Evaluate, For, If, Let, Seq, Stmt, Store
from .hazards import independent, separate
from .memory import UNINITIALISED, InterpreterError, Memory, Storage
from .nest import Index, Loop, Nest
from .points import Part
from .stores import Stores

LANES = 1 << 18
LARGEST_COPIES = 1 << 22


@lru_cache(maxsize=65536)
def _has_init(stmt: Stmt) -> bool:
    return any(isinstance(n, Block) and n.init is not None for n in walk(stmt))


@lru_cache(maxsize=65536)
def _points(block: Block) -> int:
    return int(np.prod([i.extent for i in block.spatial], dtype=np.int64))


@dataclass
class Started:
    """Spatial points whose init has run, by block, in each of `copies` instances of the block around."""

    owner: Var | None
    copies: int
    points: dict[Block, NDArray[np.bool_]]


class Machine(Stores):
    """Runs statements on `memory`, by buffer name; allocations start in the state `fresh`."""

    def __init__(self, memory: dict[str, Memory], body: Stmt, fresh: int = UNINITIALISED) -> None:
        super().__init__(memory, body)
        self.fresh = fresh
        self.started = Started(None, 1, {})

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
            part = Loop(stmt.var, lambda parent: extent, low, min(low + LANES, extent))(nest)
            self.run(part, stmt.body)

    def _if(self, nest: Nest, stmt: If) -> None:
        branches = (stmt.then,) if stmt.orelse is None else (stmt.then, stmt.orelse)
        if nest.n == 1:
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
        self.value(nest, stmt.value)

    def _assume(self, nest: Nest, stmt: Assume) -> None:
        holds = self.value.assumed(nest, stmt.cond)
        if not np.all(holds):
            text = f"the assumption `{expr_text(stmt.cond)}` does not hold"
            raise self.value.error(nest, text, np.logical_not(holds))

    def _allocate(self, nest: Nest, stmt: Allocate) -> None:
        self.allocated(nest, (stmt.buffer,), lambda inner, owner: self.run(inner, stmt.body))

    def allocated(
        self, nest: Nest, buffers: Sequence[Buffer], action: Callable[[Nest, Var | None], None], extra: int = 0
    ) -> None:
        """`action` with memory for `buffers` in every lane, and the variable that numbers the lanes if they are many.

        Lanes are taken in parts if all their copies, and `extra` more elements each, would be too large.
        """
        size = sum(b.size for b in buffers) + extra
        if nest.n > 1 and nest.n * size > LARGEST_COPIES:
            part = max(1, LARGEST_COPIES // size)
            self.serially(nest, lambda inner: self.allocated(inner, buffers, action, extra), part)
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
        action(nest, owner)
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
        single = bool(block.allocs) or _has_init(inner)
        if nest.n > 1 and not all(self.settled(b, inner) for b in bindings):
            self.serially(nest, lambda part: self._block(part, block))
            return
        context = self.value.context
        self.value.context = f"block `{block.name}`: " if block.iters or block.name != "root" else ""
        points = self.points(nest, block)
        if points.n and single:
            self._scope(points, block)
        elif points.n:
            self._instances(points, block, self.started)
        self.value.context = context

    def _scope(self, nest: Nest, block: Block) -> None:
        """Instances that each own allocations, or blocks that initialise anew in it."""
        inner = max((_points(b) for b in walk(block) if isinstance(b, Block) and b is not block), default=0)

        def action(part: Nest, owner: Var | None) -> None:
            outer, self.started = self.started, Started(owner, part.n, {})
            self._instances(part, block, outer)
            self.started = outer

        self.allocated(nest, block.allocs, action, inner)

    def _instances(self, nest: Nest, block: Block, started: Started) -> None:
        if block.init is None:
            self.run(nest, block.body)
            return
        self._reduction(nest, block, started)

    def _reduction(self, nest: Nest, block: Block, started: Started) -> None:
        """Before the first instance of a spatial point, its init."""
        assert block.init is not None
        where = self.spatial_point(nest, block, started)
        done = started.points.get(block)
        if done is None:
            done = started.points[block] = np.zeros(_points(block) * started.copies, np.bool_)
        fresh = ~done[where]
        latest = np.empty(len(done), np.intp)
        lanes = np.arange(nest.n)
        latest[where[::-1]] = lanes[::-1]
        rows = np.flatnonzero(fresh & (latest[where] == lanes))
        parts: list[Part] = [(nest, block.body)]
        if len(rows):
            parts.insert(0, (nest.pick(rows), block.init))
        sizes = {name: len(memory.storage.state) for name, memory in self.memory.items()}
        apart = separate(block)
        if nest.n > 1 and not apart and not independent(nest, parts, self.accesses, sizes):
            self.serially(nest, lambda part: self._reduction(part, block, started))
            return
        for start, stmt in parts:
            self.run(start, stmt)
            done[where] = True

    def spatial_point(self, nest: Nest, block: Block, started: Started) -> Index:
        """A number for the values of the spatial iterators, in each lane."""
        point: Any = np.zeros(nest.n, np.intp)
        if started.owner is not None:
            point = point + nest.get(started.owner)[0]
        for one in block.spatial:
            point = point * one.extent + self.value.data(nest, one.var, "the iterator")
        return np.asarray(point, np.intp).reshape(-1)


_RUN: dict[type[Stmt], Callable[..., None]] = {
    Seq: Machine._seq, For: Machine._for, If: Machine._if, Let: Machine._let, Store: Machine.store,
    Evaluate: Machine._evaluate, Assume: Machine._assume, Allocate: Machine._allocate,
    Declare: Machine._declare, Block: Machine._block, Attr: Machine._attr,
}  # fmt: skip
