"""Copies that turn columns into rows: a square of elements, transposed in registers.

    for k in L {unrolled}: a[p(k) : p(k) + L] = b[q + k : : t]        L lanes, b's neighbours lie along k

Lane by lane this takes a load for each element.  Instead each of the L lanes' neighbours are loaded as one vector, and
log2(L) rounds of shuffles interchange blocks between pairs of them until vector k has what lane k of all of them was.
All is loaded before anything is stored, which is the same as long as the two memories are not one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..ir import dtypes
from ..ir.arith.linear import as_ramp, shared_form
from ..ir.expr import Buffer, Const, Expr, Load, as_int, const, reads_memory, substitute, variables
from ..ir.stmt import For, Store

FEWEST_LANES = 4  # squares of two stay as they are


@dataclass(frozen=True)
class Square:
    """The copy ``target[targets[k] + l] = source[base + l * stride + k]`` for all k and l below `lanes`."""

    source: Buffer
    base: Expr
    stride: Expr
    target: Buffer
    targets: tuple[Expr, ...]
    dtype: str

    @property
    def lanes(self) -> int:
        return len(self.targets)


def square_of(loop: For) -> Square | None:
    """The square that an unrolled loop between two flat buffers copies, None where it does anything else."""
    store = loop.body
    if not isinstance(store, Store) or not isinstance(store.value, Load) or not isinstance(loop.extent, Const):
        return None
    load, count = store.value, dtypes.lanes(store.value.dtype)
    if count != as_int(loop.extent) or count < FEWEST_LANES or count & (count - 1):
        return None
    plain = dtypes.lanes(load.buffer.dtype) == dtypes.lanes(store.buffer.dtype) == 1
    if not plain or dtypes.is_bool(load.buffer.dtype) or len(load.indices) != 1 or len(store.indices) != 1:
        return None
    source, target = as_ramp(load.indices[0]), as_ramp(store.indices[0])
    if source is None or target is None or target[1] != const(1) or source[1] in (const(0), const(1)):
        return None
    if any(map(reads_memory, (*source, target[0]))):
        return None  # which may be what a row before has changed
    bases = [substitute(source[0], {loop.var: const(number)}) for number in range(count)]
    terms, constant = shared_form(bases[0])
    neighbours = all(shared_form(base) == (terms, constant + number) for number, base in enumerate(bases))
    if loop.var in variables(source[1]) or not neighbours:
        return None
    targets = tuple(substitute(target[0], {loop.var: const(number)}) for number in range(count))
    return Square(load.buffer, bases[0], source[1], store.buffer, targets, load.dtype)


def exchanges(count: int) -> Iterator[tuple[int, int, list[int], list[int]]]:
    """The steps that transpose `count` vectors of as many lanes, of which each replaces two vectors, by number.

    The two that come are the lanes of the two that were there, one behind the other, at the places of two lists.
    """
    distance = count // 2
    while distance:
        low = [lane if not lane & distance else count + lane - distance for lane in range(count)]
        high = [lane + distance if not lane & distance else count + lane for lane in range(count)]
        for number in (n for n in range(count) if not n & distance):
            yield number, number + distance, low, high
        distance //= 2
