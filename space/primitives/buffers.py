"""Which buffer an argument means."""

from __future__ import annotations

from typing import Any

from ...ir.expr import Buffer
from ...ir.passes.layouts import owner
from ...ir.passes.relayout import buffers
from ...ir.stmt import PrimFunc
from ..errors import ScheduleError
from ..tree import find_block
from .cache import read_buffer, write_buffer


def buffer_of(func: PrimFunc, block: str, buffer: Any) -> Buffer:
    """The buffer that is meant by a name, or by its place among what a block reads or writes; of a view, its owner."""
    target = find_block(func, block)
    if isinstance(buffer, str):
        known = {b.name: b for b in buffers(func)}
        if buffer not in known:
            raise ScheduleError("there is no buffer `{name}`; there are {known}", name=buffer, known=", ".join(known))
        return owner(func, known[buffer])
    if not isinstance(buffer, (list, tuple)) or len(buffer) != 2 or buffer[0] not in ("read", "write"):
        raise ScheduleError('`buffer` is a name, or ("read" | "write", index), but got {buffer}', buffer=buffer)
    side, index = buffer
    return owner(func, read_buffer(func, target, index) if side == "read" else write_buffer(func, target, index))
