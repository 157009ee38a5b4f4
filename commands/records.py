"""What the database holds: the best records, and logs of all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadRecord, NoRecord, UsageError
from ..figures import latency
from ..files import at_home, is_database
from ..invocation import COMMAND
from ..search.tasks.command_line import Options, options_of
from ..search.tasks.task import stored_work
from .lookup import best_of_each, reading
from .output import Output

if TYPE_CHECKING:
    from ..search.records.database import Database
    from ..search.records.record import Record


def best(options: Options, output: Output) -> int:
    """The best record of every workload, device and interface, or of the work that the options name."""
    asked = options.names_work
    with reading(options.db, output) as database:
        each = list(best_of_each(options, database, output)) if asked else []
        found = [record for _, record in each if record is not None] if asked else database.winners()
        name, sources = database.name, {record.id: _source(record, database) for record in found}
        untried = [] if found or asked else [record for record in database.every() if record.ok]
    if untried:
        first = untried[0]
        work = stored_work(first.workload, first.params, first.script)
        named = options_of(work, first.device, dict(first.interface), options.db)
        here = replace(named, target=options.target, threads=options.threads).command("best")
        raise NoRecord(
            f"{name} has {_counted(len(untried), 'record')} from elsewhere, none of which has been proven, verified "
            f"and timed here yet; `{here}` does so for {first.title}"
        )
    if not found:
        made_by = (options if asked else replace(options, workload="conv2d")).command()
        raise NoRecord(f"{name} has no record yet; to make one, run `{made_by}`")
    rows = []
    for record in found:
        output.event({"event": "record", "record": record.id, "workload": record.workload, "shape": dict(record.params),
                      "dtype": record.dtype, "interface": dict(record.interface), "device": record.device_key,
                      "latency_us": record.latency_us, "verified": record.verified, "db": name,
                      "origin": record.origin, "imported": record.imported})  # fmt: skip
        rows.append((record.id, record.title, _device(record), latency(record.latency_us), sources[record.id]))
    wide = len(rows[0]) if any(row[-1] for row in rows) else len(rows[0]) - 1
    output.table("", ("record", "workload", "device", "latency", "origin")[:wide], [row[:wide] for row in rows])
    output.line(f"database: {name}")
    return 0


def _source(record: Record, database: Database) -> str:
    """Where a record comes from, if not from a search on its own device."""
    parts = [f"imported from {record.imported}"] if record.imported else []
    if record.origin:
        try:
            whose = f"of {_device(database.get(record.origin))}"
        except (NoRecord, UsageError):  # it is not in this database
            whose = "another device's"
        parts.insert(0, f"schedule of {record.origin}, {whose}")
    return ", ".join(parts)


def _device(record: Record) -> str:
    device = record.device
    threads = f", {device.threads} threads" if device.kind == "cpu" else ""
    return f"{device.kind}: {device.name}{threads}"


def export(file: Path, db: str | None, output: Output) -> int:
    """Every record as a line of JSON."""
    from ..search.records.log import write_log

    with reading(db, output) as database:
        count = write_log(database.every(), file)
        output.event({"event": "exported", "records": count, "file": str(file), "db": database.name})
        output.line(f"wrote {count} records of {database.name} to {file}")
    return 0


def import_(file: Path, db: str | None, output: Output) -> int:
    """Merge a log; lines that are no valid record are refused one by one, with the reason."""
    from ..search.records.database import Database
    from ..search.records.log import read_log

    if at_home(str(file)).is_file() and is_database(at_home(str(file))) and file.stat().st_size:
        raise UsageError(
            f"{file} is a database; `{COMMAND} export LOG --db {file}` writes its records into a log, and "
            f"`{COMMAND} import LOG` takes them in"
        )
    good: list[Record] = []
    refused: list[str] = []
    for item in read_log(file):
        if isinstance(item, BadRecord):
            refused.append(str(item))
        else:
            good.append(item)
    if refused and not good:
        raise UsageError(f"{file} holds no valid record; {refused[0]}")
    with Database(db) as database:
        new = database.merge(good, file.name)
        output.notes([*database.notes, *refused[:10]])
        output.event({"event": "imported", "new": new, "known": len(good) - new, "refused": len(refused),
                      "file": str(file), "db": database.name})  # fmt: skip
        output.line(_imported(new, len(good) - new, len(refused), database.name))
    return 0


def _imported(new: int, known: int, refused: int, name: str) -> str:
    """What an import has changed, and what becomes of it."""
    told = f"{_counted(new, 'new record')} in {name}"
    if known:
        told += f", {_counted(known, 'record')} it had already"
    if refused:
        told += f", {_counted(refused, 'line')} refused"
    if not new:
        return f"{told}: nothing has changed"
    return (
        f"{told}; what is new is marked as foreign: a record counts once `{COMMAND} best`, `{COMMAND} replay` or "
        f"`ss.load` has proven, verified and raced it here"
    )


def _counted(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"
