"""Features of whole populations of candidates: arithmetic on their decisions, no program in sight.

Every decision carries a table of numbers per alternative; a population's raw columns are gathered from these
tables, derived columns follow from them (`geometry`), and one more is the hand-written estimate (`prior`).
All sketches of a space share one list of named columns; what a sketch does not have is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from . import prior
from .geometry import Columns, Geometry, log2

if TYPE_CHECKING:
    from ..ir.target import Target
    from ..space.space import Sketch

VERSION = 1
ESTIMATE = "estimate"
_CHUNK = 8192  # rows whose columns stay in cache together
_SIZES = ("tile:", "unroll")  # tables of sizes: the raw feature is their logarithm


class FeatureMap:
    """Candidates of a space's sketches as rows of numbers.

    `columns` names the F features; `matrix(sketch number, X)` gives them for X, an (N, D) array of
    alternatives, as float32 of shape (N, F).
    """

    def __init__(self, sketches: Sequence[Sketch], target: Target) -> None:
        self.sketches = tuple(sketches)
        self.target = target
        self._tables = [_tables(sketch) for sketch in self.sketches]
        self._geometries = [Geometry(sketch, target) for sketch in self.sketches]
        names: dict[str, None] = {}
        for number, sketch in enumerate(self.sketches):
            names.update(dict.fromkeys(self._columns(number, np.zeros((1, len(sketch.decisions)), np.int64))))
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
        for start in range(0, len(population), _CHUNK):
            rows = out[start : start + _CHUNK]
            for name, values in self._columns(number, population[start : start + _CHUNK]).items():
                rows[:, self._position[name]] = values
        return out

    def estimate(self, number: int, population: NDArray[np.int64]) -> NDArray[np.float32]:
        """The hand-written estimate alone, (N,): base-2 logarithm of time, up to a constant of the workload."""
        self._check(number, population)
        parts = [
            np.broadcast_to(self._columns(number, chunk)[ESTIMATE], len(chunk))
            for chunk in (population[start : start + _CHUNK] for start in range(0, len(population), _CHUNK))
        ]
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)

    def _columns(self, number: int, population: NDArray[np.int64]) -> Columns:
        raw: Columns = {}
        for decision, table in enumerate(self._tables[number]):
            for name, values in table.items():
                raw[name] = values[population[:, decision]]
        derived = self._geometries[number].derive(raw, len(population))
        derived[ESTIMATE] = prior.estimate(derived, self.target)
        return {name: log2(v) if name.startswith(_SIZES) else v for name, v in raw.items()} | derived

    def _check(self, number: int, population: NDArray[np.int64]) -> None:
        width = len(self.sketches[number].decisions)
        if population.ndim != 2 or population.shape[1] != width:
            raise ValueError(
                f"a population of sketch `{self.sketches[number].name}` must have the shape (N, {width}), "
                f"one column per decision, but got {population.shape}"
            )


def features(sketch: Sketch, population: NDArray[np.int64], target: Target) -> NDArray[np.float32]:
    """Features (N, F) of candidates of one sketch on its own; see `FeatureMap` for a space of several."""
    return FeatureMap((sketch,), target).matrix(0, population)


def _tables(sketch: Sketch) -> list[dict[str, NDArray[np.float32]]]:
    """Per decision, its numeric columns as arrays over its alternatives."""
    return [
        {name: np.asarray(values, np.float32) for name, values in decision.table.items()}
        for decision in sketch.decisions
    ]
