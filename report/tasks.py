"""What a report says of one task: its records and runs, what its decisions were worth, and its winner's code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ..errors import StridesmithError
from ..search.calling.diagnosis import Diagnosis, diagnose, schedule_text, texts
from ..search.calling.range_diagnosis import RangeDiagnosis, diagnose_ranges
from ..search.records.record import OWN
from ..search.tasks.task import Roof, Task, caches_of, performance, stored_work
from ..search.tuning.importance import Worth, worth_of
from .layouts import Picture, pictures_of

if TYPE_CHECKING:
    from ..search.records.database import Database
    from ..search.records.record import Record
    from ..search.records.run_facts import RunFacts
    from ..search.workers.bench import Workbench


@dataclass(frozen=True)
class TaskReport:
    """One task, seen from its best record.

    `records` are all candidates in the order in which they were measured, the untuned program left out; `peers` are
    latencies in microseconds of other libraries by name.  `diagnosis`, or of a task of ranges `ranges`, is None where
    the winner cannot be built here, `problem` then says why, and `texts` has what needs no device.  `count` is how
    often the task is called where it is one of several.  `names` are what decisions call axes and operands, each with
    what it is in the program.
    """

    name: str
    record: Record
    task: Task
    records: tuple[Record, ...]
    runs: tuple[RunFacts, ...]
    worth: tuple[Worth, ...] = ()
    diagnosis: Diagnosis | None = None
    ranges: RangeDiagnosis | None = None
    problem: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)
    pictures: tuple[Picture, ...] = ()
    peers: Mapping[str, float] = field(default_factory=dict)
    count: int = 1
    names: tuple[tuple[str, str], ...] = ()

    @property
    def title(self) -> str:
        """What the page is about: the best kernel, one of the user's own, or another one."""
        if self.record.run == OWN:
            return "Your own kernel"
        faster = (r for r in self.measured if r.stage == "race" and r.ok and (r.latency_us or 0.0) < self.latency_us)
        return "The best kernel" if self.record.stage == "race" and not any(faster) else "The kernel of this record"

    @property
    def detail(self) -> str:
        """The workload with its shape, type and interface, where the name does not say it all."""
        return self.record.title.replace(",", ", ")

    @property
    def latency_us(self) -> float:
        return self.record.latency_us or 0.0

    @cached_property
    def roof(self) -> Roof | None:
        """The device's limits as the runs measured them, the best of each; else as they were measured for this page."""
        found = self.diagnosis or self.ranges
        return stored_roof(self.runs) or (found.roof if found else None)

    @property
    def gflops(self) -> float:
        return self.task.work.flops / self.latency_us * 1e-3

    @property
    def fraction(self) -> float | None:
        """How near to the roof it is: 1 at best, more where caches hold what the roof reads from memory.

        Of ranges it is the geometric mean over the sizes.
        """
        if self.task.work.func.stated:
            return None if self.ranges is None else self.ranges.fraction
        found: float | None = performance(self.task, self.latency_us, self.roof)["roofline_fraction"]
        return found

    @property
    def lost_us(self) -> float:
        """Microseconds that all calls take beyond the least that the device allows."""
        return self.count * self.latency_us * max(0.0, 1.0 - (self.fraction or 0.0))

    @property
    def untuned_us(self) -> float | None:
        """What the untuned program takes, as the run that found the winner measured it, else another one."""
        known = {run.name: run.baseline_us for run in self.runs if run.baseline_us}
        return known.get(self.record.run) or next(iter(known.values()), None)

    @cached_property
    def measured(self) -> tuple[Record, ...]:
        """Candidates with a latency."""
        return tuple(record for record in self.records if record.latency_us is not None)

    @property
    def failures(self) -> dict[str, int]:
        """How many candidates failed, by kind."""
        counts: dict[str, int] = {}
        for record in self.records:
            if record.failure:
                counts[record.failure] = counts.get(record.failure, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: -item[1]))


def stored_roof(runs: Sequence[RunFacts]) -> Roof | None:
    """The best limits that runs have measured; None where none has."""
    peaks = [run.peak_gflops for run in runs if run.peak_gflops]
    bandwidths = [run.bandwidth for run in runs if run.bandwidth]
    caches = max((caches_of(run.caches) for run in runs), key=lambda found: [c.bandwidth for c in found], default=())
    return Roof(max(peaks), max(bandwidths), caches) if peaks and bandwidths else None


def task_report(
    record: Record,
    database: Database,
    bench: Workbench,
    *,
    name: str = "",
    peers: Mapping[str, float] | None = None,
    count: int = 1,
) -> TaskReport:
    """Gather what there is on the task of a record.  What fails costs its section alone, and says why."""
    work = stored_work(record.workload, record.params, record.script)
    task = Task(work, record.device, dict(record.interface))
    stored = database.records(record.script, record.device, record.interface)
    candidates = tuple(r for r in stored if r.trial > 0)
    runs = tuple(database.runs({r.run for r in stored}).values())
    problem, diagnosis, ranges, found = "", None, None, {"schedule": ""}
    try:
        found = {"schedule": schedule_text(record)}
        if work.func.stated:
            ranges = diagnose_ranges(record, bench, stored_roof(runs))
            found |= _without_device(record, bench)
        else:
            diagnosis = diagnose(record, bench, stored_roof(runs))
            found |= {key: str(diagnosis.facts[key]) for key in ("program", "lowered", "source")}
    except StridesmithError as error:
        problem = str(error)
        found |= _without_device(record, bench)
    worth, names = _worth(task, candidates, record.sketch)
    return TaskReport(
        name or record.workload or "script", record, task, candidates, runs, worth, diagnosis, ranges, problem, found,
        _pictures(record, task), dict(peers or {}), count, names,
    )  # fmt: skip


def _without_device(record: Record, bench: Workbench) -> dict[str, str]:
    try:
        found = texts(record, bench=bench)
    except StridesmithError:
        return {}
    return {key: str(found[key]) for key in ("program", "lowered", "source")}


def _worth(task: Task, records: Sequence[Record], chosen: str) -> tuple[tuple[Worth, ...], tuple[tuple[str, str], ...]]:
    """What decisions were worth, and what names in them stand for in the sketch that was `chosen`."""
    from ..space.design.space import generate

    if not any(record.choice and record.ok for record in records):
        return (), ()
    try:
        space = generate(task.work.func, task.target, task.interface)
    except (StridesmithError, ValueError):
        return (), ()
    sketch = next((sketch for sketch in space.sketches if sketch.name == chosen), None)
    if sketch is None:
        return worth_of(space, records), ()
    told, several = sketch.describe(), len(sketch.parts) > 1  # names have their anchor where there are several
    found = [(name, f"{var}, {extent}") for name, (var, extent) in told["axes"].items()] + [*told["operands"].items()]
    return worth_of(space, records), tuple((n if several else n.rpartition("/")[2], meaning) for n, meaning in found)


def _pictures(record: Record, task: Task) -> tuple[Picture, ...]:
    try:
        return tuple(pictures_of(record, task.work.func))
    except StridesmithError:
        return ()
