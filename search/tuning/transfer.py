"""What programs of the same form were fastest with is tried first: good schedules are alike for shapes that are.

Two programs are of one form where their texts are equal but for whole numbers in them, most of which are extents; the
nearest are those whose numbers have the least ratios.  The candidate that is stored as the fastest of a relative is
taken over decision by decision: the alternative of the same name, or that of the nearest numbers.  Where the rules
exclude what comes out, one that differs in few decisions takes its place.  It is built, verified and timed like any
other, and teaches alike.  The method is that of P. Gibson and J. Cano, Transfer-Tuning: Reusing Auto-Schedules for
Efficient Tensor Program Code Generation, 2022.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import StorageError, StridesmithError, TemporaryError
from ...ir.script.parser import parse
from ...ir.stmt import PrimFunc
from .evolution import mutated
from .search_space import SearchSpace

if TYPE_CHECKING:
    from ...ir.target import Target
    from ...space.design.decision import Decision
    from ...space.design.sketch import Sketch
    from ..records.database import Database
    from ..records.record import Record
    from ..tasks.task import Task
    from .search_space import Key

TRIED, LOOKED_AT = 2, 4
"""Relatives whose candidates are tried, and how many with a record are looked at for them."""
NEWEST = 2000
"""Programs of a database among which relatives are looked for."""
NEARBY = 256
"""Candidates with some decisions drawn anew, one of which takes the place of an impossible one."""
LARGE = 2.0**60
"""Where numbers are no longer told apart."""

_NUMBER = re.compile(r"(?<![\w.])\d+")
"""A whole number, which is no part of a name, a type or a fraction."""


class Transfer:
    """The programs that a database has on the device of a run when it begins, and those of the run, by their form.

    What it looks up is no condition of a search: where a database does not answer, there are no relatives.  Candidates
    are asked for in the thread of a study, while the run's own thread adds none.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._added: list[str] = []
        self._forms: dict[str, dict[str, None]] | None = None

    def add(self, script: str) -> None:
        """A program of this run, of which there will be records."""
        self._added.append(script)

    def candidates(self, task: Task, search_space: SearchSpace) -> Iterator[Key]:
        """What the nearest relatives of a task were fastest with on its device, as candidates of its own space."""
        looked_at = tried = 0
        for script in self._nearest(task):
            if tried == TRIED or looked_at == LOOKED_AT:
                return
            try:
                record = self._record(script, task)
                looked_at += record is not None
                key = None if record is None else _candidate(record, task.target, search_space)
            except (StridesmithError, ValueError):
                continue  # a record that cannot be read is not this search's business
            if key is not None:
                tried += 1
                yield key

    def _record(self, script: str, task: Task) -> Record | None:
        """The fastest record of a program, with the same interface if there is one."""
        same = self.database.best(script, task.target, task.interface)
        return same or self.database.best(script, task.target)

    def _nearest(self, task: Task) -> list[str]:
        """Programs of the same form, the nearest first."""
        try:
            forms = self._known(task.target)
        except (TemporaryError, StorageError):
            return []
        same = forms.get(form(task.script), {})
        distances = {other: distance(task.script, other) for other in same}
        return sorted(distances, key=lambda other: (distances[other], other))

    def _known(self, target: Target) -> dict[str, dict[str, None]]:
        if self._forms is None:
            stored = self.database.scripts(target, NEWEST)
            self._forms = {}
            self._added = [*stored, *self._added]
        added, self._added = self._added, []
        for script in added:
            self._forms.setdefault(form(script), {})[script] = None
        return self._forms


def form(script: str) -> str:
    """The text of a program without its whole numbers."""
    return _NUMBER.sub("#", script)


def distance(script: str, other: str) -> float:
    """The sum of the logarithms of the ratios of numbers, each pair once: an extent stands in many places."""
    pairs = set(zip(map(int, _NUMBER.findall(script)), map(int, _NUMBER.findall(other)), strict=True))
    return sum(abs(math.log2((a + 1) / (b + 1))) for a, b in pairs)


def _candidate(record: Record, target: Target, search_space: SearchSpace) -> Key | None:
    """A record's candidate in another program's space; None where there is no such sketch."""
    from ...space.design.space import generate

    number = search_space.numbers.get(record.sketch)
    if number not in search_space.open or record.space_version != search_space.space.version:
        return None
    func = parse(record.script)
    if not isinstance(func, PrimFunc):
        return None
    theirs = SearchSpace(generate(func, target, dict(record.interface)))
    known = theirs.stored(record)
    if known is None:
        return None
    source, *choice = known
    return _possible(search_space, number, taken_over(theirs.sketches[source], choice, search_space.sketches[number]))


def taken_over(source: Sketch, choice: Sequence[int], sketch: Sketch) -> list[int]:
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
        return sum(abs(_scaled(item.table[name][alternative]) - _scaled(source.table[name][chosen])) for name in shared)

    return min(range(len(item)), key=far)


def _scaled(number: float) -> float:
    """A number on a scale of ratios, with its sign."""
    return math.copysign(math.log2(1 + min(abs(number), LARGE)), number)


def _possible(search_space: SearchSpace, number: int, choice: list[int]) -> Key | None:
    """The candidate if no rule excludes it, else one nearby that differs in the fewest decisions; None without any."""
    only = [int(values[0]) if len(values) == 1 else chosen
            for values, chosen in zip(search_space.allowed[number], choice, strict=True)]  # fmt: skip
    row = np.asarray([only], np.int64)
    near = mutated(search_space, number, np.repeat(row, NEARBY, axis=0), np.random.default_rng(0))
    rows = np.concatenate([row, near])
    rows = rows[search_space.keep(number, rows)]
    if not len(rows):
        return None
    return (number, *rows[np.argmin((rows != row).sum(axis=1))].tolist())
