"""Records as rows of the tables, and rows as records.

What look-ups need is a column, the rest of a record is JSON in `payload`; every row read is validated as if it came
from a stranger.  A checksum of all that is read tells a row in which a disk has changed a digit: SQLite sees damage to
its own structures alone.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from ...errors import BadRecord, StorageError
from ..tasks.interface import interface_key, pairs
from .record import Record, script_hash, validate
from .tables import DEVICES, RECORDS, WORKLOADS, insert_if_new, insert_or_replace

if TYPE_CHECKING:
    from ...ir.target import Target

_PAYLOAD = (
    "trace", "choice", "samples", "versions", "message",
    "space_version", "max_abs_error", "seed", "dtype", "run", "foretold", "busy",
)  # fmt: skip

_CHECKED = (
    "id", "interface", "status", "stage", "verified", "latency_us", "trial", "sketch", "created", "target", "payload",
    "script", "workload", "params", "key",
)  # fmt: skip

RACED_FIRST = (RECORDS.c.stage, RECORDS.c.latency_us, RECORDS.c.id)
"""The order of rank, by its index: ``race`` comes before ``trial``."""


def joined(checked: bool = True) -> sa.Select[Any]:
    """A query of all columns that `record_of` reads; not `checked` where the database has no checksums."""
    left_out = ("workload_id", "device_id", *([] if checked else [RECORDS.c.checksum.name]))
    columns = [c for c in RECORDS.c if c.name not in left_out]
    names = (WORKLOADS.c.script, WORKLOADS.c.name.label("workload"), WORKLOADS.c.params, DEVICES.c.key)
    return sa.select(*columns, *names).select_from(RECORDS.join(WORKLOADS).join(DEVICES))


def is_program(script: str) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    """What holds of the row of a program: the hash, which an index finds, and the text, which decides."""
    return WORKLOADS.c.hash == script_hash(script), WORKLOADS.c.script == script


def record_of(row: dict[str, Any]) -> Record:
    """A row as a validated record.  Raises BadRecord where it is none, or not the one that was stored."""
    checksum = row.pop(RECORDS.c.checksum.name, None)
    if checksum is not None and checksum != _checksum(row):
        raise BadRecord(f"record {row['id']!r} is not what was stored: its checksum is another one")
    row.pop(DEVICES.c.key.name)
    try:
        payload = json.loads(row.pop("payload"))
        data = row | {"target": json.loads(row["target"]), "params": json.loads(row["params"])} | payload
        data["interface"] = pairs(row["interface"], "an interface")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BadRecord(f"record {row.get('id')!r} cannot be read: {error}") from None
    return validate(data)


def upsert(connection: sa.Connection, record: Record, checked: bool = True) -> None:
    """Store a record, in place of one of its id; `checked` as in `joined`."""
    data = record.model_dump()
    workload_id, work = _workload(connection, record)
    values = {
        "workload_id": workload_id,
        "device_id": device_id(connection, record.device),
        "interface": interface_key(dict(record.interface)),
        "target": dump(record.target),
        "payload": dump({name: data[name] for name in _PAYLOAD}),
        **{name: data[name] for name in ("status", "stage", "verified", "latency_us", "trial", "sketch", "created")},
    }
    if checked:
        values["checksum"] = _checksum(values | work | {"id": record.id, "key": record.device_key})
    insert_or_replace(connection, RECORDS, {"id": record.id, **values})


def _checksum(row: Mapping[str, Any]) -> str:
    """The checksum of a row of `joined` in hexadecimal digits; floats count with the digits that databases keep."""
    values = [f"{row[name]:.15g}" if isinstance(row[name], float) else row[name] for name in _CHECKED]
    return f"{zlib.crc32(json.dumps(values, default=repr).encode()):08x}"


def _workload(connection: sa.Connection, record: Record) -> tuple[int, dict[str, str]]:
    """The id of the row of a record's program, inserted where it is missing, and the columns of that row."""
    digest = script_hash(record.script)
    for _ in range(8):
        columns = (WORKLOADS.c.id, WORKLOADS.c.script, WORKLOADS.c.name, WORKLOADS.c.params)
        rows = connection.execute(sa.select(*columns).where(WORKLOADS.c.hash == digest)).all()
        for number, script, name, params in rows:
            if script == record.script:
                return int(number), {"script": script, "workload": name, "params": params}
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
