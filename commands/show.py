"""`stridesmith show`: the design space of a workload, and what is behind a record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UsageError
from ..figures import latency
from .lookup import reading, record_of, task_of
from .options import RecordOptions, one_work
from .output import Output
from .space import run as space

if TYPE_CHECKING:
    from ..search.records.record import Record


LANGUAGES = {"trace": "python", "program": "python", "lowered": "python", "assembly": "gas"}


def run(options: RecordOptions, view: str | None, as_written: bool, output: Output) -> int:
    """Print the view that was asked for; the diagnosis of the record by default.

    What is shown `as_written` is the program of the options without a schedule, which no database has to know.
    """
    if view == "space":
        return space(options, output)
    if as_written:
        record, name = _as_written(options, output), ""
    else:
        with reading(options.db, output) as database:
            record = record_of(options, database, output)
            name = database.name
    if view is None:
        return _diagnosis(record, output)
    text = _view(record, view)
    output.event({"event": view, "record": record.id, "workload": record.workload, "shape": dict(record.params),
                  "interface": dict(record.interface), "device": record.device_key, "latency_us": record.latency_us,
                  "db": name, "text": text})  # fmt: skip
    if output.format == "rich":
        output.prose(f"{record.workload or 'script'}, record {record.id}, {latency(record.latency_us)}")
    output.code(text, LANGUAGES.get(view) or ("c" if record.device.kind == "opencl" else "llvm"))
    return 0


def _as_written(options: RecordOptions, output: Output) -> Record:
    """The program as it is written, verified and measured now."""
    from ..search.calling.own import as_written
    from ..search.workers.bench import Bench

    if options.record:
        raise UsageError("--as-written is for a workload or a script; a record is shown with its own schedule")
    task = task_of(options, one_work(options))
    with output.working("building and measuring the program as it is written"), Bench() as bench:
        return as_written(task, bench)


def _diagnosis(record: Record, output: Output) -> int:
    from ..search.calling.diagnosis import diagnose
    from ..search.calling.range_diagnosis import diagnose_ranges
    from ..search.tasks.task import stored_work
    from .diagnosis import show, show_ranges

    with output.working(f"building record {record.id} again, and measuring what its device can do"):
        if stored_work(record.workload, record.params, record.script).func.stated:
            show_ranges(diagnose_ranges(record), output)
        else:
            show(diagnose(record), output)
    return 0


def _view(record: Record, view: str) -> str:
    """The text of a view.  What has to be built is built in a worker process."""
    from ..search.calling.diagnosis import schedule_text, texts

    if view == "trace":
        return schedule_text(record)
    if view == "assembly" and record.device.kind != "cpu":
        raise UsageError(f"--assembly is for the CPU; record {record.id} is of {record.device.kind}, so use --source")
    return str(texts(record, compiled=view == "assembly")[view])
