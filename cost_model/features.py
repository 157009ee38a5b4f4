"""Features of whole populations of candidates: arithmetic on their decisions, no program in sight.

The techniques of the design space give the columns of their decisions, derived columns say what these mean for the
machine (`geometry`), and one more is the estimate (`formulas`), with the weights of the target's class of machines.
All sketches of a space share one list of named columns; what a sketch does not have is NaN.  A sketch that
schedules several blocks is described by its largest one in depth, the others carry their block's name.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..ir.deadline import OutOfTime, look
from ..space.design.apply import columns
from ..space.design.candidates import Candidates, Stack
from .formulas import estimate
from .geometry import Geometry
from .tiling import Columns, Vector, log2
from .weights import weights_of

if TYPE_CHECKING:
    from ..ir.target import Target
    from ..space.design.sketch import Sketch
    from ..space.design.structure import Open

ESTIMATE = "estimate"
_CHUNK = 4096  # rows whose columns stay in cache together
_SIZES = ("tile:", "work_group", "parallel", "threads")  # the raw feature of a size is its logarithm


class Estimates:
    """The estimates of candidates of a space's sketches: (N, D) arrays of alternatives, of one sketch each."""

    def __init__(self, sketches: Sequence[Sketch], target: Target) -> None:
        self.sketches = tuple(sketches)
        self._parts = [_parts(sketch, target) for sketch in self.sketches]

    def estimate(self, number: int, population: NDArray[np.int64]) -> NDArray[np.float32]:
        """Base-2 logarithm of time, up to a constant of the workload, (N,)."""
        self._check(number, population)
        out = np.zeros(len(population), np.float32)
        for start, rows in _chunks(population):
            parts = self._parts[number]
            if parts:
                each = [part.estimate(rows[:, part.start : part.stop]) for part in parts]
                out[start : start + len(rows)] = _together(parts, each)
        return out

    def estimates(self, asked: Sequence[tuple[int, NDArray[np.int64]]]) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """The estimates of populations of several sketches, each with its place among those that are `asked` for.

        Those that can be one population are looked at together, which takes hardly longer than one of them: what small
        arrays take is Python's.
        """
        for places in self._stacks(asked):
            if len(places) == 1:
                yield places[0], self.estimate(*asked[places[0]])
                continue
            look()
            parts = [self._parts[asked[at][0]][0] for at in places]
            stack = Stack([part.candidates(asked[at][1]) for part, at in zip(parts, places, strict=True)])
            scores = _together(parts[:1], [parts[0].estimate_of(stack)])
            ends = np.cumsum([len(asked[at][1]) for at in places])
            yield from zip(places, np.split(np.broadcast_to(scores, len(stack)), ends[:-1]), strict=True)

    def _stacks(self, asked: Sequence[tuple[int, NDArray[np.int64]]]) -> Iterator[list[int]]:
        """The places of what is asked for in groups, of which those of several are a `Stack` of a few thousand rows."""
        groups: dict[Hashable, list[int]] = {}
        pairs: dict[Hashable, tuple[int, int]] = {}
        for at, (number, rows) in enumerate(asked):
            self._check(number, rows)
            key: Hashable = at
            if len(self._parts[number]) == 1 and len(rows) < _CHUNK:
                key, pair = self._parts[number][0].stacked_by
                if pair is not None and pairs.setdefault(key, pair) != pair:
                    key = key, pair
            groups.setdefault(key, []).append(at)
        for places in groups.values():
            some, count = list[int](), 0
            for at in places:
                if some and count + len(asked[at][1]) > _CHUNK:
                    yield some
                    some, count = [], 0
                some.append(at)
                count += len(asked[at][1])
            yield some

    def blocks(self, number: int, population: NDArray[np.int64]) -> list[tuple[float, Columns]]:
        """The points and the columns of each block of sketch `number`, from which the estimate is computed, for a fit.

        A column has shape (N,), or (1,) where it is the same for all N candidates of `population`.
        """
        self._check(number, population)
        return [
            (part.geometry.points, part.geometry.derive(part.candidates(population[:, part.start : part.stop])))
            for part in self._parts[number]
        ]

    def _check(self, number: int, population: NDArray[np.int64]) -> None:
        width = len(self.sketches[number].decisions)
        if population.ndim != 2 or population.shape[1] != width:
            raise ValueError(
                f"a population of sketch `{self.sketches[number].name}` must have the shape (N, {width}), "
                f"one column per decision, but got {population.shape}"
            )


class FeatureMap(Estimates):
    """Candidates of a space's sketches as rows of numbers.

    `columns` names the F features; `matrix(sketch number, X)` gives them for X, an (N, D) array of
    alternatives, as float32 of shape (N, F).

    Sketches are looked at in the given `order`, by default their own, and `known` are those that there was time for
    (`ir.deadline`), at least one: all of them without a deadline.
    """

    def __init__(self, sketches: Sequence[Sketch], target: Target, order: Sequence[int] | None = None) -> None:
        super().__init__(sketches, target)
        found: dict[int, list[str]] = {}
        try:
            for number in range(len(self.sketches)) if order is None else order:
                width = len(self.sketches[number].decisions)
                found[number] = list(self._columns(number, np.zeros((1, width), np.int64)))
                look()
        except OutOfTime:
            pass
        self.known = frozenset(found)
        names = dict.fromkeys(name for number in sorted(found) for name in found[number])
        names.update((f"sketch:{number}", None) for number in range(len(self.sketches)))
        self.columns = tuple(names)
        self._position = {name: position for position, name in enumerate(self.columns)}

    def matrix(self, number: int, population: NDArray[np.int64]) -> NDArray[np.float32]:
        """Features (N, F) of candidates of one sketch; columns that it lacks are NaN."""
        self._check(number, population)
        out = np.full((len(population), len(self.columns)), np.nan, np.float32)
        first = len(self.columns) - len(self.sketches)
        out[:, first:] = 0
        out[:, first + number] = 1
        for start, rows in _chunks(population):
            for name, values in self._columns(number, rows).items():
                out[start : start + len(rows), self._position[name]] = values
        return out

    def _columns(self, number: int, population: NDArray[np.int64]) -> Columns:
        if not self._parts[number]:
            # The sketch is a user's schedule, of whose time nothing is known.
            return {ESTIMATE: np.zeros(1, np.float32), **self.sketches[number].columns(population)}
        columns: Columns = {}
        each: list[Vector] = []
        for part in self._parts[number]:
            mine = part.columns(population[:, part.start : part.stop])
            each.append(mine[ESTIMATE])
            columns.update({part.prefix + name: values for name, values in mine.items()})
        columns[ESTIMATE] = _together(self._parts[number], each)
        return columns


class _Part:
    """The decisions `start` to `stop` of a sketch, which schedule one block."""

    def __init__(self, part: Open, target: Target, prefix: str, start: int) -> None:
        self.part, self.target, self.prefix, self.start = part, target, prefix, start
        self.geometry, self.weights = Geometry(part, target), weights_of(target)
        self.stop = start + len(part.decisions)

    def candidates(self, population: NDArray[np.int64]) -> Candidates:
        """The population's decisions, decoded."""
        return Candidates(self.part, population, self.target)

    @cached_property
    def stacked_by(self) -> tuple[Hashable, tuple[int, int] | None]:
        """What is equal for parts of which a `Stack` can be made; and the axes that it may fuse, the same ones, if any.

        Devices that are no CPU have columns that look at one structure (`warps`).
        """
        part, structure, alone = self.part, self.part.structure, self.target.kind != "cpu"
        some = self.candidates(np.zeros((0, len(part.decisions)), np.int64))
        key = id(part if alone else part.anchor), part.chunks, structure.dot, structure.factored, some.panelled
        return key, some.pair

    def estimate(self, population: NDArray[np.int64]) -> Vector:
        """The estimate alone, (N,) or (1,)."""
        return self.estimate_of(self.candidates(population))

    def estimate_of(self, candidates: Candidates) -> Vector:
        """The estimate of candidates that are decoded, those of a stack that begins with this part among them."""
        return self._estimate(self.geometry.derive(candidates, alone=True))

    def columns(self, population: NDArray[np.int64]) -> Columns:
        """The columns of the techniques and derived ones, (N,) or (1,) each."""
        candidates = self.candidates(population)
        derived = self.geometry.derive(candidates)
        derived[ESTIMATE] = self._estimate(derived)
        return {name: _scaled(name, values) for name, values in columns(candidates).items()} | derived

    def _estimate(self, derived: Columns) -> Vector:
        return estimate(derived, float(self.geometry.lanes), float(self.geometry.target.units), self.weights)


def _parts(sketch: Sketch, target: Target) -> list[_Part]:
    """The parts of a sketch; the largest has no prefix."""
    parts, start = [], 0
    for part in sketch.parts:
        prefix = "" if part is sketch.main else f"{part.anchor.name}/"
        parts.append(_Part(part, target, prefix, start))
        start = parts[-1].stop
    return parts


def _together(parts: Sequence[_Part], each: Sequence[Vector]) -> Vector:
    """The estimate of a sketch from those of its parts."""
    times: Vector = np.zeros(1, np.float32)
    total = 0.0
    for part, found in zip(parts, each, strict=True):
        times = np.asarray(times + np.exp2(found) * part.geometry.points, np.float32)
        total += part.geometry.points
    return log2(times / np.float32(max(total, 1.0)))


def _scaled(name: str, values: Vector) -> Vector:
    return log2(values) if name.startswith(_SIZES) else values


def _chunks(population: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    for start in range(0, len(population), _CHUNK):
        look()
        yield start, population[start : start + _CHUNK]
