"""Replay: a record's kernel built again in a new process, proven, verified with fresh data, measured again."""

from __future__ import annotations

import os
import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from ...errors import BadRecord, DeviceMissing, StorageError, TemporaryError
from ..records.record import Record
from ..records.status import KINDS, error_of
from ..tasks.task import Task, stored_work
from ..workers.protocol import Build, Failed, Job, Measured, Race, Reply

if TYPE_CHECKING:
    from ...ir.target import Target
    from ..records.database import Database

R = TypeVar("R", bound=Reply)

SLOWER = 1.2


class Workbench(Protocol):
    """Does one job of any kind in a process that may be lost (see `search.workers.bench.Bench`)."""

    def run(self, job: Job[R]) -> R | Failed:
        """The reply to a job."""


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
    task = Task(stored_work(record.workload, record.params, record.script), target, dict(record.interface))
    if bench is not None:
        reply = _measure(bench, task, record, seconds)
    else:
        from ..workers.bench import Bench

        with Bench() as own:
            reply = _measure(own, task, record, seconds)
    here = target.key == record.device_key
    if isinstance(reply, Failed):
        _refuse(record, reply, database if here else None)
    latency = statistics.median(reply.samples) * 1e6
    if here and not record.verified and database is not None:
        _store(database, record.measured(reply.samples, reply.max_abs_error, "race"))
    recorded = record.latency_us
    slower = recorded is not None and latency > SLOWER * recorded
    return Replayed(record.id, latency, recorded, slower, True, reply.max_abs_error, target.name)


def _device(record: Record, any_device: bool) -> Target:
    """This machine's device of the record's kind, which must be the very device unless `any_device`."""
    from ...backends.devices import discover

    then = record.device
    text = then.kind if then.kind == "cpu" or any_device else f"{then.kind}:{then.platform}:{then.name}"
    now = discover(text, then.threads if then.kind == "cpu" else None)
    if now.key != then.key and not any_device:
        raise DeviceMissing(
            f"record {record.id} was measured on {then.key}, but this machine has {now.key}; "
            f"--any-device replays it here, without comparing the two"
        )
    return now


def _measure(bench: Workbench, task: Task, record: Record, seconds: float) -> Measured | Failed:
    """What a race that this record runs alone finds: it is measured as its latency was."""
    built = bench.run(Build(script=task.script, target=task.target, trace=record.trace))
    if isinstance(built, Failed):
        return built
    seed = int.from_bytes(os.urandom(4), "big") >> 1
    raced = bench.run(Race(kernels=(built.kernel,), work=task.name, seed=seed, seconds=seconds))
    return raced if isinstance(raced, Failed) else raced.results[0]


def _store(database: Database, record: Record) -> None:
    """Write into the database that the record came from, also where it was opened for reading."""
    if not database.read_only:
        database.put_record(record)
        return
    with type(database)(database.url.render_as_string(hide_password=False)) as writable:
        writable.put_record(record)


def _refuse(record: Record, reply: Failed, database: Database | None) -> NoReturn:
    """Raise what the reply means, after marking a record that can never count again."""
    note = ""
    if KINDS[reply.kind].disqualifies and database is not None:
        try:
            _store(database, record.failed(reply.status, reply.message))
        except (TemporaryError, StorageError) as error:
            note = f"; this could not be recorded: {error}"
    raise error_of(f"record {record.id}", "replayed", reply.status, reply.message, note)
