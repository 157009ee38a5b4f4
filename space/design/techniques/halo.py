"""Halos as padding: a border that is tested in a reduction becomes the padding of a copy.

A convolution may be written with its border where it reads::

    y[i] += if_then_else(1 <= i + k and i + k < 21, x[i + k - 1], 0) * w[k]

The read then goes through a copy whose index map has a spatial offset, so that the halo lies in its padding::

    x_pad[h] = if_then_else(1 <= h and h < 21, x[h - 1], 0)     index map h -> h + 1, physical extent 22, pad value 0
    y[i] += x_pad[i + k] * w[k]

which is how the workloads of the library are written.  The copy is a stage like any other: computed before, inside
the shared loops, or inlined again.  Legal if (1) the reduction reads the buffer once, in a value that is otherwise
a number; (2) every index is bounded by the block's iterators; (3) `cache_read`, `transform_layout` and
`remove_branching_through_overcompute`, which the move consists of, accept it; (4) no condition on the read is left.
Source: RFC 0077, "Remove Branching Through Overcompute", the halo.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....ir.arith.intervals import nothing_known
from ....ir.expr import Call, Const, Load
from ....ir.layout.layout import Dim, Layout
from ....ir.node import walk
from ....ir.stmt import Block, PrimFunc
from ...errors import ScheduleError
from ...primitives.cache import read_buffer
from ...schedule import Schedule
from ...tree import consumers, find_block, leaf_blocks
from .technique import Technique


def _with_halos_in_padding(schedule: Schedule, constants: frozenset[str]) -> Schedule:
    """The schedule with every halo moved that can be; the border of a parameter among `constants` is packed ahead."""
    for name in [block.name for block in leaf_blocks(schedule.func.body) if block.reduce]:
        for load, outside in _conditional_reads(find_block(schedule.func, name)):
            moved = schedule.copy()
            try:
                _move(moved, name, load, outside, constants)
            except ScheduleError:
                continue
            if _selects(find_block(moved.func, name)) < _selects(find_block(schedule.func, name)):
                schedule = moved
    return schedule


def _selects(block: Block) -> int:
    """How many values in a block are chosen by a condition."""
    return sum(isinstance(n, Call) and n.name == "if_then_else" for n in walk(block.body))


def _conditional_reads(block: Block) -> list[tuple[Load, Const]]:
    """Reads of buffers that a block reads once, where a condition holds, with the number that stands in elsewhere."""
    found = []
    loads = [n for n in walk(block.body) if isinstance(n, Load)]
    for node in walk(block.body):
        if isinstance(node, Call) and node.name == "if_then_else" and isinstance(node.args[2], Const):
            inside = [n for n in walk(node.args[1]) if isinstance(n, Load)]
            once = [n for n in inside if sum(other.buffer == n.buffer for other in loads) == 1]
            found += [(load, node.args[2]) for load in once]
    return found


def _move(sch: Schedule, block: str, load: Load, outside: Const, constants: frozenset[str]) -> None:
    """Copy the buffer with the border that the block reaches, and drop the condition.  Raises ScheduleError.

    A constant that nothing else reads has the border itself.
    """
    bounds = _reach(find_block(sch.func, block), load)
    offsets = [max(0, -low) for low, _ in bounds]
    shape = [max(e, high + 1) + o for e, o, (_, high) in zip(load.buffer.shape, offsets, bounds, strict=True)]
    if tuple(shape) == load.buffer.shape:
        raise ScheduleError("`{block}` reads `{buffer}` nowhere past its edge", block=block, buffer=load.buffer.name)
    value = float(outside.value) if load.dtype.startswith(("float", "bfloat")) else int(outside.value)
    whole = [Dim(d) for d in range(len(shape))]
    layout = Layout.of_dims(load.buffer.shape, whole, offsets, shape, value)
    readers = consumers(sch.func, load.buffer)
    if load.buffer.name in constants and load.buffer in sch.func.params and len(readers) == 1:
        sch.transform_layout(block, load.buffer.name, layout)
    else:
        copy = sch.cache_read(block, _position(sch.func, find_block(sch.func, block), load), "global")
        sch.transform_layout(copy, ["write", 0], layout, rewrite_loops=True)
    sch.remove_branching_through_overcompute(block)


def _position(func: PrimFunc, block: Block, load: Load) -> int:
    """The number of a load's buffer among those that a block reads."""
    position = 0
    while read_buffer(func, block, position) != load.buffer:
        position += 1
    return position


def _reach(block: Block, load: Load) -> Sequence[tuple[int, int]]:
    """The least and greatest index in each dimension, conditions left out.  Raises ScheduleError (2)."""
    facts = nothing_known().with_bounds({item.var: item.span for item in block.iters})
    found = []
    for index in load.indices:
        low, high = facts.interval(index)
        if low is None or high is None:
            raise ScheduleError("(2) {index!r} is not bounded by the iterators of `{block}`",
                                index=index, block=block.name)  # fmt: skip
        found.append((low, high))
    return found


HALO = Technique(prepares=_with_halos_in_padding)
