"""Blocking of a reduction over the caches: panels.

A long reduction streams its operands past every register tile: a panel of weights of 64 bytes by K steps
leaves the first cache as soon as K is more than a few hundred.  Cut in panels of P steps,

    C[s] = sum_k e(s, k)   ->   for q:  for tiles of s:  C[tile] += sum_{k < P} e(tile, q P + k)

what a panel touches stays close for all tiles inside its loop.  In primitives: split, `rfactor` of the outer
part, its parts in registers, and the final sum moved after each tile (`reverse_compute_at`), with its
initialisation before the panels (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication",
ACM TOMS 2008, blocks K for the same reason).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .anatomy import Anchor
    from .structure import Open, Structure

SHORTEST, MOST = 4, 64  # steps of a panel, panels


def panel_axis(anchor: Anchor, structure: Structure) -> int | None:
    """The reduction that may be cut in panels: the longest one, unless its parts are the vector's lanes.

    With a single axis of tiles, no loop can run inside of a panel and gain by it.
    """
    wide = [a for a in anchor.spatial if anchor.axes[a].extent > 1]
    if structure.factored or not anchor.op or len(wide) < 2:
        return None
    axis = max(anchor.reduce, key=lambda a: anchor.axes[a].extent, default=None)
    return axis if axis is not None and len(panel_sizes(anchor.axes[axis].extent)) > 1 else None


def panel_sizes(extent: int) -> list[int]:
    """Steps of a panel: the whole reduction, and its divisors, so that every panel is as long."""
    parts = [n for n in range(2, MOST + 1) if extent % n == 0 and extent // n >= SHORTEST]
    return [extent, *(extent // n for n in parts)]


def fitting_panels(
    part: Open,
    panel: NDArray[np.int64],
    step: NDArray[np.int64],
    inside: Sequence[NDArray[np.bool_]],
) -> NDArray[np.bool_]:
    """Where a panel is whole unrolled steps, and some loop runs inside of it: else nothing is gained.

    `inside` says for each loop that may run inside whether it does.
    """
    assert part.panel is not None
    whole = panel == part.anchor.axes[part.panel[0]].extent
    used: NDArray[np.bool_] = np.zeros(len(panel), dtype=bool)
    for flags in inside:
        used |= flags
    result: NDArray[np.bool_] = whole | ((panel % step == 0) & used)
    return result
