"""A kernel of all sizes for each program of a network: the best that the database has, else what the estimate likes.

The estimate knows programs of one shape.  What it likes best at some sizes is taken over to all of them
(`search.tuning.general`), each schedule for the sizes around that for which it was made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from ...backends.data import arguments_of
from ...errors import ModelProblem
from ...ir.ranges import fixed
from ...ir.size_ranges import Range, ranges_of
from ...ir.stmt import PrimFunc
from ...search.tasks.task import Task
from ...search.tuning.general import LEAST, general
from ...search.workers import kernel_cache
from ...search.workers.programs import candidate, drawn, estimated
from ...search.workers.protocol import Build, Built, Failed
from ...space.errors import ScheduleError
from ...space.interface import Who
from ...space.primitives.specialize import within
from ..run.kernels import Kernel, Origin, best_record
from ..tasks import task_of
from .network import RangedNetwork, RangedOperator

if TYPE_CHECKING:
    from ...ir.target import Target
    from ...search.records.database import Database

Builder: TypeAlias = "Callable[[Iterable[Build]], Sequence[Built | Failed]]"
Steps = list[Any]
Box = dict[str, list[int]]

SHARES = (0.5, 0.08)
"""Where in the ranges the estimate is asked, a choice: the first schedule is for all sizes, others for smaller ones."""


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
        trace = record.trace if record else estimated_steps(task)
        jobs.append(Build(script=task.script, target=task.target, trace=trace))
    for number, job, reply in zip(missing, jobs, build(jobs) if jobs else (), strict=True):
        if isinstance(reply, Failed) and job.trace:
            (reply,) = build([Build(script=job.script, target=job.target)])
            job = Build(script=job.script, target=job.target)
        if isinstance(reply, Failed):
            raise ModelProblem(
                f"the program `{tasks[number].operators[0].name}` of all sizes could not be built: {reply.message}"
            )
        found = Built(kernel=reply.kernel, code_hash=reply.code_hash, trace=job.trace)
        kernel_cache.store(questions[number], found)
        replies[number] = found
    made: dict[str, Kernel] = {}
    for item, record, built in zip(tasks, records, replies, strict=True):
        assert isinstance(built, Built)
        origin: Origin = "tuned" if record else "estimated" if built.trace else "untuned"
        layouts = arguments_of(candidate(item.task.script, built.trace))  # of many shapes a reply tells none
        kernel = Kernel(item.task, replace(built.kernel, layouts=layouts), origin, record, built.trace)
        made.update((node.name, kernel) for node in item.operators)
    return made


def _question(task: Task, record: str | int | None) -> str:
    return json.dumps(["all sizes", record, task.script, task.target.to_json(), dict(task.interface)])


def estimated_steps(task: Task) -> Steps | None:
    """The schedule of all sizes that the estimate likes best at some of them; None where none is proven.

    What is proven from some size on alone has the program of all sizes, as another schedule has it or as it is written,
    below that.
    """
    func = task.work.func
    if not func.stated:
        found = _favourite(func, task)
        return None if found is None else found[1]
    ranges = {v.name: numbers for v, numbers in ranges_of(func).items()}
    everywhere: PrimFunc | None = None
    steps: Steps = []
    cases: list[tuple[Box, Steps, PrimFunc]] = []
    for share in SHARES:
        point = {name: _between(numbers, share) for name, numbers in ranges.items()}
        own = fixed(func, {v: point[v.name] for v in func.integers})
        found = _favourite(own, task)
        if found is None:
            continue
        small = {name: [numbers.low, 2 * point[name]] for name, numbers in ranges.items()}
        boxes = [{}, *_from(ranges, point)] if everywhere is None else [small]
        for box in boxes:
            try:
                made = general(found[1], own, within(func, box) if box else func, task.target)
            except ScheduleError:
                continue
            if not box:
                everywhere, steps = made.func, made.trace.to_json()
            else:
                cases.insert(0, (box, made.trace.to_json(), made.func))
            break
    rest = everywhere or func  # variants of one kernel take its arguments in the same layouts
    alike = [[box, own] for box, own, made in cases
             if (made.layouts, made.attrs) == (rest.layouts, rest.attrs) and own != steps]  # fmt: skip
    if not alike:
        return steps if everywhere else None
    return [["specialize", {"cases": [*alike, [{}, steps]]}]]


def _from(ranges: Mapping[str, Range], point: Mapping[str, int]) -> Iterator[Box]:
    """The ranges without the small numbers of each size, as far as the point is inside."""
    for least in LEAST:
        low = {name: max(numbers.low, -(-least // numbers.step) * numbers.step) for name, numbers in ranges.items()}
        if all(low[name] <= point[name] for name in ranges):
            yield {name: [low[name], numbers.high] for name, numbers in ranges.items()}


def _favourite(func: PrimFunc, task: Task) -> tuple[PrimFunc, Steps] | None:
    """The steps that the estimate likes best for a program of one shape."""
    script = func.script()
    choice = estimated(script, task.target, task.interface)
    if choice is None:
        return None
    try:
        schedule = drawn(script, task.target, choice)
    except (ScheduleError, LookupError):
        return None
    return schedule.func, schedule.trace.to_json()


def _between(numbers: Range, share: float) -> int:
    """The number of a range at a share of it."""
    return numbers.low + int(share * (numbers.count - 1)) * numbers.step
