"""A schedule of the user's own, judged as those that a search finds: built, proven, verified, raced and recorded.

::

    schedule -> record of its trace -> `foreign.try_records`: in bounds, right on fresh data, in turns with the best
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...errors import UsageError
from ...space.schedule import Schedule
from ..records.record import OWN, Record
from ..records.status import error_of
from ..tasks.device import Device
from ..tasks.interface import interface_of
from ..tasks.task import Task
from ..tuning.at_sizes import Runner, Sizes
from ..tuning.run import versions
from ..tuning.sizes import Likely
from ..workers.bench import Bench, Workbench
from ..workers.protocol import Build, Built, Failed, Measured, Race
from .foreign import try_records
from .subject import work_of

if TYPE_CHECKING:
    from ...ir.target import Target
    from ..records.database import Database


AS_WRITTEN = 1.0  # seconds for a program as it is written, a choice
NOTHING: Likely = {}


def task_of(
    schedule: Schedule, target: str | Target = "cpu", interface: str | Mapping[str, str] | None = None,
    threads: int | None = None,
) -> Task:  # fmt: skip
    """What a schedule is a solution of: the program that it began with, on a device, with an interface.

    Raises TypeError for what is no schedule, and UsageError for one of a module.
    """
    if not isinstance(schedule, Schedule):
        kind = type(schedule).__name__
        text = "; the text of a trace is made one by `ss.Trace.from_script(text).replay(func)`"
        more = text if isinstance(schedule, str) else ""
        raise TypeError(f"a schedule of your own is an `ss.Schedule`, but got something of type {kind}{more}")
    if len(schedule.module.functions) > 1:
        raise UsageError("a schedule of a module of several functions cannot be recorded: a record is of one function")
    work = work_of(schedule.subject, "add")
    return Task(work, Device.here(target, threads), interface_of(work, interface))


def record_of(schedule: Schedule, task: Task, likely: Likely = NOTHING) -> Record:
    """The record of a schedule that nothing is known of yet; `likely` are the numbers of ranges, as in tuning."""
    sizes = Sizes.of(task, likely).versions if task.work.func.stated else {}
    return Record(
        **task.recorded(), status="infrastructure", run=OWN, sketch=OWN, trace=schedule.trace.to_json(),
        versions={**versions(task), **sizes},
    )  # fmt: skip


def add(
    database: Database, schedule: Schedule, task: Task, bench: Workbench | None = None, likely: Likely = NOTHING
) -> Record:
    """Verify and race a schedule against the best that the database has, and store it; its record.

    One for ranges is timed at the sizes of that best, or as `likely` says.

    Raises the error of a schedule that cannot be built here, that is refused by the interface, or that gives a wrong
    result: such a one is stored as a failure, and never counts.
    """
    if bench is None:
        with Bench() as own:
            return add(database, schedule, task, own, likely)
    outcome = try_records(task, [record_of(schedule, task, likely)], database, bench)
    here = outcome.verdicts[0].here
    if not here.ok:
        raise error_of("the schedule", "recorded", here.status, here.message)
    return here


def as_written(task: Task, bench: Workbench) -> Record:
    """The program as it is written, verified and timed by itself: a record that no database has.

    Raises the error of a program that cannot be built, or that gives another result than its reference.
    """
    record = Record(
        **task.recorded(), status="infrastructure", run=OWN, sketch="untuned", versions=versions(task)
    )  # fmt: skip
    seed, bench = int.from_bytes(os.urandom(4), "big") >> 1, Runner(task, {}).on(bench)
    built = bench.run(Build(script=task.script, target=task.target))
    found: Measured | Failed | Built = built
    if isinstance(built, Built):
        kernels, called = (built.kernel,), task.called
        reply = bench.run(
            Race(kernels=kernels, work=task.name, seed=seed, called=called, seconds=AS_WRITTEN, roof=False)
        )
        found = reply if isinstance(reply, Failed) else reply.results[0]
    if not isinstance(found, Measured):
        assert isinstance(found, Failed)
        raise error_of("the program as it is written", "measured", found.status, found.message)
    return record.measured(found.samples, found.max_abs_error, "race")
