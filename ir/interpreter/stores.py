"""Stores over all lanes at once, in the order of the lanes where it matters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..caches import cached
from ..expr import Const, Expr, Load, Ramp
from ..node import walk
from ..numbers import BITS, HALF_BYTES
from ..stmt import Store
from ..text import expr_text
from .hazards import Hazard, own_loads, spread, update, waves
from .memory import FORBIDDEN, UNDEF, UNINITIALISED, Data, Memory
from .nest import Index, Nest
from .points import Points
from .values import any_true, reads_nothing

_UPDATE: dict[str, Any] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "min": np.minimum, "max": np.maximum,
}  # fmt: skip


@cached(65536)
def _reads_alias(stmt: Store) -> bool:
    """Whether the store reads the memory it writes under another name."""
    name, memory = stmt.buffer.name, stmt.buffer.memory
    return any(isinstance(n, Load) and n.buffer.memory == memory and n.buffer.name != name for n in walk(stmt))


@cached(65536)
def _lanes_differ(stmt: Store) -> bool:
    """Whether the lanes of a store surely go to elements of their own."""
    vectors = [i for i in stmt.indices if dtypes.lanes(i.dtype) > 1]
    steps = [i.stride for i in vectors if isinstance(i, Ramp)]
    return not vectors or any(isinstance(step, Const) and step.value != 0 for step in steps)


class Stores(Points):
    """Runs store statements."""

    def store(self, nest: Nest, stmt: Store) -> None:
        own = own_loads(stmt)
        change = update(stmt) if own else None
        is_plain = dtypes.lanes(stmt.buffer.dtype) == 1 and stmt.buffer.dtype not in (*BITS, *HALF_BYTES)
        if nest.n == 1:
            self._write(nest, stmt)
        elif _reads_alias(stmt) or (own and not _lanes_differ(stmt)):
            self.serially(nest, lambda part: self.store(part, stmt))
        elif not own:
            self._write(nest, stmt)
        elif change is not None and is_plain:
            self._accumulate(nest, stmt, *change)
        else:
            self._recurrence(nest, stmt, own)

    def _write(self, nest: Nest, stmt: Store) -> None:
        data, undef = self.value(nest, stmt.value)
        memory, location = self.value.locate(nest, stmt.buffer, stmt.indices, "write")
        self._permit(nest, stmt, memory, location)
        if memory.data.ndim > 1 or np.ndim(location) > 1:
            location, data, undef = self._vector(nest, memory, location, data, undef)
        elif not isinstance(location, np.ndarray):
            data = data[-1] if isinstance(data, np.ndarray) else data
            undef = bool(undef[-1]) if isinstance(undef, np.ndarray) else undef
        memory.write(location, data, undef)

    def _vector(self, nest: Nest, memory: Memory, location: Any, data: Data, undef: Any) -> tuple[Any, Data, Any]:
        """Location, value and flags of a vector store, one row a lane."""
        location = np.broadcast_to(location, (nest.n, *np.shape(location)[1:]))
        width = int(np.prod(memory.lanes + location.shape[1:]))
        data = np.broadcast_to(data, (nest.n, width)).reshape(location.shape + memory.lanes)
        if undef is not None:
            undef = np.broadcast_to(undef, (nest.n, width)).reshape(data.shape)
        return location, data, undef

    def _permit(self, nest: Nest, stmt: Store, memory: Memory, location: Any) -> None:
        if memory.storage.guarded:
            bad = memory.states(location) == FORBIDDEN
            if bad.any():
                target = expr_text(Load(stmt.buffer, stmt.indices))
                raise self.value.error(nest, f"`{target}` is written, but is padding that holds nothing", bad)

    def _accumulate(self, nest: Nest, stmt: Store, op: str, change: Expr) -> None:
        """``B[i] = B[i] op v`` in the order of the lanes, also where elements repeat."""
        data, undef = self.value(nest, change)
        memory, location = self.value.locate(nest, stmt.buffer, stmt.indices, "write")
        self._permit(nest, stmt, memory, location)
        state = memory.states(location)
        if np.any(state == UNINITIALISED):
            target = expr_text(Load(stmt.buffer, stmt.indices))
            raise self.value.error(nest, f"`{target}` is read, but was never written", state == UNINITIALISED)
        flat = spread(location, np.arange(nest.n))[0]
        amount = np.broadcast_to(data, (nest.n, *np.shape(location)[1:])).reshape(-1)
        _UPDATE[op].at(memory.data, flat, np.ascontiguousarray(amount, memory.data.dtype))
        if any_true(undef):
            shape = (nest.n, *np.shape(location)[1:])
            memory.mark(flat[np.broadcast_to(np.asarray(undef), shape).reshape(-1)], UNDEF)

    def _recurrence(self, nest: Nest, stmt: Store, own: Sequence[Load]) -> None:
        """A store that reads its own buffer: over all lanes if none reads what an earlier one wrote, else in waves."""
        if not all(reads_nothing(load.indices) for load in own) or not reads_nothing(stmt.indices):
            self.serially(nest, lambda part: self.store(part, stmt))
            return
        memory, location = self.value.locate(nest, stmt.buffer, stmt.indices, "write")
        lanes = np.arange(nest.n)
        flat, who = spread(location, lanes)
        if np.ndim(location) <= 1 and all(load.indices == stmt.indices for load in own):
            self._waves(nest, stmt, flat)
            return
        try:
            read = [spread(self.unchecked(nest, load.buffer, load.indices), lanes) for load in own]
        except Hazard:
            self.serially(nest, lambda part: self.store(part, stmt))
            return
        first = np.full(memory.count, nest.n)
        np.minimum.at(first, flat, who)
        if not any((first[at] < reader).any() for at, reader in read):
            self._write(nest, stmt)
        elif len(flat) == nest.n == len(np.unique(flat)):
            for rows in waves(nest.n, first, read):
                self._write(nest.pick(rows), stmt)
        else:
            self.serially(nest, lambda part: self.store(part, stmt))

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
