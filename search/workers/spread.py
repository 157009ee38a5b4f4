"""Builds by this process, and by workers beside it on the other cores: for callers that have no executor."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial

from ...backends.cpu_topology import usable_threads
from ...ir.collection import uncollected
from . import jobs
from .bench import Bench, Limits
from .protocol import Build, Built, Failed
from .threads import DaemonThread

FEWEST = 4
"""Builds for each process, below which a worker has hardly started when all is done."""
LIMITS = Limits(build=600.0)
"""A build that is slow because the machine is busy would be as slow here."""


@uncollected
def build_here(wanted: Iterable[Build]) -> list[Built | Failed]:
    """Compile in this process, one after the other."""
    return [jobs.run(job) for job in wanted]


class AllCores:
    """Compiles in this process and in workers, as many as there are other cores and, when they start, enough to do.

    What a worker was lost with is compiled here.  Workers end with the block::

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

    def __call__(self, wanted: Iterable[Build]) -> list[Built | Failed]:
        """The replies in the order of the jobs."""
        given = list(wanted)
        left, replies = deque(range(len(given))), dict[int, Built | Failed]()

        def taken() -> Iterator[int]:
            with contextlib.suppress(IndexError):  # another thread may have taken the last one
                while True:
                    yield left.popleft()

        def work(bench: Bench) -> None:
            for number in taken():
                replies[number] = bench.build(given[number])

        while len(self._benches) < min(usable_threads(), len(given) // FEWEST) - 1:
            self._benches.append((Bench(LIMITS), DaemonThread("stridesmith-bench")))
        ends = [thread.submit(partial(work, bench)) for bench, thread in self._benches]
        for number in taken():
            (replies[number],) = build_here([given[number]])
        for end in ends:
            end.result()
        for number, reply in replies.items():
            if isinstance(reply, Failed) and reply.kind == "infrastructure":
                (replies[number],) = build_here([given[number]])
        return [replies[number] for number in range(len(given))]
