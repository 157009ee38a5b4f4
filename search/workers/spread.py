"""Builds by this process, or by workers on all cores: for callers that have no executor."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...backends.cpu_topology import usable_threads
from ...ir.collection import uncollected
from . import jobs
from .bench import Bench, Limits
from .protocol import Build, Built, Failed
from .threads import DaemonThread

if TYPE_CHECKING:
    from ...ir.target import Target

FEWEST = 4
"""Builds for each worker, below which it has hardly started when all is done."""
LIMITS = Limits(build=600.0)
"""A build that is slow because the machine is busy would be as slow here."""


@uncollected
def build_here(wanted: Iterable[Build]) -> list[Built | Failed]:
    """Compile in this process, one after the other."""
    return [jobs.run(job) for job in wanted]


class AllCores:
    """Compiles in workers, as many as there are cores and enough to do, and in this process where that is one.

    A process that has compiled programs itself takes a second and more to take all apart that it remembers, when its
    collector of cycles runs or it ends.  What a worker was lost with is compiled here.  Workers end with the block::

        with AllCores() as build:
            replies = build(jobs)
    """

    def __init__(self) -> None:
        self._benches: list[tuple[Bench, DaemonThread]] = []

    def __enter__(self) -> AllCores:
        return self

    def __exit__(self, *exc: object) -> None:
        for bench, thread in self._benches:
            thread.close()
            bench.close()

    def begin(self, count: int, target: Target) -> None:
        """Start the workers for so many builds that come soon.

        Each loads what a build needs, by one of a small program; what this process does meanwhile does not wait for it.
        """
        self._start(count)
        for bench, thread in self._benches:
            thread.submit(partial(bench.build, Build(script=jobs.SMALL, target=target, estimated={})))

    def _start(self, count: int) -> None:
        """As many workers as there are cores and enough builds of `count` for."""
        workers = min(usable_threads(), count // FEWEST)
        while 1 < workers > len(self._benches):
            self._benches.append((Bench(LIMITS), DaemonThread("stridesmith-bench")))

    def __call__(self, wanted: Iterable[Build]) -> list[Built | Failed]:
        """The replies in the order of the jobs."""
        given = list(wanted)
        left, replies = _Left(given), dict[int, Built | Failed]()

        def work(bench: Bench) -> None:
            last: int | None = None
            while (last := left.take(last)) is not None:
                replies[last] = bench.build(given[last])

        self._start(len(given))
        if not self._benches:
            return build_here(given)
        for end in [thread.submit(partial(work, bench)) for bench, thread in self._benches[: len(given)]]:
            end.result()
        for number, reply in replies.items():
            if isinstance(reply, Failed) and reply.kind == "infrastructure":
                (replies[number],) = build_here([given[number]])
        return [replies[number] for number in range(len(given))]


class _Left:
    """Builds that nobody has taken, by number.

    Those that begin with what is liked of one program are best done where that is known.
    """

    def __init__(self, given: Sequence[Build]) -> None:
        self._groups = [job.like or job.script for job in given]
        self._lock = threading.Lock()
        self._fresh: dict[str, deque[int]] = {}
        for number, group in enumerate(self._groups):
            self._fresh.setdefault(group, deque()).append(number)
        self._begun: dict[str, deque[int]] = {}

    def take(self, last: int | None) -> int | None:
        """The next build for who has done the `last` one; None if there is none.

        It is one of the same group, of the largest that nobody has begun, or of the one of which most is left.
        """
        with self._lock:
            mine = self._begun.get(self._groups[last]) if last is not None else None
            if not mine and self._fresh:
                group = max(self._fresh, key=lambda name: len(self._fresh[name]))
                mine = self._begun[group] = self._fresh.pop(group)
            if not mine:
                mine = max(self._begun.values(), key=len, default=None)
            return mine.popleft() if mine else None
