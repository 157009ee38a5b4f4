"""Builds by this process, or by workers on all cores: for callers that have no executor."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
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
        left, replies = deque(range(len(given))), dict[int, Built | Failed]()

        def work(bench: Bench) -> None:
            while True:
                try:
                    number = left.popleft()
                except IndexError:  # another thread has taken the last one
                    return
                replies[number] = bench.build(given[number])

        self._start(len(given))
        if not self._benches:
            return build_here(given)
        for end in [thread.submit(partial(work, bench)) for bench, thread in self._benches[: len(given)]]:
            end.result()
        for number, reply in replies.items():
            if isinstance(reply, Failed) and reply.kind == "infrastructure":
                (replies[number],) = build_here([given[number]])
        return [replies[number] for number in range(len(given))]
