"""Axes of a reduction that lie together in memory are one: the pixels of an image that is summed.

    y[n, c] += x[n, c, h, w]   ->   y[n, c] += x[n, c, p]      p = h W + w

Rules run vectors along one axis, and rows of 7 pixels fill none, but 49 do.  Two reduced iterators are fused where

1. each access of their block that has one of them has both, alone in neighbouring dimensions that they cover;
2. nothing else of the block depends on them;
3. in all other blocks that access these dimensions, two iterators of one kind have them in the same way.

In primitives: `transform_block_layout` of each of these blocks and `transform_layout` of each buffer, by maps that keep
the order of elements, so that an argument stays as it is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ....ir.expr import Buffer, Var, variables
from ....ir.stmt import Block, PrimFunc
from ...errors import ScheduleError
from ...schedule import Schedule
from ...tree import find_block, leaf_blocks
from ..index_maps import fusing
from ..program import accesses_of, variables_outside_of_indices
from .technique import Technique


@dataclass
class Together:
    """The pair of iterators of each block, by number, and the first dimension of each buffer, that become one."""

    pairs: dict[str, tuple[int, int]] = field(default_factory=dict)
    dims: dict[Buffer, int] = field(default_factory=dict)


def _with_one_axis(schedule: Schedule, constants: frozenset[str]) -> Schedule:
    """The schedule with pairs of reduced iterators fused until none is left that may be."""
    while True:
        for found in _found(schedule.func):
            fused = schedule.copy()
            try:
                _fuse(fused, found)
            except ScheduleError:
                continue
            schedule = fused
            break
        else:
            return schedule


def _found(func: PrimFunc) -> Iterator[Together]:
    for block in leaf_blocks(func.body):
        for high, a in enumerate(block.iters):
            for low, b in enumerate(block.iters):
                if high == low or not a.kind == b.kind == "reduce" or min(a.extent, b.extent) == 1:
                    continue
                if (found := together(func, block, (high, low))) is not None:
                    yield found


def together(func: PrimFunc, block: Block, pair: tuple[int, int]) -> Together | None:
    """All that becomes one with a pair of a block's iterators; None where a condition does not hold."""
    found = Together()
    return found if _follow(func, block, pair, found) else None


def _follow(func: PrimFunc, block: Block, pair: tuple[int, int], found: Together) -> bool:
    """Add a pair of a block, and all that goes with it; False where a condition does not hold."""
    if block.name in found.pairs:
        return found.pairs[block.name] == pair
    found.pairs[block.name] = pair
    first, second = (block.iters[k] for k in pair)
    if first.kind != second.kind or not all(isinstance(i.binding, Var) for i in (first, second)):
        return False
    own = {first.var, second.var}
    for access in accesses_of(block):
        at = [d for d, index in enumerate(access.indices) if own & variables(index)]
        if not at:
            continue
        here = access.indices[at[0] : at[0] + 2]
        if len(at) != 2 or here != (first.var, second.var):
            return False
        if access.buffer.shape[at[0] : at[0] + 2] != (first.extent, second.extent):
            return False
        if found.dims.setdefault(access.buffer, at[0]) != at[0]:
            return False
    if own & variables_outside_of_indices(block):
        return False
    return all(_readers_agree(func, buffer, found) for buffer in [*found.dims])


def _readers_agree(func: PrimFunc, buffer: Buffer, found: Together) -> bool:
    """Whether every block has a pair of its own in the dimensions of a buffer that become one."""
    at = found.dims[buffer]
    for block in leaf_blocks(func.body):
        number = {item.var: k for k, item in enumerate(block.iters)}
        for access in accesses_of(block):
            if access.buffer.memory != buffer.memory:
                continue
            pair = [number.get(index, -1) for index in access.indices[at : at + 2]]  # type: ignore[call-overload]
            if access.buffer != buffer or min(pair) < 0 or not _follow(func, block, (pair[0], pair[1]), found):
                return False
    return True


def _fuse(sch: Schedule, found: Together) -> None:
    """Fuse the iterators and the dimensions.  Raises ScheduleError where a primitive refuses."""
    for name, (high, low) in found.pairs.items():
        extents = [item.extent for item in find_block(sch.func, name).iters]
        sch.transform_block_layout(name, fusing(len(extents), high, low, extents[low]))
    for buffer, at in found.dims.items():
        block = next(b for b in leaf_blocks(sch.func.body) if any(a.buffer.name == buffer.name for a in accesses_of(b)))
        sch.transform_layout(block.name, buffer.name, fusing(len(buffer.shape), at, at + 1, buffer.shape[at + 1]))


CONTIGUOUS = Technique(prepares=_with_one_axis)
