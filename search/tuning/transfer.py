"""What was fast elsewhere is tried first: with programs of the same form, and on the CPU that an OpenCL device is.

Good schedules are alike for shapes that are.

The candidate that is stored as the fastest of a relative (`candidates.relatives`) is taken over.  Where the rules
exclude what comes out, one that differs in few decisions takes its place.  It is built, verified and timed like any
other, and teaches alike.  The method is that of P. Gibson and J. Cano, Transfer-Tuning: Reusing Auto-Schedules for
Efficient Tensor Program Code Generation, 2022.

An OpenCL device that is a CPU has the sketches of the CPU, with decisions of its own.  Where it runs kernels on the
same threads, what the program itself was fastest with on the CPU goes first (see `pilot`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ...backends.devices import processor_of
from ...errors import StorageError, StridesmithError, TemporaryError
from ...ir.script.parser import parse
from ...ir.stmt import PrimFunc
from ..candidates.evolution import mutated
from ..candidates.relatives import distance, form, taken_over
from ..candidates.search_space import SearchSpace
from .study import Transferred

if TYPE_CHECKING:
    from ...ir.target import Target
    from ..candidates.search_space import Key
    from ..records.database import Database
    from ..records.record import Record
    from ..tasks.task import Task

TRIED, LOOKED_AT = 2, 4
"""Relatives whose candidates are tried, and how many with a record are looked at for them."""
OF_CPU, AMONG = 6, 48
"""Candidates of the CPU that its OpenCL device gets first, and among how many of the fastest they are looked for."""
UNLIKE = 2
"""Decisions in which each of these differs from the others, at the least."""
LESSONS = 256
"""Records of the CPU from which a search for the device learns, at most."""
NEWEST = 2000
"""Programs of a database among which relatives are looked for."""
NEARBY = 256
"""Candidates with some decisions drawn anew, one of which takes the place of an impossible one."""


class Transfer:
    """The programs that a database has on the device of a run when it begins, and those of the run, by their form.

    What it looks up is no condition of a search: where a database does not answer, there are no relatives.  Candidates
    are asked for in the thread of a study, while the run's own thread adds none.

    `pilots` are what this run has measured on the CPU that its device is.  Unless it `reads` the database, they are all
    that it knows.
    """

    def __init__(self, database: Database, pilots: Sequence[Record] = (), reads: bool = True) -> None:
        self.database, self.pilots, self.reads = database, pilots, reads
        self._added: list[str] = []
        self._forms: dict[str, dict[str, None]] | None = None

    def add(self, script: str) -> None:
        """A program of this run, of which there will be records."""
        self._added.append(script)

    def of(self, task: Task) -> Transferred:
        """What is known for a task from others, for a study to ask."""
        return Transferred(partial(self.candidates, task), partial(self.lessons, task))

    def candidates(self, task: Task, search_space: SearchSpace) -> Iterator[Key]:
        """What the task was fastest with on the same CPU, and its nearest relatives on its device, in its own space."""
        yield from self._of_cpu(task, search_space)
        looked_at = tried = 0
        for script in self._nearest(task):
            if tried == TRIED or looked_at == LOOKED_AT:
                return
            try:
                record = self.database.best(script, task.target, task.interface)
                record = record or self.database.best(script, task.target)
                looked_at += record is not None
                key = None if record is None else _candidate(record, task.target, search_space)
            except (TemporaryError, StorageError):
                return  # which each of the others would be waited for as well
            except (StridesmithError, ValueError):
                continue  # a record that cannot be read is not this search's business
            if key is not None:
                tried += 1
                yield key

    def lessons(self, task: Task, search_space: SearchSpace) -> dict[Key, float]:
        """What candidates of a task took on the CPU that its device is, in microseconds; those that are possible."""
        found: dict[Key, float] = {}
        for record, number, choice in self._on_cpu(task, search_space, LESSONS):
            key = (number, *choice)
            if record.latency_us is not None and search_space.possible(key):
                found.setdefault(key, record.latency_us)
        return found

    def _of_cpu(self, task: Task, search_space: SearchSpace) -> Iterator[Key]:
        """The fastest of a program on the CPU that its device is, each unlike those before."""
        chosen: list[Record] = []
        for record, number, choice in self._on_cpu(task, search_space, AMONG):
            if len(chosen) == OF_CPU:
                return
            if all(_differ(record, other) for other in chosen):
                key = _possible(search_space, number, choice)
                if key is not None:
                    chosen.append(record)
                    yield key

    def _on_cpu(self, task: Task, search_space: SearchSpace, count: int) -> Iterator[tuple[Record, int, list[int]]]:
        """The fastest records of a program on the CPU that its device is, with what they decide in the device's space.

        That is a sketch's number and a choice, which the rules may exclude.
        """
        from ...space.design.space import generate

        cpu = processor_of(task.target)
        if cpu is None:
            return
        known = {record.id: record for record in self.pilots}
        with contextlib.suppress(TemporaryError, StorageError):
            stored = self.database.top(task.script, cpu, task.interface, count, raced_first=False) if self.reads else []
            known |= {record.id: record for record in stored if record.verified}
        records = sorted(known.values(), key=lambda record: record.latency_us or math.inf)[:count]
        if not records:
            return
        theirs = SearchSpace(generate(task.work.func, cpu, task.interface))
        for record in records:
            number, key = search_space.numbers.get(record.sketch), theirs.stored(record)
            if key is not None and number in search_space.open:
                source, *choice = key
                yield record, number, taken_over(theirs.sketches[source], choice, search_space.sketches[number])

    def _nearest(self, task: Task) -> list[str]:
        """Programs of the same form, the nearest first."""
        if not self.reads:
            return []
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


def _candidate(record: Record, target: Target, search_space: SearchSpace) -> Key | None:
    """A record's candidate in another program's space; None where there is no such sketch."""
    from ...space.design.space import generate

    number = search_space.numbers.get(record.sketch)
    if number not in search_space.open:
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


def _differ(record: Record, other: Record) -> bool:
    """Whether two candidates of a program are of different sketches, or decide differently more than once."""
    if record.sketch != other.sketch:
        return True
    return sum(a != b for a, b in zip(record.choice, other.choice, strict=True)) >= UNLIKE


def _possible(search_space: SearchSpace, number: int, choice: list[int]) -> Key | None:
    """The candidate if no rule excludes it, else the allowed one nearby that differs least; None without any."""
    only = [int(values[0]) if len(values) == 1 else chosen
            for values, chosen in zip(search_space.allowed[number], choice, strict=True)]  # fmt: skip
    row = np.asarray([only], np.int64)
    near = mutated(search_space, number, np.repeat(row, NEARBY, axis=0), np.random.default_rng(0))
    rows = np.concatenate([row, near])
    rows = rows[search_space.keep(number, rows)]
    if not len(rows):
        return None
    return (number, *rows[np.argmin((rows != row).sum(axis=1))].tolist())
