"""Records as rows of the tables, and rows as records.

What look-ups need is a column, the rest of a record is JSON in `payload`; every row read is validated as if it came
from a stranger.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ...errors import BadRecord, StorageError
from ..tasks.interface import interface_key, pairs
from .record import Record, script_hash, validate
from .tables import DEVICES, RECORDS, WORKLOADS, insert_if_new

if TYPE_CHECKING:
    from ...ir.target import Target

_PAYLOAD = (
    "trace", "choice", "samples", "versions", "message",
    "space_version", "max_abs_error", "seed", "dtype", "run", "foretold",
)  # fmt: skip

RACED_FIRST = (RECORDS.c.stage, RECORDS.c.latency_us, RECORDS.c.id)
"""The order of rank, by its index: ``race`` comes before ``trial``."""


def joined() -> sa.Select[Any]:
    """A query of all columns that `record_of` reads."""
    columns = [c for c in RECORDS.c if c.name not in ("workload_id", "device_id")]
    names = (WORKLOADS.c.script, WORKLOADS.c.name.label("workload"), WORKLOADS.c.params)
    return sa.select(*columns, *names).select_from(RECORDS.join(WORKLOADS).join(DEVICES))


def is_program(script: str) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    """What holds of the row of a program: the hash, which an index finds, and the text, which decides."""
    return WORKLOADS.c.hash == script_hash(script), WORKLOADS.c.script == script


def record_of(row: dict[str, Any]) -> Record:
    """A row as a validated record."""
    try:
        payload = json.loads(row.pop("payload"))
        data = row | {"target": json.loads(row["target"]), "params": json.loads(row["params"])} | payload
        data["interface"] = pairs(row["interface"], "an interface")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BadRecord(f"record {row.get('id')!r} cannot be read: {error}") from None
    return validate(data)


def upsert(connection: sa.Connection, record: Record) -> None:
    """Store a record, in place of one of its id."""
    data = record.model_dump()
    values = {
        "workload_id": _workload_id(connection, record),
        "device_id": device_id(connection, record.device),
        "interface": interface_key(dict(record.interface)),
        "target": dump(record.target),
        "payload": dump({name: data[name] for name in _PAYLOAD}),
        **{name: data[name] for name in ("status", "stage", "verified", "latency_us", "trial", "sketch", "created")},
    }
    changed = connection.execute(RECORDS.update().where(RECORDS.c.id == record.id).values(**values))
    if changed.rowcount == 0:
        insert_if_new(connection, RECORDS, {"id": record.id, **values})


def _workload_id(connection: sa.Connection, record: Record) -> int:
    digest = script_hash(record.script)
    for _ in range(8):
        query = sa.select(WORKLOADS.c.id, WORKLOADS.c.script).where(WORKLOADS.c.hash == digest)
        rows = connection.execute(query).all()
        for number, script in rows:
            if script == record.script:
                return int(number)
        new = {"hash": digest, "collision": len(rows), "name": record.workload}
        insert_if_new(connection, WORKLOADS, {**new, "params": dump(record.params), "script": record.script})
    raise StorageError(f"cannot store the program of record {record.id}: eight others have its hash")


def device_id(connection: sa.Connection, target: Target) -> int:
    """The row of a device, which is made where there is none."""
    insert_if_new(connection, DEVICES, {"key": target.key, "target": dump(target.to_json())})
    return int(connection.execute(sa.select(DEVICES.c.id).where(DEVICES.c.key == target.key)).scalar_one())


def dump(value: Any) -> str:
    """A value as JSON text; ValueError for numbers that JSON has not."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
