"""A tuning run: search for candidates, and let the fastest race at the end.

```
tune(settings, emit)
  resolve    program, device, interface            `settings.resolve`
  prepare    database, workers, space, study       `_search`
  rounds     ask -> build -> measure -> close      `loop.Loop`
  finish     race -> record -> "done"              `_finish`, `race.final_race`
```

`emit` takes the JSON of the events in `events`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...backends import host_load
from ...backends.host_load import look
from ...errors import DeviceLost, NoSchedule, StorageError, StridesmithError, TemporaryError, UsageError
from ...ir.deadline import OutOfTime, until
from ..records.record import Record
from ..records.status import tells_nothing
from ..tasks.device import Device
from ..tasks.recording import Recording
from ..tasks.task import Task, performance
from ..workers import host_lock
from ..workers.protocol import Build, Derive, Failed, Job, Measure, Prepare, Reply
from ..workers.recorded import RecordedExecutor
from ..workers.scratch import problem
from ..workers.timeline import Timeline
from . import events
from .clock import Clock
from .events import Emit, Event
from .interruption import error_of, heard, uninterrupted
from .loop import Loop
from .mirror import mirror_late, mirror_round
from .pilot import pilot
from .race import Race, final_race, untuned_id
from .run import Results, Run, fastest, of_this_driver, versions
from .settings import TuneSettings, resolve
from .trace import check_writable, traced

if TYPE_CHECKING:
    from ...ir.stmt import PrimFunc
    from ...ir.target import Target
    from ...space.design.space import Space
    from ..workers.executor import Executor
    from .study import Study

    Generator = Callable[[PrimFunc, Target, Mapping[str, str]], Space]

DERIVING_SHARE, FEATURES_SHARE = 0.6, 0.1  # of what is left, at most: for the design space, and for its features


def tune(
    settings: TuneSettings,
    emit: Emit | None = None,
    executor: Executor | None = None,
    generate: Generator | None = None,
) -> Record:
    """Search for a fast kernel; returns the record that the ``done`` event names.

    `executor` builds and measures, by default on Ray; `generate` makes the design space of a program, by default
    `space.design.space.generate`.  Raises the errors of the exit codes: among them Interrupted after Ctrl-C, when
    what was found is kept, and NoSchedule when no candidate was valid.
    """
    clock = Clock(settings.start, settings.seconds)
    task = resolve(settings)
    if settings.trace is not None:
        check_writable(settings.trace)
    timeline = None if settings.trace is None else Timeline()
    recording = Device.named(settings.target).recording if task.is_recorded else None
    if recording is not None:
        recording.check(task)
        executor = executor or RecordedExecutor(recording)
    load = look() if executor is None and task.target.execution.runs_on_the_host else None
    executor = executor or _ray_executor(settings, task, builders_schedule=generate is None)

    def send(event: Event) -> None:
        if emit is not None:
            emit(event.to_json())

    try:
        from ..records.database import Database  # while Ray starts
        from ..records.spool import take_up
        from ..records.writer import RecordWriter

        trace = traced(settings.trace, str(task.work), timeline, clock, emit)
        with trace, heard(), contextlib.closing(Database(settings.db)) as database:
            results = Results(RecordWriter(database))
            run = Run(settings, task, database, executor, clock, results, send, timeline, load)
            executor.timeline = timeline
            send(_start(run))
            for note in host_load.notes(load, task.target.threads if run.cores else 1):
                run.note(note)
            if stopped := host_lock.stopped_holders():
                run.note(stopped)
            executor.until = clock.deadline()
            for note in take_up(database):
                run.note(note)
            return _finish(run, *_search(run, generate, recording))
    except KeyboardInterrupt as interrupt:
        raise error_of(interrupt)("interrupted before anything was measured") from None
    finally:
        with uninterrupted():
            executor.close()


@dataclass(frozen=True)
class Cut:
    """How a run ends early: the class of its error, the reason in its last event, and a message."""

    error: type[StridesmithError]
    stopped_by: str
    message: str

    @staticmethod
    def by(cause: KeyboardInterrupt | DeviceLost) -> Cut:
        """What a signal, or a device that is lost, makes of a run."""
        if isinstance(cause, DeviceLost):
            return Cut(DeviceLost, "device", str(cause))
        return Cut(error_of(cause), "interrupt", "interrupted")


def _search(run: Run, generate: Generator | None, recording: Recording | None) -> tuple[str | Cut, Study | None]:
    """Measure candidates until a limit is reached; says which one, or what cut the run short."""
    study: Study | None = None
    try:
        run.tell_notes()
        if run.task.target.kind == "opencl" and (trouble := problem()):
            run.note(trouble)
        is_standard = recording is None and generate is None
        pilots = pilot(run, _space, _study) if is_standard and _is_default(run.settings) else []
        space = recording.space if recording is not None else _space(run, generate)
        study = _study(run, space, is_standard, pilots)
        return Loop(run, study, builders_schedule=generate is None).play(), study
    except (KeyboardInterrupt, DeviceLost) as cause:
        return Cut.by(cause), study
    except OutOfTime:
        run.note("the time was over before the design space had been derived")
        return "seconds", None


def _is_default(settings: TuneSettings) -> bool:
    """Whether stridesmith's own sampler searches, which learns from what was found elsewhere."""
    from .study import DEFAULT

    return settings.sampler == DEFAULT


def _space(run: Run, generate: Generator | None = None) -> Space:
    from ...space.design import space

    run.send(events.Phase(phase="deriving the design space"))
    with until(run.clock.deadline(DERIVING_SHARE)):
        return (generate or space.generate)(run.task.work.func, run.task.target, run.task.interface)


def _study(run: Run, space: Space, is_standard: bool = True, pilots: Sequence[Record] = ()) -> Study:
    from .study import NOTHING, Study
    from .transfer import Transfer

    settings, task = run.settings, run.task
    learns = is_standard and _is_default(settings) and (settings.resume or pilots)
    transfer = Transfer(run.database, pilots, reads=settings.resume) if learns else None
    run.send(events.Phase(phase=f"looking at {len(space.sketches)} sketches"))
    try:
        with until(run.clock.deadline(FEATURES_SHARE)):
            study = Study(
                space, settings.sampler, settings.seed % 2**32, pins=settings.pins, batch=settings.batch,
                transferred=transfer.of(task) if transfer else NOTHING,
            )  # fmt: skip
    except ValueError as error:
        raise UsageError(str(error)) from None
    if settings.resume:
        try:
            stored = run.database.records(task.script, task.target, task.interface)
        except TemporaryError as error:
            if not pilots:
                raise
            run.note(f"the search begins without what is stored: {error}")
            stored = []
        here = versions(task)["target"]
        records = of_this_driver(stored, task)
        count = study.seed_records(records)
        if count:
            run.note(f"{count} stored measurements feed the model")
        if avoided := [record for record in records if record.is_drivers]:
            kinds = ", ".join(f"{kind} {times}" for kind, times in Counter(r.failure for r in avoided).most_common())
            last = avoided[-1]
            run.note(
                f"{len(avoided)} candidates that failed with this driver ({here}) are not tried again: {kinds}; "
                f"the last one: {last.status}: {last.message}"
            )
        if again := len(stored) - len(records):
            run.note(f"{again} candidates that failed with another version of the driver may be tried again")
    return study


def _finish(run: Run, reason: str | Cut, study: Study | None) -> Record:
    """Race the fastest, store the outcome, send ``done``; returns the winner."""
    outcome = Race()
    if isinstance(reason, str):
        try:
            with run.clock.during("race"):
                outcome = final_race(run)
                run.results.writer.settle(None if run.clock.limit is None else max(run.clock.left or 0.0, 0.0))
        except KeyboardInterrupt as interrupt:
            reason = Cut.by(interrupt)
    with uninterrupted(), run.clock.during("other"):
        winner = outcome.records[0] if outcome.records else _best_so_far(run, reason) or _untuned(run, reason)
        unsaved = ""
        with contextlib.suppress(*([] if isinstance(reason, str) else [OSError])):
            run.tell_notes()
        try:
            run.results.writer.flush()
        except (TemporaryError, StorageError) as error:
            if isinstance(reason, str):
                raise
            unsaved = f"; {error}"
        if study is not None:
            mirror_round(run, study)
        if run.results.closed:
            run.keep_facts(reason if isinstance(reason, str) else reason.stopped_by, outcome.baseline_samples)
        if winner is None or winner.latency_us is None:
            raise _nothing_valid(run, reason, outcome.problem)
        if outcome.problem and not outcome.records:
            run.note(f"there was no final race, so that the best of the trials stands: {outcome.problem}")
        if outcome.records and (verdict := outcome.verdict_of_before):
            run.note(verdict)
        stopped_by = reason if isinstance(reason, str) else reason.stopped_by
        done = _done(run, stopped_by, winner, winner.latency_us, outcome)
        with contextlib.suppress(*([] if isinstance(reason, str) else [OSError])):  # a terminal that was closed
            run.send(done)
    if not isinstance(reason, str):
        raise reason.error(f"{reason.message}; the best so far is record {winner.id} in {run.database.name}{unsaved}")
    if study is not None:
        with contextlib.suppress(KeyboardInterrupt):  # the run is over and told of
            mirror_late(run, study)
    return winner


def _best_so_far(run: Run, reason: str | Cut) -> Record | None:
    """The best of the trials, or of what was stored before, where there was no race.

    A run that was cut short ends with the reason for that, also where the database does not answer.
    """
    best = fastest(run.results.valid.values(), 1)
    if best or not run.settings.resume:
        return best[0] if best else None
    try:
        return run.database.best(run.task.script, run.task.target, run.task.interface)
    except (TemporaryError, StorageError):
        if isinstance(reason, str):
            raise
        return None


def _untuned(run: Run, reason: str | Cut) -> Record | None:
    """The program as it was written, where the time was over before any candidate had been measured or had failed."""
    results, task = run.results, run.task
    own = sum(count for kind, count in results.failed.items() if kind != "refused" and not tells_nothing(kind))
    if reason != "seconds" or own:
        return None
    if results.baseline is None:
        run.send(events.Phase(phase="measuring the untuned program"))
        run.executor.until = run.clock.deadline()
        built = run.executor.build([Build(script=task.script, target=task.target)])[0]
        if isinstance(built, Failed):
            return None
        job = Measure(kernel=built.kernel, work=task.name, seed=run.settings.seed, called=task.called)
        reply = run.executor.measure([job])[0]
        if isinstance(reply, Failed):
            return None
        results.baseline = run.record().measured(reply.samples, reply.max_abs_error, "trial")
    run.note("the time was over before any candidate had been measured: the untuned program is what there is")
    record = results.baseline.changed(id=untuned_id(task))
    results.writer.put([record])
    return record


def _nothing_valid(run: Run, reason: str | Cut, problem: str) -> StridesmithError:
    failures = ", ".join(f"{kind} {count}" for kind, count in run.results.failed.items() if count)
    found = f"of {run.results.trials} candidates none was valid ({failures or 'none was tried'})"
    if run.results.pilots:
        found += f"; {run.results.pilots} others were tried as native code of the CPU alone"
    if not isinstance(reason, str):
        return reason.error(f"{reason.message}; {found}")
    cause = f"; {problem}" if problem else ""
    for message, count in run.results.reasons.most_common(1):
        cause += f"; most often, {count} times, since {message}"
    if reason == "seconds" and not any(count for kind, count in run.results.failed.items() if not tells_nothing(kind)):
        cause = (
            f": {run.settings.seconds:g} s were over before one of them, or the program as it was written, had been "
            f"measured; a run of more seconds goes on from there"
        )
    return NoSchedule(f"no schedule of {run.task.work} on {run.task.target.key}: {found}{cause}")


def _start(run: Run) -> events.Start:
    settings = run.settings
    return events.Start(
        **run.task.identity(), flops=run.task.work.flops, limit_trials=settings.trial_limit,
        limit_seconds=settings.seconds, stop_at=settings.stop_at, sampler=settings.sampler, seed=settings.seed,
        db=run.database.name,
    )  # fmt: skip


def _done(run: Run, stopped_by: str, winner: Record, latency_us: float, outcome: Race) -> events.Finish:
    settings, results, middle = run.settings, run.results, winner.middle_us or (None, None)
    return events.Finish(
        **run.task.identity(), **performance(run.task, latency_us, results.roof), latency_us=latency_us,
        low_us=middle[0], high_us=middle[1], search_us=results.best_us, busy=run.load.busy if run.load else None,
        cores=run.cores, baseline_us=outcome.baseline_us or results.baseline_us, trials=results.trials,
        failed=dict(results.failed),
        duplicates=results.duplicates, seconds=run.clock.seconds, activities=run.clock.spent, stopped_by=stopped_by,
        sampler=settings.sampler, seed=settings.seed, verified=winner.verified, max_abs_error=winner.max_abs_error,
        record=winner.id, run=run.name, db=run.database.name, nodes=run.executor.nodes(), clock=run.task.target.clock,
    )  # fmt: skip


def _ray_executor(settings: TuneSettings, task: Task, builders_schedule: bool) -> Executor:
    """An executor whose workers prepare while they start: the task's reference, and its design space in builders."""
    from ..workers.executor import RayExecutor

    prepared: dict[str, Job[Reply]] = {"measure": Prepare(work=task.name, seed=settings.seed, target=task.target)}
    if builders_schedule:
        prepared["build"] = Derive(script=task.script, target=task.target, interface=dict(task.interface))
    return RayExecutor(
        settings.address, task.target.cores, builders=settings.builders, prepared=prepared, first_here=True
    )
