"""Records of a program that are near what was asked for: of another interface, on other threads, of another device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...errors import NoRecord
from ...figures import latency
from ...invocation import COMMAND
from ...numerals import as_whole
from ...space.workloads.sizes import range_of
from ..tasks.device import selector_of
from ..tasks.interface import interface_key, interface_of
from ..tasks.task import RECORDED_DEVICE

if TYPE_CHECKING:
    from ..records.database import Database
    from ..records.record import Record
    from ..tasks.task import Task

MOST = 4
"""Records that are named; those that differ least come first, then the fastest."""


@dataclass(frozen=True)
class Near:
    """A verified record of the program, and the options, by name, with which it is what is asked for."""

    record: Record
    options: Mapping[str, str]


def near(task: Task, database: Database) -> list[Near]:
    """The best record of the task's program for each other interface and device, the likest first."""
    mine = (task.target.key, dict(task.interface))
    same = [record for record in database.winners() if record.script == task.script]
    others = [
        record
        for record in same
        if (record.device_key, dict(record.interface)) != mine and RECORDED_DEVICE not in record.device_key
    ]
    found = [Near(record, _options(record, task)) for record in others]
    return sorted(found, key=lambda each: (len(each.options), each.record.latency_us or 0.0))


def no_record(task: Task, database: Database, made_by: str, *, tried: str = "", python: bool = False) -> NoRecord:
    """The error that a task has no record, with similar records, options that find them, and the command to tune it.

    `tried` is what became of records from elsewhere; in `python`, options are arguments of a call.
    """
    found = near(task, database)
    told = [
        f"record {each.record.id} ({latency(each.record.latency_us)}) by {_spelled(each, python)}"
        for each in found[:MOST]
    ]
    more = f", and {len(found) - MOST} more that `{COMMAND} best` lists" if len(found) > MOST else ""
    close = f"; there are others of this program: {', '.join(told)}{more}" if told else ""
    for record in [r for r in database.winners() if _has(r, task)][:MOST]:
        how = f'`ss.load("{record.id}")`' if python else f"`--record {record.id}`"
        close += f"; record {record.id} of {record.title} has this shape among its ranges: {how}"
    return NoRecord(
        f"{database.name} has no record of {task.work} for {task.target.key} with the interface "
        f"{interface_key(task.interface)}{tried}{close}; to make one, run `{made_by}`"
    )


def _has(record: Record, task: Task) -> bool:
    """Whether a record of ranges, on the task's device and for its interface, has the shape of its workload in them."""
    mine, params = task.work.params, record.params
    same = (record.workload, record.device_key, dict(record.interface))
    if same != (task.work.name, task.target.key, dict(task.interface)) or not mine or mine.keys() != params.keys():
        return False
    ranges = {name: numbers for name, value in params.items() if (numbers := range_of(value, name)) is not None}
    given = {name: as_whole(mine[name]) for name in ranges}
    rest = all(mine[name] == value for name, value in params.items() if name not in ranges)
    return bool(ranges) and rest and all(n is not None and n in ranges[name] for name, n in given.items())


def _options(record: Record, task: Task) -> dict[str, str]:
    found: dict[str, str] = {}
    usual, asked, own = interface_of(task.work), task.interface, dict(record.interface)
    if own != dict(asked):
        changed = {name: who for name, who in own.items() if usual.get(name) != who}
        found["interface"] = interface_key(changed or {n: who for n, who in own.items() if asked.get(n) != who})
    then, now = record.device, task.target
    if then.kind != now.kind:
        found["target"] = selector_of(then)
    elif then.key == replace(now, threads=then.threads).key:
        if then.threads != now.threads:
            found["threads"] = str(then.threads)
    elif then.key != now.key:
        return {"record": record.id}  # another machine's, which no option that names a device finds
    return found


def _spelled(near: Near, python: bool) -> str:
    if python:
        if "record" in near.options:
            return f'`ss.load("{near.record.id}")`'
        each = near.options.items()
        given = (f"{name}={value}" if name == "threads" else f'{name}="{value}"' for name, value in each)
        return f"`{', '.join(given)}`"
    return f"`{' '.join(f'--{name} {value}' for name, value in near.options.items())}`"
