"""A kernel for each task of a network: the best that the database has, else what the estimate likes best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from ...errors import BadRecord
from ...search.records.status import error_of
from ...search.workers import jobs
from ...search.workers.protocol import Build, Built, Choice, Compiled, Failed

if TYPE_CHECKING:
    from ...search.records.database import Database
    from ...search.records.record import Record
    from ...search.tasks.task import Task
    from ..tasks import NetworkTask

POPULATION, GENERATIONS = 2048, 2  # of candidates that the estimate looks at

Origin = Literal["tuned", "estimated", "untuned"]
Builder: TypeAlias = "Callable[[Iterable[Build]], Sequence[Built | Failed]]"


@dataclass(frozen=True)
class Kernel:
    """Compiled code for a task, where its schedule comes from, and the record that it was measured for.

    `over` are the numbers of two parameters of the task, an input and an output that takes its memory: the code has
    no parameter for the first.
    """

    task: Task
    compiled: Compiled
    origin: Origin
    record: Record | None = None
    trace: list[Any] | None = None
    over: tuple[int, int] | None = None


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
    """The candidate that the estimate ranks first among some thousands; None for a space without any."""
    from ...cost_model.features import FeatureMap
    from ...search.tuning.evolution import Effort, Evaluated, evolve, row_fingerprints
    from ...search.tuning.search_space import Population, SearchSpace
    from ...space.design.space import generate

    space = generate(task.work.func, task.target, task.interface)
    if not space.sketches:
        return None
    search, features = SearchSpace(space), FeatureMap(space.sketches, task.target)

    def evaluate(number: int, rows: Population) -> Evaluated:
        scores = -features.estimate(number, rows).astype(np.float64)
        return Evaluated(np.arange(len(rows)), scores, row_fingerprints(rows.astype(np.float32)))

    effort, rng = Effort(max(64, POPULATION // len(search.open)), GENERATIONS), np.random.default_rng(0)
    heads = [evolve(search, number, evaluate, rng, effort).head(1) for number in search.open]
    best = max((head for head in heads if len(head.rows)), key=lambda head: float(head.scores[0]), default=None)
    if best is None:
        return None
    indices = tuple(int(value) for value in best.rows[0])
    return Choice(space.sketches[best.sketch].name, indices, dict(task.interface))
