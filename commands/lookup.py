"""Finding the record that a command speaks of, or the command that would make it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import NoRecord
from ..search.tasks.command_line import command_line
from ..search.tasks.interface import Interface, interface_of
from ..search.tasks.task import Task, is_recorded
from .options import all_work, one_work, refuse_of_models

if TYPE_CHECKING:
    from ..configs import Entry
    from ..ir.target import Target
    from ..search.calling.foreign import Outcome
    from ..search.records.database import Database
    from ..search.records.record import Record
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


def record_of(options: Mapping[str, Any], database: Database, output: Output | None = None) -> Record:
    """The record of `--record`, else the best one of the work, target and interface that the options name.

    What was tried for it goes to the `output`.  Raises NoRecord, whose text is the command that makes one.
    """
    if options.get("record"):
        refuse_of_models(options)
        return database.get(str(options["record"]))
    entry = one_work(options)
    target = measured_on(options, entry)
    asked = interface_of(entry.work, entry.interface, options.get("interface"))
    task = Task(entry.work, target, asked)
    found = best_of(task, database, output)
    if found is None and options.get("any_device"):
        found = _of_any_device(entry, asked, database)
    if found is None:
        raise missing(task, database, options)
    return found


def missing(task: Task, database: Database, options: Mapping[str, Any]) -> NoRecord:
    """The error that a task has no record, with those that are near and the command that would make one."""
    from ..search.calling.near import no_record

    return no_record(task, database, command_line(options))


def best_of_each(
    options: Mapping[str, Any], database: Database, output: Output
) -> Iterator[tuple[Entry, Record | None]]:
    """Everything that the options name, with its best record (see `best_of`).

    Raises NoRecord at the end (`missing`) where a single thing is named and has none.
    """
    entries = all_work(options)
    for entry in entries:
        asked = interface_of(entry.work, entry.interface, options.get("interface"))
        task = Task(entry.work, measured_on(options, entry), asked)
        found = best_of(task, database, output)
        if found is None and len(entries) == 1:
            raise missing(task, database, options)
        yield entry, found


def best_of(task: Task, database: Database, output: Output | None = None) -> Record | None:
    """The best record of a task; where it has none, of those from elsewhere the best that holds here."""
    from ..search.calling.foreign import best_here

    return best_here(task, database, None if output is None else lambda outcome: tell_outcome(outcome, output))


def tell_outcome(outcome: Outcome, output: Output) -> None:
    """What became of records from elsewhere that were tried."""
    for verdict in outcome.verdicts:
        output.event(verdict.event())
        output.line(verdict.sentence)
    if outcome.problem:
        output.event({"event": "note", "message": outcome.problem})
        output.line(f"note: {outcome.problem}")


def _of_any_device(entry: Entry, asked: Interface, database: Database) -> Record | None:
    """The fastest verified record of the program on any device."""
    same = [r for r in database.winners() if r.script == entry.work.script and dict(r.interface) == asked]
    return min(same, key=lambda r: r.latency_us or 0.0, default=None)


def measured_on(options: Mapping[str, Any], entry: Entry) -> Target:
    """Where records that are asked for were measured: on the device that `--target` names, or in a recorded space.

    Without `--threads` it is as many as the entry of a list of workloads says.
    """
    if is_recorded(options["target"]):
        from ..search.tasks.recording import of_target

        return of_target(str(options["target"])).target
    return target_of({**options, "threads": options.get("threads") or entry.budget.threads})


def space_of(options: Mapping[str, Any], entry: Entry, target: Target) -> Space:
    """What a search of an entry walks on: the design space on the target, or what a file has recorded of it.

    Raises UsageError for another work than the recorded one.
    """
    asked = interface_of(entry.work, entry.interface, options.get("interface"))
    if is_recorded(options["target"]):
        from ..search.tasks.recording import of_target

        recording = of_target(str(options["target"]))
        recording.check(Task(entry.work, target, asked))
        return recording.space
    from ..space.design.space import generate

    return generate(entry.work.func, target, asked)


def target_of(options: Mapping[str, Any]) -> Target:
    """The device that `--target` names."""
    from ..backends.devices import discover

    return discover(options["target"], options.get("threads"))
