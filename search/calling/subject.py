"""What calls are about, a record or a program to find one of: `ss.load`, `ss.replay` and the like take all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from ...errors import UsageError
from ...ir.script.programs import Program
from ...ir.stmt import PrimFunc
from ...space.workloads import Workload, names
from ...space.workloads.taking import func_of as function
from ...space.workloads.taking import workload_of
from ..records.record import Record
from ..tasks.device import Device
from ..tasks.task import stored_work

if TYPE_CHECKING:
    from ...ir.target import Target
    from ..records.database import Database

HEXADECIMAL = frozenset("0123456789abcdef")


def is_id(what: Program) -> TypeGuard[str]:
    """Whether a text is the id of a record, or how one begins."""
    return isinstance(what, str) and bool(what) and set(what) <= HEXADECIMAL and what not in names()


def record_or_work(what: Program, database: Database, asked: str) -> Record | Workload:
    """The record that `what` is, or has the id of, else the workload that it stands for."""
    if isinstance(what, Record):
        return what
    return database.get(what) if is_id(what) else workload_of(what, asked)


def work_of(what: Program, asked: str) -> Workload:
    """The workload that `what` names; for a record, the workload that it was measured for."""
    if isinstance(what, Record):
        return stored_work(what.workload, what.params, what.script)
    return workload_of(what, asked)


def device_for(what: Program, target: str | Target) -> Target:
    """The device of `target`; the record's own where `what` is one, and `target` says no more than the default."""
    return what.device if isinstance(what, Record) and target == "cpu" else Device.here(target)


def scheduled(what: Program, asked: str) -> PrimFunc:
    """The program that `what` stands for; of a record as it was scheduled, all proofs done again."""
    if not isinstance(what, Record):
        return function(what, asked)
    from ..workers.programs import REFUSALS, candidate

    try:
        return candidate(what.script, what.trace)
    except REFUSALS as error:
        raise UsageError(f"record {what.id} is refused: {error}") from None
