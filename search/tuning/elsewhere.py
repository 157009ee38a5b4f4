"""What other devices found for a program is tried here: their schedules, built, verified and timed as any candidate.

A schedule that was fast elsewhere often is here, and sometimes is not; a record from elsewhere says nothing of this
device.  So only its trace is taken, from the likest device first: the same model (with other threads or another
instruction set), then the same instruction set, then any of the kind.  What becomes of it is a record of this device,
whose `versions` name the one that it comes from as `origin`; what has such a record is not tried again, unless it
failed for a reason outside of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..tasks.task import is_recorded
from ..workers.protocol import Build, Built, Failed, Measure, Measured
from . import events

if TYPE_CHECKING:
    from ..records.record import Record
    from .run import Run

TRIED, OF_A_DEVICE = 6, 2  # records from elsewhere in one run, and of one device
BUILD_SECONDS = 2.0
ORIGIN = "origin"  # among a record's versions: the id of the record whose trace it has

Found = tuple[Built, float]


def origin_of(record: Record) -> str:
    """The id of the record of another device that a record's trace comes from; empty where it is this one's own."""
    return record.versions.get(ORIGIN, "")


def try_elsewhere(run: Run, job: Callable[[Built], Measure]) -> list[Found]:
    """Measure the best schedules of other devices; gives those that hold, with their latencies in microseconds.

    `job` makes the measurement of a kernel.
    """
    task, database = run.task, run.database
    if is_recorded(run.settings.target):
        return []  # which knows its own candidates alone
    found = database.elsewhere(task.script, task.target, task.interface, OF_A_DEVICE)
    if not found:
        return []
    here_before = database.records(task.script, task.target, task.interface)
    known = {origin_of(record) for record in here_before if record.failure != "infrastructure"}
    chosen = [record for record in found if record.id not in known][:TRIED]
    if not chosen:
        return []
    run.send(events.Phase(phase=f"trying {len(chosen)} schedules of other devices"))
    builds = [
        Build(script=task.script, target=task.target, trace=record.trace, deadline=BUILD_SECONDS) for record in chosen
    ]
    replies = run.executor.build(builds)
    built = [(record, reply) for record, reply in zip(chosen, replies, strict=True) if isinstance(reply, Built)]
    measured = iter(run.executor.measure([job(reply) for _, reply in built]))
    good: list[Found] = []
    for record, reply in zip(chosen, replies, strict=True):
        outcome = reply if isinstance(reply, Failed) else next(measured)
        here = run.record(record.trace, sketch="elsewhere")
        here = here.changed(versions={**here.versions, ORIGIN: record.id})
        if isinstance(outcome, Measured):
            here = here.measured(outcome.samples, outcome.max_abs_error, "trial")
        else:
            here = here.failed(_status(outcome), outcome.message)
        run.results.add(here, is_trial=False)
        if here.latency_us is not None and isinstance(reply, Built):
            good.append((reply, here.latency_us))
    return good


def _status(outcome: Failed) -> str:
    """Why one failed; the short deadline of its build says nothing of the candidate."""
    return "infrastructure" if outcome.kind == "build_timeout" else outcome.status
