"""Finding the record that a command speaks of, or the command that would make it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import NoRecord, UsageError
from ..search.tasks.command_line import Options
from ..search.tasks.device import Device
from ..search.tasks.interface import Interface, interface_of
from ..search.tasks.task import Task
from .options import RecordOptions, all_work, one_work, refuse_of_models

if TYPE_CHECKING:
    from ..configs import Entry
    from ..search.calling.foreign import Outcome
    from ..search.records.database import Database
    from ..search.records.record import Record
    from ..search.tuning.sizes import Likely
    from ..space.design.space import Space
    from .output import Output


@contextmanager
def reading(url: str | None, output: Output) -> Iterator[Database]:
    """A database that is only read; what it has to say is told at the end, also where there is no result."""
    from ..search.records.database import Database

    with Database(url, read_only=True) as database:
        try:
            yield database
        finally:
            output.notes(database.notes)


def record_of(options: RecordOptions, database: Database, output: Output | None = None) -> Record:
    """The record of `--record`, else the best one of the work, target and interface that the options name.

    What was tried for it goes to the `output`.  Raises NoRecord, whose text is the command that makes one.
    """
    if options.record:
        refuse_of_models(options)
        return database.get(options.record)
    entry = one_work(options)
    task = task_of(options, entry)
    found = best_of(task, database, output)
    if found is None and options.any_device:
        same = [r for r in database.winners() if r.script == task.script and dict(r.interface) == task.interface]
        found = min(same, key=lambda r: r.latency_us or 0.0, default=None)
    if found is None:
        raise missing(task, database, options)
    return found


def missing(task: Task, database: Database, options: Options) -> NoRecord:
    """The error that a task has no record, with those that are near and the command that would make one."""
    from ..search.calling.near import no_record

    return no_record(task, database, options.command())


def best_of_each(options: Options, database: Database, output: Output) -> Iterator[tuple[Entry, Record | None]]:
    """Everything that the options name, with its best record (see `best_of`).

    Raises NoRecord at the end (`missing`) where a single thing is named and has none.
    """
    entries = all_work(options)
    for entry in entries:
        task = task_of(options, entry)
        found = best_of(task, database, output)
        if found is None and len(entries) == 1:
            raise missing(task, database, options)
        yield entry, found


def best_of(task: Task, database: Database, output: Output | None = None) -> Record | None:
    """The best record of a task; without one, the best record of another device that proves valid on this one."""
    from ..search.calling.foreign import best_here

    return best_here(task, database, None if output is None else lambda outcome: tell_outcome(outcome, output))


def tell_outcome(outcome: Outcome, output: Output) -> None:
    """What became of records from elsewhere that were tried."""
    for verdict in outcome.verdicts:
        output.event(verdict.event())
        output.prose(verdict.sentence)
    if outcome.problem:
        output.event({"event": "note", "message": outcome.problem})
        output.prose(f"note: {outcome.problem}")


def device_of(options: Options, entry: Entry) -> Device:
    """The device that `--target` names; without `--threads` with as many as the entry of a list of workloads says."""
    return Device.named(options.target, options.threads or entry.budget.threads)


def interface_asked(options: Options, entry: Entry) -> Interface:
    """Who may choose each argument's layout, by the entry of a list and by `--interface`."""
    return interface_of(entry.work, entry.interface, options.interface)


def task_of(options: Options, entry: Entry) -> Task:
    """What the options ask for, for one entry."""
    return Task(entry.work, device_of(options, entry).target, interface_asked(options, entry))


def searched(entry: Entry, task: Task, likely: Likely, seconds: float | None) -> list[Entry]:
    """Of what a search for an entry's task derives design spaces: of it, or of the sizes of ranges that are looked at.

    Raises UsageError for what cannot be `likely`.
    """
    from ..search.tuning.at_sizes import Sizes

    work = entry.work
    if not work.func.stated:
        if likely:
            raise UsageError(f"--likely is about ranges, and {work} has one shape")
        return [entry]
    if task.is_recorded:  # what was recorded is for all sizes together
        return [entry]
    sizes = Sizes.of(task, likely)
    return [replace(entry, name=f"{entry.name} {sizes.told(point)}", work=work.at(point.values))
            for point in sizes.anchors(seconds)]  # fmt: skip


def space_of(task: Task, device: Device) -> Space:
    """What a search for a task walks on: the design space on the target, or what a file has recorded of it.

    Raises UsageError for another work than the recorded one.
    """
    from ..space.design.space import generate

    if device.recording is None:
        return generate(task.work.func, task.target, task.interface)
    device.recording.check(task)
    return device.recording.space
