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


def build_on_all_cores(wanted: Iterable[Build]) -> list[Built | Failed]:
    """Compile in this process and in workers, as many as there are other cores and enough to do.

    What a worker was lost with is compiled here.
    """
    given = list(wanted)
    left, replies = deque(range(len(given))), dict[int, Built | Failed]()

    def taken() -> Iterator[int]:
        with contextlib.suppress(IndexError):  # another thread may have taken the last one
            while True:
                yield left.popleft()

    def work(bench: Bench) -> None:
        for number in taken():
            replies[number] = bench.build(given[number])

    with contextlib.ExitStack() as held:
        ends = []
        for _ in range(1, min(usable_threads(), len(given) // FEWEST)):
            thread = DaemonThread("stridesmith-bench")
            ends.append(thread.submit(partial(work, held.enter_context(Bench(LIMITS)))))
            thread.close()
        for number in taken():
            (replies[number],) = build_here([given[number]])
        for end in ends:
            end.result()
    for number, reply in replies.items():
        if isinstance(reply, Failed) and reply.kind == "infrastructure":
            (replies[number],) = build_here([given[number]])
    return [replies[number] for number in range(len(given))]
