"""A kernel of all sizes for each program of a network: the best that the database has, else what the estimate likes.

Whoever compiles asks the estimate as well (`search.candidates.all_sizes`), so that all cores do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from ...errors import ModelProblem
from ...search.tasks.task import Task
from ...search.workers import kernel_cache
from ...search.workers.protocol import Build, Built, Failed
from ...space.interface import Who
from ..run.kernels import Kernel, Origin, best_record
from ..tasks import task_of
from .network import RangedNetwork, RangedOperator

if TYPE_CHECKING:
    from ...ir.target import Target
    from ...search.records.database import Database

LASTING = ("refused", "build_error")
"""Failures that would be the same ones again."""

Builder: TypeAlias = "Callable[[Iterable[Build]], Sequence[Built | Failed]]"


@dataclass(frozen=True)
class RangedTask:
    """A task of all sizes, and the operators that its kernel is for."""

    task: Task
    operators: tuple[RangedOperator, ...]


def tasks_of(network: RangedNetwork, target: Target) -> tuple[RangedTask, ...]:
    """The tasks of the operators that have programs, each once."""
    read = {name for node in network.nodes for name in node.inputs}
    nbytes = sum(array.nbytes for name, array in network.constants.items() if name in read)
    word: Who = "streamed" if nbytes > target.l2_bytes * (target.cores or 1) else "constant"
    groups: dict[tuple[str, ...], tuple[Task, list[RangedOperator]]] = {}
    for node in network.nodes:
        if node.func is None:
            continue
        names = (*node.inputs, *node.outputs)
        words: tuple[Who, ...] = tuple(word if name in network.constants else "fixed" for name in names)
        task = task_of(node.func, words, target, nbytes)
        groups.setdefault(task.key, (task, []))[1].append(node)
    return tuple(RangedTask(task, tuple(nodes)) for task, nodes in groups.values())


def kernels_of(tasks: Sequence[RangedTask], database: Database | None, build: Builder) -> dict[str, Kernel]:
    """A kernel for every operator of the tasks, by the operator's name.

    What earlier processes have compiled is read (`search.workers.kernel_cache`).  Raises ModelProblem for a program
    that cannot be built as it is written.
    """
    records = [None if database is None else best_record(item.task, database) for item in tasks]
    questions = [
        _question(item.task, record.id if record else None) for item, record in zip(tasks, records, strict=True)
    ]
    replies = [kernel_cache.stored(question) for question in questions]
    missing = [number for number, reply in enumerate(replies) if not isinstance(reply, Built)]
    jobs = []
    for number in missing:
        record, task = records[number], tasks[number].task
        asked = Build(script=task.script, target=task.target)
        jobs.append(replace(asked, trace=record.trace) if record else replace(asked, estimated=dict(task.interface)))
    for number, job, reply in zip(missing, jobs, build(jobs) if jobs else (), strict=True):
        found = reply
        if isinstance(reply, Failed):
            from ...search.candidates.all_sizes import rest_of

            for trace in (*rest_of(reply.trace or []), None):
                (found,) = build([Build(script=job.script, target=job.target, trace=trace)])
                if not isinstance(found, Failed):
                    found = replace(found, trace=trace, notice="" if trace else reply.message)
                    break
        if isinstance(found, Failed):
            raise ModelProblem(
                f"the program `{tasks[number].operators[0].name}` of all sizes could not be built: {found.message}"
            )
        if isinstance(reply, Built) and (record := records[number]) is not None:
            notice = "" if record.trace else f"record {record.id} is the program as it is written"
            found = replace(found, trace=record.trace, notice=notice)
        if isinstance(reply, Built) or reply.kind in LASTING:  # what a busy machine gave up is tried again
            kernel_cache.store(questions[number], found)
        replies[number] = found
    made: dict[str, Kernel] = {}
    for item, record, built in zip(tasks, records, replies, strict=True):
        assert isinstance(built, Built)
        origin: Origin = "untuned" if not built.trace else "tuned" if record else "estimated"
        kernel = Kernel(item.task, built.kernel, origin, record, built.trace, notice=built.notice)
        made.update((node.name, kernel) for node in item.operators)
    return made


def _question(task: Task, record: str | int | None) -> str:
    return json.dumps(["all sizes", record, task.script, task.target.to_json(), dict(task.interface)])
