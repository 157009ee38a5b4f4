"""Benches of this process's own, for when Ray is lost: jobs run in threads that each have a worker process."""

from __future__ import annotations

import concurrent.futures
from dataclasses import dataclass, field

from .bench import Bench, Limits
from .protocol import Failed, Job, Reply, to_text
from .threads import DaemonThread

NODE = "this process"


@dataclass(eq=False)
class LocalBench:
    """One bench and its thread; `task` is what it works on, for the job of number `job`."""

    bench: Bench
    thread: DaemonThread
    node: str = NODE
    task: concurrent.futures.Future[str] | None = None
    job: int | None = None


@dataclass
class LocalPool:
    """What `ActorPool` is, with `count` benches of this process."""

    count: int
    limits: Limits
    actors: list[LocalBench] = field(default_factory=list)
    ready: bool = True

    def begin(self) -> None:
        """There is nothing to prepare."""

    def may_become_ready(self) -> bool:
        return True

    def start_missing(self) -> None:
        """Make benches; their workers start with their first jobs."""
        while len(self.actors) < self.count:
            bench = Bench(self.limits)
            self.actors.append(LocalBench(bench, DaemonThread("stridesmith-bench")))

    def idle(self) -> list[LocalBench]:
        return [actor for actor in self.actors if actor.task is None]

    def give(self, actor: LocalBench, method: str, number: int, job: Job[Reply]) -> None:
        """Let an idle bench do the job of this number by its `method`, ``build`` or ``measure``."""
        actor.job = number
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

    def stop_busy(self) -> None:
        """End the workers of benches that have work, and forget these."""
        for actor in [actor for actor in self.actors if actor.task is not None]:
            self.actors.remove(actor)
            actor.bench.close()

    def close(self, seconds: float = 0.0) -> None:  # noqa: ARG002, the same as of actors
        """End all workers."""
        self.stop_busy()
        for actor in self.actors:
            actor.bench.close()
        self.actors.clear()
