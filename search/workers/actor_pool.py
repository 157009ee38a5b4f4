"""Ray actors of one kind on the nodes that should have them: started, given jobs, heard, and replaced when lost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .actors import start_actor
from .protocol import Failed, Job, Reply, to_text

CHECK_SECONDS = 2.0  # how often nodes are counted
START_SECONDS = 300.0  # how long to wait for a first actor
FAILED_STARTS = 3  # after so many a node gets no more actors


@dataclass(eq=False)
class Actor:
    """An actor: `hello` is resolved once it lives, `task` is what it works on, for the job of number `job`."""

    handle: Any
    node: str
    hello: Any
    ready: bool = False
    task: Any = None
    job: int | None = None


class ActorPool:
    """Actors with `cpus` cores each; `wanted` says how many each node should have, `prepared` what each does first."""

    def __init__(
        self, ray: Any, cpus: int, limits: str, wanted: Callable[[], dict[str, int]], prepared: Job[Reply] | None
    ) -> None:
        self._ray, self._cpus, self._limits, self._wanted, self._prepared = ray, cpus, limits, wanted, prepared
        self.actors: list[Actor] = []
        self._failed_starts: dict[str, int] = {}
        self._checked = -CHECK_SECONDS
        self._last_ready = time.monotonic()

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

    def start_missing(self) -> None:
        """Start actors on nodes that have too few: new nodes, and nodes that lost one."""
        if time.monotonic() - self._checked < CHECK_SECONDS and self.actors:
            return
        self._checked = time.monotonic()
        for node, count in self._wanted().items():
            if self._failed_starts.get(node, 0) >= FAILED_STARTS:
                continue
            for _ in range(count - sum(actor.node == node for actor in self.actors)):
                handle = start_actor(self._ray, node, self._cpus, self._limits)
                self.actors.append(Actor(handle, node, handle.node.remote()))
                if self._prepared is not None:
                    handle.prepare.remote(to_text(self._prepared))

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
        actor.job = number
        actor.task = getattr(actor.handle, method).remote(to_text(job))

    def wait(self, seconds: float) -> list[Actor]:
        """Actors of which there is news: their task, or their first sign of life."""
        waiting = {(a.task if a.ready else a.hello): a for a in self.actors if a.task is not None or not a.ready}
        if not waiting:
            return []
        found, _ = self._ray.wait(list(waiting), num_returns=1, timeout=seconds)
        return [waiting[ref] for ref in found]

    def receive(self, actor: Actor) -> str | Failed | None:
        """The news: a reply's text, None for a first sign of life, Failed where the actor was lost and is replaced."""
        from ray.exceptions import RayError

        try:
            text = self._ray.get(actor.task if actor.ready else actor.hello)
        except RayError as error:
            self._stop(actor)
            return Failed(status="infrastructure", message=f"a Ray actor was lost: {type(error).__name__}")
        if not actor.ready:
            actor.ready = True
            return None
        actor.task = actor.job = None
        return str(text)

    def stop_busy(self) -> None:
        """Kill the actors that have work."""
        for actor in [actor for actor in self.actors if actor.task is not None]:
            self._stop(actor)

    def close(self, seconds: float) -> None:
        """End all actors; idle ones may take some seconds to end their workers."""
        ending = [actor.handle.close.remote() for actor in self.idle()]
        with contextlib.suppress(Exception):
            if ending:
                self._ray.wait(ending, num_returns=len(ending), timeout=seconds)
        for actor in list(self.actors):
            self._stop(actor)

    def _stop(self, actor: Actor) -> None:
        """Forget an actor, and kill it if it still lives."""
        self.actors.remove(actor)
        if not actor.ready:
            self._failed_starts[actor.node] = self._failed_starts.get(actor.node, 0) + 1
        with contextlib.suppress(Exception):
            self._ray.kill(actor.handle)
