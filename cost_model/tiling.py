"""How a candidate's loops cover its iteration domain, level by level, for whole populations.

Levels from the inside out: `lane` (one vector), `step` (the register tile in one step of the reduction), `reg` (the
register tile with its unrolled reduction steps), `panel` (the register tile over the whole reduction), `block`
(neighbouring tiles).  `path` are many levels at once, in the rows of its vectors: `reg`, `panel`, `block`, then `in1`,
`in2`, ... with one more of the outer loops complete, in the order in which the candidate nests them; after each of
`block`, `in1`, ... comes `block in all panels`, ..., the same after the loop over panels, where that is the next one.
`chunk` is what one iteration of the shared (parallel) loops covers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ..space.design.candidates import Candidates
    from ..space.design.operand import Axis, Operand

Vector = NDArray[np.float32]
Columns = dict[str, Vector]

ONE: Vector = np.ones(1, np.float32)


@dataclass(frozen=True)
class Cover:
    """Per level and axis, how many points of the axis one tile of the level covers, (N,) or (1,) each.

    `path` names the P levels from the register tile to all loops, those in which all panels of a reduction have run as
    well included, and `levels["path"]` has a row for each, (P, N) or (P, 1).  `nest` are the numbers of the loops among
    them.  `extents` are what tiles cut: of the fused `pair` of axes, outer and inner, the inner
    one has the points of both where `fused`, and its tiles do not end with a row.
    """

    axes: tuple[Axis, ...]
    levels: Mapping[str, tuple[Vector, ...]]
    path: tuple[str, ...]
    nest: tuple[int, ...]
    extents: tuple[Vector, ...]
    fused: Vector
    pair: tuple[int, int] | None = None
    _reach: dict[Any, list[Vector]] = field(default_factory=dict, repr=False, compare=False)

    def in_steps(self, axis: int, count: int) -> Cover:
        """The loops with the extents along `axis` divided by `count`, rounded up: so many points are one step."""
        levels = {
            name: tuple(np.ceil(c / np.float32(count)) if n == axis else c for n, c in enumerate(sizes))
            for name, sizes in self.levels.items()
        }
        return replace(self, levels=levels, _reach={})

    def volume(self, level: str, kind: str | None = None) -> Vector:
        """Points of the iteration domain in one tile, over the axes of a kind or all of them."""
        return product(self._of(self.levels[level], kind))

    def tiles(self, level: str, kind: str | None = None) -> Vector:
        """Number of tiles of the level that cover the whole domain."""
        counts = []
        for number, (axis, cover) in enumerate(zip(self.axes, self.levels[level], strict=True)):
            count = np.ceil(np.float32(axis.extent) / cover)
            if self.pair is not None and number in self.pair:
                count = np.where(self.fused > 0, self._fused_tiles(level) if number == self.pair[1] else ONE, count)
            counts.append(count)
        return product(self._of(counts, kind))

    def _fused_tiles(self, level: str) -> Vector:
        """Number of tiles along the fused pair."""
        assert self.pair is not None
        high, low = (self.levels[level][number] for number in self.pair)
        return np.asarray(np.ceil(self.extents[self.pair[1]] / (high * low)))

    def reach(self, operand: Operand, level: str) -> list[Vector]:
        """Per dimension of the operand, how many indices one tile touches (from the first to the last)."""
        key = (operand.dims, operand.shape, level)
        if key not in self._reach:
            self._reach[key] = self._reached(operand, level)
        return self._reach[key]

    def _reached(self, operand: Operand, level: str) -> list[Vector]:
        sizes = []
        for terms, size in zip(operand.dims, operand.shape, strict=True):
            points = ONE
            for axis, coef in terms:
                key = (level, axis)
                if key not in self._reach:
                    self._reach[key] = [self.levels[level][axis] - ONE]
                steps = self._reach[key][0]  # points of the axis in a tile after the first one
                points = points + (steps if abs(coef) == 1 else np.float32(abs(coef)) * steps)
            sizes.append(np.minimum(points, np.float32(size)))
        return sizes

    def footprint(self, operand: Operand, level: str) -> Vector:
        """Elements of the operand that one tile touches: the box around them.

        Where the access is unknown, that is one for each point of the tile, or all where these are fewer.
        """
        if not operand.dims:
            return np.minimum(self.volume(level), np.float32(np.prod(operand.shape, dtype=np.float64)))
        return product(self.reach(operand, level))

    def _of(self, vectors: Sequence[Vector], kind: str | None) -> list[Vector]:
        return [v for v, axis in zip(vectors, self.axes, strict=True) if kind in (None, axis.kind)]


def covers(candidates: Candidates) -> Cover:
    """The covers of candidates.

    A panel of a reduction is complete inside of the shared loops; the whole reduction is, where these advance.
    """
    axes, pair, lanes = candidates.axes, candidates.pair, floats(candidates.lane)
    extents = [np.full(1, axis.extent, np.float32) for axis in axes]
    lane = [ONE] * len(axes)
    for vec in candidates.vecs:
        lane[vec] = either(candidates.by_vec([vec == other for other in candidates.vecs]), lanes, ONE)
    reg = [np.maximum(floats(size), inner) for size, inner in zip(candidates.cover, lane, strict=True)]
    panels = map(floats, candidates.panel)
    panel = [np.maximum(q, r) if a.kind == "reduce" else r for a, q, r in zip(axes, panels, reg, strict=True)]
    fused = floats(candidates.fused)
    block = _blocks(candidates, panel, extents, fused)
    step = [ONE if a.kind == "reduce" else r for a, r in zip(axes, reg, strict=True)]
    place = {axis: floats(at) for axis, at in candidates.position.items()}
    shared = floats(candidates.shared)
    chunk = [np.maximum(e, c) if a.kind == "reduce" else c for a, e, c in zip(axes, extents, block, strict=True)]
    for n, at in place.items():
        chunk[n] = np.where(at >= shared, np.maximum(extents[n], block[n]), block[n])
    path, nest, firsts, around = ["reg", "panel", "block"], [1, 2], list[int](), list[bool]()
    for complete in range(len(place) + 1):
        if complete:
            nest.append(len(path))
            path.append(f"in{complete}")
            firsts.append(len(place) - complete)
            around.append(False)
        if candidates.panelled is not None and complete < len(place):
            path.append(f"{path[-1]} in all panels")
            firsts.append(len(place) - complete)
            around.append(True)
    first = np.asarray(firsts, np.float32)[:, None]
    in_all_panels = np.where(np.asarray(around, bool)[:, None], first <= shared, first < shared)
    paths = []
    for n, axis in enumerate(axes):
        # Loops from position `first` on are complete, and reductions where a loop over panels around these is.
        done = place[n] >= first if n in place else in_all_panels if axis.kind == "reduce" else np.zeros((1, 1), bool)
        whole = np.where(done, np.maximum(extents[n], block[n]), block[n])
        rows = np.empty((len(path), max(len(reg[n]), len(panel[n]), whole.shape[1])), np.float32)
        rows[0], rows[1], rows[2], rows[3:] = reg[n], panel[n], block[n], whole
        paths.append(rows)
    levels = {"lane": lane, "step": step, "reg": reg, "panel": panel, "block": block, "chunk": chunk, "path": paths}
    held = {name: tuple(vectors) for name, vectors in levels.items()}
    cut = tuple(floats(extent) for extent in candidates.extent)
    return Cover(axes, held, tuple(path), tuple(nest), cut, fused, pair)


def _blocks(candidates: Candidates, panel: Sequence[Vector], extents: Sequence[Vector], fused: Vector) -> list[Vector]:
    """Points of neighbouring tiles along each axis; those of fused rows go on in the next rows."""
    tiles = [floats(count) for count in candidates.block]
    block = [np.minimum(p * n, np.maximum(e, p)) for p, n, e in zip(panel, tiles, extents, strict=True)]
    if candidates.pair is not None:
        high, low = candidates.pair
        row = np.maximum(extents[low], panel[low])
        rows = np.clip(panel[low] * tiles[low] / row, ONE, np.maximum(extents[high], ONE))
        block[high] = np.where(fused > 0, np.maximum(rows, block[high]), block[high])
    return block


def either(is_first: NDArray[np.bool_], first: Vector, second: Vector) -> Vector:
    """The elements of the first vector where that is said, else of the second; one of the two as it is if it is all."""
    if is_first.all():
        return first
    return np.where(is_first, first, second) if is_first.any() else second


def floats(values: NDArray[np.int64] | NDArray[np.bool_]) -> Vector:
    """Integers or flags as float32, the type of features."""
    return values.astype(np.float32)


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
