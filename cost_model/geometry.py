"""What the tiles of a candidate mean for the machine: derived columns of one block's schedule.

Register pressure, loads per multiply-add, how vectors meet each operand, the bytes that every level of the loop
nest touches and moves, rounding waste and branches at ragged edges, copies, and chunks to run in parallel.
Every quantity is a vector with one element per candidate; nothing here looks at a program or at a name in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..ir import dtypes
from ..ir.isa import SIGNS
from ..space.design.contiguity import in_a_row, interleaved_lanes, square_side
from ..space.design.decision import BRANCH, INLINE, INNER, MASK, OVERCOMPUTE, PEEL
from ..space.design.layouts import BROADCAST, CONTIGUOUS, PAIRED, STRIDED, DotPacked4, Identity, LayoutFamily, meeting
from . import lines as lines_of
from . import warps
from .tiling import ONE, Columns, Cover, Vector, covers, either, floats, log2, product

if TYPE_CHECKING:
    from ..ir.target import Target
    from ..space.design.candidates import Candidates
    from ..space.design.operand import Operand, Terms
    from ..space.design.structure import Open

LOADS = ("broadcast", "contiguous", "shifted", "paired", "strided", "inlined")
LAUNCH_MEETINGS = 8  # of 800 cycles, 2 us: what a launch on several threads takes more (`benchmarks/opencl_calls.py`)
WAKING_MEETINGS = 100  # the same, 24 us, of a driver whose threads may have to wake up
LINE_MEETINGS = 0.02  # 16 cycles: a store into a cache line that another thread writes (`benchmarks/shared_lines.py`)
FEW_OPERATIONS = 4  # of a producer, which the weights of copies and of inlined loads answer for
SUM_PASSES = 3  # bytes moved for one of a sum that is read, added to and written back


class Geometry:
    """Derived columns of one part (an anchor in a structure) of a sketch on a target.

    Those of a `Stack` of parts are the same, which begins with this one.
    """

    def __init__(self, part: Open, target: Target) -> None:
        self.part, self.target = part, target
        self.axes = tuple(part.anchor.axes)
        self.operands = tuple(part.anchor.stored if o.is_output else o for o in part.anchor.operands)
        self.inputs = [(number, o) for number, o in enumerate(self.operands) if not o.is_output]
        self.output = next(o for o in self.operands if o.is_output)
        self.lanes = np.float32(target.vector_lanes(self.output.dtype))
        self.points = float(np.prod([axis.extent for axis in self.axes], dtype=np.float64))

    def derive(self, candidates: Candidates, alone: bool = False) -> Columns:
        """All derived columns of N candidates: sizes as base-2 logarithms, shares and flags as they are.

        A column that is the same for the whole population may have a single element.  Some that the estimate does not
        follow from are left out where it is wanted `alone`.
        """
        cover = covers(candidates)
        out: Columns = {}
        self._registers(cover, candidates, out)
        self._memory(cover, candidates, out, alone)
        self._edges(cover, candidates, out)
        self._parallel(cover, candidates, out)
        self._copies(cover, candidates, out)
        # Images and local memory of a CPU are software.
        for kind in ("image", "local"):
            flags = (floats(candidates.in_memory(kind, number)) for number, _ in self.inputs)
            found = sum(flags, np.zeros(1, np.float32))
            out[f"emulated:{kind}"] = np.asarray(found * np.float32(self.target.execution.has_one_memory), np.float32)
        if self.target.warp > 1:
            out |= warps.derive(cover, candidates, out, self.target)
        return out

    def _meets(self, candidates: Candidates, number: int) -> Vector:
        """How a vector along its axis meets what is read of an operand in each candidate."""
        found, which = self._read(candidates, number)
        kind = self.target.kind
        meets = [[meeting(operand, layout, vec, kind) for operand, layout in found] for vec in candidates.vecs]
        return np.asarray(meets, np.float32)[candidates.which_vec, which]

    def _read(
        self, candidates: Candidates, number: int
    ) -> tuple[list[tuple[Operand, LayoutFamily]], NDArray[np.int64]]:
        """What may be read of an operand, each with its layout, and which of them each candidate reads.

        That is the operand in one of its layouts, or what its producer reads, as it lies, where that is inlined.
        """
        operand, which = self.operands[number], candidates.layout(number)
        found = [(operand, layout) for layout in candidates.layouts(number)]
        if operand.inlined is not None:
            which = np.where(candidates.place(number) == INLINE, len(found), which)
            found.append((operand.inlined, Identity()))
        return found, which

    def _registers(self, cover: Cover, candidates: Candidates, out: Columns) -> None:
        dot = self.part.structure.dot
        if dot is not None:  # a step is one of words of 32 bits
            cover = cover.in_steps(dot, self.part.anchor.dot_steps)
            out["products"] = np.full(1, self.target.products_at_once(self.part.anchor.signs), np.float32)
            out["latency"] = np.full(1, self.target.dot_latency(self.part.anchor.signs), np.float32)
        out["widened"] = np.full(1, dot is None and self.part.anchor.signs in SIGNS, np.float32)
        lane = floats(candidates.lane)
        along = self._of_vec(candidates, cover.levels["reg"])
        vectors = along / lane
        rows = cover.volume("reg", "spatial")
        if self.axes[candidates.vecs[0]].kind == "spatial":
            rows = rows / along
        accumulators = rows * vectors
        steps = cover.volume("reg") / (accumulators * lane)
        wide = np.maximum(lane / self.lanes, 1)
        loads = {kind: np.zeros(1, np.float32) for kind in LOADS}
        live: list[Vector] = []
        tested: Vector = np.zeros(1, np.float32)
        computed: Vector = np.zeros(1, np.float32)
        converted: Vector = np.zeros(1, np.float32)
        for position, (number, operand) in enumerate(self.inputs):
            access = self._meets(candidates, number)
            elements = self._loaded(cover, candidates, operand, access, accumulators * wide, lane)
            inlined = candidates.place(number) == INLINE
            out[f"access:in{position}"] = access
            out[f"inlined:in{position}"] = floats(inlined)
            tested = np.maximum(tested, inlined & (access == CONTIGUOUS) & self._is_tested(candidates, operand))
            for kind, here in self._loads(candidates, operand, access, elements, elements / lane, inlined).items():
                loads[kind] = np.asarray(loads[kind] + here, np.float32)
            values = np.where(access == CONTIGUOUS, elements / lane, elements)
            computed = computed + np.where(inlined, values * np.float32(_operations(operand)), np.float32(0))
            if dot is None and self._is_converted(operand):
                converted = np.asarray(converted + values, np.float32)
            step = self._values(cover, candidates, operand, access, "step")
            live.append(np.where(access == BROADCAST, step, step / lane))
        for kind, count in loads.items():
            out[f"loads:{kind}"] = np.asarray(count / (accumulators * steps), np.float32)
        out["computed:inlined"] = np.asarray(computed / (accumulators * steps), np.float32)
        out["converted"] = np.asarray(converted / (accumulators * steps), np.float32)
        registers = np.float32(self.target.registers)
        out["access:out"] = self._meets(candidates, self.operands.index(self.output))
        out["lanes_used"] = np.minimum(lane / self.lanes, 1)
        out["rows"] = log2(rows)
        out["vectors"] = log2(vectors)
        out["accumulators"] = log2(accumulators)
        out["pressure"] = (accumulators + _held(live)) * wide / registers
        out["spill"] = np.maximum(out["pressure"] - ONE, np.float32(0))
        out["tested"] = tested
        out["loads_per_fma"] = np.asarray(sum(out[f"loads:{kind}"] for kind in LOADS), np.float32)
        out["panels"] = log2(cover.volume("chunk", "reduce") / cover.volume("panel", "reduce"))
        out["reduce_trips"] = log2(cover.volume("panel", "reduce") / cover.volume("reg", "reduce"))
        out["steps"] = log2(steps)
        out["body"] = log2(accumulators * steps)

    def _is_converted(self, operand: Operand) -> bool:
        """Whether loads are of floats of fewer bits than those that are computed."""
        computed = self.part.anchor.output.dtype
        return dtypes.is_float(operand.dtype) and dtypes.bits(operand.dtype) < dtypes.bits(computed)

    def _of_vec(self, candidates: Candidates, by_axis: Sequence[Vector]) -> Vector:
        """The vector of the axis along which each candidate's vectors run."""
        first, *others = candidates.vecs
        found = by_axis[first]
        for axis in others:
            found = np.where(candidates.by_vec([axis == vec for vec in candidates.vecs]), by_axis[axis], found)
        return found

    def _loaded(
        self, cover: Cover, candidates: Candidates, operand: Operand, access: Vector, taken: Vector, lane: Vector
    ) -> Vector:
        """Elements loaded in one turn of the unrolled body.

        What neighbouring steps share is loaded once where the registers that accumulators leave hold it, else in
        each step.
        """
        whole, step = (self._values(cover, candidates, operand, access, level) for level in ("reg", "step"))
        kept = np.where(access == BROADCAST, whole, whole / lane)
        steps = cover.volume("reg", "reduce")
        return np.asarray(np.where(taken + kept <= self.target.registers, whole, step * steps), np.float32)

    def _values(self, cover: Cover, candidates: Candidates, operand: Operand, access: Vector, level: str) -> Vector:
        """Elements that a tile of the level needs in registers; vectors that overlap are values of their own."""
        if not operand.dims:
            return cover.footprint(operand, level)
        apart = []
        for terms, reach in zip(operand.dims, cover.reach(operand, level), strict=True):
            along = self._lies_along(candidates, terms)
            alone = product([cover.levels[level][axis] for axis, _ in terms]) if along.any() else reach
            apart.append(either(along, alone, reach))
        return np.where(access == BROADCAST, cover.footprint(operand, level), product(apart))

    def _lies_along(self, candidates: Candidates, *dims: Terms) -> NDArray[np.bool_]:
        """Whether vectors run along an axis that moves one of some dimensions."""
        return candidates.by_vec([any(axis == vec for terms in dims for axis, _ in terms) for vec in candidates.vecs])

    def _is_tested(self, candidates: Candidates, operand: Operand) -> NDArray[np.bool_]:
        """Whether what computes the operand chooses along the vector axis, so that lanes of a vector differ."""
        return self._lies_along(candidates, *(operand.dims[dim] for dim in operand.tested if operand.dims))

    def _loads(
        self,
        candidates: Candidates,
        operand: Operand,
        access: Vector,
        elements: Vector,
        vectors: Vector,
        inlined: NDArray[np.bool_],
    ) -> dict[str, Vector]:
        """Loads by kind; an inlined producer is computed, with its conditions, for every element."""
        # Vectors begin at any element where another axis moves them along their own dimension.
        shifted = self._lies_along(candidates, *(terms for terms in operand.dims if len(terms) > 1))
        kinds = {"broadcast": (access == BROADCAST, elements)}
        kinds["contiguous"] = ((access == CONTIGUOUS) & ~shifted, vectors)
        kinds["shifted"] = ((access == CONTIGUOUS) & shifted, vectors)
        kinds["paired"] = (access == PAIRED, vectors)
        kinds["strided"] = (access == STRIDED, elements)
        loads = {kind: np.where(here & ~inlined, count, np.float32(0)) for kind, (here, count) in kinds.items()}
        loads["inlined"] = np.where(inlined, np.where(access == CONTIGUOUS, vectors, elements), np.float32(0))
        return loads

    def _memory(self, cover: Cover, candidates: Candidates, out: Columns, alone: bool) -> None:
        """What is touched and moved; without the bytes of each level where the estimate is wanted `alone`."""
        line, shape = np.float32(self.target.line_bytes), (len(cover.path), len(candidates))
        sizes: list[Vector] = []
        held: list[Vector] = []
        for number, operand in enumerate(self.operands):
            width = np.float32(dtypes.bits(operand.dtype) / 8)
            touched = cover.footprint(operand, "path")
            runs, apart = self._runs(cover, candidates, out, number, touched)
            lines = np.maximum(line / (runs * width), ONE)
            sizes.append(touched * width * lines)
            # Runs a power of two apart lie in some sets of a cache and leave the others empty.
            held.append(sizes[-1] * np.maximum(apart / (runs * width * lines), ONE))
        totals = np.broadcast_to(np.asarray(sum(held), np.float32), shape)
        if not alone:
            for level in cover.nest[:-1]:
                out[f"bytes:{cover.path[level]}"] = log2(totals[level])
                for number, size in enumerate(sizes):
                    out[f"bytes:op{number}:{cover.path[level]}"] = log2(size[level] if size.ndim > 1 else size)
        whole = [np.broadcast_to(size, shape)[1:] for size in sizes]
        self._moved(cover.tiles("path")[1:], totals[1:], whole, out)
        for name, one in (("conflicts", "conflict"), ("collisions", "collision")):
            each = [out[f"{one}:op{number}"] for number in range(len(self.operands))]
            out[name] = np.asarray(sum(each), np.float32)

    def _moved(self, tiles: Vector, totals: Vector, sizes: Sequence[Vector], out: Columns) -> None:
        """Bytes of all operands that come from behind each cache; levels are the rows, (P, N).

        Where the tiles of a level fit into a cache, each of them is loaded once; and where the next loop does not move
        an operand, it stays for that loop as well.
        """
        caches = {"l1": self.target.l1_bytes, "l2": self.target.l2_bytes, "l3": self.target.l3_bytes}
        fits = totals <= np.asarray(list(caches.values()), np.float32)[:, None, None]
        moved: Vector = np.zeros(1, np.float32)
        for operand, size in zip(self.operands, sizes, strict=True):
            kept = np.where(size[1:] == size[:-1], tiles[1:] * size[1:], tiles[:-1] * size[:-1])
            least = np.where(fits[:, :-1], kept, np.float32(np.inf)).min(axis=1)
            found = np.where(fits[:, -1], size[-1], np.minimum(least, tiles[0] * size[0]))
            moved = moved + np.float32(SUM_PASSES if operand.is_output else 1) * found
        for cache, within, bytes_ in zip(caches, fits[:, -1], moved, strict=True):
            # All threads share the last cache: what it holds as a whole is there in the next call as well.  A part in
            # chunks finds there what an earlier stage of its chunk left.
            outside = np.where(within, np.float32(0), bytes_) if cache == "l3" else bytes_
            out[f"traffic:{cache}"] = log2(outside / np.float32(self.points))

    def _runs(
        self, cover: Cover, candidates: Candidates, out: Columns, number: int, touched: Vector
    ) -> tuple[Vector, Vector]:
        """The run of neighbouring elements in the candidates' layouts, and the bytes that runs are apart, (P, N).

        Adds how much runs compete for places in a cache, where so many elements are `touched`.
        """
        operand = self.operands[number]
        if not operand.dims:
            out[f"conflict:op{number}"] = out[f"collision:op{number}"] = np.zeros(1, np.float32)
            lines = np.full(1, self.target.line_bytes, np.float32)
            return lines, lines
        choices, chosen = self._read(candidates, number)
        shape = (len(cover.path), len(candidates))
        runs, apart = np.ones(shape, np.float32), np.ones(shape, np.float32)
        for index, (read, layout) in enumerate(choices):
            here = np.flatnonzero(chosen == index)
            if len(here) == len(chosen):
                runs, apart = (np.broadcast_to(v, shape) for v in self._laid_out(read, layout, cover, None))
                break
            if len(here):
                runs[:, here], apart[:, here] = self._laid_out(read, layout, cover, here)
        rows = np.broadcast_to(touched, shape)[:2] / runs[:2] * apart[:2]
        collision, conflict = np.maximum(log2(rows / self.target.l1_bytes), np.float32(0))
        out[f"conflict:op{number}"], out[f"collision:op{number}"] = conflict, collision
        return runs, apart

    def _laid_out(
        self, operand: Operand, layout: LayoutFamily, cover: Cover, rows: NDArray[np.intp] | None
    ) -> tuple[Vector, Vector]:
        """What `_runs` tells, for one layout of some rows of the candidates, or of all of them."""

        def of(vectors: Sequence[Vector]) -> Sequence[Vector]:
            return vectors if rows is None else [v if v.shape[-1] == 1 else v[..., rows] for v in vectors]

        order = layout.order(operand, of(cover.levels["reg"]))
        reach = of(cover.reach(operand, "path"))
        return lines_of.runs(order, reach, operand.shape, dtypes.bits(operand.dtype) / 8, self.target)

    def _edges(self, cover: Cover, candidates: Candidates, out: Columns) -> None:
        wasted, tails, nothing = candidates.executed, ONE, np.zeros(1, np.float32)
        branches = inner = nothing
        for number, axis in enumerate(self.axes):
            if axis.extent == 1:
                continue
            tile, extent = cover.levels["reg"][number], cover.extents[number]
            rounded = np.ceil(extent / tile) * tile / extent
            ragged = rounded > 1
            how = candidates.boundary[number]
            waste = np.where(how == OVERCOMPUTE, rounded, ONE)
            branch = (ragged & (how == BRANCH)).astype(np.float32)
            out[f"waste:{axis.name}"] = log2(waste)
            out[f"tail:{axis.name}"] = np.where(ragged, extent % tile / tile, np.float32(0))
            out[f"branch:{axis.name}"] = branch
            wasted = wasted * waste
            tails = tails * np.where(ragged & ((how == PEEL) | (how == MASK)), rounded, ONE)
            along = candidates.by_vec([number == vec for vec in candidates.vecs])
            if along.any():
                odd = extent % floats(candidates.lane) / extent
                peeled, tested = (np.where(ragged & (how == kind), odd, np.float32(0)) for kind in (PEEL, BRANCH))
                for name, here in (("scalar", branch), ("odd", peeled), ("lanewise", tested)):
                    out[name] = either(along, here, out.get(name, nothing))
            if axis.kind == "reduce":
                inner = inner + either(along, nothing, branch)
            else:
                branches = branches + either(along, nothing, branch)
        for name in ("scalar", "odd", "lanewise"):
            out.setdefault(name, nothing)
        out["waste"], out["tails"], out["branches"], out["inner_branches"] = log2(wasted), log2(tails), branches, inner

    def _parallel(self, cover: Cover, candidates: Candidates, out: Columns) -> None:
        threads = np.float32(max(1, self.target.threads))
        chunks = np.full(1, self.part.chunks, np.float32) if self.part.chunks else cover.tiles("chunk", "spatial")
        shared = np.ceil(chunks / floats(candidates.items))
        out["chunks"] = log2(chunks)
        working = floats(candidates.threads)
        out["idle"] = log2(np.ceil(shared / working) * threads / shared)
        points = self.points * max(1, self.part.chunks)
        out["meets"] = log2(self._meetings(cover, candidates, shared) * threads / np.float32(points))
        out["chunk_points"] = log2(np.float32(points) / chunks)

    def _meetings(self, cover: Cover, candidates: Candidates, shared: Vector) -> Vector:
        """How often threads meet: after the shared loops, after copies that are made before these, and in cache lines.

        An OpenCL device has other ways for that, and the stages of a chunk meet once in all, which is left out.  Where
        a launch may be for one thread, one for all of them counts as so many meetings.
        """
        if self.target.kind == "opencl" and self.part.of("threads"):
            launch = LAUNCH_MEETINGS if self.target.has_thread_pool else WAKING_MEETINGS
            return np.asarray(launch * (candidates.threads > 1), np.float32)
        if self.target.kind != "cpu" or self.part.chunks:
            return np.zeros(1, np.float32)
        found = floats(shared > 1)
        for number, operand in self.inputs:
            before = candidates.staged(number) & (candidates.place(number) != INNER)
            found = found + floats(before & (not operand.is_packed_by_caller))
        found = found + np.float32(LINE_MEETINGS) * self._stores_into_shared_lines(cover, candidates)
        return np.asarray(found * (candidates.threads > 1), np.float32)

    def _stores_into_shared_lines(self, cover: Cover, candidates: Candidates) -> Vector:
        """How many stores of the result, as it is given, go into a cache line of which another thread writes a part.

        Threads take ranges of the shared loops.  Where so few iterations are around the one along the result's rows
        that a row is cut between threads, and not at the end of a line, the line at each cut goes back and forth.
        """
        number = self.operands.index(self.output)
        along = [a for a in self.part.anchor.spatial if self.output.stride(a) == 1 and a in candidates.tiles]
        if not along:
            return np.zeros(1, np.float32)
        (axis, *_), position = along, candidates.position
        tiles = {a: np.maximum(floats(count), ONE) for a, count in candidates.tiles.items()}  # of several to a block: 0
        outside = {a: (position[a] < position[axis]) & ~candidates.inside[a] for a in tiles if a != axis}
        around = product([np.where(is_outside, tiles[a], ONE) for a, is_outside in outside.items()])
        cuts = np.clip(floats(candidates.threads) / around, ONE, tiles[axis]) - ONE
        line = np.float32(8 * self.target.line_bytes // dtypes.bits(self.output.dtype))
        chunk, extent = cover.levels["chunk"][axis], np.float32(self.axes[axis].extent)
        lanes = np.where(self._meets(candidates, number) == STRIDED, ONE, floats(candidates.lane))
        stores = np.float32(np.prod(self.output.shape, dtype=np.float64)) / extent * np.minimum(line, extent) / lanes
        given = np.asarray([isinstance(layout, Identity) for layout in candidates.layouts(number)])
        is_cut = (chunk < extent) & (chunk % line != 0) & given[candidates.layout(number)]
        return np.asarray(np.where(is_cut, cuts * stores, np.float32(0)), np.float32)

    def _copies(self, cover: Cover, candidates: Candidates, out: Columns) -> None:
        """Elements that are written to staging buffers per point, and how often parallel chunks repeat that.

        Those of a copy that the second cache cannot hold beside its source are `far`, too.
        """
        chunks = cover.tiles("chunk", "spatial")
        copied: Columns = {kind: np.zeros(1, np.float32) for kind in ("plain", "squares", "scattered", "far")}
        computed: Vector = np.zeros(1, np.float32)
        for number, operand in self.inputs:
            if operand.is_packed_by_caller:
                continue
            place, staged = candidates.place(number), candidates.staged(number)
            whole = np.float32(np.prod(operand.shape, dtype=np.float64))
            size = np.where(place == INNER, cover.footprint(operand, "chunk"), whole)
            here = np.where(staged, size * np.where(place == INNER, chunks, ONE), np.float32(0)).astype(np.float32)
            far = 2 * size * np.float32(dtypes.bits(operand.dtype) / 8) > self.target.l2_bytes
            copied["far"] = copied["far"] + np.where(far, here, np.float32(0))
            kinds, lanes = self._kinds_of_copies(cover, candidates, number)
            computed = computed + here * np.float32(_operations(operand)) / floats(lanes)
            words = np.where(kinds == 2, here / floats(lanes), here)
            for kind, name in enumerate(("plain", "squares", "scattered")):
                copied[name] = copied[name] + np.where(kinds == kind, words, np.float32(0))
        for name, count in copied.items():
            out[f"copied:{name}"] = log2(count / np.float32(self.points))
        total = copied["plain"] + copied["squares"] + copied["scattered"]
        out["copied"] = log2(total / np.float32(self.points))
        out["computed:staged"] = np.asarray(computed / np.float32(self.points), np.float32)

    def _kinds_of_copies(
        self, cover: Cover, candidates: Candidates, number: int
    ) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """How an operand is copied: 0 in its own order, 1 by shuffles of vectors, 2 element by element; and the lanes.

        Words of a dot product that lie together where they come from are moved one by one.

        What computes a stage may choose or calculate, which is done in 32 bits, and element by element where its
        neighbours are not written side by side, nor in the words of a dot product.
        """
        operand, place = self.operands[number], candidates.place(number)
        kinds, lanes = np.zeros(len(candidates.layout(number)), np.intp), np.ones(1, np.int64)
        bits = dtypes.bits(operand.dtype)
        wide = (
            self.target.vector_lanes("float32")
            if operand.source == "stage"
            else self.target.vector_lanes(operand.dtype)
        )
        inner, shape = (cover.reach(operand, "chunk"), operand.shape) if operand.dims else ([], ())
        extents = [np.where(place == INNER, some, all_) for some, all_ in zip(inner, shape, strict=True)]
        for alternative, layout in enumerate(candidates.layouts(number) if operand.dims else ()):
            order = layout.order(operand, cover.levels["reg"])
            if not layout.scatters(operand):
                run = np.asarray(order[-1].size(extents[order[-1].dim]), np.int64)
                lanes = np.where(candidates.layout(number) == alternative, in_a_row(run, wide, bits), lanes)
                continue
            sides = layout.sides(operand, cover.levels["reg"], extents)
            found = np.zeros(1, np.int64)
            if sides is not None and self.target.execution.has_vectors:
                read, written = (np.asarray(side, np.int64) for side in sides)
                if operand.source == "fixed":
                    found = square_side(read, written, wide)
                words = isinstance(layout, DotPacked4) and self.target.kind == "cpu"
                if words and order[-2].dim == operand.source_dim:
                    found = interleaved_lanes(read, wide)
            alone = layout.steps if isinstance(layout, DotPacked4) and layout.dim == operand.source_dim else 1
            here = candidates.layout(number) == alternative
            kinds = np.where(here, np.where(found > 0, 1, 2), kinds)
            lanes = np.where(here, np.maximum(found, alone), lanes)
        return kinds, lanes


def _operations(operand: Operand) -> int:
    """The operations of a producer beyond those few that loads and copies have anyway."""
    return max(0, operand.operations - FEW_OPERATIONS)


def _held(live: Sequence[Vector]) -> Vector:
    """Registers for the values of operands: those of the operand with most pass one by one, the others' stay.

    A program that reads nothing computes its values, one by one as well.
    """
    if not live:
        return ONE
    return np.asarray(sum(live) - np.max(np.broadcast_arrays(*live), axis=0) + ONE, np.float32)
