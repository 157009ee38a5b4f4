"""A kernel for each task of a network: the best that the database has, else what the estimate likes best."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ...errors import BadRecord
from ...ir.deadline import OutOfTime, has_deadline, look
from ...ir.skeleton import skeleton
from ...search.candidates import relatives
from ...search.records.status import error_of
from ...search.workers import kernel_cache
from ...search.workers.executor import NO_TIME
from ...search.workers.programs import candidate, estimated
from ...search.workers.protocol import Build, Built, Compiled, Failed, Trace, to_text
from ...search.workers.spread import build_here
from ...space.interface import PACKED_AHEAD

if TYPE_CHECKING:
    from ...backends.artifact import Argument
    from ...ir.stmt import PrimFunc
    from ...ir.target import Target
    from ...search.records.database import Database
    from ...search.records.record import Record
    from ...search.tasks.task import Task
    from ..network import Operator
    from ..tasks import NetworkTask

Origin = Literal["tuned", "estimated", "untuned"]
Alike: TypeAlias = "tuple[PrimFunc, Target, tuple[tuple[str, str], ...]]"
Builder: TypeAlias = "Callable[[Iterable[Build]], Sequence[Built | Failed]]"


@dataclass(frozen=True)
class Kernel:
    """Compiled code for a task, where its schedule comes from, and the record that it was measured for.

    `over` are the numbers of two parameters of the task, an input and an output that takes its memory: the code has
    no parameter for the first.  Where the program runs as it was written, though no record says so, `notice` says why.
    """

    task: Task
    compiled: Compiled
    origin: Origin
    record: Record | None = None
    trace: list[Any] | None = None
    over: tuple[int, int] | None = None
    notice: str = ""

    def program(self) -> PrimFunc:
        """The scheduled program of the task, all proofs on; of a kernel with `over`, that with two parameters."""
        return candidate(self.task.script, self.trace)


def passed(node: Operator, kernel: Kernel) -> list[tuple[str, Argument]]:
    """The tensor that an operator passes for each parameter of its kernel, and how the kernel takes it."""
    left_out = -1 if kernel.over is None else kernel.over[0]
    names = [name for number, name in enumerate((*node.inputs, *node.outputs)) if number != left_out]
    return list(zip(names, kernel.compiled.layouts, strict=True))


def kernels_of(
    tasks: Sequence[NetworkTask], database: Database | None, build: Builder = build_here
) -> dict[str, Kernel]:
    """A kernel for every operator of the tasks, by the operator's name.

    What earlier processes have compiled is read (`search.workers.kernel_cache`).  A record that is refused is an error,
    since the database would go on naming it; an estimate that is refused, or that nobody could make, gives way to the
    program as it was written.
    """
    records = [None if database is None else best_record(item.task, database) for item in tasks]
    wanted = [(item.task, record) for item, record in zip(tasks, records, strict=True)]
    known = [kernel_cache.stored(_question(task, record)) for task, record in wanted]
    missing = [pair for pair, reply in zip(wanted, known, strict=True) if not isinstance(reply, Built)]
    pairs = list(zip(wanted, known, strict=True))
    choices = {alike(task): r.trace for (task, record), r in pairs if record is None and isinstance(r, Built)}
    made = iter(_made(missing, build, choices))
    found: dict[str, Kernel] = {}
    for item, ((task, record), reply) in zip(tasks, pairs, strict=True):
        kernel = _kernel(task, record, reply) if isinstance(reply, Built) else next(made)
        found.update((node.name, kernel) for node in item.operators)
    return found


def alike(task: Task) -> Alike:
    """What tasks have in common for which one schedule is as good, and of which the estimate says the same."""
    return skeleton(task.work.func), task.target, tuple(task.interface.items())


def best_record(task: Task, database: Database) -> Record | None:
    """The best record of a task; where there is none, that of the same program with weights from elsewhere.

    Weights that are ``constant`` and ``streamed`` ones are packed alike, so that kernels of both are right for both.
    Which of them a part of a model has depends on all constants that were tuned together.  A run measures the program
    as it was written first: where that is all that it came to, nothing is known of candidates.
    """

    def best(interface: Mapping[str, str]) -> Record | None:
        record = database.best(task.script, task.target, interface)
        if record is None or record.trace is not None:
            return record
        tried = database.records(task.script, task.target, interface)
        return record if any(other.trace is not None for other in tried) else None

    other: dict[str, str] = dict(zip(PACKED_AHEAD, reversed(PACKED_AHEAD), strict=True))
    swapped = {name: other.get(word, word) for name, word in task.interface.items()}
    return best(task.interface) or (best(swapped) if swapped != task.interface else None)


def _question(task: Task, record: Record | None) -> str:
    """What decides a kernel: the trace of a record, or what the estimate likes best in the task's space."""
    if record is not None:
        return to_text(Build(script=task.script, target=task.target, trace=record.trace))
    return json.dumps(["estimate", task.script, task.target.to_json(), dict(task.interface)])


def _made(
    wanted: Sequence[tuple[Task, Record | None]], build: Builder, choices: Mapping[Alike, Trace | None]
) -> list[Kernel]:
    """Kernels that nobody has compiled yet; they are kept, unless another try could give another one.

    What the estimate likes is asked once for programs that are `alike`, of some of which `choices` has the traces.
    Before a deadline (`ir.deadline`) estimates are made here, and after it none.  Raises OutOfTime where the builder
    has no time left for the program as it was written.
    """
    first, late = list[Build](), set[str]()
    for task, record in wanted:
        job = Build(script=task.script, target=task.target, trace=record.trace if record else None)
        if record is None:
            try:
                job = _with_estimate(job, task.interface)
            except OutOfTime:
                late.add(task.script)
        first.append(job)
    replies = _once_for_all_alike(build, wanted, first, choices)
    found = []
    for (task, record), job, reply in zip(wanted, first, replies, strict=True):
        lasts = (isinstance(reply, Built) or reply.kind in ("refused", "build_error")) and task.script not in late
        if isinstance(reply, Failed) and record is None and job != _plain(job):
            (reply,) = _through_cache(build, [_plain(job)])
        if reply == NO_TIME:
            raise OutOfTime
        if isinstance(reply, Failed):
            if record is not None:
                raise error_of(f"record {record.id}", "built", reply.status, reply.message)
            raise BadRecord(f"the program `{task.work.name}` could not be built as it is written: {reply.message}")
        if lasts:
            kernel_cache.store(_question(task, record), reply)
        found.append(_kernel(task, record, reply))
    return found


def _once_for_all_alike(
    build: Builder, wanted: Sequence[tuple[Task, Record | None]], jobs: Sequence[Build],
    choices: Mapping[Alike, Trace | None],
) -> list[Built | Failed]:  # fmt: skip
    """Replies to builds; of those that ask for an estimate and are alike the first one is asked, and others follow it.

    One for which the schedule of the first is refused is asked itself.  The search for an estimate begins with what is
    liked of a program of the same form, if one is near: of 119 programs of four networks 65 begin so, which takes 0.37
    of the time, and come out behind by 0.003 octaves.
    """
    keys = [alike(task) if job.estimated is not None else None for (task, _), job in zip(wanted, jobs, strict=True)]
    known, leaders, followers = dict(choices), dict[int, Build](), dict[int, Alike]()
    for number, (key, job) in enumerate(zip(keys, jobs, strict=True)):
        if key is not None and key in known:
            followers[number] = key
            continue
        leaders[number] = job
        if key is not None:
            known[key] = None
    estimates = {
        n: (job.script, tuple(job.estimated.items())) for n, job in leaders.items() if job.estimated is not None
    }
    near = dict(zip(estimates, relatives.nearest_before([*estimates.values()]), strict=True))
    begun = [replace(job, like=near.get(number)) for number, job in leaders.items()]
    replies = dict(zip(leaders, _through_cache(build, begun), strict=True))
    for number, reply in replies.items():
        key = keys[number]
        if isinstance(reply, Built) and key is not None:
            known[key] = reply.trace
    tried = {
        number: replace(_plain(jobs[number]), trace=known[key])
        for number, key in followers.items()
        if known[key] is not None
    }
    found = dict(zip(tried, _through_cache(build, [*tried.values()]), strict=True)) if tried else {}
    replies |= {n: replace(reply, trace=tried[n].trace) for n, reply in found.items() if isinstance(reply, Built)}
    left = {number: jobs[number] for number in followers if number not in replies}
    replies |= dict(zip(left, _through_cache(build, [*left.values()]), strict=True)) if left else {}
    return [replies[number] for number in range(len(jobs))]


def _with_estimate(job: Build, interface: Mapping[str, str]) -> Build:
    """The build of what the estimate likes best, by whoever builds; where there is a deadline, it is made here.

    A builder that meets the end of its time would have compiled nothing, not even the program as it was written.
    """
    if not has_deadline():
        return replace(job, estimated=dict(interface))
    look()
    choice = estimated(job.script, job.target, interface)
    look()
    return replace(job, choice=choice)


def _through_cache(build: Builder, wanted: Sequence[Build]) -> list[Built | Failed]:
    """Replies to builds; those of programs as they were written may have been made by whoever tuned them."""
    known = [kernel_cache.stored(to_text(job)) if job == _plain(job) else None for job in wanted]
    missing = [job for job, reply in zip(wanted, known, strict=True) if not isinstance(reply, Built)]
    made = iter(build(missing) if missing else ())
    return [reply if isinstance(reply, Built) else next(made) for reply in known]


def _plain(job: Build) -> Build:
    """The build of the program as it was written."""
    return Build(script=job.script, target=job.target)


def _kernel(task: Task, record: Record | None, reply: Built) -> Kernel:
    trace = record.trace if record else reply.trace
    origin: Origin = "tuned" if record else "estimated" if trace is not None else "untuned"
    return Kernel(task, reply.kernel, origin, record, trace, notice=reply.notice)
