"""Statements over nests of lanes.

Every statement runs over all of its iteration points at once where that gives
what serial execution gives (`interpreter_hazards`), and otherwise over parts of
them, down to single points, which is serial execution itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import dtypes
from .expr import TRUE, Buffer, Expr, Load, Not, Var
from .interpreter_hazards import (
    LARGEST_CHECK,
    Access,
    Hazard,
    aliases,
    independent,
    own_loads,
    root_name,
    spread,
    touched,
    update,
)
from .interpreter_memory import DEFINED, FORBIDDEN, UNDEF, UNINITIALISED, Data, InterpreterError, Memory, numpy_dtype
from .interpreter_nest import Bind, Guard, Index, Loop, Nest
from .interpreter_values import Evaluator, any_true, reads_nothing, shift
from .node import children, walk
from .printer import expr_text
from .stmt import Allocate, Assume, Block, Declare, Evaluate, For, If, Iter, Let, Seq, Stmt, Store

LANES = 1 << 18
LARGEST_COPIES = 1 << 22
_UPDATE: dict[str, Any] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "min": np.minimum, "max": np.maximum,
}  # fmt: skip
Part = tuple[Nest, Stmt]


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


class Machine:
    """Runs statements on `memory`, by buffer name; allocations start in the state `fresh`."""

    def __init__(self, memory: dict[str, Memory], body: Stmt, fresh: int = UNINITIALISED) -> None:
        self.memory = memory
        self.fresh = fresh
        self.value = Evaluator(memory)
        self.alias = aliases(body)
        self.started = Started(None, 1, {})
        self.blocks: list[str] = []

    def run(self, nest: Nest, stmt: Stmt) -> None:
        if nest.n == 0:
            return
        _RUN[type(stmt)](self, nest, stmt)

    # ------------------------------------------------------------ order

    def serially(self, nest: Nest, action: Callable[[Nest], None], lanes: int = 1) -> None:
        """`action` on parts of the lanes, in program order."""
        for part in nest.parts(lanes):
            action(part)

    def sequence(self, nest: Nest, split: Callable[[Nest], Iterator[Part]]) -> None:
        """Run the parts that `split` makes of the lanes, one after the other."""
        if nest.n == 1:
            for start, stmt in split(nest):
                self.run(start, stmt)
            return
        parts = list(split(nest))
        sizes = {name: memory.size for name, memory in self.memory.items()}
        if independent(nest, parts, self.accesses, sizes, self.root):
            for start, stmt in parts:
                self.run(start, stmt)
        else:
            self.serially(nest, lambda part: self.sequence(part, split))

    def root(self, name: str) -> str:
        return root_name(self.alias, name)

    def guard(self, nest: Nest, cond: Expr) -> Nest:
        if cond == TRUE:
            return nest
        step = Guard(lambda parent: self.value.data(parent, cond, "the condition"))
        return step(nest)

    def loop(self, nest: Nest, stmt: For) -> Nest:
        return Loop(stmt.var, lambda parent: self.value.data(parent, stmt.extent, "the extent"))(nest)

    def bind(self, nest: Nest, var: Var, value: Expr) -> Nest:
        return Bind(var, value, self.value)(nest)

    def settled(self, cond: Expr, *stmts: Stmt) -> bool:
        """Whether `cond` stays what it is while `stmts` run."""
        if reads_nothing((cond,)):
            return True
        reads = {self.root(n) for n in touched(cond)[0]}
        return not any(self.root(n) in reads for stmt in stmts for n in touched(stmt)[1])

    # ------------------------------------------------------------ statements

    def _seq(self, nest: Nest, stmt: Seq) -> None:
        self.sequence(nest, lambda part: ((part, s) for s in stmt.stmts))

    def _for(self, nest: Nest, stmt: For) -> None:
        if nest.n > 1 and not self.settled(stmt.extent, stmt.body):
            self.serially(nest, lambda part: self._for(part, stmt))
            return
        count = self.value.data(nest, stmt.extent, "the extent")
        total = int(np.sum(count)) if isinstance(count, np.ndarray) else int(count) * nest.n
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
            self.memory[buffer.name] = Memory(buffer, None, self.fresh, nest.n)
            self.memory[buffer.name].owner = owner
        action(nest, owner)
        for buffer in buffers:
            del self.memory[buffer.name]

    def _declare(self, nest: Nest, stmt: Declare) -> None:
        buffer, owner = stmt.buffer, self.memory.get(stmt.buffer.data)
        if owner is None:
            raise InterpreterError(f"`{buffer.name}` is declared over `{buffer.data}`, which is not allocated here")
        kind = numpy_dtype(buffer.dtype), dtypes.lanes(buffer.dtype)
        if buffer.size != owner.stride or kind != (owner.data.dtype, owner.data[0].size):
            raise InterpreterError(f"`{buffer.name}` and its memory `{buffer.data}` differ in size or type")
        alias = copy(owner)
        self.memory[buffer.name] = alias
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

    def points(self, nest: Nest, block: Block) -> Nest:
        """The instances that the predicate lets through, with the iterators bound and checked."""
        nest = self.guard(nest, block.predicate)
        for one in block.iters if nest.n else ():
            nest = self.bind(nest, one.var, one.binding)
            self._check_iter(nest, one)
        return nest

    def _check_iter(self, nest: Nest, one: Iter) -> None:
        data = self.value.data(nest, one.var, "the iterator")
        wrong = np.logical_or(np.less(data, 0), np.greater_equal(data, one.extent))
        if np.any(wrong):
            text = f"iterator `{one.var.name}` = `{expr_text(one.binding)}` leaves its range [0, {one.extent})"
            raise self.value.error(nest, text, wrong)

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
        sizes = {name: memory.size for name, memory in self.memory.items()}
        separate = _separate(block) and not self.alias
        if nest.n > 1 and not separate and not independent(nest, parts, self.accesses, sizes, self.root):
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

    # ------------------------------------------------------------ stores

    def _store(self, nest: Nest, stmt: Store) -> None:
        own = own_loads(stmt)
        change = update(stmt) if own else None
        bfloat = dtypes.element(stmt.buffer.dtype) == "bfloat16"
        if nest.n == 1:
            self._write(nest, stmt)
        elif self.alias and self._reads_alias(stmt):
            self.serially(nest, lambda part: self._store(part, stmt))
        elif not own:
            self._write(nest, stmt)
        elif change is not None and dtypes.lanes(stmt.buffer.dtype) == 1 and not bfloat:
            self._accumulate(nest, stmt, *change)
        else:
            self._recurrence(nest, stmt, own)

    def _reads_alias(self, stmt: Store) -> bool:
        """Whether the store reads the memory it writes under another name."""
        name = stmt.buffer.name
        return any(n != name and self.root(n) == self.root(name) for n in touched(stmt)[0])

    def _write(self, nest: Nest, stmt: Store) -> None:
        data, undef = self.value(nest, stmt.value)
        memory, location = self.value.locate(nest, stmt.buffer, stmt.indices, "write")
        self._permit(nest, stmt, memory, location)
        if memory.data.ndim > 1 or np.ndim(location) > 1:
            location, data, undef = self._vector(nest, memory, location, data, undef)
        elif not isinstance(location, np.ndarray):
            data, undef = (v[-1] if isinstance(v, np.ndarray) else v for v in (data, undef))
        memory.data[location] = data
        memory.state[location] = DEFINED if undef is None else np.where(undef, UNDEF, DEFINED)

    def _vector(self, nest: Nest, memory: Memory, location: Any, data: Data, undef: Any) -> tuple[Any, Data, Any]:
        """Location, value and flags of a vector store, one row a lane."""
        location = np.broadcast_to(location, (nest.n, *np.shape(location)[1:]))
        width = memory.data[0].size * int(np.prod(location.shape[1:]))
        data = np.broadcast_to(data, (nest.n, width)).reshape(location.shape + memory.data.shape[1:])
        if undef is not None:
            undef = np.broadcast_to(undef, (nest.n, width)).reshape(*location.shape, -1).any(axis=-1)
        return location, data, undef

    def _permit(self, nest: Nest, stmt: Store, memory: Memory, location: Any) -> None:
        if memory.guarded:
            bad = memory.state[location] == FORBIDDEN
            if np.any(bad):
                target = expr_text(Load(stmt.buffer, stmt.indices))
                raise self.value.error(nest, f"`{target}` is written, but is padding that holds nothing", bad)

    def _accumulate(self, nest: Nest, stmt: Store, op: str, change: Expr) -> None:
        """``B[i] = B[i] op v`` in the order of the lanes, also where elements repeat."""
        data, undef = self.value(nest, change)
        memory, location = self.value.locate(nest, stmt.buffer, stmt.indices, "write")
        self._permit(nest, stmt, memory, location)
        state = memory.state[location]
        if np.any(state == UNINITIALISED):
            target = expr_text(Load(stmt.buffer, stmt.indices))
            raise self.value.error(nest, f"`{target}` is read, but was never written", state == UNINITIALISED)
        flat = spread(location, np.arange(nest.n))[0]
        amount = np.broadcast_to(data, (nest.n, *np.shape(location)[1:])).reshape(-1)
        _UPDATE[op].at(memory.data, flat, np.ascontiguousarray(amount, memory.data.dtype))
        if any_true(undef):
            shape = (nest.n, *np.shape(location)[1:])
            memory.state[flat[np.broadcast_to(np.asarray(undef), shape).reshape(-1)]] = UNDEF

    def _recurrence(self, nest: Nest, stmt: Store, own: Sequence[Load]) -> None:
        """A store that reads its own buffer: over all lanes if none reads what an earlier one wrote."""
        if not all(reads_nothing(load.indices) for load in own) or not reads_nothing(stmt.indices):
            self.serially(nest, lambda part: self._store(part, stmt))
            return
        memory, location = self.value.locate(nest, stmt.buffer, stmt.indices, "write")
        lanes = np.arange(nest.n)
        flat, who = spread(location, lanes)
        if np.ndim(location) <= 1 and all(load.indices == stmt.indices for load in own):
            self._waves(nest, stmt, flat)
            return
        first = np.full(memory.size, nest.n)
        np.minimum.at(first, flat, who)
        for load in own:
            at, reader = spread(self.unchecked(nest, load.buffer, load.indices), lanes)
            if (first[at] < reader).any():
                self.serially(nest, lambda part: self._store(part, stmt))
                return
        self._write(nest, stmt)

    def _waves(self, nest: Nest, stmt: Store, flat: Index) -> None:
        """All lanes that visit their own element for the first time, then for the second time, ..."""
        order = np.argsort(flat, kind="stable")
        ordered = flat[order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        visit = np.empty(len(flat), np.intp)
        visit[order] = np.arange(len(flat)) - np.repeat(starts, np.diff(np.r_[starts, len(flat)]))
        last = int(visit.max())
        if last == 0:
            self._write(nest, stmt)
            return
        by_visit = np.argsort(visit, kind="stable")
        for rows in np.split(by_visit, np.cumsum(np.bincount(visit))[:-1]):
            self._write(nest.pick(rows), stmt)

    # ------------------------------------------------------------ accesses

    def unchecked(self, nest: Nest, buffer: Buffer, indices: tuple[Expr, ...]) -> Any:
        """Element numbers, clipped into the buffer: what a guard excludes may lie outside."""
        location: Any = 0
        values = [self.value.data(nest, i, "the index") for i in indices]
        vector = any(np.ndim(v) > 1 for v in values)
        for value, extent, stride in zip(values, buffer.shape, buffer.strides, strict=True):
            shaped = np.reshape(value, (-1, 1)) if vector and np.ndim(value) == 1 else value
            location = location + np.clip(shaped, 0, extent - 1) * stride
        memory = self.memory[buffer.name]
        return location if memory.owner is None else shift(nest, memory, location)

    def accesses(self, nest: Nest, stmt: Stmt, names: frozenset[str]) -> Iterator[Access]:
        """The accesses below `stmt` to the memories `names`, a superset where guards read memory."""
        if nest.n == 0 or not any(self.root(n) in names for part in touched(stmt) for n in part):
            return
        if nest.n > LARGEST_CHECK:
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
                count = np.sum(self.value.data(nest, stmt.extent, "the extent"))
                if int(count) * (1 if np.ndim(count) else nest.n) > LARGEST_CHECK:
                    raise Hazard
                yield self.loop(nest, stmt), stmt.body
            case If():
                known = reads_nothing((stmt.cond,))
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
            case Allocate() | Declare():
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
        name = self.root(buffer.name)
        if name in names and nest.n:
            self._fixed(*indices)
            yield name, self.unchecked(nest, buffer, indices), nest, write


@lru_cache(maxsize=4096)
def _separate(block: Block) -> bool:
    """Whether every spatial point has an element of its own, the only one that init and body write."""
    assert block.init is not None
    targets = {(s.buffer, s.indices) for part in (block.init, block.body) for s in walk(part) if isinstance(s, Store)}
    if len(targets) != 1:
        return False
    buffer, indices = next(iter(targets))
    wide = {i.var for i in block.spatial if i.extent > 1}
    plain = all(isinstance(i, Var) for i in indices) and wide <= set(indices)
    if not plain or not {i.var for i in block.spatial} >= set(indices):
        return False
    if buffer.name in touched(block.init)[0]:
        return False
    return all(n.indices == indices for n in walk(block.body) if isinstance(n, Load) and n.buffer == buffer)


_RUN: dict[type[Stmt], Callable[..., None]] = {
    Seq: Machine._seq, For: Machine._for, If: Machine._if, Let: Machine._let, Store: Machine._store,
    Evaluate: Machine._evaluate, Assume: Machine._assume, Allocate: Machine._allocate,
    Declare: Machine._declare, Block: Machine._block,
}  # fmt: skip
