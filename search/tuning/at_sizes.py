"""A kernel of many shapes, measured: at sizes that are drawn from its ranges, each of them a task of one shape.

Its samples are geometric means over these sizes, each with its share of all draws.  Who builds and measures kernels of
any program on a workbench does it by a `Runner`, which measures those of many shapes so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from ...errors import UsageError
from ...ir.ranges import fixed
from ...ir.size_ranges import Range
from ..tasks.task import Task
from ..workers.programs import candidate
from ..workers.protocol import Build, Built, Compiled, Failed, Job, Measure, Measured, Race, Raced, Reply, Verify
from .sizes import Likely, Point, checked_ranges, drawn, likely_of, takes, told, with_small

if TYPE_CHECKING:
    from ...ir.stmt import PrimFunc
    from ..workers.bench import Workbench
    from ..workers.executor import Executor

ANCHORS, FEW_ANCHORS, SHORT = 3, 2, 30.0  # searches of one shape, fewer in a run of fewer seconds
OFTEN = 0.2  # the share of all draws from which on a size is an anchor, with a schedule of its own
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
    """How kernels are timed at one size: on data of a `seed`, for about so many `seconds`.

    A call that gives no sign for longer than the `deadline` has failed.
    """

    seed: int
    seconds: float
    deadline: float | None = None


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

    def anchors(self, seconds: float | None = None) -> list[Point]:
        """The sizes at which a search of so many seconds looks: the likely ones, and some from small to large."""
        most = FEW_ANCHORS if (seconds or math.inf) < SHORT else ANCHORS
        likely = sorted((p for p in self.points if p.weight >= OFTEN), key=lambda p: -p.weight)[:most]
        rest = sorted((p for p in self.points if p not in likely), key=self.work_at)
        count = min(len(rest), max(most - len(likely), 1))
        return [*likely, *(rest[(2 * k + 1) * len(rest) // (2 * count)] for k in range(count))]

    def work_at(self, point: Point) -> float:
        """How much there is to do at a size: operations, or elements of arguments where these are none."""
        work = self.at(point).work
        return work.flops or sum(math.prod(b.shape) for b in work.func.buffers)

    @property
    def middle(self) -> Point:
        """The point with as much work as half of the others have at most."""
        return sorted(self.points, key=self.work_at)[len(self.points) // 2]

    def mean(self, at: Sequence[float]) -> float:
        """The geometric mean of what something took at each point, by their weights."""
        return math.exp(sum(p.weight * math.log(one) for p, one in zip(self.points, at, strict=True)))

    def told(self, point: Point) -> str:
        """The point in the names that the user knows."""
        return told(point.values, self.task.work.sizes)

    def at(self, point: Point) -> Task:
        """The task of one shape."""
        return Task(self.task.work.at(point.values), self.task.target, self.task.interface)

    def raced(self, do: Do, entries: Sequence[Compiled], point: Point, turns: Turns) -> Sequence[Measured | Failed]:
        """Kernels of one size, verified and timed in turns."""
        task = self.at(point)
        reply = do(Race(
            kernels=tuple(entries), work=task.name, seed=turns.seed, called=task.called, seconds=turns.seconds,
            roof=False, first=True, deadline=turns.deadline,
        ))  # fmt: skip
        return reply.results if isinstance(reply, Raced) else [reply] * len(entries)

    def samples(self, do: Do, entries: Sequence[tuple[Compiled, PrimFunc]], turns: Turns) -> list[Measured | Failed]:
        """The samples of each kernel, geometric means over all points by their weights in seconds; or its failure."""
        logs: list[list[float]] = [[] for _ in entries]
        failed: dict[int, Failed] = {}
        errors = [0.0] * len(entries)
        for point in self.points:
            kernels = {n: at_point(*entry, point) for n, entry in enumerate(entries) if n not in failed}
            results = self.raced(do, list(kernels.values()), point, turns) if kernels else []
            for number, result in zip(kernels, results, strict=True):
                if isinstance(result, Failed):
                    failed[number] = Failed(status=result.status, message=f"at {self.told(point)}: {result.message}")
                    continue
                errors[number] = max(errors[number], result.max_abs_error or 0.0)
                own = [point.weight * math.log(seconds) for seconds in result.samples]
                logs[number] = [a + b for a, b in zip(logs[number], own, strict=False)] if logs[number] else own
        return [
            failed.get(number) or Measured(samples=tuple(map(math.exp, logs[number])), max_abs_error=errors[number])
            for number in range(len(entries))
        ]

    def wrong(
        self, do: Do, kernel: Compiled, func: PrimFunc, seed: int, deadline: float | None = None
    ) -> Failed | None:
        """Why a kernel of many shapes is not right at both ends of the ranges, and at sizes that nothing measures."""
        known = [point.values for point in self.points]
        ends = [Point({name: numbers.ends[end] for name, numbers in self.ranges.items()}) for end in (0, -1)]
        fresh = drawn(self.task.work.func, self.ranges, {}, FRESH, skip=FRESH_FROM)
        for point in (*ends, *fresh):
            if point.values not in known and takes(self.task.work.func, point.values):
                own = at_point(kernel, func, point)
                reply = do(Verify(kernel=own, work=self.at(point).name, seed=seed, deadline=deadline))
                if isinstance(reply, Failed):
                    return Failed(status=reply.status, message=f"at {self.told(point)}: {reply.message}")
        return None

    def gflops(self, latency_us: float) -> float:
        """The geometric mean of the operations of the points, by a latency; 0 where these are not known."""
        counts = [(point.weight, self.task.work.at(point.values).flops) for point in self.points]
        if not all(count for _, count in counts):
            return 0.0
        return math.exp(sum(weight * math.log(count) for weight, count in counts)) / latency_us * 1e-3


class Runner:
    """Where the kernels of a task are built and measured: on any bench, of many shapes at the `sizes` of a record."""

    def __init__(self, task: Task, versions: Mapping[str, str]) -> None:
        """`versions` are those of the record; nothing of them is asked for a program of one shape."""
        self.sizes = Sizes.stored(task, versions) if task.work.func.stated else None
        self._built: list[tuple[Compiled, PrimFunc]] = []

    @property
    def versions(self) -> dict[str, str]:
        """What a record says of the sizes at which it was measured."""
        return {} if self.sizes is None else self.sizes.versions

    def on(self, bench: Workbench) -> Workbench:
        """The bench for what is built on it, or was on another one."""
        return bench if self.sizes is None else _AtSizes(bench, self.sizes, self._built)


class _AtSizes:
    """A workbench for the kernels of one program of many shapes, each job of which is some of the `bench`'s.

    What was `built` it verifies where nothing is timed, and times at the sizes that were drawn: a `Measure` for its
    time at each of these, a `Race` for its time at all of them.
    """

    def __init__(self, bench: Workbench, sizes: Sizes, built: list[tuple[Compiled, PrimFunc]]) -> None:
        self._bench, self._sizes, self._built = bench, sizes, built
        self._right: set[tuple[int, int]] = set()  # by the position of a kernel, and seed

    def run(self, job: Job[R]) -> R | Failed:
        """The reply to a job."""
        if isinstance(job, Measure):
            turns = Turns(job.seed, job.repeat_ms * 1e-3, job.deadline)
            return cast("R | Failed", self._times([job.kernel], turns)[0])
        if isinstance(job, Race):
            turns = Turns(job.seed, job.seconds / len(self._sizes.points), job.deadline)
            return cast("R", Raced(results=tuple(self._times(job.kernels, turns)), roof=None))
        reply = self._bench.run(job)
        if isinstance(job, Build) and isinstance(reply, Built):
            self._built.append((reply.kernel, candidate(job.script, job.trace)))
        return reply

    def _times(self, kernels: Sequence[Compiled], turns: Turns) -> list[Measured | Failed]:
        found: dict[int, Measured | Failed] = {}
        timed: dict[int, tuple[Compiled, PrimFunc]] = {}
        for number, kernel in enumerate(kernels):
            place, func = next((i, func) for i, (own, func) in enumerate(self._built) if own is kernel)
            wrong = None
            if (place, turns.seed) not in self._right:
                wrong = self._sizes.wrong(self._bench.run, kernel, func, turns.seed, turns.deadline)
            if wrong is None:
                self._right.add((place, turns.seed))
                timed[number] = kernel, func
            else:
                found[number] = wrong
        samples = self._sizes.samples(self._bench.run, list(timed.values()), turns)
        found.update(zip(timed, samples, strict=True))
        return [found[number] for number in range(len(kernels))]


def through(executor: Executor) -> Do:
    """One job after the other by those of an executor who measure."""

    def do(job: Job[R], /) -> R | Failed:
        return executor.measure([job])[0]

    return do


def at_point(kernel: Compiled, func: PrimFunc, point: Point) -> Compiled:
    """The kernel of a scheduled program for one size."""
    from ...backends.data import arguments_of

    values = {v: point.values[v.name] for v in func.integers}
    return Compiled(kernel.artifact, arguments_of(fixed(func, values)), tuple(values[v] for v in func.sizes))


def _text(likely: Likely) -> str:
    """``m=1:0.5,128:0.3 n=4:0.1``."""
    listed = {name: ",".join(f"{n}:{share:g}" for n, share in shares.items()) for name, shares in likely.items()}
    return " ".join(f"{name}={shares}" for name, shares in listed.items())
