"""A kernel for each task of a network: the best that the database has, else what the estimate likes best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ...errors import BadRecord
from ...search.records.status import error_of
from ...search.workers import jobs
from ...search.workers.protocol import Build, Built, Choice, Compiled, Failed

if TYPE_CHECKING:
    from ...search.records.database import Database
    from ...search.records.record import Record
    from ...search.tasks.task import Task
    from ..tasks import NetworkTask

Origin = Literal["tuned", "estimated", "untuned"]
Builder: TypeAlias = "Callable[[Iterable[Build]], Sequence[Built | Failed]]"


@dataclass(frozen=True)
class Kernel:
    """Compiled code for a task, where its schedule comes from, and the record that it was measured for."""

    task: Task
    compiled: Compiled
    origin: Origin
    record: Record | None = None
    trace: list[Any] | None = None


def build_here(wanted: Iterable[Build]) -> list[Built | Failed]:
    """Compile in this process, one after the other."""
    return [jobs.run(job) for job in wanted]


def kernels_of(
    tasks: Sequence[NetworkTask], database: Database | None, build: Builder = build_here
) -> dict[str, Kernel]:
    """A kernel for every operator of the tasks, by the operator's name.

    A record that is refused is an error, since the database would go on naming it; an estimate that is refused, or
    that nobody could make, gives way to the program as it was written.
    """
    records = [
        None if database is None else database.best(t.task.script, t.task.target, t.task.interface) for t in tasks
    ]
    estimates = [estimate(t.task) if record is None else None for t, record in zip(tasks, records, strict=True)]
    replies = build(
        Build(script=t.task.script, target=t.task.target, choice=choice, trace=record.trace if record else None)
        for t, record, choice in zip(tasks, records, estimates, strict=True)
    )
    found: dict[str, Kernel] = {}
    for item, record, choice, reply in zip(tasks, records, estimates, replies, strict=True):
        kernel = _kernel(item.task, record, choice, reply, build)
        found.update((node.name, kernel) for node in item.operators)
    return found


def _kernel(task: Task, record: Record | None, choice: Choice | None, reply: Built | Failed, build: Builder) -> Kernel:
    if isinstance(reply, Built):
        origin: Origin = "tuned" if record else "estimated" if choice else "untuned"
        return Kernel(task, reply.kernel, origin, record, record.trace if record else reply.trace)
    if record is not None:
        raise error_of(f"record {record.id}", "built", reply.status, reply.message)
    if choice is not None:
        return _kernel(task, None, None, build([Build(script=task.script, target=task.target)])[0], build)
    raise BadRecord(f"the program `{task.work.name}` could not be built as it is written: {reply.message}")


def estimate(task: Task) -> Choice | None:
    """The candidate that the estimate ranks first, before anything is measured; None for a space without any."""
    from ...search.tuning.study import Study
    from ...space.design.space import generate

    space = generate(task.work.func, task.target, task.interface)
    try:
        candidates = Study(space).ask(1)
    except ValueError:
        return None
    if not candidates:
        return None
    first = candidates[0]
    return Choice(space.sketches[first.sketch].name, first.choice, dict(task.interface))
