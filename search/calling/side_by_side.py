"""Two records of one task in turns, here and now, in several new processes.

How long a kernel takes depends on more than its code: on where its buffers came to lie, which changes from process to
process, and on what else the host does, which changes within seconds.  Kernels that take turns meet the same host, and
races in several processes show by how much the rest moves the ratio of the two.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..records.record import Record
from ..records.status import error_of
from ..tasks.task import Task, stored_work
from ..tuning.at_sizes import Runner
from ..workers.bench import Bench, Workbench
from ..workers.protocol import Build, Compiled, Failed, Measured, Race, Reply
from .replay import device_here

RACES = 7
"""Processes: of six degrees of freedom a 99 % interval is 1.4 standard errors of one race wide to either side."""
SECONDS = 0.5  # of one race, a choice

Turns = tuple[Sequence[float], Sequence[float]]
"""Seconds per call of both kernels in one race; those of one round are neighbours in time.

Of a kernel that is slower by far there is one sample, of its first call."""


def race_again(a: Record, b: Record) -> list[Turns]:
    """Build both records again and race them, `RACES` times for about `SECONDS`, each time in a new process.

    Raises DeviceMissing unless this machine has the device of both, and what a kernel that can no longer be built or
    gives a wrong result would raise in a replay.
    """
    target = device_here(b)
    task = Task(stored_work(b.workload, b.params, b.script), target, dict(b.interface))
    runner = Runner(task, b.versions)
    with Bench() as bench:
        kernels = tuple(_built(runner.on(bench), task, record) for record in (a, b))
    found: list[Turns] = []
    for _ in range(RACES):
        seed = int.from_bytes(os.urandom(4), "big") >> 1
        with Bench() as bench:
            raced = runner.on(bench).run(Race(
                kernels=kernels, work=task.name, seed=seed, called=task.called, seconds=SECONDS, roof=False, first=True
            ))  # fmt: skip
        results = [raced, raced] if isinstance(raced, Failed) else raced.results
        one, two = (_measured(result, record) for result, record in zip(results, (a, b), strict=True))
        found.append((one.samples, two.samples))
    return found


def _built(bench: Workbench, task: Task, record: Record) -> Compiled:
    reply = bench.run(Build(script=task.script, target=task.target, trace=record.trace))
    if isinstance(reply, Failed):
        raise _refused(record, reply)
    return reply.kernel


def _measured(result: Reply, record: Record) -> Measured:
    if not isinstance(result, Measured):
        assert isinstance(result, Failed)
        raise _refused(record, result)
    return result


def _refused(record: Record, reply: Failed) -> Exception:
    return error_of(f"record {record.id}", "raced", reply.status, reply.message)
