"""Replay: a record's kernel built again in a new process, proven, verified with fresh data, measured again."""

from __future__ import annotations

import contextlib
import os
import statistics
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NoReturn

from ...errors import BadRecord, DeviceMissing, StorageError, TemporaryError
from ...invocation import COMMAND
from ..records.record import Record
from ..records.status import error_of
from ..tasks.device import Device
from ..tasks.task import Task, stored_work
from ..tuning.at_sizes import Runner
from ..workers.bench import Bench, Workbench
from ..workers.protocol import Build, Failed, Measured, Race
from .foreign import Outcome, is_foreign, store, try_records

if TYPE_CHECKING:
    from ...ir.target import Target
    from ..records.database import Database

SLOWER = 1.2  # a choice


@dataclass(frozen=True)
class Replayed:
    """What a replay found; times are microseconds, `slower` means by more than 20 %.

    `tried` says of a record from elsewhere whether it is trusted from now on.
    """

    record: str
    latency_us: float
    recorded_us: float | None
    slower: bool
    verified: bool
    max_abs_error: float | None
    device: str
    tried: Outcome | None = None

    def event(self) -> dict[str, Any]:
        """The JSON event of the interface."""
        told = [field.name for field in fields(self) if field.name != "tried"]
        return {"event": "replayed", **{name: getattr(self, name) for name in told}}


def replay(
    record: Record,
    database: Database | None = None,
    *,
    any_device: bool = False,
    seconds: float = 3.0,
    bench: Workbench | None = None,
    task: Task | None = None,
) -> Replayed:
    """Build `record` again, prove it in bounds, verify it on data it has never seen, and time it.

    A record from elsewhere (an imported one, or one of another device) is tried against what there is here, and
    counts from now on with what was measured (see `foreign`).  One that gives a wrong result never counts again, and
    raises WrongResult.  One of ranges is measured at the sizes of its search.  A record of another device is refused
    with DeviceMissing unless `any_device`.  It is timed as its `task` is called, by itself where none is given.
    """
    if not record.ok:
        raise BadRecord(f"record {record.id} is a failed candidate ({record.status}): there is nothing to replay")
    target = device_here(record, any_device)
    task = task or Task(stored_work(record.workload, record.params, record.script), target, dict(record.interface))
    with contextlib.ExitStack() as ending:
        if bench is None:
            bench = ending.enter_context(Bench())
        if database is not None and is_foreign(record, target):
            return _tried(record, task, database, bench)
        reply = _measure(bench, task, record, seconds)
    if isinstance(reply, Failed):
        _refuse(record, reply, database if target.key == record.device_key else None)
    latency = statistics.median(reply.samples) * 1e6
    return Replayed(record.id, latency, record.latency_us, _slower(latency, record), True, reply.max_abs_error,
                    target.name)  # fmt: skip


def _tried(record: Record, task: Task, database: Database, bench: Workbench) -> Replayed:
    """A record from elsewhere, proven, verified and raced, with what became of it stored."""
    outcome = try_records(task, [record], database, bench)
    here = outcome.verdicts[0].here
    if here.latency_us is None:
        note = f"; {outcome.problem}" if outcome.problem else ""
        raise error_of(f"record {record.id}", "replayed", here.status, here.message, note)
    return Replayed(record.id, here.latency_us, record.latency_us, _slower(here.latency_us, record), True,
                    here.max_abs_error, task.target.name, outcome)  # fmt: skip


def _slower(latency_us: float, record: Record) -> bool:
    return record.latency_us is not None and latency_us > SLOWER * record.latency_us


def device_here(record: Record, any_device: bool = False) -> Target:
    """This machine's device of the record's kind.

    Raises DeviceMissing if it is another than the record was measured on, unless `any_device`.
    """
    then, now = record.device, Device.of(record.device, any_of_its_kind=any_device)
    if now.key != then.key and not any_device:
        raise DeviceMissing(
            f"record {record.id} was measured on {then.key}, but this machine has {now.key}; "
            f"`{COMMAND} replay --any-device` runs it here, without comparing the two"
        )
    return now


def _measure(bench: Workbench, task: Task, record: Record, seconds: float) -> Measured | Failed:
    """Build a record's kernel and time it in a race of its own, as its latency was measured."""
    bench = Runner(task, record.versions).on(bench)
    built = bench.run(Build(script=task.script, target=task.target, trace=record.trace))
    if isinstance(built, Failed):
        return built
    seed = int.from_bytes(os.urandom(4), "big") >> 1
    raced = bench.run(Race(kernels=(built.kernel,), work=task.name, seed=seed, called=task.called, seconds=seconds))
    return raced if isinstance(raced, Failed) else raced.results[0]


def _refuse(record: Record, reply: Failed, database: Database | None) -> NoReturn:
    """Raise what the reply means, after marking a record that can never count again."""
    note = ""
    if record.is_disproved_by(reply.kind) and database is not None:
        try:
            store(database, [record.failed(reply.status, reply.message)])
        except (TemporaryError, StorageError) as error:
            note = f"; this could not be recorded: {error}"
    raise error_of(f"record {record.id}", "replayed", reply.status, reply.message, note)
