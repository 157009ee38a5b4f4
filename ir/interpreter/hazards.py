"""When statements may run one after the other for all lanes at once.

Serial execution goes lane by lane, and in each lane statement by statement;
vector execution goes statement by statement, and in each over all lanes.  Both
agree unless some lane p' > p touches, in an earlier statement, an element that
lane p touches in a later one, and one of the two writes.  Element numbers are
computed and compared; whatever cannot be computed beforehand counts as a hazard.

`dataflow.meets` and `dataflow.dependence` prove for all values of the variables that iterations do not meet.  Here the
values are known, of one run, and the proofs must not be needed: the interpreter defines what they are about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InternalError
from ..caches import cached
from ..expr import Binary, Buffer, Expr, Load, Var
from ..node import Node, walk
from ..stmt import Allocate, Block, Declare, Stmt, Store, memories_read, memories_written
from .memory import InterpreterError
from .nest import Index, Nest

LARGEST_CHECK = 1 << 22  # iterations whose accesses are compared at once, a choice


class Hazard(InternalError):
    """The order of lanes may matter."""


@cached(65536)
def private(node: Node) -> frozenset[str]:
    """Names of the memories that are allocated below `node`."""
    allocs = {b.name for n in walk(node) if isinstance(n, Block) for b in n.allocs}
    return frozenset(allocs | {n.buffer.name for n in walk(node) if isinstance(n, Allocate)})


@cached(65536)
def update(store: Store) -> tuple[str, Expr] | None:
    """``(op, v)`` of ``B[i] = B[i] op v`` where `v` does not read B; None for any other store."""
    value = store.value
    if not isinstance(value, Binary) or value.op not in ("+", "*", "min", "max", "-"):
        return None
    own = Load(store.buffer, store.indices)
    sides = [(value.a, value.b)] if value.op == "-" else [(value.a, value.b), (value.b, value.a)]
    for old, new in sides:
        if old == own and all(store.buffer.memory not in memories_read(e) for e in (new, *store.indices)):
            return value.op, new
    return None


@cached(65536)
def own_loads(store: Store) -> tuple[Load, ...]:
    """The loads of a store's own buffer in its value and indices."""
    parts = (store.value, *store.indices)
    return tuple(n for e in parts for n in walk(e) if isinstance(n, Load) and n.buffer.name == store.buffer.name)


@cached(65536)
def separate(block: Block) -> bool:
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
    if buffer.memory in memories_read(block.init):
        return False
    own = [n for n in walk(block.body) if isinstance(n, Load) and n.buffer.memory == buffer.memory]
    return all(n.buffer == buffer and n.indices == indices for n in own)


class Footprint:
    """The first and last lane that reads or writes each element of one memory."""

    def __init__(self, size: int) -> None:
        self.first = {flag: np.full(size, np.iinfo(np.int64).max) for flag in (False, True)}
        self.last = {flag: np.full(size, -1) for flag in (False, True)}

    def add(self, location: Any, lanes: Index, write: bool) -> None:
        """`lanes` ascend, so that of repeated elements plain assignment keeps the last."""
        flat, who = spread(location, lanes)
        np.maximum.at(self.last[write], flat, who)
        np.minimum.at(self.first[write], flat, who)

    def before(self, later: Footprint) -> bool:
        """Whether all of this may happen before all of `later`."""
        pairs = ((True, True), (True, False), (False, True))
        return not any(bool((self.last[a] > later.first[b]).any()) for a, b in pairs)

    def merge(self, other: Footprint) -> None:
        for flag in (False, True):
            np.maximum(self.last[flag], other.last[flag], out=self.last[flag])
            np.minimum(self.first[flag], other.first[flag], out=self.first[flag])


def spread(location: Any, lanes: Index) -> tuple[NDArray[np.int64], Index]:
    """Elements and lanes as two flat arrays of the same length."""
    array = np.asarray(location)
    if array.ndim == 0:
        return np.full(len(lanes), array), lanes
    if array.ndim == 1:
        return array, lanes
    array = np.broadcast_to(array, (len(lanes), array.shape[1]))
    return array.reshape(-1), np.repeat(lanes, array.shape[1])


def waves(count: int, writer: Index, read: Sequence[tuple[Index, Index]]) -> Iterator[Index]:
    """The `count` lanes of a recurrence in groups, each of which needs no more than what those before it have written.

    `writer` has for each element the one lane that writes it, or `count` where none does; `read` are elements, each
    with the lane that reads it.  A lane comes after those that it reads from, and after those that
    read what it overwrites: lane by lane the same happens.
    """
    edges = []
    for element, reader in read:
        other = writer[element]
        known = (other < count) & (other != reader)
        edges.append(np.stack([np.minimum(other, reader)[known], np.maximum(other, reader)[known]]))
    before, after = np.concatenate(edges, axis=1)
    after = after[np.argsort(before, kind="stable")]
    size = np.bincount(before, minlength=count)
    start = np.cumsum(size) - size
    waits = np.bincount(after, minlength=count)
    ready = np.flatnonzero(waits == 0)
    while len(ready):
        yield ready
        sizes = size[ready]
        inside = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        freed = after[np.repeat(start[ready], sizes) + inside]
        np.subtract.at(waits, freed, 1)
        ready = np.unique(freed[waits[freed] == 0])


Access = tuple[str, Any, Nest, bool]
Collect = Callable[[Nest, Stmt, frozenset[str]], Iterator[Access]]


def independent(
    nest: Nest,
    parts: Sequence[tuple[Nest, Stmt]],
    collect: Collect,
    sizes: Mapping[str, int],
) -> bool:
    """Whether each of `parts` may run over all lanes of `nest` before the next one starts.

    `collect` lists the accesses of a statement to the memories in a set.
    """
    shared = _shared([stmt for _, stmt in parts])
    if not shared:
        return True
    if any(name not in sizes for name in shared):
        return False
    before: dict[str, Footprint] = {}
    try:
        for start, stmt in parts:
            now: dict[str, Footprint] = {}
            for name, location, at, write in collect(start, stmt, shared):
                now.setdefault(name, Footprint(sizes[name])).add(location, at.origin(nest), write)
            for name, print_ in now.items():
                if name in before and not before[name].before(print_):
                    return False
                if name in before:
                    before[name].merge(print_)
                else:
                    before[name] = print_
    except (Hazard, InterpreterError):
        return False
    return True


def _shared(stmts: Sequence[Stmt]) -> frozenset[str]:
    """Memories that one statement writes and another touches."""
    shared: set[str] = set()
    reads: set[str] = set()
    writes: set[str] = set()
    for stmt in stmts:
        hidden = private(stmt)
        new_reads, new_writes = memories_read(stmt) - hidden, memories_written(stmt) - hidden
        shared |= (writes & (new_reads | new_writes)) | (reads & new_writes)
        reads |= new_reads
        writes |= new_writes
    return frozenset(shared)


def views(node: Node) -> dict[str, tuple[Buffer, ...]]:
    """The buffers that `node` declares as views, by the name of the memory that they view."""
    found: dict[str, list[Buffer]] = {}
    for declared in walk(node):
        if isinstance(declared, Declare):
            found.setdefault(declared.buffer.memory, []).append(declared.buffer)
    return {name: tuple(buffers) for name, buffers in found.items()}
