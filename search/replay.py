"""Replay: a record's kernel built again in a new process, proven, verified with fresh data, measured again."""

from __future__ import annotations

import os
import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import BadRecord, DeviceMissing, StorageError, StridesmithError, TemporaryError, WrongResult
from .final import DISQUALIFYING, Reply, build_job, failed
from .records import Record
from .task import Task, work_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..ir.target import Target
    from .database import Database

SLOWER = 1.2


class Workbench(Protocol):
    """Does one job of any kind in a process that may be lost (see `search.bench.Bench`)."""

    def run(self, job: Mapping[str, Any]) -> Reply: ...


@dataclass(frozen=True)
class Replayed:
    """What a replay found; times are microseconds, `slower` means by more than 20 %."""

    record: str
    latency_us: float
    recorded_us: float | None
    slower: bool
    verified: bool
    max_abs_error: float | None
    device: str

    def event(self) -> dict[str, Any]:
        """The JSON event of the interface."""
        return {"event": "replayed", **asdict(self)}


def replay(
    record: Record,
    database: Database | None = None,
    *,
    any_device: bool = False,
    seconds: float = 3.0,
    bench: Workbench | None = None,
) -> Replayed:
    """Build `record` again, prove it in bounds, verify it on data it has never seen, and time it.

    A record that was not verified on this machine's behalf (an imported one)
    counts from now on, with what was measured here; one that gives a wrong result
    never counts again, and raises WrongResult.  A record of another device is
    refused with DeviceMissing unless `any_device`.
    """
    if not record.ok:
        raise BadRecord(f"record {record.id} is a failed candidate ({record.status}): there is nothing to replay")
    target = _device(record, any_device)
    task = Task(work_of(record), target, dict(record.interface))
    if bench is not None:
        reply = _measure(bench, task, record, seconds)
    else:
        from .bench import Bench

        with Bench() as own:
            reply = _measure(own, task, record, seconds)
    here = target.key == record.device_key
    if reply["status"] != "ok":
        _refuse(record, reply, database if here else None)
    samples = [float(sample) for sample in reply["samples"]]
    latency = statistics.median(samples) * 1e6
    if here and not record.verified and database is not None:
        _store(database, record.measured(samples, reply.get("max_abs_error"), "race"))
    recorded = record.latency_us
    slower = recorded is not None and latency > SLOWER * recorded
    return Replayed(record.id, latency, recorded, slower, True, reply.get("max_abs_error"), target.name)


def _device(record: Record, any_device: bool) -> Target:
    """This machine's device of the record's kind, which must be the very device unless `any_device`."""
    from ..backends.devices import discover

    then = record.device
    text = then.kind if then.kind == "cpu" or any_device else f"{then.kind}:{then.platform}:{then.name}"
    now = discover(text, then.threads if then.kind == "cpu" else None)
    if now.key != then.key and not any_device:
        raise DeviceMissing(
            f"record {record.id} was measured on {then.key}, but this machine has {now.key}; "
            f"--any-device replays it here, without comparing the two"
        )
    return now


def _measure(bench: Workbench, task: Task, record: Record, seconds: float) -> Reply:
    """The reply for this record from a race that it runs alone: measured as its latency was."""
    built = bench.run(build_job(task, record.trace))
    if built["status"] != "ok":
        return built
    reply = bench.run(
        {
            "job": "race",
            "entries": [{"artifact": built["artifact"], "layouts": built["layouts"]}],
            "workload": task.job_workload,
            "seed": int.from_bytes(os.urandom(4), "big") >> 1,
            "seconds": seconds,
        }
    )
    return dict(reply["results"][0]) if reply["status"] == "ok" else reply


def _store(database: Database, record: Record) -> None:
    """Write into the database that the record came from, also where it was opened for reading."""
    if not database.read_only:
        database.put_record(record)
        return
    with type(database)(database.url.render_as_string(hide_password=False)) as writable:
        writable.put_record(record)


def _refuse(record: Record, reply: Reply, database: Database | None) -> None:
    """Raise what the reply means, after marking a record that can never count again."""
    status, message = str(reply["status"]), str(reply.get("message", ""))
    kind = status.split(":")[0]
    note = ""
    if kind in DISQUALIFYING and database is not None:
        try:
            _store(database, failed(record, reply))
        except (TemporaryError, StorageError) as error:
            note = f"; this could not be recorded: {error}"
    if kind in ("wrong", "crash"):
        raise WrongResult(f"record {record.id} does not hold: {status}: {message}{note}")
    if kind in ("refused", "build_error"):
        raise BadRecord(f"record {record.id} is refused: {message}{note}")
    if kind in ("build_timeout", "run_timeout", "oom"):
        raise TemporaryError(f"record {record.id} could not be replayed: {status}: {message}; the machine may be busy")
    raise StridesmithError(f"record {record.id} could not be replayed: {status}: {message}")
