"""Ray actors of one kind on the nodes that should have them: started, given jobs, heard, and replaced when lost.

An actor with a job is asked for a sign of life every few seconds.  One that gives none (its host is frozen, its link is
cut), whose process on this host a debugger, say, has stopped, or whose job takes longer than all of its limits
together, counts as lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from .actors import SIGNS, host_of_processes, start_actor
from .bench import Limits
from .protocol import Failed, Job, Race, Reply, to_text
from .ray_calls import RayCalls, Stopped
from .versions import differences, parsed

CHECK_SECONDS = 2.0  # how often nodes are counted and signs of life asked for
START_SECONDS = 300.0  # how long to wait for a first actor
HELLO_SECONDS = 90.0  # for any actor to come up
SILENT_SECONDS = 8.0  # four times `CHECK_SECONDS`
SPARE_SECONDS = 60.0  # of a job beyond its limits: workers start, measurements of others end
FAILED_STARTS = 3  # after so many a node gets no more actors


@dataclass(eq=False)
class Actor:
    """An actor: `hello` is resolved once it lives, `task` is what it works on, for the job of number `job`.

    `since` is when it was started or its task was given, and `deadline` when the task must be done; `sign` is a sign
    of life that was asked for at the time `asked`.  `pid` is 0 where the process is not one of this host; `number`
    counts the actors of a pool.
    """

    handle: Any
    node: str
    hello: Any
    since: float
    ready: bool = False
    task: Any = None
    job: int | None = None
    deadline: float = 0.0
    sign: Any = None
    asked: float = 0.0
    pid: int = 0
    number: int = 0


class ActorPool:
    """Actors with `cpus` cores each; `wanted` says how many each node should have, `prepared` what each does first.

    `here` is the node of this process.  Every method that asks Ray for something raises RayLost.
    """

    def __init__(
        self, calls: RayCalls, cpus: int, limits: Limits, wanted: Callable[[], dict[str, int]],
        prepared: Job[Reply] | None, here: str = "",
    ) -> None:  # fmt: skip
        self._calls, self._cpus, self._limits, self._wanted, self._prepared = calls, cpus, limits, wanted, prepared
        self._here = here
        self.actors: list[Actor] = []
        self.notes: list[str] = []
        self._failed_starts: dict[str, int] = {}
        self._started_so_far = 0
        self._checked = -CHECK_SECONDS
        self._listened = time.monotonic()
        self._last_ready = time.monotonic()
        self._stopped = Stopped()

    @property
    def ready(self) -> bool:
        """Whether one of the actors lives."""
        return any(actor.ready for actor in self.actors)

    def begin(self) -> None:
        """Work begins: from now on `START_SECONDS` may pass without an actor that lives."""
        self._last_ready = time.monotonic()

    def may_become_ready(self) -> bool:
        """Whether an actor lives, or one was started not too long ago."""
        if self.ready:
            self._last_ready = time.monotonic()
        return bool(self.actors) and time.monotonic() - self._last_ready < START_SECONDS

    def is_starting_here(self) -> bool:
        """Whether an actor of this process's node has not come up yet."""
        return any(actor.node == self._here and not actor.ready for actor in self.actors)

    def start_missing(self) -> None:
        """Start actors on nodes that have too few: new nodes, and nodes that lost one."""
        if time.monotonic() - self._checked < CHECK_SECONDS and self.actors:
            return
        self._checked = time.monotonic()
        for node, count in self._wanted().items():
            if self._failed_starts.get(node, 0) >= FAILED_STARTS:
                continue
            for _ in range(count - sum(actor.node == node for actor in self.actors)):
                self.actors.append(self._calls.call(self._started, node))

    def _started(self, node: str) -> Actor:
        handle = start_actor(self._calls.ray, node, self._cpus, json.dumps(asdict(self._limits)))
        self._started_so_far += 1
        actor = Actor(handle, node, handle.hello.remote(), time.monotonic(), number=self._started_so_far)
        if self._prepared is not None:
            handle.prepare.remote(to_text(self._prepared))
        return actor

    def idle(self) -> list[Actor]:
        """Ready ones without work, one of each node in turn before any node's second."""
        rank: dict[str, int] = {}
        order = []
        for actor in self.actors:
            load = rank[actor.node] = rank.get(actor.node, -1) + 1
            if actor.ready and actor.task is None:
                order.append((load, actor))
        return [actor for _, actor in sorted(order, key=lambda pair: pair[0])]

    def give(self, actor: Actor, method: str, number: int, job: Job[Reply]) -> None:
        """Let an idle actor do the job of this number by its `method`."""
        actor.job, actor.since, actor.sign = number, time.monotonic(), None
        limits = self._limits
        longest = limits.race + job.seconds if isinstance(job, Race) else max(limits.measure, limits.build)
        # Until then it must have been answered, whatever its worker and its actor do.
        actor.deadline = actor.since + max(longest, limits.call, job.deadline or 0.0) + limits.prepare + SPARE_SECONDS
        actor.asked = actor.since
        actor.task = self._calls.call(getattr(actor.handle, method).remote, to_text(job))

    def wait(self, seconds: float) -> list[Actor]:
        """Actors that have news: a result, a first sign of life, or their loss."""
        waiting = {(a.task if a.ready else a.hello): a for a in self.actors if a.task is not None or not a.ready}
        if not waiting:
            return []
        ray = self._calls.ray
        found, _ = self._calls.call(ray.wait, list(waiting), num_returns=1, timeout=seconds, seconds=seconds)
        news = [waiting[ref] for ref in found]
        if not news or time.monotonic() - self._listened >= CHECK_SECONDS / 2:  # also while others have news
            self._listened = time.monotonic()
            news += [actor for actor in self._silent(list(waiting.values())) if actor not in news]
        return news

    def _silent(self, actors: list[Actor]) -> list[Actor]:
        """Actors that gave no sign of life for too long or passed their deadline; the others are asked for a sign."""
        now, lost = time.monotonic(), []
        for actor in actors:
            if not actor.ready:
                if now - actor.since > HELLO_SECONDS:
                    lost.append(actor)
                continue
            if actor.sign is not None and self._has_answered(actor.sign):
                actor.sign = None
            if actor.sign is None and now - actor.asked >= CHECK_SECONDS:
                actor.sign, actor.asked = self._calls.call(_sign_of, actor.handle), now
            is_silent = actor.sign is not None and now - actor.asked > SILENT_SECONDS
            if now > actor.deadline or is_silent or (actor.pid and self._stopped.stands_still(actor.pid)):
                lost.append(actor)
        return lost

    def _has_answered(self, sign: Any) -> bool:
        """Whether the actor has answered; its death counts as an answer, since its task reports that, too."""
        done, _ = self._calls.call(self._calls.ray.wait, [sign], timeout=0)
        return bool(done)

    def receive(self, actor: Actor) -> str | Failed | None:
        """The news: a reply's text, None for a first sign of life, Failed where the actor was lost and is replaced."""
        if actor not in self.actors:  # its node was refused meanwhile
            return None
        awaited = actor.task if actor.ready else actor.hello
        if not self._has_answered(awaited):
            self._stop(actor)
            return Failed(status="infrastructure", message="a Ray actor gave no sign of life, or no answer in its time")
        reply = self._calls.reply(awaited)
        if isinstance(reply, Failed):
            self._stop(actor)
            return reply
        if not actor.ready:
            host, _, told = reply.partition(" ")
            pid, _, versions = told.partition(" ")
            actor.ready = True
            actor.pid = int(pid) if host == host_of_processes() and pid.isdecimal() else 0
            if problem := differences(parsed(versions)):
                self._refuse(actor.node, problem)
            elif self._failed_starts.get(actor.node, 0) < FAILED_STARTS:
                self._failed_starts.pop(actor.node, None)  # what failed before has passed
            return None
        actor.task = actor.job = actor.sign = None
        return reply

    def _refuse(self, node: str, problem: str) -> None:
        """A node whose kernels would be others gets no work: its actors end, and no new ones are started."""
        if self._failed_starts.get(node, 0) < FAILED_STARTS:
            self.notes.append(f"node {node[:8]} gets no work: it has {problem}")
        self._failed_starts[node] = FAILED_STARTS
        for actor in [actor for actor in self.actors if actor.node == node]:
            self._stop(actor)

    def discard(self, actor: Actor) -> None:
        """Kill an actor whose replies are none, and forget it."""
        if actor in self.actors:
            self._stop(actor)

    def stop_busy(self) -> None:
        """Kill the actors that have work."""
        for actor in [actor for actor in self.actors if actor.task is not None]:
            self._stop(actor)

    def close(self, seconds: float) -> None:
        """End all actors; idle ones may take so many seconds to end their workers, whatever Ray does."""
        ray, idle = self._calls.ray, self.idle()
        if idle:
            self._calls.send(
                lambda: ray.wait([a.handle.close.remote() for a in idle], num_returns=len(idle), timeout=seconds),
                seconds=seconds,
            )
        for actor in list(self.actors):
            self._stop(actor)

    def _stop(self, actor: Actor) -> None:
        """Forget an actor, and kill it if it still lives: a process that stands still hears no other signal."""
        self.actors.remove(actor)
        if not actor.ready:
            self._failed_starts[actor.node] = self._failed_starts.get(actor.node, 0) + 1
        self._calls.send(self._calls.ray.kill, actor.handle)
        if actor.pid:
            with contextlib.suppress(OSError):
                os.kill(actor.pid, signal.SIGKILL)


def _sign_of(handle: Any) -> Any:
    """Ask an actor for a sign of life, which it gives beside its job."""
    return handle.sign.options(concurrency_group=SIGNS).remote()
