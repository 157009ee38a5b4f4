"""What `import stridesmith` offers on top of the packages: calls that take a workload or a program and a target."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import UsageError, did_you_mean
from ...figures import latency
from ...ir.script.programs import Program
from ...numerals import truth
from ..records.record import Record
from ..tuning.settings import TuneSettings, settings
from .kernel import Kernel, Wanted, build, found_in, load
from .replay import Replayed
from .subject import device_for, scheduled, work_of

if TYPE_CHECKING:
    from ...backends.lower import Lowered
    from ...ir.stmt import PrimFunc
    from ...ir.target import Target
    from ...space.design.rules import Rule
    from ...space.design.space import Space
    from ...space.schedule import Schedule

__all__ = ["Kernel", "build", "load", "lower", "replay", "tune"]


def tune(
    work: Program,
    target: str | Target = "cpu",
    *,
    emit: Callable[[dict[str, Any]], None] | None = None,
    generate: Callable[[PrimFunc, Target, Mapping[str, str]], Space] | None = None,
    rules: Sequence[Rule] | None = None,
    schedules: Sequence[Schedule] = (),
    **options: Any,
) -> Record:
    """Find a fast kernel for `work` and return its record.

    `work` is a workload or its name, a program, its text or its file, or a record, whose interface is the default then;
    `target` a device or its text.  `options` are the fields of `search.tuning.settings.TuneSettings`, such as
    ``trials``, ``seconds``, ``db``, ``interface`` and ``seed``; ``emit`` gets every JSON event.  `schedules` are a
    user's own, which are recorded first (`own.add`).  ``generate`` replaces
    the generator of the design space, `stridesmith.generate`; ``rules`` are what that one
    makes sketches with, by default `stridesmith.RULES`.
    """
    options.setdefault("start", time.monotonic())
    from ...space.design.space import generate as from_rules
    from ...space.design.space import rule_list
    from ..tuning.ranged import tune as run

    if rules is not None:
        if generate is not None:
            raise UsageError("tune() takes rules for its own generator, or another generator, but not both")
        generate = partial(from_rules, rules=rule_list(rules))
    if generate is not None and not callable(generate):
        raise TypeError(f"`generate` is a function, as `ss.generate` is, but got {generate!r}")

    unknown = [name for name in options if name not in TuneSettings.model_fields]
    if unknown:
        hint = did_you_mean(unknown[0], TuneSettings.model_fields)
        raise UsageError(f"tune() has no option {unknown[0]!r}{hint}")
    if "interface" in options and isinstance(options["interface"], Mapping):
        options["interface"] = dict(options["interface"])
    if isinstance(work, Record):
        options.setdefault("interface", dict(work.interface))
    if isinstance(options.get("db"), os.PathLike):
        options["db"] = os.fspath(options["db"])
    if isinstance(schedules, str) or not isinstance(schedules, Sequence):
        raise TypeError(f"`schedules` is a list of `ss.Schedule`, but got something of type {type(schedules).__name__}")
    asked = settings(**_program(work, options), target=target, **options)
    for schedule in schedules:
        add_own(schedule, asked, emit)
    return run(asked, emit, generate)


def add_own(schedule: Schedule, asked: TuneSettings, emit: Callable[[dict[str, Any]], None] | None) -> Record:
    """Record a schedule of the user's own for the task that is to be tuned; a note tells how fast it is.

    Raises UsageError where it is one of another program, and as `own.add` does.
    """
    from ..records.database import Database
    from ..tuning.events import Note
    from ..tuning.settings import resolve
    from .own import add, task_of

    task = resolve(asked)
    if task_of(schedule).script != task.script:
        raise UsageError(f"the schedule is of another program than {task.work}, which is to be tuned")
    with Database(asked.db) as database:
        record = add(database, schedule, task, likely=asked.likely)
    if emit is not None:
        emit(Note(message=f"your schedule is record {record.id} and takes {latency(record.latency_us)}").to_json())
    return record


def _program(given: Program, options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that name the program."""
    from ...space.workloads import names

    if isinstance(given, str) and given in names():  # with the dtype of the options
        return {"workload": given}
    work = work_of(given, "tune")
    if work.params and "dtype" not in options:
        return {"workload": work.name, "params": dict(work.shape), "dtype": work.dtype}
    if work.params:
        raise UsageError(f"the workload has dtype {work.dtype} already; leave `dtype` out")
    return {"script": work.script}


def replay(
    work: Program,
    db: str | os.PathLike[str] | None = None,
    *,
    target: str | Target = "cpu",
    interface: str | Mapping[str, str] | None = None,
    threads: int | None = None,
    any_device: bool = False,
) -> Replayed:
    """Rebuild a record in a new process, verify it with fresh data, measure it again.

    `work` is the record or its id, or what `load` takes, whose best record on `target` it is then.
    """
    from ..records.database import Database
    from .replay import replay as run

    truth("any_device", any_device)
    if isinstance(work, Record) and db is None:
        return run(work, any_device=any_device)
    with Database(db) as database:
        record, _ = found_in(database, Wanted(work, target, interface, threads), asked="replay", db=db)
        return run(record, database, any_device=any_device)


def lower(func: Program, target: str | Target = "cpu", *, strict: bool = False) -> Lowered:
    """`func` as the code generators see it: loops, flat buffers, no blocks; what it is and `strict` as in `build`."""
    from ...backends.lower import lower as run

    return run(scheduled(func, "lower"), device_for(func, target), truth("strict", strict))
