"""One tuning run: what all of its parts work with, and what it has found so far."""

from __future__ import annotations

import os
import platform
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...backends import cpu_topology
from ...errors import StorageError, TemporaryError
from ..records.record import Foretold, Record
from ..records.run_facts import RunFacts
from ..records.status import FAILURES
from ..records.writer import PUT_SECONDS
from .events import Event, Note

if TYPE_CHECKING:
    from ...backends.host_load import Load
    from ..records.database import Database
    from ..records.writer import RecordWriter
    from ..tasks.task import Roof, Task
    from ..workers.executor import Executor
    from ..workers.timeline import Timeline
    from .clock import Clock
    from .settings import TuneSettings


class Results:
    """What a run has found.

    `trials` are candidates sent to a builder that its schedule did not refuse, `closed` those of which it is known
    what became of them, and `failed` counts them by kind, refused ones included.  `pilots` are candidates that
    were tried on the CPU that the device is.
    `reasons` counts the messages of failures.  `valid` are the records that hold, by id; `baseline` is the untuned
    program's and `roof` the limits of the device, None while they are not known.
    """

    def __init__(self, writer: RecordWriter) -> None:
        self.writer = writer
        self.trials = self.closed = self.duplicates = self.pilots = 0
        self.failed = dict.fromkeys(FAILURES, 0)
        self.reasons: Counter[str] = Counter()
        self.valid: dict[str, Record] = {}
        self.best_us: float | None = None
        self.baseline: Record | None = None
        self.roof: Roof | None = None

    def add(self, record: Record, is_trial: bool = True) -> None:
        """Store and count what became of a candidate; what is no trial of this run is no failure of it either."""
        self.writer.put([record])
        if record.failure is not None:
            self.failed[record.failure] += is_trial
            self.reasons[record.message] += bool(is_trial and record.message)
            return
        self.valid[record.id] = record
        if record.latency_us is not None and (self.best_us is None or record.latency_us < self.best_us):
            self.best_us = record.latency_us

    @property
    def baseline_us(self) -> float | None:
        """Latency of the untuned program in microseconds."""
        return None if self.baseline is None else self.baseline.latency_us


@dataclass(frozen=True)
class Run:
    """What the parts of a run work with; `send` tells its events, `name` stands in its records.

    `timeline` is what a trace is made of, None where none is asked for; `load` is what else the machine did when the
    run began, None where nothing is known.
    """

    settings: TuneSettings
    task: Task
    database: Database
    executor: Executor
    clock: Clock
    results: Results
    send: Callable[[Event], None]
    timeline: Timeline | None = None
    load: Load | None = None
    name: str = field(default_factory=lambda: f"{os.getpid()}-{os.urandom(4).hex()}")

    @property
    def cores(self) -> int | None:
        """How many cores this process may use, where kernels run on them."""
        return cpu_topology.usable_threads() if self.task.target.kind == "cpu" and not self.task.is_recorded else None

    def note(self, message: str) -> None:
        """Tell the user something."""
        self.send(Note(message=message))

    def tell_notes(self) -> None:
        """Tell what the database, the writer and the executor have to say."""
        for notes in (self.database.notes, self.results.writer.notes, self.executor.notes):
            for note in notes:
                self.note(note)
            notes.clear()

    def keep_facts(
        self, stopped_by: str, baseline: Sequence[float] = (), activities: Mapping[str, float] | None = None
    ) -> bool:
        """Store what the run tells beside its records; `activities` are its share of a clock that others use, too.

        False, after a note, where the database does not take it.
        """
        results, spent = self.results, self.clock.spent if activities is None else activities
        facts = RunFacts(
            name=self.name, seconds=sum(spent.values()), activities=dict(spent), trials=results.trials,
            duplicates=results.duplicates, failed={kind: count for kind, count in results.failed.items() if count},
            sampler=self.settings.sampler, seed=self.settings.seed, stopped_by=stopped_by,
            kind="task" if activities is None else "shared",
            peak_gflops=results.roof.peak_gflops if results.roof else None,
            bandwidth=results.roof.bandwidth if results.roof else None, baseline=list(baseline),
            busy=None if self.load is None else self.load.busy, cores=self.cores,
            caches=results.roof.to_lists() if results.roof else [],
            baseline_us=statistics.median(baseline) * 1e6 if baseline else results.baseline_us,
        )  # fmt: skip
        try:
            self.database.put_run(facts, PUT_SECONDS)
        except (TemporaryError, StorageError) as error:  # a report will lack it, the result is kept
            self.note(f"where the seconds of this run went was not stored: {error}")
            return False
        return True

    def record(
        self,
        trace: list[Any] | None = None,
        *,
        sketch: str = "untuned",
        choice: Sequence[int] = (),
        trial: int = -1,
        space_version: int = 0,
        foretold: Foretold | None = None,
    ) -> Record:
        """A record of this run, not measured yet: it fails as `infrastructure` until something is known."""
        task = self.task
        return Record(
            **task.recorded(), trace=trace, sketch=sketch, choice=list(choice),
            trial=trial, space_version=space_version, seed=self.settings.seed, run=self.name, foretold=foretold,
            versions=versions(task), status="infrastructure",
        )  # fmt: skip


def versions(task: Task) -> dict[str, str]:
    """What a record says about the software that it was measured with."""
    from ...version import __version__

    own = {"stridesmith": __version__, "python": platform.python_version(), "kernel": platform.release()}
    return {name: text[:200] for name, text in {**own, "target": task.target.versions}.items()}


def of_this_driver(records: Sequence[Record], task: Task) -> list[Record]:
    """The records without failures that another version of an OpenCL driver may be to blame for."""
    here = versions(task)["target"]
    return [record for record in records if not record.is_drivers or record.versions.get("target") == here]


def fastest(records: Iterable[Record], count: int) -> list[Record]:
    """The fastest of `records`, no two with the same samples: those came out as the same code."""
    distinct = {tuple(record.samples): record for record in records}
    return sorted(distinct.values(), key=lambda record: record.latency_us or 0.0)[:count]
