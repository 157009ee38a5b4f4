"""What other devices found for a program is tried here: their schedules, built, verified and timed as any candidate.

A schedule that was fast elsewhere often is here, and sometimes is not; a record from elsewhere says nothing of this
device.  So only its trace is taken, from the likest device first: the same model (with other threads or another
instruction set), then the same instruction set, then any of the kind.  What becomes of it is a record of this device,
whose `versions` name the one that it comes from as `origin`; what has such a record is not tried again, unless it
failed for a reason outside of it.  A record of ranges, also of this device, is such an origin for each of their shapes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...errors import StorageError, TemporaryError
from ..records.record import ORIGIN
from ..records.status import TOO_LATE, tells_nothing
from ..tasks.interface import breach
from ..workers.protocol import Build, Built, Failed, Measure, Measured
from . import events
from .family import of_ranges

if TYPE_CHECKING:
    from ...backends.artifact import Argument
    from ...ir.stmt import PrimFunc
    from ..records.database import Database
    from ..records.record import Record
    from ..tasks.task import Task
    from .run import Run

TRIED, OF_A_DEVICE = 6, 2  # records from elsewhere in one run, and of one device
BUILD_SECONDS = 2.0  # for one of them, a choice

Found = tuple[Built, float]


def try_elsewhere(run: Run, job: Callable[[Built], Measure], most: int) -> list[Found]:
    """Measure the best schedules of other devices, and of ranges that hold the shape, at most `most`.

    Returns the valid ones with their microseconds.

    `job` makes the measurement of a kernel.  A database that does not answer has none.
    """
    task, database = run.task, run.database
    if task.is_recorded:
        return []  # which knows its own candidates alone
    try:
        found = database.elsewhere(task.script, task.target, task.interface, OF_A_DEVICE)
        traces = {record.id: record.trace for record in found}
        for record, steps in of_ranges(database, task):
            found.insert(0, record)
            traces[record.id] = steps
        chosen = untried(task, database, found)[:most]
    except (TemporaryError, StorageError) as error:
        run.note(f"schedules of other devices are not tried: {error}")
        return []
    if not chosen:
        return []
    run.send(events.Phase(phase=f"trying {len(chosen)} schedules of other devices, and of ranges"))
    builds = [
        Build(script=task.script, target=task.target, trace=traces[record.id], deadline=BUILD_SECONDS)
        for record in chosen
    ]
    replies = [in_interface(task, reply) for reply in run.executor.build(builds)]
    built = [(record, reply) for record, reply in zip(chosen, replies, strict=True) if isinstance(reply, Built)]
    measured = iter(run.executor.measure([job(reply) for _, reply in built]))
    good: list[Found] = []
    for record, reply in zip(chosen, replies, strict=True):
        outcome = reply if isinstance(reply, Failed) else next(measured)
        here = run.record(traces[record.id], sketch="elsewhere")
        here = here.changed(versions={**here.versions, ORIGIN: record.id})
        if isinstance(outcome, Measured):
            here = here.measured(outcome.samples, outcome.max_abs_error, "trial")
        else:
            here = here.failed(status_of(outcome), outcome.message)
        run.results.add(here, is_trial=False)
        if here.latency_us is not None and isinstance(reply, Built):
            good.append((reply, here.latency_us))
    return good


def untried(task: Task, database: Database, found: Sequence[Record]) -> list[Record]:
    """The records of other devices in `found` that were not tried here, or failed here for a reason outside of them."""
    if not found:
        return []
    here = database.records(task.script, task.target, task.interface)
    known = {record.origin for record in here if not tells_nothing(record.failure)}
    return [record for record in found if record.id not in known]


def in_interface(task: Task, reply: Built | Failed) -> Built | Failed:
    """The reply to the build of a stranger's trace, refused where it moves what the interface leaves in its place."""
    if isinstance(reply, Built) and (problem := breach(task.interface, reply.kernel.layouts, _given(task.work.func))):
        return Failed(status="refused", message=problem)
    return reply


@functools.lru_cache(64)
def _given(func: PrimFunc) -> tuple[Argument, ...]:
    """The arguments of a program as it was written."""
    from ...backends.data import arguments_of

    return arguments_of(func)


def status_of(outcome: Failed) -> str:
    """Why one failed; the short deadline of its build says nothing of the candidate."""
    return TOO_LATE if outcome.kind == "build_timeout" else outcome.status
