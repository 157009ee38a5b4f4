"""Tuning a network: its tasks, each once, share the seconds and the workers of one run."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .run.kernels import kernels_of
from .run.model import Model
from .tasks import tasks_of

if TYPE_CHECKING:
    from ..ir.target import Target
    from ..search.tuning.events import Emit
    from ..search.workers.executor import Executor
    from .network import Network


@dataclass(frozen=True)
class Tuned:
    """What a run has found: the model, what the sum of its kernels foretells for a call, and what it cost."""

    model: Model
    predicted_us: float | None
    trials: int
    seconds: float
    stopped_by: str
    db: str


def tune_network(
    network: Network,
    target: Target,
    seconds: float,
    *,
    db: str | None = None,
    seed: int = 0,
    address: str | None = None,
    start: float | None = None,
    emit: Emit | None = None,
    executor: Executor | None = None,
) -> Tuned:
    """Tune the tasks of a network for so many seconds and compile it with the best kernels that there are then.

    `executor` builds and measures, by default on Ray; `start` is the `time.monotonic()` value that the seconds count
    from.  What is found is stored at once, so that an interrupted run, which raises Interrupted, can be continued.
    """
    from ..search.records.database import Database
    from ..search.tuning.interruption import uninterrupted
    from ..search.tuning.scheduler import Scheduler
    from ..search.workers.executor import RayExecutor

    tasks = tasks_of(network, target)
    executor = executor or RayExecutor(address, target.threads)
    try:
        with contextlib.closing(Database(db)) as database:
            weighted = [(item.task, item.weight) for item in tasks]
            scheduler = Scheduler(weighted, database, executor, seconds, seed=seed, start=start, emit=emit)
            stopped_by = scheduler.play() if tasks else "exhausted"
            kernels = kernels_of(tasks, database, executor.build)
            name = database.name
    finally:
        with uninterrupted():
            executor.close()
    model = Model(network, kernels, target)
    return Tuned(model, scheduler.predicted_us, scheduler.trials, scheduler.clock.seconds, stopped_by, name)

