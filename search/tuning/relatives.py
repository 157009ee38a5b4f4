"""What programs of the same form were fastest with is tried first: good schedules are alike for shapes that are.

Two programs are of one form where their texts are equal but for the numbers in them; the nearest are those whose
numbers have the least ratios.  The candidate that is stored as the fastest of a relative is taken over decision by
decision: the alternative of the same name, or that of the nearest numbers.  Where the rules exclude what comes out, one
that differs in few decisions takes its place.  It is built, verified and timed like any other, and teaches alike.

As P. Gibson and J. Cano, Transfer-Tuning: Reusing Auto-Schedules for Efficient Tensor Program Code Generation, 2022.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ...errors import StorageError, TemporaryError
from ...ir.script.parser import parse
from ...ir.stmt import PrimFunc
from .evolution import mutated

if TYPE_CHECKING:
    from ...space.design.decision import Decision
    from ...space.design.sketch import Sketch
    from ..records.database import Database
    from ..tasks.task import Task
    from .search_space import Key, SearchSpace

TRIED, LOOKED_AT = 2, 4
"""Relatives whose candidates are tried, and the nearest among which these are looked for: some have no record."""
NEWEST = 2000
"""Programs of a database among which relatives are looked for."""
NEARBY = 256
"""Candidates with some decisions drawn anew, one of which takes the place of an impossible one."""

_NUMBER = re.compile(r"\d+")


class Relatives:
    """The programs that a database has at the beginning of a run and those that are added, by their form."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._scripts: dict[str, dict[str, None]] | None = None

    def add(self, script: str) -> None:
        """A program of this run, of which there will be records."""
        self._forms().setdefault(_NUMBER.sub("#", script), {})[script] = None

    def candidates(self, task: Task, search_space: SearchSpace) -> Iterator[Key]:
        """What the nearest relatives of a task were fastest with on its device, as candidates of its own space."""
        tried = 0
        for script in self._nearest(task.script):
            key = self._of(script, task, search_space)
            if key is not None:
                yield key
                tried += 1
            if tried == TRIED:
                return

    def _of(self, script: str, task: Task, search_space: SearchSpace) -> Key | None:
        from ...space.design.space import generate

        try:
            record = self.database.best(script, task.target, task.interface)
        except (TemporaryError, StorageError):
            return None  # the search goes on without
        if record is None or record.space_version != search_space.space.version:
            return None
        func = parse(script)
        if not isinstance(func, PrimFunc):
            return None
        theirs = {sketch.name: sketch for sketch in generate(func, task.target, dict(task.interface)).sketches}
        mine = {sketch.name: number for number, sketch in enumerate(search_space.sketches)}
        source, number = theirs.get(record.sketch), mine.get(record.sketch)
        if source is None or number not in search_space.open or len(record.choice) != len(source.decisions):
            return None
        return _possible(search_space, number, taken_over(source, record.choice, search_space.sketches[number]))

    def _nearest(self, script: str) -> list[str]:
        """Other programs of the same form, the nearest first."""
        same = self._forms().get(_NUMBER.sub("#", script), {})
        distances = {other: distance(script, other) for other in same if other != script}
        return sorted(distances, key=lambda other: (distances[other], other))[:LOOKED_AT]

    def _forms(self) -> dict[str, dict[str, None]]:
        if self._scripts is None:
            self._scripts = {}
            for script in self.database.scripts(NEWEST):
                self._scripts.setdefault(_NUMBER.sub("#", script), {})[script] = None
        return self._scripts


def distance(script: str, other: str) -> float:
    """The sum of the logarithms of the ratios of numbers, each pair once: an extent stands in many places."""
    pairs = set(zip(map(int, _NUMBER.findall(script)), map(int, _NUMBER.findall(other)), strict=True))
    return sum(abs(math.log2((a + 1) / (b + 1))) for a, b in pairs)


def taken_over(source: Sketch, choice: list[int], sketch: Sketch) -> list[int]:
    """A candidate of a sketch that decides as one of another; the first alternative of what that did not decide."""
    known = {item.name: (item, chosen) for item, chosen in zip(source.decisions, choice, strict=True)}
    return [_alike(item, *known[item.name]) if item.name in known else 0 for item in sketch.decisions]


def _alike(item: Decision, source: Decision, chosen: int) -> int:
    """The alternative of the same name, or that of the nearest numbers."""
    label = source.labels[chosen]
    if label in item.labels:
        return item.labels.index(label)
    shared = item.table.keys() & source.table.keys()

    def far(alternative: int) -> float:
        return sum(
            abs(math.log2((1 + abs(item.table[name][alternative])) / (1 + abs(source.table[name][chosen]))))
            for name in shared
        )

    return min(range(len(item)), key=far)


def _possible(search_space: SearchSpace, number: int, choice: list[int]) -> Key | None:
    """The candidate if no rule excludes it, else one nearby that differs in the fewest decisions; None without any."""
    row = np.asarray([choice], np.int64)
    near = mutated(search_space, number, np.repeat(row, NEARBY, axis=0), np.random.default_rng(0))
    rows = np.concatenate([row, near])
    rows = rows[search_space.keep(number, rows)]
    if not len(rows):
        return None
    return (number, *rows[np.argmin((rows != row).sum(axis=1))].tolist())
