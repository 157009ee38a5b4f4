"""`stridesmith replay`: the best record, built and verified again."""

from __future__ import annotations

from ..backends.host_load import too_many
from ..figures import latency, number
from .lookup import reading, record_of, tell_outcome
from .options import RecordOptions
from .output import Output


def run(options: RecordOptions, output: Output) -> int:
    """Rebuild a record in a new process, verify it with fresh data, measure it again.

    Raises NoRecord, BadRecord, DeviceMissing, WrongResult.
    """
    from ..search.calling.replay import replay

    with reading(options.db, output) as database:
        record = record_of(options, database, output)
        output.prose(f"replaying {record.title}, record {record.id}")
        found = replay(record, database, any_device=options.any_device)
    if record.device.kind == "cpu":
        output.notes([note for note in [too_many(record.device.threads)] if note])
    if found.tried is not None:
        tell_outcome(found.tried, output)
    output.event(found.event())
    slower = "  (more than 20 % slower than recorded)" if found.slower else ""
    rows = [
        ("record", found.record),
        ("device", found.device),
        ("latency", f"{latency(found.latency_us)}{slower}"),
        ("recorded", latency(found.recorded_us)),
        ("verified", f"{'yes' if found.verified else 'no'}, largest error {number(found.max_abs_error)}"),
    ]
    output.table("", ("", ""), rows)
    return 0
