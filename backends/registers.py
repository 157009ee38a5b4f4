"""How many vector registers an unrolled loop has taken, and how many values need."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.expr import Buffer, variables
from ..ir.stmt import For, stores


def accumulators(loop: For, register_bytes: int) -> int:
    """The registers that `loop` updates in each of its iterations, 0 for a loop over the registers themselves."""
    found: set[Buffer] = set()
    for store in stores(loop.body):
        if store.buffer.scope == "local":
            if any(loop.var in variables(index) for index in store.indices):
                return 0
            found.add(store.buffer)
    return registers_of((buffer.nbytes for buffer in found), register_bytes)


def registers_of(sizes: Iterable[int], register_bytes: int) -> int:
    """The registers that values of so many bytes take, none of which share one."""
    return sum(-(-size // register_bytes) for size in sizes)
