"""How a candidate's loops cover its iteration domain, level by level, for whole populations.

Levels from the inside out: `lane` (one vector), `reg` (the register tile with its unrolled reduction steps),
`panel` (the register tile over the whole reduction), `block` (neighbouring tiles), then `in1`, `in2`, ... with
one more of the outer loops complete, in the order in which the candidate nests them.  `chunk` is what one
iteration of the shared (parallel) loops covers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ..space.anatomy import Axis, Operand

Vector = NDArray[np.float32]
Columns = dict[str, Vector]

ONE: Vector = np.ones(1, np.float32)


@dataclass(frozen=True)
class Cover:
    """Per level and axis, how many points of the axis one tile of the level covers, (N,) or (1,) each."""

    axes: tuple[Axis, ...]
    levels: Mapping[str, tuple[Vector, ...]]
    nest: tuple[str, ...]

    def volume(self, level: str, kind: str | None = None) -> Vector:
        """Points of the iteration domain in one tile, over the axes of a kind or all of them."""
        return product(self._of(self.levels[level], kind))

    def tiles(self, level: str, kind: str | None = None) -> Vector:
        """Number of tiles of the level that cover the whole domain."""
        counts = [np.ceil(np.float32(a.extent) / c) for a, c in zip(self.axes, self.levels[level], strict=True)]
        return product(self._of(counts, kind))

    def reach(self, operand: Operand, level: str) -> list[Vector]:
        """Per dimension of the operand, how many indices one tile touches (from the first to the last)."""
        covers, sizes = self.levels[level], []
        for terms, size in zip(operand.dims, operand.shape, strict=True):
            points = sum((np.float32(abs(coef)) * (covers[axis] - ONE) for axis, coef in terms), start=ONE)
            sizes.append(np.minimum(points, np.float32(size)))
        return sizes

    def footprint(self, operand: Operand, level: str) -> Vector:
        """Elements of the operand that one tile touches: the box around them, or all where the access is unknown."""
        if not operand.dims:
            return np.full(1, np.prod(operand.shape, dtype=np.float64), np.float32)
        return product(self.reach(operand, level))

    def _of(self, vectors: Sequence[Vector], kind: str | None) -> list[Vector]:
        return [v for v, axis in zip(vectors, self.axes, strict=True) if kind in (None, axis.kind)]


def covers(axes: Sequence[Axis], raw: Columns) -> Cover:
    """The covers of candidates from their `tile:`, `order:` and `parallel` columns."""
    extents = [np.full(1, axis.extent, np.float32) for axis in axes]
    lane = [raw.get(f"tile:{a.name}:lane", ONE) for a in axes]
    reg = [np.maximum(raw.get(f"tile:{a.name}:reg", ONE), inner) for a, inner in zip(axes, lane, strict=True)]
    panel = [e if a.kind == "reduce" else r for a, e, r in zip(axes, extents, reg, strict=True)]
    block = [
        np.minimum(p * raw.get(f"tile:{a.name}:block", ONE), np.maximum(e, p))
        for a, e, p in zip(axes, extents, panel, strict=True)
    ]
    levels = {"lane": lane, "reg": reg, "panel": panel, "block": block}
    looped = [n for n, a in enumerate(axes) if a.kind == "spatial" and a.extent > 1]
    place = {n: raw.get(f"order:{axes[n].name}", np.full(1, i, np.float32)) for i, n in enumerate(looped)}

    def inside(first: Vector) -> list[Vector]:
        """The loops from position `first` on are complete."""
        return [
            np.where(place[n] >= first, np.maximum(extents[n], b), b) if n in place else b for n, b in enumerate(block)
        ]

    nest = ["panel", "block"]
    for complete in range(1, len(looped) + 1):
        nest.append(f"in{complete}")
        levels[nest[-1]] = inside(np.full(1, len(looped) - complete, np.float32))
    levels["chunk"] = inside(raw.get("parallel", ONE))
    return Cover(tuple(axes), {name: tuple(vectors) for name, vectors in levels.items()}, tuple(nest))


def log2(values: NDArray[np.floating]) -> Vector:
    """Base-2 logarithm as float32, of values kept above 2 ** -20."""
    result: Vector = np.log2(np.maximum(values, np.float32(2.0**-20))).astype(np.float32)
    return result


def product(vectors: Sequence[Vector]) -> Vector:
    """The product of vectors, 1 for none."""
    result = ONE
    for vector in vectors:
        result = result * vector
    return result
