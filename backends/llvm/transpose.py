"""Copies that turn columns into rows: a square of elements, transposed in registers.

    for k in L {unrolled}: a[p(k) : p(k) + L] = b[q + k : : t]        L lanes, b's neighbours lie along k

Lane by lane this takes a load for each element.  Instead each of the L lanes' neighbours are loaded as one vector, and
log2(L) rounds of shuffles interchange blocks between pairs of them until vector k has what lane k of all of them was.
All is loaded before anything is stored, which is the same as long as the two memories are not one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...ir import dtypes
from ...ir.expr import Buffer, Const, Load, as_int
from ...ir.stmt import For, Store
from .index import ONE, ZERO, Linear, Ramped
from .types import value_type

if TYPE_CHECKING:
    from .expr import Expressions

FEWEST_LANES = 4


@dataclass(frozen=True)
class Square:
    """The copy ``target[targets[k] + l] = source[base + l * stride + k]`` for all k and l below `lanes`."""

    source: Buffer
    base: Linear
    stride: Linear
    target: Buffer
    targets: tuple[Linear, ...]
    dtype: str

    @property
    def lanes(self) -> int:
        return len(self.targets)


def square_of(out: Expressions, stmt: For) -> Square | None:
    """The square that an unrolled loop copies, None where it does anything else."""
    store = stmt.body
    if not isinstance(store, Store) or not isinstance(store.value, Load) or not isinstance(stmt.extent, Const):
        return None
    load, count = store.value, dtypes.lanes(out.dtype(store.value))
    if count != as_int(stmt.extent) or count < FEWEST_LANES or count & (count - 1) or out.mask is not None:
        return None
    roots = {out.root(load.buffer), out.root(store.buffer)}
    plain = dtypes.lanes(load.buffer.dtype) == dtypes.lanes(store.buffer.dtype) == 1
    if len(roots) < 2 or roots & out.tiles or not plain or dtypes.is_bool(load.buffer.dtype):
        return None
    sources, targets = [], []
    for number in range(count):
        out.bind(stmt.var, Linear(number))
        sources.append(out.flat(load.buffer, load.indices))
        targets.append(out.flat(store.buffer, store.indices))
    out.unbind(stmt.var)
    first = sources[0]
    if not isinstance(first, Ramped) or first.stride in (ZERO, ONE):
        return None
    for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
        if not isinstance(source, Ramped) or not isinstance(target, Ramped) or target.stride != ONE:
            return None
        if source.stride != first.stride or source.base != first.base + Linear(number):
            return None
    starts = tuple(target.base for target in targets if isinstance(target, Ramped))
    return Square(load.buffer, first.base, first.stride, store.buffer, starts, out.dtype(load))


def columns(out: Expressions, square: Square) -> list[str]:
    """The vectors of a square's target."""
    kind, count = value_type(square.dtype), square.lanes
    rows = [out.load_neighbours(square.source, square.base + square.stride * n, square.dtype) for n in range(count)]
    distance = count // 2
    while distance:
        low = [lane if not lane & distance else count + lane - distance for lane in range(count)]
        high = [lane + distance if not lane & distance else count + lane for lane in range(count)]
        for number in (n for n in range(count) if not n & distance):
            pair = f"{kind} {rows[number]}, {kind} {rows[number + distance]}"
            rows[number], rows[number + distance] = (
                out.emit(f"shufflevector {pair}, <{count} x i32> <{', '.join(f'i32 {lane}' for lane in lanes)}>")
                for lanes in (low, high)
            )
        distance //= 2
    return rows
