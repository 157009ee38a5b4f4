"""The end of a run: the fastest candidates and the untuned program race each other with fresh data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from ...errors import StorageError, TemporaryError
from ...figures import latency
from ..records.record import Record, script_hash
from ..records.status import tells_nothing
from ..workers import protocol
from ..workers.protocol import Build, Built, Compiled, Failed, Measure, Measured, MeasureRoof, Raced, Roofed
from . import events
from .budget import SHORT_SECONDS, has_time_for_race, has_time_for_roof, race_seconds
from .elsewhere import in_interface
from .run import Run, fastest, versions

if TYPE_CHECKING:
    from ..tasks.task import Roof, Task
    from ..workers.executor import Executor

R = TypeVar("R", bound=protocol.Reply)
Entrant: TypeAlias = "tuple[Record | None, Compiled]"

FAR_SLOWER = 3.0  # a program that took so many times as long as the fastest cannot win, and does not race
FRESH_SEED = 1_000_003  # a prime, by which the seeds of races lie apart
ATTEMPTS = 3  # races at most, a choice
UNRACED = 2  # of earlier runs' fastest that take part though no race has had them: their run may have been cut short


@dataclass(frozen=True)
class Terms:
    """How a race is run: on data of a `seed`, in turns for about so many `seconds`, and whether it measures the `roof`.

    With `first` kernels are verified on one sample, the reference of which may take seconds.
    """

    seed: int
    seconds: float
    roof: bool = True
    first: bool = False


@dataclass
class Race:
    """What a race found: the records with their new samples, fastest first, and the device's limits.

    `kept` are earlier measurements, by id, that stand although the records were raced again: others kept more
    processors busy this time, `busy` of them.  `failed` are records that do not hold, as failures; `unbuilt` those of
    another version of the package that this one does not build, by id, with what it says; `baseline_samples` are those
    of the untuned program.  `built` has what was built for it, by the jobs.
    """

    records: list[Record] = field(default_factory=list)
    kept: dict[str, Record] = field(default_factory=dict)
    busy: float | None = None
    failed: list[Record] = field(default_factory=list)
    unbuilt: dict[str, str] = field(default_factory=dict)
    baseline_samples: tuple[float, ...] = ()
    roof: Roof | None = None
    problem: str = ""
    built: list[tuple[Build, Built]] = field(default_factory=list)

    def without(self, failed: Sequence[Record], problem: str) -> Race:
        """The race without the records `failed`; `problem` says why they left it."""
        gone = {record.id for record in failed}
        return replace(self, records=[r for r in self.records if r.id not in gone], problem=problem)

    @property
    def verdict_of_before(self) -> str:
        """That an earlier race decides who is the best, as a sentence; empty where this one does."""
        best, fastest = self.records[0], min(self.records, key=lambda record: record.latency_us or 0.0)
        if best.id not in self.kept or best is fastest:
            return ""
        return (
            f"others kept {self.busy:.1f} processors busy during the final race, so that record {best.id}, which took "
            f"{latency(self.kept[best.id].latency_us)} in one with fewer, stays the best, though {fastest.id} was "
            f"faster this time, {latency(fastest.latency_us)} to {latency(best.latency_us)}; a run on a quiet machine "
            "decides"
        )

    @property
    def baseline_us(self) -> float | None:
        """Median latency of the untuned program in this race."""
        return statistics.median(self.baseline_samples) * 1e6 if self.baseline_samples else None


def final_race(run: Run, roof: bool = True, deadline: float | None = None) -> Race:
    """Race until what the database calls the best has been in the race with everything faster; store all of it.

    With `roof` the device's limits are measured beside the race; in a run of few seconds after it, if there is time.
    A database that does not answer, and an end of the run that comes first, cost a run the races that it has not run,
    and not its result.  Nothing is waited for after `deadline`, by default the run's.
    """
    run.executor.until = run.clock.deadline() if deadline is None else deadline
    run.send(events.Phase(phase="final race"))
    outcome, is_short = Race(), (run.settings.seconds or math.inf) < SHORT_SECONDS
    try:
        for found in _races(run, roof and not is_short):
            outcome = found
    except (TemporaryError, StorageError) as error:
        return replace(outcome, problem=str(error))
    if roof and is_short and run.results.roof is None and has_time_for_roof(run):
        job = MeasureRoof(target=run.task.target, dtype=run.task.work.peak_dtype)
        reply = run.executor.measure([job])[0]
        run.results.roof = reply.roof if isinstance(reply, Roofed) else None
    return outcome


def _races(run: Run, roof: bool) -> Iterator[Race]:
    """Yield the outcome of all races so far after each race, until the leader is settled."""
    outcome = Race()
    raced: dict[str, Record] = {}
    before: dict[str, Record] = {}
    unbuilt: dict[str, str] = {}
    for attempt in range(ATTEMPTS):
        records = [record for record in _finalists(run, raced.values()) if record.id not in unbuilt]
        if not records:
            return
        if not has_time_for_race(run):
            yield replace(outcome, problem=outcome.problem or "the time of the run was over")
            return
        # A seed that no trial used, so that the winner is verified on data that it has never seen.
        seed = (run.settings.seed + FRESH_SEED * (attempt + 1)) % 2**31
        mine = run.results.baseline_us
        best = min((r.latency_us or 0.0 for r in records if r.verified), default=math.inf)
        untuned = mine is not None and mine <= FAR_SLOWER * best
        # What was far too slow to be measured has one sample, and has not seen all data.
        verified = all(record.run == run.name and len(record.samples) > 1 for record in records)
        runners = [*records, *[None] * untuned]
        before = {record.id: record for record in records} | before
        last = race(run.executor, run.task, runners, Terms(seed, race_seconds(run), roof, first=verified))
        last.kept = {r.id: before[r.id] for r in last.records if before[r.id].outlasts(r)}
        _keep(run, last)
        _admit_untuned(run, last)
        last.records.sort(key=lambda record: last.kept.get(record.id, record).latency_us or 0.0)
        raced.update((record.id, record) for record in last.records)
        for record in last.failed:
            raced.pop(record.id, None)
        for number, message in last.unbuilt.items():
            run.note(f"record {number} is of another version of stridesmith, and this one refuses it: {message}")
        unbuilt |= last.unbuilt
        outcome = last if last.records else outcome.without(last.failed, last.problem)
        yield outcome
        if not last.failed and _is_settled(run, outcome, unbuilt):
            return


def untuned_id(task: Task) -> str:
    """The id of the record of a task's untuned program: one record, however often it wins."""
    return script_hash(f"untuned|{task.study_name}")[:16]


def _finalists(run: Run, raced: Iterable[Record]) -> list[Record]:
    """The fastest programs of this run, of what the database has, and of what raced already."""
    count = run.settings.finalists
    chosen = fastest(run.results.valid.values(), count)
    if run.settings.resume:
        of_task = run.task.script, run.task.target, run.task.interface
        chosen += fastest(run.database.top(*of_task, count), count)
        chosen += fastest(run.database.top(*of_task, UNRACED, raced_first=False), UNRACED)
    chosen += fastest(raced, 1)
    return fastest({record.id: record for record in chosen}.values(), len(chosen))


def _keep(run: Run, outcome: Race) -> None:
    """Store what the race found, but for what an earlier one outlasts."""
    results = run.results
    for record in outcome.failed:
        results.valid.pop(record.id, None)
        results.failed[record.failure or "infrastructure"] += 1
    results.valid.update((r.id, r) for r in outcome.records if r.run == run.name)
    results.roof = outcome.roof or results.roof
    results.writer.put([*(record for record in outcome.records if record.id not in outcome.kept), *outcome.failed])


def _admit_untuned(run: Run, outcome: Race) -> None:
    """Store the untuned program as a record where no candidate beats it."""
    baseline = run.results.baseline
    if outcome.baseline_us is None or not outcome.records or baseline is None:
        return
    if outcome.baseline_us < min(record.latency_us or 0.0 for record in outcome.records):
        record = run.record().measured(outcome.baseline_samples, baseline.max_abs_error, "race", outcome.busy)
        record = record.changed(id=untuned_id(run.task))
        outcome.records.append(record)
        run.results.writer.put([record])


def _is_settled(run: Run, outcome: Race, unbuilt: Collection[str]) -> bool:
    """Whether the database's best record was in the race, or is one that cannot be built here."""
    if not run.settings.resume or not outcome.records:
        return True
    best = run.database.best(run.task.script, run.task.target, run.task.interface)
    return best is None or best.id in unbuilt or best.id in {record.id for record in outcome.records}


def race(executor: Executor, task: Task, runners: Sequence[Record | None], terms: Terms) -> Race:
    """Build the records' traces anew, as a replay would, and time the kernels in turns.

    None among the `runners` is the untuned program; one that could not be measured by itself would cost the others
    their race.
    """
    failed = Race()
    entrants: list[Entrant] = []
    built: list[tuple[Build, Built]] = []
    traces = [None if record is None else record.trace for record in runners]
    jobs = [Build(script=task.script, target=task.target, trace=trace) for trace in traces]
    for record, job, found in zip(runners, jobs, executor.build(jobs), strict=True):
        reply = in_interface(task, found)
        if isinstance(reply, Built):
            entrants.append((record, reply.kernel))
            built.append((job, reply))
        elif record is not None:
            is_gone = _disqualify(failed, record, reply, task)
            if not is_gone and reply.kind in ("refused", "build_error"):
                failed.unbuilt[record.id] = reply.message
    if not entrants:
        return replace(failed, problem="nothing could be rebuilt")
    outcome = race_built(executor, task, entrants, terms)
    return replace(outcome, failed=[*failed.failed, *outcome.failed], unbuilt=failed.unbuilt, built=built)


class Measuring(Protocol):
    """The part of an `Executor` that a race needs."""

    def measure(self, jobs: Iterable[protocol.Job[R]]) -> list[R | Failed]:
        """Verify and time kernels, one job after the other."""


def race_built(executor: Measuring, task: Task, entrants: Sequence[Entrant], terms: Terms) -> Race:
    """Time kernels in turns; an entrant is a record with its kernel, or None with that of the untuned program."""
    result, kernels = Race(), [kernel for _, kernel in entrants]
    job = protocol.Race(
        kernels=tuple(kernels), work=task.name, seed=terms.seed, called=task.called, dtype=task.work.peak_dtype,
        seconds=terms.seconds, roof=terms.roof, first=terms.first,
    )  # fmt: skip
    raced = executor.measure([job])[0]
    if isinstance(raced, Raced):
        result.roof, result.busy, results = raced.roof, raced.busy, list(raced.results)
    else:
        # A race that was lost as a whole says nothing about its entries: verify and time each by itself.
        result.problem = f"{raced.status}: {raced.message}"
        jobs = [Measure(kernel=kernel, work=task.name, seed=terms.seed, called=task.called) for kernel in kernels]
        results = executor.measure(jobs)
    for (record, _), found in zip(entrants, results, strict=True):
        if record is None:
            result.baseline_samples = found.samples if isinstance(found, Measured) else ()
        elif isinstance(found, Failed):
            _disqualify(result, record, found, task)
        else:
            result.records.append(record.measured(found.samples, found.max_abs_error, "race", result.busy))
    result.records.sort(key=lambda r: r.latency_us or 0.0)
    return result


def _disqualify(result: Race, record: Record, reply: Failed, task: Task) -> bool:
    """Take a measurement back, unless it may have been the machine's fault that it could not be repeated.

    Returns whether it is taken back.
    The failure is one of the versions that it was met with, which may be others than those of the measurement.
    """
    is_gone = record.is_disproved_by(reply.kind) or (not record.verified and not tells_nothing(reply.kind))
    if is_gone:
        met = record.changed(versions={**record.versions, **versions(task)})
        result.failed.append(met.failed(reply.status, reply.message))
    return is_gone
