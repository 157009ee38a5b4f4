"""Where a tuner has candidates built and measured: what it asks for (`Executor`), and how Ray does it (`RayExecutor`).

Builds go anywhere, measurements to one place.  Each node of the cluster has builders, one for each of its cores; the
driver's node has the one runner, which measures.  A job goes to an actor when that is idle, so that slow ones hold
nothing up.  Work that is lost with an actor or a node is given out again, at most twice; then it fails as
``infrastructure``.  Where Ray itself is lost (`ray_calls`), benches of this process do the rest.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from .actor_pool import ActorPool
from .bench import Limits
from .local_pool import LocalPool
from .protocol import Failed, Job, Reply, reply_of
from .ray_calls import RayCalls, RayLost
from .ray_session import RaySession, usable_cores

R = TypeVar("R", bound=Reply)

RETRIES = 2
CLOSE_SECONDS = 2.0
NO_NODE = Failed(status="infrastructure", message="Ray has no node that runs our actors")
TOO_LATE = Failed(status="infrastructure", message="the time of the run was over")


class Executor(Protocol):
    """Builds and measures.  Replies come in the order of the jobs, and `done` hears of each as it comes.

    Jobs may be made while others are under way: those of builds as early as possible, each measurement when it is
    its turn.  After `until` (`time.monotonic`) nothing is waited for: what has no reply then fails as
    ``infrastructure``.  `notes` are sentences for the user.
    """

    until: float | None
    notes: list[str]

    def wait(self) -> None:
        """Return when a builder is there, or none can be had."""

    def build(
        self, jobs: Iterable[Job[R]], done: Callable[[int, R | Failed], None] | None = None
    ) -> list[R | Failed]:
        """Compile candidates."""

    def measure(
        self, jobs: Iterable[Job[R]], done: Callable[[int, R | Failed], None] | None = None
    ) -> list[R | Failed]:
        """Verify and time kernels, one job after the other."""

    def nodes(self) -> dict[str, dict[str, int]]:
        """For each node that did any work, how many candidates it built and measured."""

    def close(self) -> None:
        """End all workers.  Safe to call twice."""


class RayExecutor:
    """An `Executor` on Ray, which starts in the background when this is made.

    `address` joins a cluster (see `RaySession`), `threads` are the cores of a private Ray and `builders` the number
    of builders in all, by default one per core.  `prepared` has, for ``build`` and ``measure``, a job that such
    actors do by themselves before they are asked anything.
    """

    def __init__(
        self,
        address: str | None = None,
        threads: int | None = None,
        *,
        builders: int | None = None,
        limits: Limits | None = None,
        prepared: Mapping[str, Job[Reply]] | None = None,
    ) -> None:
        self.until: float | None = None
        self.notes: list[str] = []
        self._builders = builders
        self._limits = limits or Limits()
        self._prepared = prepared or {}
        self._session = RaySession(address, threads)
        self._calls: RayCalls | None = None
        self._is_lost = False
        self._pools: dict[str, ActorPool | LocalPool] = {}
        self._counts: dict[str, dict[str, int]] = {}

    def wait(self) -> None:
        """Return when a builder is there, or none can be had; the runner may still be on its way."""
        try:
            pool: Any = self._pool("build")
            pool.begin()
            pool.start_missing()
            self._pool("measure").start_missing()
            while pool.may_become_ready() and not pool.ready and not _is_over(self.until):
                for actor in pool.wait(1.0):
                    pool.receive(actor)
                pool.start_missing()
        except RayLost as error:
            self._go_on_without(error)

    def build(
        self, jobs: Iterable[Job[R]], done: Callable[[int, R | Failed], None] | None = None
    ) -> list[R | Failed]:
        """Compile candidates on any node."""
        return self._dispatch("build", jobs, done)

    def measure(
        self, jobs: Iterable[Job[R]], done: Callable[[int, R | Failed], None] | None = None
    ) -> list[R | Failed]:
        """Verify and time kernels, one job after the other, on the driver's host."""
        return self._dispatch("measure", jobs, done)

    def nodes(self) -> dict[str, dict[str, int]]:
        """For each node that did any work, how many candidates it built and measured."""
        return {node: dict(counts) for node, counts in self._counts.items()}

    def close(self) -> None:
        """End all actors and workers, and Ray if it is ours.  Safe to call twice."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.close(CLOSE_SECONDS)
        self._session.close(is_lost=self._is_lost)

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _pool(self, kind: str) -> ActorPool | LocalPool:
        if kind not in self._pools:
            if self._is_lost:
                self._pools[kind] = LocalPool(self._builders or usable_cores() if kind == "build" else 1, self._limits)
            else:
                self._pools[kind] = self._actor_pool(kind)
        return self._pools[kind]

    def _actor_pool(self, kind: str) -> ActorPool:
        ray = self._session.ready(self.until)
        calls = self._calls = self._calls or RayCalls(ray, self._session.core)
        prepared = self._prepared.get(kind)
        if kind == "build":
            return ActorPool(
                calls, 1, self._limits, lambda: spread(calls.call(node_cores, ray), self._builders), prepared
            )
        here = str(calls.call(lambda: ray.get_runtime_context().get_node_id()))
        return ActorPool(calls, 0, self._limits, lambda: {here: 1}, prepared)

    def _go_on_without(self, error: RayLost) -> None:
        """Take over what Ray was to do."""
        self._is_lost = True
        for pool in self._pools.values():
            pool.stop_busy()
        self._pools.clear()
        self._session.abandon()
        self.notes.append(f"Ray was lost ({error}); this process builds and measures by itself from here on")

    def _dispatch(
        self, kind: str, jobs: Iterable[Job[R]], done: Callable[[int, R | Failed], None] | None
    ) -> list[R | Failed]:
        batch = _Batch(kind, jobs, done)
        try:
            if not self._is_lost:
                try:
                    return batch.run(self._pool(kind), lambda: self.until)
                except RayLost as error:
                    self._go_on_without(error)
            return batch.run(self._pool(kind), lambda: self.until)
        except BaseException:
            if kind in self._pools:
                self._pools[kind].stop_busy()
            raise
        finally:
            for node in batch.nodes:
                counts = self._counts.setdefault(node, {"built": 0, "measured": 0})
                counts["built" if kind == "build" else "measured"] += 1


class _Batch(Generic[R]):
    """One call's jobs on their way through a pool of actors, or of benches; `nodes` are where they were done."""

    def __init__(
        self,
        kind: str,
        jobs: Iterable[Job[R]],
        done: Callable[[int, R | Failed], None] | None,
    ) -> None:
        self.kind, self.done = kind, done
        self.nodes: list[str] = []
        self.source: Iterator[Job[R]] | None = iter(jobs)
        self.jobs: list[Job[R]] = []
        self.queue: deque[int] = deque()
        self.losses: list[int] = []
        self.replies: dict[int, R | Failed] = {}

    def run(self, pool: ActorPool | LocalPool, until: Callable[[], float | None]) -> list[R | Failed]:
        """Give out all jobs and gather the replies, before `until`; those of builds are made ahead.

        After RayLost it may be called again, with another pool, which gets all that has no reply.
        """
        self.queue = deque(index for index in range(len(self.jobs)) if index not in self.replies)
        pool.begin()
        while self._unfinished():
            if _is_over(until()):
                self._give_up(pool)
                break
            pool.start_missing()
            for actor in pool.idle():
                if self.queue or self._make():
                    index = self.queue.popleft()
                    pool.give(actor, self.kind, index, self.jobs[index])  # type: ignore[arg-type]
            if not pool.may_become_ready():
                while self.queue or self._make():
                    self._finish(self.queue.popleft(), NO_NODE)
            if self._unfinished():
                made = self.kind == "build" and self._make()
                for actor in pool.wait(0.0 if made else 1.0):
                    self._receive(pool, actor)
        return [self.replies[index] for index in range(len(self.jobs))]

    def _give_up(self, pool: ActorPool | LocalPool) -> None:
        """Nothing is waited for any more."""
        pool.stop_busy()
        while self._make():
            pass
        for index in range(len(self.jobs)):
            if index not in self.replies:
                self._finish(index, TOO_LATE)

    def _unfinished(self) -> bool:
        return self.source is not None or len(self.replies) < len(self.jobs)

    def _make(self) -> bool:
        """Queue the next job of the source; False when there is none left."""
        job = None if self.source is None else next(self.source, None)
        if job is None:
            self.source = None
            return False
        self.queue.append(len(self.jobs))
        self.jobs.append(job)
        self.losses.append(0)
        return True

    def _receive(self, pool: Any, actor: Any) -> None:
        """Take the news of an actor; a job that was lost too often fails, and else is queued again."""
        index = actor.job
        text = pool.receive(actor)
        if index is None or text is None:
            return
        reply = text if isinstance(text, Failed) else reply_of(self.jobs[index], text)
        if isinstance(reply, Failed) and reply.status == "infrastructure":
            self.losses[index] += 1
            if self.losses[index] <= RETRIES:
                self.queue.appendleft(index)
                return
        else:
            self.nodes.append(actor.node)
        self._finish(index, reply)

    def _finish(self, index: int, reply: R | Failed) -> None:
        self.replies[index] = reply
        if self.done is not None:
            self.done(index, reply)


def _is_over(until: float | None) -> bool:
    return until is not None and time.monotonic() > until


def node_cores(ray: Any) -> dict[str, int]:
    """Live nodes with the cores that they offer."""
    return {str(n["NodeID"]): int(n["Resources"].get("CPU", 0)) for n in ray.nodes() if n["Alive"]}


def spread(cores: Mapping[str, int], total: int | None) -> dict[str, int]:
    """How many builders each node gets: one per core, or `total` handed out in turns."""
    if total is None:
        return dict(cores)
    result = dict.fromkeys(cores, 0)
    for number in range(total):
        if result:
            result[sorted(result)[number % len(result)]] += 1
    return result
