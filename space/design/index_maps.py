"""Index maps that several techniques need."""

from __future__ import annotations

from ...ir.expr import Var
from ...ir.layout.index_map import IndexMap


def fusing(rank: int, high: int, low: int, width: int) -> IndexMap:
    """The map of `rank` indices that puts ``high * width + low`` in the place of index number `high`."""
    names = tuple(Var(f"d{k}") for k in range(rank))
    one = names[high] * width + names[low]
    return IndexMap(names, tuple(one if k == high else name for k, name in enumerate(names) if k != low))
