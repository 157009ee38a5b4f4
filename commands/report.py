"""`stridesmith report`: one page that shows what was found, why it is as fast as it is, and what to do about it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import NoRecord, StorageError, StridesmithError, UsageError
from ..figures import scaled
from ..files import doing, legible, refuse_other, small_text
from ..invocation import COMMAND
from ..search.records.database import Database
from .lookup import best_of_each, record_of
from .options import RecordOptions
from .output import Output

if TYPE_CHECKING:
    from ..report.models import ModelReport
    from ..report.tasks import TaskReport
    from ..search.records.record import Record
    from ..search.workers.bench import Bench

    Wanted = tuple[str, Record, int]

MODEL_TASKS = 12
"""Kernels of a model that have a part of their own, those that take most time."""
LARGEST_PEERS = 1 << 26
"""Bytes of a file with what other libraries took."""


@dataclass(frozen=True)
class ReportOptions(RecordOptions):
    """Where the page goes, what other libraries took, and of how many tasks it speaks."""

    path: str = ""
    peers: str | None = None
    limit: int = 200


def run(options: ReportOptions, output: Output) -> int:
    """Write the page of a workload, a suite, a model, or of all that the database has.

    Raises ToolMissing without the extra `report`, NoRecord where there is nothing to report, StorageError for a file
    that cannot be written.
    """
    from ..report.page import Subject, page, require

    require()
    path = Path(options.path)
    _check(path)
    peers = _peers(options.peers)
    from ..search.workers.bench import Bench

    refuse_other(path, "a report", " · stridesmith</title>".encode())
    with Database(options.db, read_only=True) as database, Bench() as bench:
        notes: list[str] = []
        model = _model(options, output, bench) if options.model and not options.range else None
        wanted = _wanted_of(model, database) if model else _wanted(options, database, notes, output)
        tasks = _tasks(wanted, database, bench, peers, output, notes)
        notes += database.notes
        named = bool(options.db)
        subject = Subject(_title(options, tasks), database.name, notes, _device(tasks, model), named, options.script)
        text = page(subject, tasks, model)
    with doing(f"write the report {path}"):
        path.write_text(legible(text), encoding="utf-8")
    output.event({"event": "report", "file": str(path), "bytes": len(text.encode()), "tasks": len(tasks),
                  "db": database.name, "notes": notes})  # fmt: skip
    for note in notes:
        output.prose(f"note: {note}")
    output.line(f"wrote {path}, {scaled(len(text.encode()), 'B')}: {len(tasks)} tasks of {database.name}")
    return 0


def _check(path: Path) -> None:
    """Check that the page can be written to `path`.  Raises UsageError or StorageError."""
    if path.is_dir():
        raise UsageError(f"-o {path} is a folder; name the file, as in -o {path / 'report.html'}")
    if not path.parent.is_dir():
        raise StorageError(f"cannot write the report {path}: the folder {path.parent} is not there")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise StorageError(f"cannot write the report {path}: permission denied")


def _wanted(options: ReportOptions, database: Database, notes: list[str], output: Output) -> list[Wanted]:
    """The best records of the tasks that were asked for, at most `limit` of them, each with its name and its weight."""
    if options.model:
        from .free_models import recorded

        programs, told = recorded(options, output)
        notes += told
        return _slowest(programs, options.limit, notes)
    if options.record:
        record = record_of(options, database)
        if not record.ok:
            raise UsageError(f"record {record.id} has no kernel to report: {record.status}; `{COMMAND} show` says why")
        return [(record.workload, record, 1)]
    asked = options.names_work
    found: list[Wanted] = []
    missing: list[str] = []
    if not asked:
        found = [(record.workload, record, 1) for record in database.winners()]
    else:
        each = list(best_of_each(options, database, output))
        found = [(entry.name, record, entry.count) for entry, record in each if record is not None]
        missing = [entry.name for entry, record in each if record is None]
    if not found:
        made_by = (options if asked else replace(options, workload="conv2d")).command()
        raise NoRecord(f"{database.name} has no record to report; to make one, run `{made_by}`")
    if missing:
        notes.append(f"not tuned yet: {', '.join(missing)}; `{options.command()}` does")
    return _slowest(found, options.limit, notes)


def _slowest(wanted: list[Wanted], limit: int, notes: list[str]) -> list[Wanted]:
    """The tasks that take most time, `limit` of them at most; a note says how many are left out."""
    if len(wanted) <= limit:
        return wanted
    notes.append(
        f"the {limit} of {len(wanted)} tasks that take most time; `--limit` shows more, and a workload, a suite or "
        "`--only` others"
    )
    return sorted(wanted, key=lambda each: -each[2] * (each[1].latency_us or 0.0))[:limit]


def _tasks(
    wanted: Iterable[Wanted], database: Database, bench: Bench, peers: Mapping[str, Mapping[str, float]],
    output: Output, notes: list[str],
) -> list[TaskReport]:  # fmt: skip
    from ..report.tasks import task_report

    found = []
    everything = list(wanted)
    for number, (name, record, count) in enumerate(everything, 1):
        with output.working(f"reading {number} of {len(everything)}: {record.title}"):
            try:
                theirs = peers.get(record.id) or peers.get(name)
                found.append(task_report(record, database, bench, name=name, peers=theirs, count=count))
            except StridesmithError as error:
                notes.append(f"{name} is left out: {error}")
    return found


# --- models -------------------------------------------------------------------------------------


def _model(options: ReportOptions, output: Output, bench: Bench) -> ModelReport:
    import statistics

    from ..report.models import ModelReport
    from ..search.workers import host_lock
    from .models import compiled_model, roof_of

    model = compiled_model(options, output)
    with output.working("measuring the device and the model"):
        roof = roof_of(model, bench)
        with host_lock.exclusive():
            measured = statistics.median(model.measure()) * 1e6
            rows = model.report(roof=roof)
    return ModelReport(model, rows, measured, f"{options.command()} --seconds 600")


def _wanted_of(model: ModelReport, database: Database) -> list[Wanted]:
    """The kernels that take most of a model's time, each under the name of the first operator that it runs."""
    names: dict[str, str] = {}
    for row in sorted(model.rows, key=lambda row: -row.latency_us):
        names.setdefault(row.record, row.operator)
    chosen = model.slowest_records(MODEL_TASKS)
    return [(names[record], database.get(record), count) for record, count in chosen.items()]


# --- surroundings -------------------------------------------------------------------------------


def _title(options: ReportOptions, tasks: list[TaskReport]) -> str:
    if options.model:
        return Path(options.model).name
    for kind, listed in (("suite", options.suite), ("config", options.config)):
        if listed:
            return f"{kind} {listed}"
    return tasks[0].name if len(tasks) == 1 else f"{len(tasks)} tasks"


def _device(tasks: list[TaskReport], model: ModelReport | None) -> dict[str, str]:
    devices = {task.record.device.key: task.record.device for task in tasks}
    if model is not None:
        devices[model.model.target.key] = replace(model.model.target)
    if len(devices) != 1:
        return {"on": f"{len(devices)} devices"} if devices else {}
    (device,) = devices.values()
    return {"on": f"{device.name}, {device.threads} threads" if device.kind == "cpu" else device.name}


def _peers(path: str | None) -> dict[str, dict[str, float]]:
    """What other libraries took, by record and by name: rows of `benchmarks/peers.py` and `benchmarks/league.py`."""
    found: dict[str, dict[str, float]] = {}
    if path is None:
        return found
    text = small_text(Path(path), "the peers", LARGEST_PEERS)
    try:
        for line in filter(str.strip, text.splitlines()):
            row = json.loads(line)
            times = {
                str(name): float(times[0]) for name, times in row["times"].items()
                if not name.startswith("stridesmith") and 0 < float(times[0]) < 1e12
            }  # fmt: skip
            for key in (row["tune"].get("record"), row.get("name")):
                if isinstance(key, str):
                    found[key] = times
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise UsageError(f"cannot read the peers in {path}, no lines that benchmarks/peers.py wrote: {error}") from None
    return found
