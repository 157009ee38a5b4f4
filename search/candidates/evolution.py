"""Evolution of populations: random candidates, mutation and crossover under a mask, scored by a model.

A population is an (N, D) array of alternatives of one sketch.  Nothing is built or measured here: a score is
arithmetic, so that thousands of candidates are scored for each one that is handed out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...ir.deadline import OutOfTime, has_deadline
from ...space.design.candidates import distinct_rows
from .search_space import ENUMERATE, Key, Population, SearchSpace

if TYPE_CHECKING:
    from ...cost_model.features import Estimates

FEWEST = 4
"""Sketches that all generations are for."""
ONE_OR_TWO = (0.5, 0.8)
"""The chance that one decision is mutated, and that at most two are."""


@dataclass(frozen=True)
class Evaluated:
    """M candidates of a population (N, D): their positions, scores and `fingerprints`, (M,) each.

    Each of them stands for those that come out as the same program, since some decisions have no effect in some
    candidates; `fingerprints` are numbers that are equal for the same program.
    """

    positions: NDArray[np.int64]
    scores: NDArray[np.float64]
    fingerprints: NDArray[np.uint64]


Evaluate = Callable[[int, Population], Evaluated]
"""``evaluate(sketch number, population)``."""
EvaluateAll = Callable[[Sequence[tuple[int, Population]]], Iterable[tuple[int, Evaluated]]]
"""``evaluate`` of several populations: each with its place among those that were given, in any order."""


@dataclass(frozen=True)
class Scored:
    """Candidates of one sketch with distinct `fingerprints`, best first, with their scores (larger is better)."""

    sketch: int
    rows: Population
    scores: NDArray[np.float64]
    fingerprints: NDArray[np.uint64]

    def take(self, positions: NDArray[np.int64] | slice) -> Scored:
        return Scored(self.sketch, self.rows[positions], self.scores[positions], self.fingerprints[positions])

    def head(self, count: int) -> Scored:
        return self.take(slice(count))


@dataclass(frozen=True)
class Effort:
    """How much evolution looks at: the size of a population, and over how many generations.

    Sketches whose best score is by more than `margin` behind that of the best one get no further generation, after two
    generations by more than half as much, and so on; and none gets one whose best score has not changed for `patience`
    of them.  At least so many as the `fewest` do otherwise, `FEWEST` where that is 0.
    """

    population: int
    generations: int
    margin: float = inf
    patience: float = inf
    fewest: int = 0


def by_estimate(features: Estimates) -> EvaluateAll:
    """Scores by the hand-written estimate alone, each candidate for itself."""

    def evaluate(asked: Sequence[tuple[int, Population]]) -> Iterator[tuple[int, Evaluated]]:
        for at, found in features.estimates(asked):
            rows = asked[at][1]
            prints = row_fingerprints(rows.astype(np.float32))
            yield at, Evaluated(np.arange(len(rows)), -found.astype(np.float64), prints)

    return evaluate


def one_by_one(evaluate: Evaluate) -> EvaluateAll:
    """Populations evaluated one after the other."""
    return lambda asked: ((at, evaluate(number, rows)) for at, (number, rows) in enumerate(asked))


def evolve(
    search_space: SearchSpace,
    numbers: Sequence[int],
    evaluate: EvaluateAll,
    rng: np.random.Generator,
    effort: Effort,
    parents: Mapping[int, Population] | None = None,
) -> list[Scored]:
    """For each of some sketches the distinct candidates seen over some generations, best first.

    A sketch starts from random candidates, its `parents` and mutations of them; each generation keeps the best quarter
    and fills up with its mutations, crossovers and a tenth of new random candidates.  Of many sketches the better half
    gets each further generation, at least `FEWEST` (successive halving: Jamieson and Talwalkar, AISTATS 2016), but none
    beyond the margin and the patience of `effort`.  Each has random numbers of its own, so that what is found of it
    does not depend on the others.  After a deadline (`ir.deadline`) it gives what has been seen until then; sketches
    come in the order of `numbers`.
    """
    pools: dict[int, Scored] = {}
    own = dict(zip(numbers, rng.spawn(len(numbers)), strict=True))

    def look_at(some: Sequence[int], bred: Callable[[int], Population]) -> set[int]:
        """Add the candidates that are bred of each of some sketches; those sketches whose best score has changed.

        They are evaluated together, but one by one where there is a deadline between two of them.
        """
        better = set[int]()
        for together in [[number] for number in some] if has_deadline() else [some]:
            for made in _ranked([(n, bred(n)) for n in together], evaluate):
                before = pools.get(made.sketch)
                pools[made.sketch] = made if before is None else _merged(before, made, keep=4 * effort.population)
                if before is None or pools[made.sketch].scores[0] > before.scores[0]:
                    better.add(made.sketch)
        return better

    def close(some: Iterable[int], margin: float) -> list[int]:
        """Those of some sketches, which have a candidate, whose best is no more than so far behind the best of all."""
        best = max((float(pool.scores[0]) for pool in pools.values() if len(pool.rows)), default=0.0)
        return [n for n in some if pools[n].scores[0] >= best - margin]

    with contextlib.suppress(OutOfTime):
        look_at(numbers, lambda n: _first(search_space, n, own[n], effort.population, (parents or {}).get(n)))
        racing = [n for n in numbers if len(pools[n].rows) and search_space.size(n) > ENUMERATE]
        waited = dict.fromkeys(racing, 0)
        for generation in range(effort.generations):
            racing = sorted(racing, key=lambda n: -pools[n].scores[0])[: max(effort.fewest or FEWEST, len(racing) // 2)]
            racing = [n for n in close(racing, effort.margin / 2 ** (generation / 2)) if waited[n] < effort.patience]
            better = look_at(racing, lambda n: _children(search_space, pools[n], own[n], effort))
            waited.update((n, 0 if n in better else waited[n] + 1) for n in racing)
    return [pools[number] for number in numbers if number in pools]


def _first(
    search_space: SearchSpace, number: int, rng: np.random.Generator, count: int, parents: Population | None
) -> Population:
    """What a sketch starts with: so many random candidates, all of a small sketch; parents and mutations of them."""
    if search_space.size(number) <= ENUMERATE:
        return search_space.draw(rng, number, ENUMERATE)
    rows = search_space.draw(rng, number, count)
    if parents is not None and len(parents):
        repeated = parents[rng.integers(len(parents), size=count // 2)]
        near = mutated(search_space, number, repeated, rng)
        rows = np.concatenate([rows, parents, possible(search_space, number, near)])
    return rows


def _children(search_space: SearchSpace, seen: Scored, rng: np.random.Generator, effort: Effort) -> Population:
    """One more generation of a sketch of which some candidates were seen, without these."""
    population, number = effort.population, seen.sketch
    elite = seen.head(max(8, population // 4)).rows
    parents = elite[_towards_best(rng, len(elite), population // 2)]
    mothers, fathers = (elite[_towards_best(rng, len(elite), population // 3)] for _ in range(2))
    children = np.concatenate(
        [
            mutated(search_space, number, parents, rng),
            mutated(search_space, number, crossed(mothers, fathers, rng), rng, rate=0.5),
            search_space.draw(rng, number, population // 10),
        ]
    )
    first = distinct_rows(np.concatenate([seen.rows, children]))[0] - len(seen.rows)
    return possible(search_space, number, children[first[first >= 0]])


def mutated(
    search_space: SearchSpace, number: int, rows: Population, rng: np.random.Generator, rate: float = 1.0
) -> Population:
    """Rows with one to three decisions drawn anew, half of the time to a neighbour, else to any alternative.

    `rate` is the share of rows that are touched.
    """
    rows = rows.copy()
    free = [d for d, values in enumerate(search_space.allowed[number]) if len(values) > 1]
    if not free or not len(rows):
        return rows
    changes = 1 + np.searchsorted(ONE_OR_TWO, rng.random(len(rows)), side="right")
    changes *= rng.random(len(rows)) < rate
    counts = np.asarray([len(values) for values in search_space.allowed[number]])
    for step in range(3):
        touched = np.flatnonzero(changes > step)
        where = np.asarray(free)[rng.integers(len(free), size=len(touched))]
        size = counts[where]
        near = rows[touched, where] + 2 * rng.integers(2, size=len(touched)) - 1
        anything = rng.integers(size)
        rows[touched, where] = np.where((rng.random(len(touched)) < 0.5) & (near >= 0) & (near < size), near, anything)
    return rows


def crossed(left: Population, right: Population, rng: np.random.Generator) -> Population:
    """Rows that take each decision from one of two parents."""
    return np.where(rng.random(left.shape) < 0.5, left, right)


def possible(search_space: SearchSpace, number: int, rows: Population) -> Population:
    """The rows that pins and mask let through."""
    return rows[search_space.keep(number, rows)] if len(rows) else rows


def ranked(number: int, rows: Population, evaluate: Evaluate) -> Scored:
    """One of the rows for each program, best first."""
    (found,) = _ranked([(number, rows)], one_by_one(evaluate))
    return found


def _ranked(asked: Sequence[tuple[int, Population]], evaluate: EvaluateAll) -> Iterator[Scored]:
    """`ranked` of the rows of several sketches, in any order."""
    left = []
    for number, rows in asked:
        rows = rows[distinct_rows(rows)[0]]
        if len(rows):
            left.append((number, rows))
        else:
            yield Scored(number, rows, np.zeros(0), np.zeros(0, np.uint64))
    for at, found in evaluate(left):
        number, rows = left[at]
        order = np.argsort(-found.scores, kind="stable")
        yield Scored(number, rows[found.positions[order]], found.scores[order], found.fingerprints[order])


def distinct(fingerprints: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Positions (M,) of the first candidate with each print, in order, and their fingerprints (M,)."""
    positions = np.sort(np.unique(fingerprints, return_index=True)[1])
    return positions, fingerprints[positions]


def row_fingerprints(table: NDArray[np.float32]) -> NDArray[np.uint64]:
    """A 64-bit number for each row of a table (N, F), equal for equal rows; others hardly ever share one.

    ``sum over f of mix(word of column f) * factor of f`` with random odd factors, modulo ``2 ** 64``, where ``mix``
    multiplies and folds, so that words of small numbers, whose low bits are all zero, fill all bits.
    """
    words = np.ascontiguousarray(table + np.float32(0), np.float32).view(np.uint32).astype(np.uint64)
    words = (words + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    words ^= words >> np.uint64(32)
    factors = np.random.default_rng(0).integers(2**63, size=words.shape[1], dtype=np.uint64) | np.uint64(1)
    return np.asarray((words * factors).sum(axis=1, dtype=np.uint64))


def pick_diverse(pools: list[Scored], count: int, taken: set[Key], picked: list[Key], weight: float) -> list[Key]:
    """Up to `count` candidates, greedily by score less `weight` times the likeness to what is already picked.

    The likeness of two candidates of one sketch is the square of the share of equal decisions; candidates of
    different sketches have none.  `taken` are left out.
    """
    keys = [(pool.sketch, *row) for pool in pools for row in pool.rows.tolist()]
    scores = np.concatenate([pool.scores for pool in pools]) if pools else np.zeros(0)
    fresh = np.asarray([key not in taken for key in keys], bool)
    value = np.where(fresh, scores, -np.inf)
    likeness = np.zeros(len(keys))
    spans, start = {}, 0
    for pool in pools:
        spans[pool.sketch] = (start, pool.rows)
        start += len(pool.rows)

    def note(key: Key) -> None:
        if key[0] in spans and len(key) > 1:
            at, rows = spans[key[0]]
            alike = np.mean(rows == np.asarray(key[1:]), axis=1) ** 2 if len(rows) else np.zeros(0)
            likeness[at : at + len(rows)] = np.maximum(likeness[at : at + len(rows)], alike)

    for key in picked:
        note(key)
    chosen: list[Key] = []
    while len(chosen) < count and len(keys):
        best = int(np.argmax(value - weight * likeness))
        if value[best] == -np.inf:
            break
        value[best] = -np.inf
        chosen.append(keys[best])
        note(keys[best])
    return chosen


def _towards_best(rng: np.random.Generator, size: int, count: int) -> NDArray[np.int64]:
    """Indices into a list sorted best first, the better the likelier."""
    return np.minimum((rng.random(count) ** 2 * size).astype(np.int64), size - 1)


def _merged(left: Scored, right: Scored, keep: int) -> Scored:
    both = Scored(
        left.sketch,
        np.concatenate([left.rows, right.rows]),
        np.concatenate([left.scores, right.scores]),
        np.concatenate([left.fingerprints, right.fingerprints]),
    )
    first = np.unique(both.fingerprints, return_index=True)[1]
    return both.take(first[np.argsort(-both.scores[first], kind="stable")][:keep])
