"""Blocking of a reduction over the caches: panels.

A long reduction streams its operands past every register tile: a panel of weights of 64 bytes by K steps
leaves the first cache as soon as K is more than a few hundred.  Cut in panels of P steps,

    C[s] = sum_k e(s, k)   ->   for q:  for tiles of s:  C[tile] += sum_{k < P} e(tile, q P + k)

what a panel touches stays close for all tiles inside its loop.  Where neighbours in a vector are no neighbours in the
result, panels are added up in a buffer in the order of the tile, and a copy scatters the sum when all are there.  In
primitives: split, `rfactor` of the outer part, its parts in registers, and the final sum moved after each tile
(`reverse_compute_at`), with its initialisation before the panels (Goto and van de Geijn, "Anatomy of high-performance
matrix multiplication", ACM TOMS 2008, blocks K for the same reason).

Tiles along a single axis share nothing that a cache would have to hold: of a product of a vector and a matrix, each
element of the matrix is read once.  There the panels decide in which order it is read.  A tile that runs through the
whole reduction takes a few lines of each row of the matrix, and the rows are far apart; tiles of a block that run
inside of a short panel read its few rows side by side, each as a stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ...ir.target import Target
    from .anatomy import Anchor
    from .structure import Open, Structure

SHORTEST, MOST = 4, 64  # steps of a panel, panels
STREAMS = 64  # steps of a panel whose rows are read side by side
CHOICES = 8


def panels(anchor: Anchor, structure: Structure, blocked: bool) -> tuple[int, list[int]] | None:
    """The reduction that may be cut in panels and how many steps they may have, all of them first; None for none.

    It is the longest one, unless its parts are the vector's lanes.  With a single axis of tiles a loop runs inside
    of a panel only where the tiles are `blocked`.
    """
    wide = [a for a in anchor.spatial if anchor.axes[a].extent > 1]
    axis = max(anchor.reduce, key=lambda a: anchor.axes[a].extent, default=None)
    if structure.factored or not anchor.op or axis is None:
        return None
    extent = anchor.axes[axis].extent
    if len(wide) > 1:
        sizes = panel_sizes(extent)
    elif blocked:
        sizes = stream_sizes(extent)
    else:
        return None
    return (axis, sizes) if len(sizes) > 1 else None


def sums_apart(anchor: Anchor, vec: int, target: Target) -> bool:
    """Whether panels are added up in a buffer of their own, in which the elements of a vector are neighbours."""
    return target.kind == "cpu" and not anchor.epilogue and anchor.output.stride(vec) != 1


def panel_sizes(extent: int) -> list[int]:
    """Steps of a panel: the whole reduction, and its divisors, so that every panel is as long."""
    parts = [n for n in range(2, MOST + 1) if extent % n == 0 and extent // n >= SHORTEST]
    return [extent, *(extent // n for n in parts)]


def stream_sizes(extent: int) -> list[int]:
    """Steps of a panel whose rows are streams: the whole reduction, and its divisors from 64 to 4.

    Of more than seven, seven are taken that are evenly spread among them, the ends included.
    """
    parts = [n for n in range(min(STREAMS, extent - 1), SHORTEST - 1, -1) if extent % n == 0]
    if len(parts) >= CHOICES:
        parts = [parts[k * (len(parts) - 1) // (CHOICES - 2)] for k in range(CHOICES - 1)]
    return [extent, *parts]


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
