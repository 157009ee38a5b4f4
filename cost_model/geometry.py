"""What the tiles of a candidate mean for the machine, as arithmetic over whole populations.

A candidate covers each axis of its main block at nested levels: `lane` (one vector), `reg` (the register
tile), `panel` (the register tile over the inner part of the reduction), `inner`, `outer` and `all`.  From
these covers follow register pressure, loads per multiply-add, the bytes each operand touches at each level,
the rounding waste of tiles that do not divide, and how many chunks there are to run in parallel.  Every
quantity is a vector with one element per candidate; nothing here looks at a program or at a name in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..ir import dtypes

if TYPE_CHECKING:
    from ..ir.target import Target
    from ..space.space import Axis, Operand, Sketch

Vector = NDArray[np.float32]
Columns = dict[str, Vector]

LEVELS = ("lane", "reg", "panel", "inner", "outer", "all")
BRANCH, PEEL, OVERCOMPUTE = 0.0, 1.0, 2.0


@dataclass(frozen=True)
class Cover:
    """Per level and axis, how much of the axis one tile of that level covers, (N,) each, at least 1."""

    axes: tuple[Axis, ...]
    levels: Mapping[str, tuple[Vector, ...]]

    def volume(self, level: str, kind: str | None = None) -> Vector:
        """Points of the iteration domain in one tile of the level, over the axes of a kind or all of them."""
        return _product([c for c, a in zip(self.levels[level], self.axes, strict=True) if kind in (None, a.kind)])

    def tiles(self, level: str, kind: str | None = None) -> Vector:
        """Number of tiles of the level that the whole domain is cut into."""
        counts = [
            np.ceil(np.float32(a.extent) / c)
            for c, a in zip(self.levels[level], self.axes, strict=True)
            if kind in (None, a.kind)
        ]
        return _product(counts)

    def footprint(self, operand: Operand, level: str) -> Vector:
        """Elements of the operand that one tile of the level touches: a box around all of them."""
        covers = self.levels[level]
        sizes = []
        for dim, size in zip(operand.dims, operand.shape, strict=True):
            reach = sum((abs(coef) * (covers[axis] - 1) for axis, coef in dim), start=np.float32(0)) + np.float32(1)
            sizes.append(np.minimum(reach, np.float32(size)))
        return _product(sizes) if sizes else np.ones(1, np.float32)


def covers(axes: Sequence[Axis], columns: Columns, count: int) -> Cover:
    """The nested covers of `count` candidates from their `tile:<axis>:<level>` columns.

    A level without a column covers what the level below does.  A reduction that is not tiled runs inside the
    register tile from end to end, so that its panel is the whole axis.
    """
    levels: dict[str, list[Vector]] = {level: [] for level in LEVELS}
    for axis in axes:
        extent = np.float32(axis.extent)
        current = np.ones(count, np.float32)
        tiled = any(f"tile:{axis.name}:{level}" in columns for level in ("inner", "outer"))
        for level in LEVELS:
            if level == "all" or (level == "panel" and axis.kind == "reduce" and not tiled):
                current = np.full(count, extent, np.float32)
            else:
                source = "inner" if level == "panel" and axis.kind == "reduce" else level
                size = columns.get(f"tile:{axis.name}:{source}")
                if size is not None and not (level == "panel" and axis.kind != "reduce"):
                    current = np.maximum(current, size)
            levels[level].append(current)
    return Cover(tuple(axes), {level: tuple(vectors) for level, vectors in levels.items()})


class Geometry:
    """Derived columns of one sketch on one target."""

    def __init__(self, sketch: Sketch, target: Target) -> None:
        self.axes = tuple(sketch.axes)
        self.operands = tuple(sketch.operands)
        self.target = target
        self.inputs = [o for o in self.operands if not o.is_output]
        self.outputs = [o for o in self.operands if o.is_output]
        dtype = self.outputs[0].dtype if self.outputs else "float32"
        self.lanes = np.float32(target.vector_lanes(dtype))

    def derive(self, raw: Columns, count: int) -> Columns:
        """All derived columns of `count` candidates, sizes as base-2 logarithms, shares and flags as they are."""
        cover = covers(self.axes, raw, count)
        out: Columns = {}
        self._registers(cover, raw, out)
        self._memory(cover, out)
        self._boundaries(cover, raw, out)
        self._parallel(cover, raw, out)
        return out

    def _registers(self, cover: Cover, raw: Columns, out: Columns) -> None:
        lane = cover.volume("lane", "spatial")
        used = np.minimum(lane, self.lanes)
        accumulators = cover.volume("reg", "spatial") / used
        loads, vectors = np.zeros_like(lane), np.zeros_like(lane)
        for number, operand in enumerate(self.inputs):
            access = self._access(operand, cover, raw)
            elements = cover.footprint(operand, "reg")
            here = np.where(access == CONTIGUOUS, elements / used, elements * np.where(access == STRIDED, 1.5, 1.0))
            out[f"access:in{number}"] = access
            out[f"loads:in{number}"] = log2(here)
            loads += here.astype(np.float32)
            vectors += np.where(access == CONTIGUOUS, np.minimum(elements / used, 4), 1).astype(np.float32)
        for number, operand in enumerate(self.outputs):
            out[f"access:out{number}"] = self._access(operand, cover, raw)
        registers = np.float32(self.target.registers)
        out["lanes_used"] = used / self.lanes
        out["lane_vectors"] = log2(lane / self.lanes)
        out["accumulators"] = log2(accumulators)
        out["pressure"] = (accumulators + vectors) / registers
        out["spill"] = np.maximum(accumulators + vectors - registers, 0) / registers
        out["loads_per_fma"] = loads / accumulators
        out["reduce_trips"] = log2(cover.volume("panel", "reduce") / cover.volume("reg", "reduce"))
        out["body"] = log2(accumulators * cover.volume("reg", "reduce") * np.maximum(raw.get("unroll", ONE), 1))

    def _access(self, operand: Operand, cover: Cover, raw: Columns) -> Vector:
        """How a vector of lanes meets the operand: broadcast 0, contiguous 1, strided 2."""
        lanes = cover.levels["lane"]
        packed = raw.get(f"layout:{operand.name}", np.zeros_like(lanes[0]) if lanes else np.zeros(1, np.float32)) > 0
        last = {axis for axis, coef in operand.dims[-1] if coef == 1} if operand.dims else set()
        access = np.zeros_like(packed, dtype=np.float32)
        for axis in sorted({axis for dim in operand.dims for axis, _ in dim}):
            kind = np.where(packed | (axis in last), np.float32(CONTIGUOUS), np.float32(STRIDED))
            access = np.where(lanes[axis] > 1, np.maximum(access, kind), access)
        return access

    def _memory(self, cover: Cover, out: Columns) -> None:
        caches = {"l1": self.target.l1_bytes, "l2": self.target.l2_bytes, "l3": self.target.l3_bytes}
        totals: dict[str, Vector] = {}
        for level in ("panel", "inner", "outer", "all"):
            total = np.zeros(1, np.float32)
            for number, operand in enumerate(self.operands):
                size = cover.footprint(operand, level) * np.float32(dtypes.bits(operand.dtype) / 8)
                total = total + size
                if level != "all":
                    out[f"bytes:op{number}:{level}"] = log2(size)
            totals[level] = total
            for cache in ("l1", "l2") if level != "all" else ():
                out[f"fits:{cache}:{level}"] = log2(total / np.float32(caches[cache]))
        points = cover.volume("all")
        for cache, size in caches.items():
            traffic = cover.tiles("panel") * totals["panel"]
            for level in ("inner", "outer", "all"):
                traffic = np.where(totals[level] <= size, cover.tiles(level) * totals[level], traffic)
            out[f"traffic:{cache}"] = log2(traffic / points)

    def _boundaries(self, cover: Cover, raw: Columns, out: Columns) -> None:
        padded, branches, tails = np.ones(1, np.float32), np.zeros(1, np.float32), np.ones(1, np.float32)
        for number, axis in enumerate(self.axes):
            tile = cover.levels["reg" if axis.kind == "spatial" else "panel"][number]
            extent = np.float32(axis.extent)
            waste = np.ceil(extent / tile) * tile / extent
            ragged = waste > 1
            how = raw.get(f"boundary:{axis.name}", np.full(1, OVERCOMPUTE, np.float32))
            out[f"waste:{axis.name}"] = np.where(how == OVERCOMPUTE, waste, 1).astype(np.float32)
            out[f"tail:{axis.name}"] = np.where(ragged, extent % tile / tile, 0).astype(np.float32)
            padded = padded * out[f"waste:{axis.name}"]
            branches = branches + (ragged & (how == BRANCH))
            tails = tails * np.where(ragged & (how == PEEL), 1 + tile / extent, 1)
        out["waste"] = log2(padded)
        out["branches"] = branches.astype(np.float32)
        out["tails"] = log2(tails)

    def _parallel(self, cover: Cover, raw: Columns, out: Columns) -> None:
        threads = np.float32(max(1, self.target.threads))
        chunks = np.maximum(cover.tiles("outer", "spatial"), 1)
        if "parallel" in raw:
            chunks = np.where(raw["parallel"] > 0, chunks, 1).astype(np.float32)
        out["chunks"] = log2(chunks)
        out["imbalance"] = log2(np.ceil(chunks / threads) * threads / chunks)
        out["chunk_points"] = log2(cover.volume("all") / chunks)


BROADCAST, CONTIGUOUS, STRIDED = 0.0, 1.0, 2.0
ONE = np.ones(1, np.float32)


def log2(values: NDArray[np.floating]) -> Vector:
    """Base-2 logarithm, as float32, of values kept above 2 ** -20."""
    return np.log2(np.maximum(values, np.float32(2.0**-20))).astype(np.float32)


def _product(vectors: Sequence[Vector]) -> Vector:
    result = np.ones(1, np.float32)
    for vector in vectors:
        result = result * vector
    return result
