"""Calls of what is not known here, run by what the caller gives for them.

A function that is given for a call takes the arrays of the regions that it reads and of those that it writes, in order;
what it leaves in the second ones is stored.  Without one the call cannot be run, which an error says by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..calls import Region
from ..stmt import Opaque
from .memory import InterpreterError, Memory
from .nest import Nest
from .values import Evaluator, shift

Arrays: TypeAlias = Sequence[NDArray[Any]]
Given: TypeAlias = Mapping[str, Callable[[Arrays, Arrays], None]]
"""Functions of arrays by the names of what is called."""


def run_opaque(value: Evaluator, nest: Nest, stmt: Opaque, given: Given) -> None:
    """Run a call in one lane.  Raises InterpreterError where nothing is given for it, or it leaves its buffers."""
    function = given.get(stmt.callee)
    if function is None:
        known = f"; there are functions for {', '.join(given)}" if given else ""
        raise InterpreterError(f"{value.context}`{stmt.callee}` is no function that can be run here{known}")
    reads = [memory.data[location] for memory, location in (_located(value, nest, r, "read") for r in stmt.reads)]
    places = [_located(value, nest, region, "write") for region in stmt.writes]
    writes = [memory.data[location] for memory, location in places]
    function(reads, writes)
    for (memory, location), array in zip(places, writes, strict=True):
        memory.write(location, array, None)


def _located(value: Evaluator, nest: Nest, region: Region, verb: str) -> tuple[Memory, NDArray[np.int64]]:
    """The memory of a region, and the numbers of its elements in the shape of the region."""
    memory = value.memory.get(region.buffer.name)
    if memory is None:
        raise InterpreterError(f"{value.context}buffer `{region.buffer.name}` is not allocated here")
    location: NDArray[np.int64] = np.zeros((), np.int64)
    whole = zip(region.begin, region.extent, region.buffer.shape, region.buffer.strides, strict=True)
    for axis, (begin, extent, limit, stride) in enumerate(whole):
        first, count = (int(np.ravel(value.data(nest, e, "the region"))[0]) for e in (begin, extent))
        if first < 0 or first + count > limit:
            raise InterpreterError(f"{value.context}a call {verb}s elements {first} to {first + count - 1} of "
                                   f"dimension {axis} of `{region.buffer.name}`, which has extent {limit}")  # fmt: skip
        location = location[..., None] + np.arange(first, first + count) * stride
    return memory, location if memory.owner is None else np.asarray(shift(nest, memory, location), np.int64)
