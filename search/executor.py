"""Builds anywhere, measures in one place: jobs handed out to Ray actors.

Each node of the cluster has builders, one for each of its cores; the driver's
node has the one actor that measures.  A job goes to an actor when that is idle,
so that slow ones hold nothing up.  Work that is lost with an actor or a node is
given out again, at most twice; then its reply is ``infrastructure``.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from . import actors
from .bench import Limits
from .process import Reply, failure
from .ray_session import RaySession

Job = Mapping[str, Any]
Done = Callable[[int, Reply], None]

RETRIES = 2
STAFF_SECONDS = 2.0
CLOSE_SECONDS = 2.0
HIRE_SECONDS = 300.0
NODE_STRIKES = 3


@dataclass(eq=False)
class _Member:
    """An actor: `hello` is resolved once it lives, `task` is what it works on."""

    handle: Any
    node: str
    hello: Any
    ready: bool = False
    task: Any = None
    index: int = -1


class _Crew:
    """The actors of one kind, and who of them does what."""

    def __init__(
        self,
        ray: Any,
        method: str,
        cpus: int,
        limits: str,
        wanted: Callable[[], dict[str, int]],
        expected: Job | None = None,
    ) -> None:
        self.ray, self.method, self.cpus, self.limits, self.wanted = ray, method, cpus, limits, wanted
        self.expected = expected
        self.members: list[_Member] = []
        self.strikes: dict[str, int] = {}
        self._staffed = -STAFF_SECONDS

    def staff(self) -> None:
        """Hire on nodes that have too few: new nodes, and nodes that lost an actor."""
        if time.monotonic() - self._staffed < STAFF_SECONDS and self.members:
            return
        self._staffed = time.monotonic()
        for node, count in self.wanted().items():
            if self.strikes.get(node, 0) >= NODE_STRIKES:
                continue
            for _ in range(count - sum(m.node == node for m in self.members)):
                handle = actors.remote(self.ray, node, self.cpus, self.limits)
                self.members.append(_Member(handle, node, handle.node.remote()))
                if self.expected is not None:
                    handle.expect.remote(json.dumps(self.expected))

    def idle(self) -> list[_Member]:
        """Ready ones without work, one of each node in turn before any node's second."""
        rank: dict[str, int] = {}
        order = []
        for member in self.members:
            load = rank[member.node] = rank.get(member.node, -1) + 1
            if member.ready and member.task is None:
                order.append((load, member))
        return [member for _, member in sorted(order, key=lambda pair: pair[0])]

    def give(self, member: _Member, index: int, job: Job) -> None:
        member.index = index
        member.task = getattr(member.handle, self.method).remote(json.dumps(job))

    def hear(self, member: _Member) -> Reply | None:
        """The news of a member: None for its first sign of life.  Raises RayError for one that is lost."""
        value = self.ray.get(member.task if member.ready else member.hello)
        if not member.ready:
            member.ready = True
            return None
        member.task, member.index = None, -1
        reply: Reply = json.loads(value)
        return reply

    def wait(self, seconds: float) -> list[_Member]:
        """Members of whom there is news: their task, or their first sign of life."""
        waiting = {(m.task if m.ready else m.hello): m for m in self.members if m.task is not None or not m.ready}
        if not waiting:
            return []
        ready, _ = self.ray.wait(list(waiting), num_returns=1, timeout=seconds)
        return [waiting[ref] for ref in ready]

    def dismiss(self, member: _Member) -> None:
        """Forget an actor, and kill it if it still lives."""
        self.members.remove(member)
        if not member.ready:
            self.strikes[member.node] = self.strikes.get(member.node, 0) + 1
        with contextlib.suppress(Exception):
            self.ray.kill(member.handle)


class Executor:
    """Builds and measures through Ray; starts it in the background when made.

    `address` joins a cluster (see `RaySession`), `threads` are the cores of a
    private Ray and `builders` the number of builders in all, by default one per
    core.  `expected` has, for ``build`` and ``measure``, a job that such workers do by themselves before they are
    asked anything.  `build` and `measure` return replies in the order of the jobs and
    call `done` with each as it comes.  Jobs may be made while others are under way:
    those of builds as early as possible, each measurement when it is its turn.
    """

    def __init__(
        self,
        address: str | None = None,
        threads: int | None = None,
        builders: int | None = None,
        limits: Limits | None = None,
        expected: Mapping[str, Job] | None = None,
    ) -> None:
        self.builders = builders
        self.limits = limits or Limits()
        self.expected = expected or {}
        self._session = RaySession(address, threads)
        self._crews: dict[str, _Crew] = {}
        self._counts: dict[str, dict[str, int]] = {}

    def wait(self) -> None:
        """Return when a builder is there, or none can be had; the actor that measures may still be on its way."""
        crew = self._crew("build")
        crew.staff()
        self._crew("measure").staff()
        hired = time.monotonic()
        while crew.members and not any(m.ready for m in crew.members) and time.monotonic() - hired < HIRE_SECONDS:
            for member in crew.wait(1.0):
                _greet(crew, member)
            crew.staff()

    def build(self, jobs: Iterable[Job], done: Done | None = None) -> list[Reply]:
        """Compile candidates on any node."""
        return self._dispatch("build", jobs, done)

    def measure(self, jobs: Iterable[Job], done: Done | None = None) -> list[Reply]:
        """Verify and time artifacts, one after the other, on the driver's host."""
        return self._dispatch("measure", jobs, done)

    def race(self, job: Job) -> Reply:
        """Measure several artifacts against each other with fresh data."""
        return self.measure([job])[0]

    def nodes(self) -> dict[str, dict[str, int]]:
        """For each node that did any work, how many candidates it built and measured."""
        return {node: dict(counts) for node, counts in self._counts.items()}

    def close(self) -> None:
        """End all actors and workers, and Ray if it is ours.  Safe to call twice."""
        crews, self._crews = self._crews, {}
        for crew in crews.values():
            idle = [m.handle.close.remote() for m in crew.idle()]
            with contextlib.suppress(Exception):
                crew.ray.wait(idle, num_returns=len(idle), timeout=CLOSE_SECONDS) if idle else None
            for member in list(crew.members):
                crew.dismiss(member)
        self._session.close()

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _crew(self, kind: str) -> _Crew:
        if kind not in self._crews:
            ray = self._session.ready()
            limits, expected = json.dumps(asdict(self.limits)), self.expected.get(kind)
            if kind == "build":
                crew = _Crew(ray, kind, 1, limits, lambda: spread(node_cores(ray), self.builders), expected)
            else:
                here = str(ray.get_runtime_context().get_node_id())
                crew = _Crew(ray, kind, 0, limits, lambda: {here: 1}, expected)
            self._crews[kind] = crew
        return self._crews[kind]

    def _dispatch(self, kind: str, jobs: Iterable[Job], done: Done | None) -> list[Reply]:
        crew = self._crew(kind)
        try:
            return _Round(crew, jobs, done, lambda node: self._count(node, kind)).run(ahead=kind == "build")
        except BaseException:
            for member in [m for m in crew.members if m.task is not None]:
                crew.dismiss(member)
            raise

    def _count(self, node: str, kind: str) -> None:
        counts = self._counts.setdefault(node, {"built": 0, "measured": 0})
        counts["built" if kind == "build" else "measured"] += 1


def _greet(crew: _Crew, member: _Member) -> None:
    """Take a member's first sign of life, or dismiss it where there is none."""
    from ray.exceptions import RayError

    try:
        crew.hear(member)
    except RayError:
        crew.dismiss(member)


class _Round:
    """One call's jobs on their way through a crew."""

    def __init__(self, crew: _Crew, jobs: Iterable[Job], done: Done | None, count: Callable[[str], None]) -> None:
        self.crew, self.done, self.count = crew, done, count
        self.source: Iterator[Job] | None = iter(jobs)
        self.jobs: list[Job] = []
        self.queue: deque[int] = deque()
        self.lost: list[int] = []
        self.replies: dict[int, Reply] = {}

    def run(self, ahead: bool) -> list[Reply]:
        """Give out all jobs and gather the replies; `ahead` makes jobs while the crew is busy."""
        hired = time.monotonic()
        while self._unfinished():
            self.crew.staff()
            self._give_out()
            if any(m.ready for m in self.crew.members):
                hired = time.monotonic()
            elif not self.crew.members or time.monotonic() - hired > HIRE_SECONDS:
                self._give_up()
            if self._unfinished():
                made = ahead and self._make()
                for member in self.crew.wait(0.0 if made else 1.0):
                    self._hear(member)
        return [self.replies[index] for index in range(len(self.jobs))]

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
        self.lost.append(0)
        return True

    def _give_out(self) -> None:
        for member in self.crew.idle():
            if not self.queue and not self._make():
                return
            index = self.queue.popleft()
            self.crew.give(member, index, self.jobs[index])

    def _hear(self, member: _Member) -> None:
        from ray.exceptions import RayError

        index = member.index
        try:
            reply = self.crew.hear(member)
        except RayError as error:
            self.crew.dismiss(member)
            if index >= 0:
                self._lose(index, failure("infrastructure", f"a Ray actor was lost: {type(error).__name__}"))
            return
        if reply is None:
            return
        if reply["status"] == "infrastructure":
            self._lose(index, reply)
        else:
            self.count(member.node)
            self._finish(index, reply)

    def _lose(self, index: int, reply: Reply) -> None:
        """Queue the job again, or let `reply` stand when it was lost too often."""
        self.lost[index] += 1
        if self.lost[index] > RETRIES:
            self._finish(index, reply)
        else:
            self.queue.appendleft(index)

    def _finish(self, index: int, reply: Reply) -> None:
        self.replies[index] = reply
        if self.done is not None:
            self.done(index, reply)

    def _give_up(self) -> None:
        """No actor could be had: what is left fails, and not by the candidates' fault."""
        while self.queue or self._make():
            self._finish(self.queue.popleft(), failure("infrastructure", "Ray has no node that runs our actors"))


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
