"""What a population of candidates chose: the one place where the decisions of an anchor are read.

The scheduler takes one row of it (`plan`), the mask its booleans, the cost model its columns, so that a choice means
the same to all of them.  A choice without effect reads as if it had not been made: a boundary is ``branch`` where the
tile divides, a pad value is none where nothing is padded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ir import dtypes
from ...ir.target import Target
from .decision import BRANCH, INLINE, OVERCOMPUTE, ROOT
from .layouts import Identity, LayoutFamily
from .operand import Operand
from .padding import share_with_data
from .structure import Open

LARGEST_KEY = 2**62
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Columns = dict[str, NDArray[np.float32]]


class Candidates:
    """Candidates of one anchor in one structure: `choices` has shape (N, decisions), a row for each candidate.

    Every quantity is a vector of N elements, or of one where all candidates have the same; a list has one vector for
    each axis or operand of the anchor, by number.  `read` are the decisions that anybody has asked about.
    """

    def __init__(self, part: Open, choices: Ints, target: Target) -> None:
        self.part, self.choices, self.target = part, choices, target
        self.read = set[int]()
        self.anchor, self.structure = part.anchor, part.structure
        self.axes, self.operands = part.anchor.axes, part.anchor.operands
        self._known: dict[object, NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self.choices)

    def alternative(self, decision: int) -> Ints:
        """Which alternative of a decision, given by its number, each candidate has."""
        self.read.add(decision)
        return self.choices[:, decision]

    def column(self, name: str) -> NDArray[np.float32]:
        """The numbers of a column of the decisions' tables.  Raises KeyError for one that no decision has."""
        number, table = self.part.tables[name]
        result: NDArray[np.float32] = table[self.alternative(number)]
        return result

    def columns(self, *kinds: str) -> Columns:
        """The columns of all decisions about `kinds`: ``"tile"``, ``"boundary"`` and so on, as techniques call them."""
        wanted = {number for kind in kinds for number in self.part.of(kind).values()}
        return {name: self.column(name) for name, (number, _) in self.part.tables.items() if number in wanted}

    def _numbers(self, name: str, default: int) -> Ints:
        key = name, default
        if key not in self._known:
            self._known[key] = self._looked_up(name, default)
        return self._known[key]

    def _looked_up(self, name: str, default: int) -> Ints:
        if name not in self.part.whole_tables:
            return np.asarray([default], np.int64)
        number, table = self.part.whole_tables[name]
        found: Ints = table[self.alternative(number)]
        return found

    # ---------------------------------------------------------------- vectors

    @property
    def vecs(self) -> tuple[int, ...]:
        """The axes along which vectors of some candidates run."""
        return (self.structure.vec,)

    @property
    def which_vec(self) -> Ints:
        """Which of `vecs` each candidate's vectors run along."""
        return np.zeros(1, np.int64)

    def by_vec(self, values: Sequence[bool]) -> Bools:
        """The one of some values, one for each of `vecs`, that goes with each candidate."""
        return np.asarray(values, bool)[self.which_vec]

    # ---------------------------------------------------------------- tiles

    @cached_property
    def lane(self) -> Ints:
        """Lanes of one vector of the register tile."""
        return self._numbers(f"tile:{self.axes[self.structure.vec].name}:lane", 1)

    @cached_property
    def cover(self) -> list[Ints]:
        """Extent of the register tile along each axis, with the unrolled steps of a reduction."""
        return [self._numbers(f"tile:{axis.name}:reg", 1) for axis in self.axes]

    @cached_property
    def block(self) -> list[Ints]:
        """How many neighbouring tiles along each axis follow each other in a loop of their own."""
        return [self._numbers(f"tile:{axis.name}:block", 1) for axis in self.axes]

    @cached_property
    def panel(self) -> list[Ints]:
        """Steps of a panel along each axis, all of them where it is not cut."""
        return [self._numbers(f"tile:{axis.name}:panel", axis.extent) for axis in self.axes]

    @property
    def panelled(self) -> int | None:
        """The axis of the reduction that may be cut in panels."""
        return next(iter(self.part.of("panel")), None)

    @property
    def pair(self) -> tuple[int, int] | None:
        """Two axes, outer and inner, that the rows of the tile may run along together: the inner is the row axis."""
        row = self.structure.row
        found = next(iter(self.part.of("fused")), None)
        return None if found is None or row is None else (found, row)

    @cached_property
    def fused(self) -> Bools:
        """Whether the rows of the tile run along both axes of the `pair`."""
        if self.pair is None:
            return np.zeros(1, bool)
        return np.asarray(self._numbers(f"fused:{self.axes[self.pair[1]].name}", 0) == 1)

    @cached_property
    def extent(self) -> list[Ints]:
        """Points that the tiles along each axis cut: the row axis has those of both where the pair is fused."""
        result: list[Ints] = [np.full(1, axis.extent, np.int64) for axis in self.axes]
        if self.pair is not None:
            high, low = self.pair
            result[low] = np.where(self.fused, result[high] * result[low], result[low])
        return result

    @cached_property
    def boundary(self) -> list[Ints]:
        """What happens at each axis's edge; a tile that divides has none to branch around."""
        chosen = [self._numbers(f"boundary:{axis.name}", BRANCH) for axis in self.axes]
        return [np.where(ragged, how, BRANCH) for ragged, how in zip(self.ragged, chosen, strict=True)]

    @cached_property
    def ragged(self) -> list[Bools]:
        """Whether the last tile along each axis is a partial one."""
        return [extent % cover != 0 for extent, cover in zip(self.extent, self.cover, strict=True)]

    @cached_property
    def over(self) -> list[Bools]:
        """Whether the edge of each axis is ragged and computed over."""
        return [how == OVERCOMPUTE for how in self.boundary]

    @cached_property
    def computed(self) -> list[Ints]:
        """Points that the tiles along each axis compute."""
        return [
            np.where(over, -(-extent // cover) * cover, extent)
            for over, extent, cover in zip(self.over, self.extent, self.cover, strict=True)
        ]

    @cached_property
    def rounded(self) -> list[Ints]:
        """Extent that is computed along each axis; of a fused pair the outer has what is beyond the last row."""
        result = list(self.computed)
        if self.pair is not None:
            high, low = self.pair
            width = self.axes[low].extent
            result[high] = np.where(self.fused, -(-self.computed[low] // width), self.computed[high])
            result[low] = np.where(self.fused, width, self.computed[low])
        return result

    @cached_property
    def leaves_out_taps(self) -> Bools:
        """Whether steps of tiles that meet padding alone are left out."""
        return np.asarray(self._numbers("taps", 0) == 1)

    @cached_property
    def executed(self) -> NDArray[np.float32]:
        """The share of the steps of tiles that are done."""
        result = np.ones(1, np.float32)
        values = self.part.decisions[self.part.of("taps")[0]].values if self.part.of("taps") else ()
        offered = [value for value in values if value is not None]  # none where the user has pinned or restricted it
        if not offered:
            return result
        ((number, data),) = offered
        for dim, inside in data:
            axes = [a for a, _ in self.operands[number].dims[dim] if self.axes[a].kind == "spatial"]
            tiles = np.stack(np.broadcast_arrays(*(self.cover[a] for a in axes), self.lane), axis=1)
            first, which = distinct_rows(tiles)
            sizes = [dict(zip(axes, map(int, row), strict=False)) for row in tiles[first]]
            shares = [share_with_data(self.anchor, number, dim, inside, size) for size in sizes]
            result = result * np.asarray(shares, np.float32)[which]
        return np.where(self.leaves_out_taps, result, np.float32(1))

    # ---------------------------------------------------------------- loops

    @cached_property
    def position(self) -> dict[int, Ints]:
        """For each axis with an outer loop, the place of that loop among them, from the outside.

        A fused pair has one loop, in the place of its inner axis, counted among the loops that are left.
        """
        outer = self.part.outer_axes
        place = {a: self._numbers(f"order:{self.axes[a].name}", n) for n, a in enumerate(outer)}
        if self.pair is None or not set(self.pair) <= set(place):
            return place
        high, low = self.pair
        ranks = {a: at - (self.fused & (place[high] < at)) for a, at in place.items()}
        return ranks | {high: np.where(self.fused, ranks[low], place[high])}

    @cached_property
    def reduce_position(self) -> dict[int, Ints]:
        """For each reduction of more than one point, the place of its loop among them, from the outside."""
        loops = [a for a in self.anchor.reduce if self.axes[a].extent > 1]
        return {a: self._numbers(f"order:{self.axes[a].name}", n) for n, a in enumerate(loops)}

    @cached_property
    def shared(self) -> Ints:
        """How many outer loops, at most, threads share: all of them where a device runs work-items in step.

        There, a loop inside of an item is one that does not keep the device busy.
        """
        return self._numbers("parallel", len(self.part.outer_axes) if self.target.warp > 1 else 1)

    @cached_property
    def inside(self) -> dict[int, Bools]:
        """For each axis with an outer loop, whether that loop runs inside the shared ones."""
        return {axis: at >= self.shared for axis, at in self.position.items()}

    @cached_property
    def tiles(self) -> dict[int, Ints]:
        """For each axis with an outer loop, the number of its tiles, those that a block takes together as one."""
        return {a: -(-self.axes[a].extent // self.cover[a]) // self.block[a] for a in self.part.outer_axes}

    @cached_property
    def iterations(self) -> Ints:
        """Iterations of the shared loops, as one."""
        tiles = dict(self.tiles)
        if self.pair is not None and set(self.pair) <= set(tiles):
            high, low = self.pair
            along = -(-self.extent[low] // self.cover[low]) // self.block[low]
            tiles[high] = np.where(self.fused, 1, tiles[high])
            tiles[low] = np.where(self.fused, along, tiles[low])
        return product([np.where(self.inside[axis], 1, tiles[axis]) for axis in tiles])

    @cached_property
    def threads(self) -> Ints:
        """How many threads each candidate uses at most."""
        return self._numbers("threads", self.target.threads)

    def span(self, operand: Operand, reach: Mapping[int, Ints] | Sequence[Ints]) -> list[Ints]:
        """For each dimension, how many indices (from the first to the last) ``reach[axis]`` points touch."""
        return [
            sum((abs(c) * (reach[axis] - 1) for axis, c in terms), start=np.ones(1, np.int64)) for terms in operand.dims
        ]

    def chunk_bytes(self, number: int) -> Ints:
        """Bytes of an operand that one iteration of the shared loops needs at most: its other loops run inside."""
        operand = self.operands[number]
        reach: list[Ints] = []
        for a, axis in enumerate(self.axes):
            tile = self.cover[a]
            if a in self.part.of("block"):
                tile = np.minimum(tile * self.block[a], axis.extent)
            reach.append(np.where(self.inside.get(a, np.ones(1, bool)), axis.extent, tile))
        size: Ints = np.full(1, dtypes.nbytes(operand.dtype), np.int64)
        for span, extent in zip(self.span(operand, reach), operand.shape, strict=True):
            size = size * np.minimum(span, extent + 64)
        return size

    # ---------------------------------------------------------------- operands

    def layouts(self, number: int) -> tuple[LayoutFamily, ...]:
        """The layouts among which an operand's is chosen."""
        decision = self.part.of("layout").get(number)
        return (Identity(),) if decision is None else self.part.decisions[decision].values

    def layout(self, number: int) -> Ints:
        """Which of its `layouts` an operand has."""
        decision = self.part.of("layout").get(number)
        return np.zeros(1, np.int64) if decision is None else self.alternative(decision)

    def by_layout(self, number: int, values: Sequence[NDArray[np.bool_]]) -> Bools:
        """The elements for each candidate's own layout, from a vector of `values` for each layout of an operand."""
        chosen, result = self.layout(number), np.zeros(1, bool)
        for alternative, value in enumerate(values):
            result = result | ((chosen == alternative) & value)
        return result

    def moved(self, number: int) -> Bools:
        """Whether an operand's layout is not the identity."""
        same = [isinstance(layout, Identity) for layout in self.layouts(number)]
        return ~np.asarray(same)[self.layout(number)]

    def pad(self, number: int) -> Ints:
        """The sort of value that an operand's padding is asked to hold: none, undef, or the neutral one."""
        return self._numbers(f"pad:{self.operands[number].name}", 0)

    def place(self, number: int) -> Ints:
        """Where an operand's copy or producer is computed."""
        return self._numbers(f"place:{self.operands[number].name}", ROOT)

    def staged(self, number: int) -> Bools:
        """Whether an operand is read from a buffer other than the one that the program reads."""
        if self.operands[number].source == "stage":
            return np.asarray(self.place(number) != INLINE)
        return self.moved(number)

    def reached_over(self, number: int, kind: str | None = None) -> Bools:
        """Whether an operand is indexed by an axis, of a kind or of any, whose edge is computed over."""
        key = "over", number, kind
        if key not in self._known:
            result: Bools = np.zeros(1, bool)
            for a, axis in enumerate(self.axes):
                if self.operands[number].uses(a) and kind in (None, axis.kind):
                    result = result | self.over[a]
            self._known[key] = result
        return self._known[key]

    def logical(self, number: int) -> list[Ints]:
        """Extents of an operand that hold every access of what is computed."""
        operand = self.operands[number]
        result: list[Ints] = []
        for extent, terms, offset in zip(operand.shape, operand.dims, operand.offsets, strict=True):
            top = sum((max(0, c) * (self.rounded[a] - 1) for a, c in terms), start=np.full(1, offset + 1, np.int64))
            result.append(np.maximum(extent, top))
        return result

    # ---------------------------------------------------------------- devices

    def group(self, side: str) -> Ints:
        """Tiles of a work-group's grid along its side ``x`` or ``y``; 0 where the group is no grid."""
        return self._numbers(f"group:{side}", 0)

    @cached_property
    def items(self) -> Ints:
        """Work-items of a work-group."""
        return self._numbers("work_group", 1)

    @cached_property
    def group_reach(self) -> dict[int, Ints]:
        """For each axis, how many of its points a work-group of a grid covers in one panel."""
        sides = {self.structure.vec: self.group("x"), self.structure.row: self.group("y")}
        result: dict[int, Ints] = {}
        for number, axis in enumerate(self.axes):
            tile = self.cover[number]
            whole: Ints = -(-axis.extent // tile) * tile
            if number not in self.tiles:
                result[number] = np.where(self.panel[number] == axis.extent, whole, self.panel[number])
                continue
            tiles = -(-axis.extent // tile) // np.maximum(self.tiles[number], 1)
            result[number] = np.where(self.inside[number], whole, tile * tiles * np.maximum(sides.get(number, 1), 1))
        return result

    def in_memory(self, kind: str, number: int) -> Bools:
        """Whether an operand is held in a memory of a device: ``image`` or ``local``."""
        return np.asarray(self._numbers(f"{kind}:{self.operands[number].name}", 0) == 1)

    @cached_property
    def any_in_local_memory(self) -> Bools:
        """Whether some operand is held in local memory."""
        result: Bools = np.zeros(1, bool)
        for number in self.part.of("local"):
            result = result | self.in_memory("local", number)
        return result


class Stack(Candidates):
    """Candidates of several structures of one anchor, one behind the other, as one population.

    Either all structures add up parts in the lanes of vectors or none does, those that cut a reduction in panels cut
    the same one, as all others do, and those that fuse two axes fuse the same ones.
    """

    def __init__(self, parts: Sequence[Candidates]) -> None:
        first = parts[0]
        super().__init__(first.part, np.zeros((sum(map(len, parts)), 0), np.int64), first.target)
        self.parts = tuple(parts)
        self._layouts: dict[int, tuple[LayoutFamily, ...]] = {}
        self._vecs = tuple(dict.fromkeys(c.structure.vec for c in parts))
        self._which_vec = self._joined([np.full(1, self._vecs.index(c.structure.vec)) for c in parts])

    def _joined(self, each: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """The vectors of all parts one behind the other; one element where all have the same single one."""
        if all(len(vector) == 1 and vector[0] == each[0][0] for vector in each):
            return each[0]
        sizes = map(len, self.parts)
        return np.concatenate([v if len(v) == n else np.full(n, v[0]) for v, n in zip(each, sizes, strict=True)])

    def _looked_up(self, name: str, default: int) -> Ints:
        return self._joined([c._numbers(name, default) for c in self.parts])

    @property
    def vecs(self) -> tuple[int, ...]:
        return self._vecs

    @property
    def which_vec(self) -> Ints:
        return self._which_vec

    @cached_property
    def lane(self) -> Ints:
        return self._joined([c.lane for c in self.parts])

    @property
    def pair(self) -> tuple[int, int] | None:
        return next((c.pair for c in self.parts if c.pair is not None), None)

    @cached_property
    def executed(self) -> NDArray[np.float32]:
        return self._joined([c.executed for c in self.parts])

    def layouts(self, number: int) -> tuple[LayoutFamily, ...]:
        if number not in self._layouts:
            self._layouts[number] = tuple(dict.fromkeys(layout for c in self.parts for layout in c.layouts(number)))
        return self._layouts[number]

    def layout(self, number: int) -> Ints:
        key = "layout", number
        if key not in self._known:
            place = {layout: at for at, layout in enumerate(self.layouts(number))}
            places = [np.asarray([place[layout] for layout in c.layouts(number)], np.int64) for c in self.parts]
            self._known[key] = self._joined([at[c.layout(number)] for at, c in zip(places, self.parts, strict=True)])
        return self._known[key]


def product(extents: Sequence[Ints]) -> Ints:
    """The product of vectors, 1 for none."""
    return prod(extents, start=np.ones(1, np.int64))


def distinct_rows(table: Ints) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first position of each row that a table (N, D) has, in the order of rows, and for each row which one it is.

    The numbers, none of which is below 0, are digits of one number, which is sorted many times as fast as rows are.
    """
    key, reach = np.zeros(len(table), np.int64), 1
    for column in table.T if len(table) else ():
        width = int(column.max()) + 1
        if reach * width > LARGEST_KEY:
            key = np.unique(key, return_inverse=True)[1].reshape(-1).astype(np.int64)
            reach = int(key.max()) + 1
        key, reach = key * width + column, reach * width
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    return first, which.reshape(-1)
