"""Where a tuner has candidates built and measured: what it asks for (`Executor`), and how Ray does it (`RayExecutor`).

Builds go anywhere, measurements to one place.  Each node of the cluster has builders, one for each of its cores; the
driver's node has the one runner, which measures.  A job goes to an actor when that is idle, so that slow ones hold
nothing up.  Work that is lost with an actor or a node is given out again, at most twice; then it fails as
``infrastructure``.

Benches of this process do the jobs before there is a Ray, and after one was lost (`ray_calls`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from ...errors import TemporaryError
from ..records.status import TOO_LATE
from .actor_pool import ActorPool
from .bench import Limits
from .local_pool import LocalPool
from .protocol import Failed, Job, ProtocolError, Reply, reply_of
from .ray_calls import RayCalls, RayLost
from .ray_session import RaySession, sweep
from .timeline import Timeline, facts_of

R = TypeVar("R", bound=Reply)

KINDS = ("build", "measure")
RETRIES = 2  # of a job that was lost with its worker
CLOSE_SECONDS = 2.0  # for workers that were asked to end
FIRST_BUILDERS = 8  # of this process, before there is a Ray; a first batch keeps no more busy
LOOK_SECONDS = 0.05  # between two looks
UP_SECONDS = 5.0  # how long builders that are still starting here are waited for once the first one lives
WAITING_SHARE = 0.25  # of what is left of a run, in which nothing is measured while a private Ray starts
NO_NODE = Failed(status="infrastructure", message="Ray has no node that runs our actors")
NO_TIME = Failed(status=TOO_LATE, message="the time of the run was over")


class Executor(Protocol):
    """Builds and measures.  Replies come in the order of the jobs, and `done` hears of each as it comes.

    Jobs may be made while others are under way: those of builds as early as possible, each measurement when it is
    its turn.  After `until` (`time.monotonic`) nothing is waited for: what has no reply then fails as
    ``out_of_time``.  `notes` are sentences for the user.  What is done when goes to the `timeline`, if there is one.
    """

    until: float | None
    notes: list[str]
    timeline: Timeline | None

    def scale_up(self, pays: bool) -> None:
        """The first results are there: have all workers that can be had do what follows.

        `pays` says whether so much follows that starting some is worth its time; what the user named is joined anyway.
        """

    def wait(self, tell: Callable[[str], None] | None = None) -> None:
        """Return when nothing on this host is starting any more, so that a measurement is undisturbed.

        `tell` hears what is waited for, if anything is.
        """

    def build(self, jobs: Iterable[Job[R]], done: Callable[[int, R | Failed], None] | None = None) -> list[R | Failed]:
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

    With `first_here` benches of this process do the jobs until Ray is there: a private one starts when `scale_up` asks
    for it, so that its start does not disturb the first measurements; a cluster is joined at once.

    `address` joins a cluster (see `RaySession`), `threads` are the cores of a private Ray and `builders` the number
    of builders in all, by default one per core.  `prepared` has, for ``build`` and ``measure``, a job that such
    workers do by themselves before they are asked anything.
    """

    def __init__(
        self,
        address: str | None = None,
        threads: int | None = None,
        *,
        builders: int | None = None,
        limits: Limits | None = None,
        prepared: Mapping[str, Job[Reply]] | None = None,
        first_here: bool = False,
    ) -> None:
        self.until: float | None = None
        self.notes: list[str] = []
        self.timeline: Timeline | None = None
        self._builders = builders
        self._limits = limits or Limits()
        self._prepared = prepared or {}
        self._session = RaySession(address, threads)
        self._calls: RayCalls | None = None
        self._is_lost = False
        self._is_late = False
        self._first_here = first_here
        self._is_scaled = not first_here
        self._actors: dict[str, ActorPool] = {}
        self._benches: dict[str, LocalPool] = {}
        self._counts: dict[str, dict[str, int]] = {}
        if first_here:
            for kind in KINDS:
                self._local_pool(kind).start_missing()
        if not first_here or self._session.address is not None:
            self._session.begin()

    def scale_up(self, pays: bool) -> None:
        """Start a private Ray if that `pays`; use the cluster that is being joined in any case."""
        if pays or self._session.address is not None:
            self._is_scaled = True
            if self.until is not None:
                self._session.patience = WAITING_SHARE * (self.until - time.monotonic())
            self._session.begin()

    def wait(self, tell: Callable[[str], None] | None = None) -> None:
        """Return when Ray's workers on this host have started, if they are to; a builder elsewhere may be coming."""
        while self._session.address is not None and not self._is_scaled and not _is_over(self.until):
            if self._session.is_ready:  # joining a cluster computes here, too
                break
            if tell is not None:
                tell(self._session.what)
                tell = None
            time.sleep(LOOK_SECONDS)
        settled: float | None = None
        # The cores of a cluster may all be taken: then benches of this process build, and the cluster measures.
        enough = ("measure",) if self._first_here and self._session.address is not None else KINDS
        while not self._is_lost and self._is_scaled and not _is_over(self.until):
            try:
                if self._is_there(*enough) or not all(pool.may_become_ready() for pool in self._actors.values()):
                    settled = settled or time.monotonic() + UP_SECONDS
                    if time.monotonic() > settled or not any(pool.is_starting_here() for pool in self._actors.values()):
                        return
                elif self._session.is_slow:  # benches of this process do what there is to do, until it is there
                    self._go_on_beside()
                    return
            except RayLost as error:
                self._go_on_without(str(error))
            if tell is not None:
                tell(self._session.what)
                tell = None
            time.sleep(LOOK_SECONDS)

    def build(self, jobs: Iterable[Job[R]], done: Callable[[int, R | Failed], None] | None = None) -> list[R | Failed]:
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
        pools: list[ActorPool | LocalPool] = [*self._benches.values(), *self._actors.values()]
        self._benches, self._actors = {}, {}
        deadline = time.monotonic() + CLOSE_SECONDS
        for pool in pools:
            pool.close(max(0.0, deadline - time.monotonic()))
        self._session.close(is_lost=self._is_lost)
        sweep()

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _pool(self, kind: str) -> ActorPool | LocalPool:
        """Who does jobs of this kind now: Ray's actors once they live, benches of this process before and after."""
        if self._is_lost or not self._is_scaled or not self._is_there(kind):
            return self._local_pool(kind)
        if kind in self._benches:
            self._benches.pop(kind).close()
        return self._actors[kind]

    def _local_pool(self, kind: str) -> LocalPool:
        if kind not in self._benches:
            builders = self._builders or self._session.cpus
            count = 1 if kind == "measure" else builders if self._is_lost else min(builders, FIRST_BUILDERS)
            self._benches[kind] = LocalPool(count, self._limits, self._prepared.get(kind))
        return self._benches[kind]

    def _is_there(self, *kinds: str) -> bool:
        """Whether Ray has an actor that lives of each of these kinds, by default of all; takes in news of them."""
        if not self._actors:
            try:
                if not self._session.is_ready:
                    return False
            except TemporaryError as error:
                if self._session.address is not None:
                    raise
                raise RayLost(str(error)) from None
            self._actors = {kind: self._actor_pool(kind) for kind in KINDS}
        for pool in self._actors.values():
            pool.start_missing()
            for actor in pool.wait(0.0):
                pool.receive(actor)
            self._take_notes(pool)
        return all(self._actors[kind].ready for kind in kinds or KINDS)

    def _actor_pool(self, kind: str) -> ActorPool:
        ray = self._session.ray
        calls = self._calls = self._calls or RayCalls(ray, self._session.core)
        here = str(calls.call(lambda: ray.get_runtime_context().get_node_id()))
        prepared = self._prepared.get(kind)
        if kind == "measure":
            return ActorPool(calls, 0, self._limits, lambda: {here: 1}, prepared, here)
        return ActorPool(
            calls, 1, self._limits, lambda: spread(calls.call(node_cores, ray), self._builders), prepared, here
        )

    def _take_notes(self, pool: ActorPool) -> None:
        self.notes += pool.notes
        pool.notes.clear()

    def _go_on_beside(self) -> None:
        """Do what Ray is to do until it is there."""
        self._session.start_beside()
        if not self._is_late:
            self._is_late = True
            self.notes.append("the local Ray is slow to start; this process builds and measures by itself until then")

    def _go_on_without(self, reason: str) -> None:
        """Take over what Ray was to do."""
        self._is_lost = True
        for pool in self._actors.values():
            pool.stop_busy()
        what = f"Ray was lost ({reason})" if self._actors else reason
        if self._actors or not self._is_late:  # where it has not come up, that was said
            self.notes.append(f"{what}; this process builds and measures by itself from here on")
        self._actors = {}
        self._session.abandon()

    def _dispatch(
        self, kind: str, jobs: Iterable[Job[R]], done: Callable[[int, R | Failed], None] | None
    ) -> list[R | Failed]:
        batch = _Batch(kind, jobs, done, self.timeline)
        if self._session.address is not None:
            _ = self._session.is_ready  # raises as soon as a cluster is known not to answer
        if kind == "measure" or not self._first_here:
            self.wait()
        try:
            try:
                return batch.run(self._pool(kind), lambda: self.until)
            except RayLost as error:
                self._go_on_without(str(error))
            return batch.run(self._pool(kind), lambda: self.until)
        except BaseException:
            for pools in (self._actors, self._benches):
                if kind in pools:
                    pools[kind].stop_busy()
            raise
        finally:
            for pool in self._actors.values():
                self._take_notes(pool)
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
        timeline: Timeline | None = None,
    ) -> None:
        self.kind, self.done, self.timeline = kind, done, timeline
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
                for actor in pool.wait(0.0 if made else _seconds_until(until())):
                    self._receive(pool, actor)
        return [self.replies[index] for index in range(len(self.jobs))]

    def _give_up(self, pool: ActorPool | LocalPool) -> None:
        """Stop waiting for anything in the pool."""
        pool.stop_busy()
        while self._make():
            pass
        for index in range(len(self.jobs)):
            if index not in self.replies:
                self._finish(index, NO_TIME)

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
        index, since = actor.job, actor.since
        text = pool.receive(actor)
        if index is None or text is None:
            return
        try:
            reply = text if isinstance(text, Failed) else reply_of(self.jobs[index], text)
        except ProtocolError as error:
            pool.discard(actor)
            reply = Failed(status="infrastructure", message=f"a worker's reply was none: {error}"[:500])
        if self.timeline is not None:
            lane = "measuring" if self.kind == "measure" else f"builder {actor.number}"
            facts = facts_of(self.jobs[index], reply)
            self.timeline.add(actor.node, lane, type(self.jobs[index]).__name__, since, time.monotonic(), **facts)
        if isinstance(reply, Failed) and reply.kind == "infrastructure":
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


def _seconds_until(until: float | None) -> float:
    """How long to wait before looking around again: a second, or less where the time is over before."""
    return 1.0 if until is None else min(1.0, max(0.0, until - time.monotonic()))


def _is_over(until: float | None) -> bool:
    return until is not None and time.monotonic() >= until


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
