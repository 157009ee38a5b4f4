"""The candidates of a design space that the estimate likes best: what runs where nothing was measured.

The estimate of a sketch is the sum of those of its parts, each of which has decisions and rules of its own.  So a part
is looked at once, however many sketches have it, and the best candidate of a sketch is that of each of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import log2, prod

import numpy as np

from ...cost_model.features import Estimates
from ...space.design.sketch import Sketch
from ...space.design.space import Space
from ...space.design.structure import Open
from .evolution import Effort, Scored, by_estimate, evolve, mutated, possible
from .relatives import all_taken_over
from .search_space import Population, SearchSpace

POPULATION, GENERATIONS, BRED = 3072, 6, 3
"""Candidates that the estimate looks at, generations of the best of them, and sketches that get all of these.

Of 119 programs of four networks the choice was better than with 2048, eight and four by 0.006 octaves of estimated time
on average, in as many seconds, and worse by 0.014 than that of 2048 candidates of each sketch.
"""
FEWEST = 64
"""Candidates of a part."""
MARGIN = 0.5
"""How far behind the first candidates of a sketch may be, in octaves of time, and half as far after two generations.

Of 119 programs of four networks those of the sketch that was the best in the end were behind by 0.39 at most when each
had been drawn, and by 0.36, 0.19, 0.21, 0.11, 0.09, 0.06, 0.05 after each generation.
"""
PATIENCE = 2
"""Generations without a better candidate after which a sketch gets no further one.

Of 38 programs of a vision transformer and 34 of a network of convolutions two came out behind what they were without
it, by at most 0.02 octaves, in 0.52 and 0.64 of the time; with 1 there were fifteen, by up to 0.055.
"""

SHORT = Effort(256, 3, MARGIN, 1, BRED)
"""How much is looked at beside what is liked of a program of the same form."""
KEPT, MUTANTS = 64, 16
"""Candidates of a sketch that are kept for that, and mutants of each where none of them is possible."""
NEAR = 0.3
"""How far behind the best a sketch may be to be looked at, in octaves of time."""


@dataclass(frozen=True)
class Promising:
    """A candidate, the sketch's number and an alternative for each decision; `score` is its estimate, negated."""

    sketch: int
    row: tuple[int, ...]
    score: float


@dataclass(frozen=True)
class Liked:
    """Of a space each of whose sketches has one part, the candidates of each sketch that the estimate likes best."""

    space: Space
    pools: tuple[Scored, ...]

    @property
    def favourite(self) -> Promising | None:
        """The one that it ranks first."""
        best = max(self.pools, key=lambda pool: float(pool.scores[0]), default=None)
        return None if best is None else _first_of(best)


def favourite(space: Space) -> Promising | None:
    """The candidate that the estimate ranks first; None for a space without any.  The same space gives the same one."""
    return next(iter(favourites(space)), None)


def liked(space: Space, near: Liked | None = None) -> Liked | None:
    """What the estimate likes in a space; None for one whose sketches have several parts.

    Where it is known what it likes `near`, in the space of a program of the same form, a short search begins with that.
    """
    if any(len(sketch.parts) > 1 for sketch in space.sketches):
        return None
    parents = {} if near is None or not space.sketches else _taken_over(near, space)
    if parents:
        sketches = [space.sketches[number] for number in parents]
        pools = _evolved(space, sketches, lambda _: SHORT, dict(enumerate(parents.values())))
        pools = [replace(pool, sketch=list(parents)[pool.sketch]) for pool in pools]
    else:
        pools = _evolved(space, space.sketches, _effort) if space.sketches else []
    return Liked(space, tuple(pool.head(KEPT) for pool in pools))


def _taken_over(near: Liked, space: Space) -> dict[int, Population]:
    """Possible candidates by the number of their sketch, those that are liked near or hardly differ from them."""
    search, found = SearchSpace(space), dict[int, Population]()
    best = max((float(pool.scores[0]) for pool in near.pools), default=0.0)
    for pool in near.pools:
        source = near.space.sketches[pool.sketch]
        number = search.numbers.get(source.name)
        if number is not None and pool.scores[0] >= best - NEAR:
            rows = all_taken_over(source, pool.rows, space.sketches[number])
            some = possible(search, number, rows)
            if not len(some):
                rng = np.random.default_rng(0)
                some = possible(search, number, mutated(search, number, np.repeat(rows, MUTANTS, axis=0), rng))
            if len(some):
                found[number] = some
    return found


def favourites(space: Space) -> list[Promising]:
    """The candidate that the estimate ranks first in each sketch, the best first."""
    return sorted(promising(space, _effort), key=lambda best: -best.score)


def _effort(parts: int) -> Effort:
    """How much is looked at where there are so many parts."""
    return Effort(max(FEWEST, POPULATION // parts), GENERATIONS, MARGIN, PATIENCE, BRED)


def promising(space: Space, effort: Callable[[int], Effort]) -> list[Promising]:
    """What the estimate likes best of each sketch that has a candidate, with the `effort` for so many parts.

    After a deadline (`ir.deadline`) that is of what was looked at until then.
    """
    if not space.sketches:
        return []
    if all(len(sketch.parts) < 2 for sketch in space.sketches):
        pools = _evolved(space, space.sketches, effort)
        return list(map(_first_of, pools))
    bests: dict[tuple[object, ...], tuple[tuple[int, ...], float]] = {}
    for alike in _by_anchor(space).values():
        for pool in _evolved(space, list(alike.values()), effort):
            bests[list(alike)[pool.sketch]] = tuple(pool.rows[0].tolist()), float(pool.scores[0])
    found = []
    for number, sketch in enumerate(space.sketches):
        known = [bests[_key(part)] for part in sketch.parts if _key(part) in bests]
        if known and len(known) == len(sketch.parts):
            rows, scores = zip(*known, strict=True)
            points = [prod(axis.extent for axis in part.anchor.axes) for part in sketch.parts]
            cycles = sum(2.0**-score * count for score, count in zip(scores, points, strict=True))
            row = tuple(chain.from_iterable(rows))
            found.append(Promising(number, row, -log2(cycles / sum(points))))
    return found


def _by_anchor(space: Space) -> dict[int, dict[tuple[object, ...], Sketch]]:
    """The parts of all sketches, grouped by anchor, each as a sketch of its own: parts of one anchor compete."""
    found: dict[int, dict[tuple[object, ...], Sketch]] = {}
    for sketch in space.sketches:
        for part in sketch.parts:
            alone = replace(sketch, parts=(part,), chunks=())
            found.setdefault(id(part.anchor), {}).setdefault(_key(part), alone)
    return found


def _key(part: Open) -> tuple[object, ...]:
    """What tells parts of one space apart; their names tell the sketches, too."""
    return id(part.anchor), part.structure, part.chunks


def _first_of(pool: Scored) -> Promising:
    return Promising(pool.sketch, tuple(pool.rows[0].tolist()), float(pool.scores[0]))


def _evolved(
    space: Space,
    sketches: Sequence[Sketch],
    effort: Callable[[int], Effort],
    parents: Mapping[int, Population] | None = None,
) -> list[Scored]:
    """The candidates of sketches, best first; of those that have any."""
    search = SearchSpace(replace(space, sketches=tuple(sketches)))
    evaluate, rng = by_estimate(Estimates(sketches, space.target)), np.random.default_rng(0)
    found = evolve(search, search.open, evaluate, rng, effort(len(search.open)), parents)
    return [pool for pool in found if len(pool.rows)]
