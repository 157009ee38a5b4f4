"""Benches of this process's own, for when there is no Ray: jobs run in threads that each have a worker process."""

from __future__ import annotations

import concurrent.futures
import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from .bench import Bench, Limits
from .protocol import Failed, Job, Reply, to_text
from .threads import DaemonThread

NODE = "this process"
END_SECONDS = 5.0  # for workers that were asked to end


@dataclass(eq=False)
class LocalBench:
    """One bench and its thread; `task` is what it works on since then, for the job of number `job`."""

    bench: Bench
    thread: DaemonThread
    node: str = NODE
    task: concurrent.futures.Future[str] | None = None
    job: int | None = None
    since: float = 0.0
    number: int = 0


@dataclass
class LocalPool:
    """What `ActorPool` is, with `count` benches of this process; `prepared` is what each does first."""

    count: int
    limits: Limits
    prepared: Job[Reply] | None = None
    actors: list[LocalBench] = field(default_factory=list)
    ready: bool = True
    _ending: list[concurrent.futures.Future[None]] = field(default_factory=list)

    def begin(self) -> None:
        """There is nothing to wait for."""

    def may_become_ready(self) -> bool:
        return True

    def start_missing(self) -> None:
        """Make benches; their workers start with their first jobs."""
        while len(self.actors) < self.count:
            bench = Bench(self.limits)
            number = len(self.actors) + 1
            made = LocalBench(bench, DaemonThread("stridesmith-bench"), number=number)
            self.actors.append(made)
            if self.prepared is not None:
                made.thread.submit(functools.partial(made.bench.prepare, self.prepared))

    def idle(self) -> list[LocalBench]:
        return [actor for actor in self.actors if actor.task is None]

    def give(self, actor: LocalBench, method: str, number: int, job: Job[Reply]) -> None:
        """Let an idle bench do the job of this number by its `method`, ``build`` or ``measure``."""
        actor.job, actor.since = number, time.monotonic()
        act = actor.bench.build if method == "build" else actor.bench.measure
        actor.task = actor.thread.submit(lambda: to_text(act(job)))

    def wait(self, seconds: float) -> list[LocalBench]:
        """Benches that have a reply."""
        tasks = [actor.task for actor in self.actors if actor.task is not None]
        if tasks:
            concurrent.futures.wait(tasks, seconds, concurrent.futures.FIRST_COMPLETED)
        return [actor for actor in self.actors if actor.task is not None and actor.task.done()]

    def receive(self, actor: LocalBench) -> str | Failed:
        """The text of its reply."""
        task, actor.task, actor.job = actor.task, None, None
        assert task is not None
        try:
            return task.result()
        except Exception as error:
            return Failed(status="infrastructure", message=f"a bench failed: {type(error).__name__}: {error}")

    def discard(self, actor: LocalBench) -> None:
        """End a bench whose replies are none, and forget it."""
        self._end([actor])

    def stop_busy(self) -> None:
        """End the workers of benches that have work, and forget these."""
        self._end([actor for actor in self.actors if actor.task is not None])

    def close(self, seconds: float = END_SECONDS) -> None:
        """End all workers and their threads, for at most so many seconds."""
        self._end(self.actors)
        concurrent.futures.wait(self._ending, seconds)
        self._ending.clear()

    def _end(self, actors: Sequence[LocalBench]) -> None:
        """End workers now, and once more in their threads: a job that was just starting one may be later than this."""
        for actor in [*actors]:
            self.actors.remove(actor)
            actor.bench.close()
            self._ending.append(actor.thread.submit(actor.bench.close))
            actor.thread.close()
