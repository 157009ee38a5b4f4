"""One search for all shapes of a program whose extents are expressions.

::

    sizes drawn from the ranges
      -> a search of its own at some of them      anchors, as any program of one shape is searched
      -> their fastest schedules for all shapes   `general`: proven for all values, or refused
      -> times of each at all sizes that were drawn
      -> thresholds                               `variants`: which of them runs for which extents
      -> one trace                                the primitive `specialize`, where several run
      -> verified at sizes that nothing has seen, and at both ends

What a search finds is one record: its samples are geometric means over the sizes, each with its share of all draws.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...backends import cpu_topology
from ...errors import NoSchedule, UsageError
from ...ir.ranges import fixed
from ...ir.size_ranges import Range
from ...ir.stmt import PrimFunc
from ...space.cases import SPECIALIZE
from ...space.primitives.specialize import within
from ..candidates.general import BOUNDARIES, LEAST, first_with, general
from ..records.record import Record
from ..records.status import FAILURES, OK, TOO_LATE, failure_kind
from ..tasks.task import performance
from ..workers.protocol import Build, Built, Compiled, Failed, Measured
from . import events
from .at_sizes import OFTEN, Sizes, Turns, at_point, through
from .clock import Clock
from .events import Emit
from .family import known_inside
from .run import fastest, versions
from .settings import TuneSettings, resolve
from .sizes import Point, told
from .tuner import tune as tune_one_shape
from .variants import Box, Leaf, chosen, ends_of

if TYPE_CHECKING:
    from ...ir.target import Target
    from ...space.design.space import Space
    from ..workers.executor import Executor

TAKEN = 3  # of the fastest schedules of each anchor
SEARCH_SHARE, GENERAL_SHARE = 0.55, 0.7  # of the seconds of a run, after which searches and proofs are to be over
RACE_SECONDS, RACE_SHARE = 0.5, 0.1  # of the turns at one size, at most that share of a run at all sizes
BUILT_SHARE = 0.55  # of the time left after the searches, for proofs and builds, beside each other
END_SHARE, LEAST_RACE = 0.3, 0.02  # of the time left after these, for what won; seconds of its turns at one size

UNMEASURED = 100.0  # times the slowest schedule at a size, for the program as it is written where others run


@dataclass(frozen=True, eq=False)
class _Entry:
    """A schedule that runs in a `box` of the ranges, and what it is `of`: a record, or the program as it is written.

    In a box of one shape its steps are those of the program of this shape.
    """

    steps: list[Any]
    func: PrimFunc
    of: str
    box: Box
    point: Point | None = None

    def has(self, point: Point) -> bool:
        """Whether the schedule runs at a size."""
        return all(value in self.box[name] for name, value in point.values.items())

    def trace(self, whole: Box) -> list[Any]:
        """A trace of a program that takes all sizes, or of one of the point."""
        if self.point is not None or self.box is whole:
            return self.steps
        return [[SPECIALIZE, {"cases": [[ends_of(self.box, whole), self.steps], [{}, []]]}]]


def tune(
    settings: TuneSettings,
    emit: Emit | None = None,
    generate: Callable[[PrimFunc, Target, Mapping[str, str]], Space] | None = None,
) -> Record:
    """Search for a fast kernel of one shape (see `tuner.tune`), or for one of all shapes that a program takes.

    Raises the errors of the exit codes; UsageError for free layouts, and for a range without an end.
    """
    task = resolve(settings)
    if not task.work.func.stated:
        if settings.likely:
            raise UsageError(f"--likely is about ranges, and {task.work} has one shape")
        return tune_one_shape(settings, emit, generate=generate)
    if task.is_recorded:
        from .ranged_recorded import tune as tune_recorded

        return tune_recorded(settings, emit)
    check_settings(settings)
    return _Search(settings, Sizes.of(task, settings.likely), emit, generate).run()


def check_settings(settings: TuneSettings) -> None:
    """Refuse what a search for ranges does not take.  Raises UsageError."""
    if free := [name for name, who in resolve(settings).interface.items() if who == "free"]:
        raise UsageError(f"`{free[0]}` is free, but kernels of many shapes take it as it is, fixed or constant")
    if settings.stop_at is not None or settings.pins or settings.trace is not None:
        raise UsageError("a search for ranges takes neither --stop-at nor --pin nor --trace")


class _Search:
    """A search for the ranges of one task."""

    def __init__(
        self,
        settings: TuneSettings,
        sizes: Sizes,
        emit: Emit | None,
        generate: Callable[[PrimFunc, Target, Mapping[str, str]], Space] | None,
    ) -> None:
        self.settings, self.sizes, self.task, self.generate, self.emit = settings, sizes, sizes.task, generate, emit
        self.clock = Clock(settings.start, settings.seconds)
        self.points, self.trials, self.failed = sizes.points, 0, Counter(dict.fromkeys(FAILURES, 0))
        limit = settings.seconds
        seconds = RACE_SECONDS if limit is None else min(RACE_SECONDS, RACE_SHARE * limit / len(self.points))
        self.turns = Turns(settings.seed, seconds)
        self.kernels: dict[str, Compiled] = {}

    def send(self, event: events.Event) -> None:
        if self.emit is not None:
            self.emit(event.to_json())

    def note(self, message: str) -> None:
        self.send(events.Note(message=message))

    def run(self) -> Record:
        """All of it; the record of the result, which the database has."""
        from ..records.database import Database

        settings = self.settings
        with contextlib.closing(Database(settings.db)) as database:
            self.send(events.Start(
                **self.task.identity(), flops=0, limit_trials=settings.trial_limit, limit_seconds=settings.seconds,
                stop_at=None, sampler=settings.sampler, seed=settings.seed, db=database.name,
            ))  # fmt: skip
        self.note("measured at " + "; ".join(map(self.sizes.told, self.points)))
        self.clock.enter("other")  # where no search counts its own
        searched, entries = self._searched(), list[_Entry]()
        found_before = self._known([point for point, _ in searched])

        def proven() -> Iterator[tuple[list[Any], Point | None]]:  # while those before are built
            for entry in self._entries([*found_before, *searched]):
                entries.append(entry)
                yield entry.trace(self.sizes.ranges), entry.point

        with contextlib.closing(self._executor()) as executor, contextlib.closing(Database(settings.db)) as database:
            before = database.best(self.task.script, self.task.target, self.task.interface) if settings.resume else None
            executor.until = self.clock.deadline(BUILT_SHARE)
            kernels = self._built(executor, proven())
            executor.until = self.clock.deadline(1 - END_SHARE)
            self.send(events.Phase(phase=f"racing {len(entries)} schedules at {len(self.points)} sizes"))
            times = self._times(executor, entries, kernels)
            found = [self._chosen(entries, times), *([before.trace] if before is not None and before.trace else [])]
            executor.until = None  # what was found is verified, however long that takes
            if self.clock.left is not None:
                least, share = LEAST_RACE, END_SHARE * max(self.clock.left, 0.0) / len(self.points)
                self.turns = replace(self.turns, seconds=min(self.turns.seconds, max(least, share)))
            record = self._judged(executor, [trace for trace in found if trace is not None], before)
            database.put_records([record])
            self._done(record, database.name)
        return record

    def _executor(self) -> Executor:
        from ..workers.executor import RayExecutor

        return RayExecutor(None, self.task.target.cores, builders=self.settings.builders, first_here=True)

    # ---------------------------------------------------------------- schedules

    def _searched(self) -> list[tuple[Point, list[Record]]]:
        """The fastest records of the searches at the anchors, the best first."""
        from ..records.database import Database

        settings, found = self.settings, list[tuple[Point, list[Record]]]()
        anchors = self.sizes.anchors(settings.seconds)
        for number, point in enumerate(anchors):
            work, left = self.task.work.at(point.values), len(anchors) - number
            self.send(events.Phase(phase=f"searching at {self.sizes.told(point)}"))
            program: dict[str, Any] = {"workload": None, "params": {}, "script": work.script, "script_name": None}
            if work.params:
                program = {"params": dict(work.shape)}
            limits: dict[str, Any] = {"start": None, "likely": {}, "interface": dict(self.task.interface)}
            if settings.trial_limit is not None:
                limits["trials"] = max(1, settings.trial_limit // len(anchors))
            if self.clock.left is not None and settings.seconds is not None:
                limits["seconds"] = max(SEARCH_SHARE * settings.seconds - self.clock.seconds, 2.0 * left) / left
            asked, failed = settings.model_copy(update={**program, **limits}), Counter[str]()
            try:
                tune_one_shape(asked, partial(self._told, failed), generate=self.generate)
            except NoSchedule as error:
                self.note(f"{self.sizes.told(point)}: {error}")
                continue
            finally:
                self.failed.update(failed)
            task = resolve(asked)
            with contextlib.closing(Database(settings.db)) as database:
                records = database.top(task.script, task.target, task.interface, TAKEN + 2)
            found.append((point, fastest((r for r in records if r.verified), TAKEN)))
        return found

    def _known(self, anchors: Sequence[Point]) -> list[tuple[Point, list[Record]]]:
        """The best records that the database has of other shapes than the anchors, inside of the ranges."""
        from ..records.database import Database

        if not self.settings.resume:
            return []
        with contextlib.closing(Database(self.settings.db)) as database:
            found = known_inside(database, self.sizes)
        given = [dict(point.values) for point in anchors]
        found = [(point, records) for point, records in found if dict(point.values) not in given]
        if found:
            shown = "; ".join(self.sizes.told(point) for point, _ in found)
            self.note(f"the best schedules that are stored of other sizes take part: {shown}")
        return found

    def _told(self, failed: Counter[str], event: dict[str, Any]) -> None:
        """Events of a search of one shape, but for its beginning and its end, which count here.

        `failed` are its failures by kind: of its trials, and at its end all, those too that were no trials.
        """
        if event["event"] == "trial":
            self.trials += 1
            if (kind := failure_kind(event["status"])) != OK:
                failed[kind] += 1
        if event["event"] == "done":
            self.clock.share_out(event["activities"])
            failed.clear()
            failed.update(event["failed"])
        if self.emit is not None and event["event"] not in ("start", "done"):
            self.emit(event)

    def _entries(self, found: Sequence[tuple[Point, Sequence[Record]]]) -> Iterator[_Entry]:
        """The schedules of the searches for all sizes, the best of each anchor first, as far as there is time."""
        from ...space.errors import ScheduleError

        self.send(events.Phase(phase="proving schedules for all sizes"))
        func, seen, refused, has_all = self.task.work.func, set[PrimFunc](), list[str](), False
        until = None if self.settings.seconds is None else GENERAL_SHARE * self.settings.seconds
        ranked = [(rank, point, record) for point, records in found for rank, record in enumerate(records)]
        order = [(rank + number, rank, boundary, point, record) for rank, point, record in ranked
                 for number, boundary in enumerate(BOUNDARIES if rank == 0 else BOUNDARIES[:1])]  # fmt: skip
        for _, rank, boundary, point, record in sorted(order, key=lambda item: item[0]):
            if until is not None and seen and self.clock.seconds > until:
                self.note("the time for proofs was over before all schedules had been proven for all sizes")
                break
            own, of = fixed(func, {v: point.values[v.name] for v in func.integers}), f"record {record.id}, {boundary}"
            trace = record.trace or []
            if rank == 0 and boundary == BOUNDARIES[0] and point.weight >= OFTEN:
                single = {name: Range(value, value) for name, value in point.values.items()}
                yield _Entry(trace, _program(own, trace), of, single, point)
            boxes = [self.sizes.ranges, *self._smaller(point)]
            for box in boxes:
                try:
                    given = func if box is boxes[0] else within(func, {n: list(r.ends) for n, r in box.items()})
                    schedule = general(trace, own, given, self.task.target, boundary)
                except ScheduleError as error:
                    refused += [f"{self.sizes.told(point)}, {of}: {error}"] * (box is boxes[0])
                    continue
                if schedule.func not in seen:
                    seen.add(schedule.func)
                    has_all |= box is boxes[0]
                    yield _Entry(schedule.trace.to_json(), schedule.func, of, box)
                break
        if refused:
            self.note(f"{len(refused)} of {len(order)} schedules are refused for all sizes; the first one at "
                      f"{refused[0]}")  # fmt: skip
        if not has_all:
            yield _Entry([], func, "the program as it is written", self.sizes.ranges)

    def _smaller(self, point: Point) -> Iterator[Box]:
        """The ranges without the small numbers of one size, as far as the point is inside."""
        for least in LEAST:
            for name, numbers in self.sizes.ranges.items():
                low = first_with(self.task.work.func, self.sizes.ranges, name, least)
                if low is not None and numbers.low < low <= point.values[name] and numbers.high > low:
                    yield {**self.sizes.ranges, name: replace(numbers, low=low)}

    # ---------------------------------------------------------------- times

    def _built(self, executor: Executor, what: Iterable[tuple[list[Any], Point | None]]) -> list[Compiled | None]:
        """The kernels of traces, of all shapes or of one, each built once; None for one that is not built."""
        keys, asked = list[str](), list[str]()

        def jobs() -> Iterator[Build]:
            for trace, point in what:
                keys.append(json.dumps([trace, None if point is None else dict(point.values)]))
                if keys[-1] not in self.kernels:
                    asked.append(keys[-1])
                    script = self.task.script if point is None else self.task.work.at(point.values).script
                    yield Build(script=script, target=self.task.target, trace=trace)

        late = 0
        for key, reply in zip(asked, executor.build(jobs()), strict=True):
            if isinstance(reply, Built):
                self.kernels[key] = reply.kernel
            elif reply.status == TOO_LATE:
                late += 1
            else:
                self.note(f"a schedule that was proven for all sizes is not built: {reply.status}: {reply.message}")
        if late:
            self.note(f"the time was over before {late} of {len(asked)} schedules for all sizes had been built")
        return [self.kernels.get(key) for key in keys]

    def _times(
        self, executor: Executor, entries: Sequence[_Entry], kernels: Sequence[Compiled | None]
    ) -> dict[int, dict[Point, float]]:
        """Seconds of the schedules at the sizes that were drawn, in turns at each.

        The program as it is written is measured where nothing else runs.
        """
        times = {number: dict[Point, float]() for number in range(len(entries))}
        for point in self.points:
            inside = [n for n, entry in enumerate(entries) if kernels[n] is not None and entry.has(point)]
            scheduled = [number for number in inside if entries[number].steps]
            racing: dict[int, Compiled] = {}
            for number in scheduled or inside:
                kernel, entry = kernels[number], entries[number]
                assert kernel is not None
                racing[number] = kernel if entry.point is not None else at_point(kernel, entry.func, point)
            results = self.sizes.raced(through(executor), list(racing.values()), point, self.turns)
            for number, result in zip(racing, results, strict=True):
                if isinstance(result, Measured):
                    times[number][point] = statistics.median(result.samples)
                elif result.status != TOO_LATE:  # of which one sentence tells for all sizes
                    self.note(
                        f"{entries[number].of} fails at {self.sizes.told(point)}: {result.status}: {result.message}"
                    )
            slowest = max((times[number].get(point, 0.0) for number in racing), default=0.0) or 1.0
            for number in set(inside) - set(racing):
                times[number][point] = UNMEASURED * slowest
        return times

    # ---------------------------------------------------------------- the result

    def _chosen(self, entries: Sequence[_Entry], times: Mapping[int, Mapping[Point, float]]) -> list[Any] | None:
        """The trace of the variants, all of which give the parameters the same layouts; None where nothing runs."""
        from ...space.errors import ScheduleError

        everywhere = [number for number, entry in enumerate(entries) if entry.box is self.sizes.ranges]
        points = [point for point in self.points if any(point in times[number] for number in everywhere)]
        if not points:
            self.note(f"the time was over before anything had been measured: {entries[everywhere[0]].of} is taken")
            return entries[everywhere[0]].steps
        if len(points) < len(self.points):
            self.note(f"the time was over when {len(points)} of {len(self.points)} sizes had been measured")
        best: list[Leaf] = []
        for layouts in {entry.func.layouts for entry in entries}:
            alike = [number for number, entry in enumerate(entries) if entry.func.layouts == layouts]
            boxes = {number: entries[number].box for number in alike}
            leaves = chosen({n: times[n] for n in alike}, self.sizes.ranges, points, boxes)
            if leaves and (not best or sum(leaf.cost for leaf in leaves) < sum(leaf.cost for leaf in best)):
                best = leaves
        if not best:
            return None
        self.note("; ".join(
            f"{told(leaf.box, self.task.work.sizes)}: the schedule of {entries[leaf.choice].of}"
            for leaf in best
        ))  # fmt: skip
        if len(best) == 1:
            return entries[best[0].choice].steps
        whole = self.sizes.ranges
        rest = max((leaf for leaf in best if entries[leaf.choice].box is whole), key=lambda leaf: len(leaf.points),
                   default=None)  # fmt: skip
        cases = [[ends_of(leaf.box, whole), entries[leaf.choice].steps] for leaf in best if leaf is not rest]
        trace = [[SPECIALIZE, {"cases": [*cases, [{}, [] if rest is None else entries[rest.choice].steps]]}]]
        try:
            _program(self.task.work.func, trace)
        except ScheduleError as error:  # fewer numbers make other extents, which some primitive may not take
            why = error.values.get("error", error)
            self.note(f"a schedule of all sizes does not hold for some of them alone, so one has all: {why}")
            return entries[_fastest(everywhere, times, points)].steps
        return trace

    def _judged(self, executor: Executor, traces: Sequence[list[Any]], before: Record | None) -> Record:
        """The fastest of the traces, verified at fresh sizes and at the ends, with its times at those that were drawn.

        Raises NoSchedule where none holds.
        """
        self.send(events.Phase(phase="final race"))
        kernels = self._built(executor, [(trace, None) for trace in traces])
        right: list[tuple[list[Any], Compiled, PrimFunc]] = []
        for trace, kernel in zip(traces, kernels, strict=True):
            func = _program(self.task.work.func, trace)
            wrong = kernel and self.sizes.wrong(through(executor), kernel, func, self.settings.seed + 1)
            if wrong:
                self.note(f"a kernel for all sizes does not hold {wrong.message} ({wrong.status})")
            elif kernel is not None:
                right.append((trace, kernel, func))
        results = self.sizes.samples(through(executor), [(kernel, func) for _, kernel, func in right], self.turns)
        held = [(result, trace) for result, (trace, _, _) in zip(results, right, strict=True)
                if isinstance(result, Measured)]  # fmt: skip
        if not held:
            failed = "; ".join(f"{r.status}: {r.message}" for r in results if isinstance(r, Failed))
            raise NoSchedule(f"no schedule of {self.task.work} holds at all sizes{f': {failed}' if failed else ''}")
        best, trace = min(held, key=lambda item: statistics.median(item[0].samples))
        task = self.task
        record = Record(
            **task.recorded(), trace=trace, sketch="ranges",
            seed=self.settings.seed, versions={**versions(task), **self.sizes.versions}, status="infrastructure",
        )  # fmt: skip
        if before is not None and trace == before.trace:
            record = record.changed(id=before.id)
        return record.measured(best.samples, best.max_abs_error, "race")

    def _done(self, record: Record, name: str) -> None:
        assert record.latency_us is not None
        low, high = record.middle_us or (None, None)
        told = performance(self.task, record.latency_us, None)
        self.send(events.Finish(
            **self.task.identity(), **{**told, "gflops": self.sizes.gflops(record.latency_us)},
            latency_us=record.latency_us, low_us=low, high_us=high, search_us=None, busy=None,
            cores=cpu_topology.usable_threads(), baseline_us=None, trials=self.trials, failed=self.failed,
            duplicates=0, seconds=self.clock.seconds,
            activities=self.clock.spent, stopped_by="seconds" if self.settings.seconds is not None else "trials",
            sampler=self.settings.sampler, seed=self.settings.seed, verified=record.verified,
            max_abs_error=record.max_abs_error, record=record.id, run=record.run, db=name, nodes={},
        ))  # fmt: skip


def _fastest(numbers: Sequence[int], times: Mapping[int, Mapping[Point, float]], points: Sequence[Point]) -> int:
    """The one of these schedules that was measured at most of the points, and there the fastest in the mean."""

    def cost(number: int) -> tuple[int, float]:
        found = [(point.weight, times[number][point]) for point in points if point in times[number]]
        return -len(found), sum(weight * math.log(seconds) for weight, seconds in found)

    return min(numbers, key=cost)


def _program(func: PrimFunc, trace: list[Any] | None) -> PrimFunc:
    """The program with a trace applied."""
    from ...space.schedule import Trace

    return Trace.from_json(trace or []).replay(func).func
