"""A kernel of many shapes, measured: at sizes that are drawn from its ranges, each of them a task of one shape.

Its samples are geometric means over these sizes, each with its share of all draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from ...errors import UsageError
from ...ir.ranges import fixed
from ...ir.size_ranges import Range
from ..tasks.task import Task
from ..workers.protocol import Compiled, Failed, Job, Measured, Race, Raced, Reply, Verify
from .sizes import Likely, Point, checked_ranges, drawn, likely_of, takes, with_small

if TYPE_CHECKING:
    from ...ir.stmt import PrimFunc

SIZES, MORE_SIZES = 8, 12  # that are drawn from one range, and from several: a choice
FRESH, FRESH_FROM = 4, 1000  # sizes that nothing has measured, and the number of the first draw of them
LIKELY = "likely"  # among a record's versions: what was said of its sizes
LONGEST = 200  # characters of that

R = TypeVar("R", bound=Reply)


class Do(Protocol):
    """What is done with a job, which gives its reply."""

    def __call__(self, job: Job[R], /) -> R | Failed: ...


@dataclass(frozen=True)
class Turns:
    """How kernels are timed at one size: on data of a `seed`, for about so many `seconds`."""

    seed: int
    seconds: float


@dataclass(frozen=True)
class Sizes:
    """The ranges of a task's sizes by name, what is `likely` of them, and the points that are drawn from them."""

    task: Task
    ranges: Mapping[str, Range]
    likely: Likely
    points: tuple[Point, ...]

    @staticmethod
    def of(task: Task, likely: Likely) -> Sizes:
        """What is drawn for a task.  Raises UsageError."""
        work = task.work
        ranges = checked_ranges(work.func, likely, work.sizes)
        names = {shown: name for name, shown in work.sizes.items()}
        own = {names.get(name, name): shares for name, shares in likely.items()}
        points = drawn(work.func, ranges, own, SIZES if len(ranges) == 1 else MORE_SIZES)
        if not points:
            raise UsageError(f"nothing within the ranges of {work} meets what the program assumes")
        if len(_text(likely)) > LONGEST:
            raise UsageError(f"what --likely says has more than {LONGEST} characters, which a record does not hold")
        return Sizes(task, ranges, likely, tuple(with_small(work.func, ranges, own, points)))

    @staticmethod
    def stored(task: Task, versions: Mapping[str, str]) -> Sizes:
        """The sizes at which a record was measured."""
        texts = [text for text in versions.get(LIKELY, "").split(" ") if text]
        return Sizes.of(task, {name: shares for text in texts for name, shares in likely_of(text).items()})

    @property
    def versions(self) -> dict[str, str]:
        """What a record says of the sizes."""
        return {LIKELY: _text(self.likely)} if self.likely else {}

    def at(self, point: Point) -> Task:
        """The task of one shape."""
        return Task(self.task.work.at(point.values), self.task.target, self.task.interface)

    def raced(self, do: Do, entries: Sequence[Compiled], point: Point, turns: Turns) -> Sequence[Measured | Failed]:
        """Kernels of one size, verified and timed in turns."""
        task = self.at(point)
        reply = do(Race(
            kernels=tuple(entries), work=task.name, seed=turns.seed, called=task.called, seconds=turns.seconds,
            roof=False, first=True,
        ))  # fmt: skip
        return reply.results if isinstance(reply, Raced) else [reply] * len(entries)

    def samples(self, do: Do, entries: Sequence[tuple[Compiled, PrimFunc]], turns: Turns) -> list[Measured | Failed]:
        """The samples of each kernel, geometric means over all points by their weights in seconds; or its failure."""
        logs: list[list[float]] = [[] for _ in entries]
        failed: dict[int, Failed] = {}
        errors = [0.0] * len(entries)
        for point in self.points:
            kernels = [at_point(kernel, func, point) for kernel, func in entries]
            for number, result in enumerate(self.raced(do, kernels, point, turns)):
                if isinstance(result, Failed):
                    failed[number] = Failed(status=result.status, message=f"at {point}: {result.message}")
                    continue
                errors[number] = max(errors[number], result.max_abs_error or 0.0)
                own = [point.weight * math.log(seconds) for seconds in result.samples]
                logs[number] = [a + b for a, b in zip(logs[number], own, strict=False)] if logs[number] else own
        return [
            failed.get(number) or Measured(samples=tuple(map(math.exp, logs[number])), max_abs_error=errors[number])
            for number in range(len(entries))
        ]

    def wrong(self, do: Do, kernel: Compiled, func: PrimFunc, seed: int) -> Failed | None:
        """Why a kernel of many shapes is not right at both ends of the ranges, and at sizes that nothing measures."""
        known = [point.values for point in self.points]
        ends = [Point({name: numbers.ends[end] for name, numbers in self.ranges.items()}) for end in (0, -1)]
        fresh = drawn(self.task.work.func, self.ranges, {}, FRESH, skip=FRESH_FROM)
        for point in (*ends, *fresh):
            if point.values not in known and takes(self.task.work.func, point.values):
                reply = do(Verify(kernel=at_point(kernel, func, point), work=self.at(point).name, seed=seed))
                if isinstance(reply, Failed):
                    return Failed(status=reply.status, message=f"at {point}: {reply.message}")
        return None

    def gflops(self, latency_us: float) -> float:
        """The geometric mean of the operations of the points, by a latency; 0 where these are not known."""
        counts = [(point.weight, self.task.work.at(point.values).flops) for point in self.points]
        if not all(count for _, count in counts):
            return 0.0
        return math.exp(sum(weight * math.log(count) for weight, count in counts)) / latency_us * 1e-3


def at_point(kernel: Compiled, func: PrimFunc, point: Point) -> Compiled:
    """The kernel of a scheduled program for one size."""
    from ...backends.data import arguments_of

    values = {v: point.values[v.name] for v in func.integers}
    return Compiled(kernel.artifact, arguments_of(fixed(func, values)), tuple(values[v] for v in func.sizes))


def _text(likely: Likely) -> str:
    """``m=1:0.5,128:0.3 n=4:0.1``."""
    listed = {name: ",".join(f"{n}:{share:g}" for n, share in shares.items()) for name, shares in likely.items()}
    return " ".join(f"{name}={shares}" for name, shares in listed.items())
