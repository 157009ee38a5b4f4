"""Measuring a whole space into a file that `--target recorded:FILE` replays (see `tasks.recording`).

A design space has more candidates than can be measured, so part of it is chosen by `seed`: some sketches, and of each
as many alternatives of its decisions as make about `size` different programs, all of which are measured.  The part is a
space of its own, in which a change of one decision mostly leads to another recorded candidate.

Of a program whose extents are ranges it is the space of its size in the middle, of which each schedule is taken over to
all sizes with each of the boundaries (`candidates.general`), a decision more, and measured at those that are drawn.

What is measured goes line by line into ``FILE.part``, from which a later call goes on; the last one writes FILE.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import NoSchedule, StorageError, UsageError
from ...figures import latency
from ...space.design.decision import Decision
from ...space.errors import ScheduleError
from ..candidates.general import BOUNDARIES, general
from ..candidates.search_space import SearchSpace
from ..records.status import KINDS
from ..tasks.recording import OK, RecordedSketch, Recording, save
from ..tasks.task import Roof, Task
from ..workers.protocol import (
    Build,
    Built,
    Choice,
    Control,
    Failed,
    Measure,
    Measured,
    MeasureRoof,
    Reply,
    Roofed,
)
from .at_sizes import Sizes, Turns, at_point, through
from .sizes import Likely

if TYPE_CHECKING:
    from ...cost_model.features import FeatureMap
    from ...space.design.space import Space
    from ..workers.executor import Executor

FREE = "free"  # the decision how the last tile of an unknown extent is cut
CHUNK = 64  # candidates that are built before they are measured
REPEAT_MS = 20.0  # of samples of each candidate, a choice
LARGEST = 1 << 16  # combinations of alternatives that are looked at for one sketch
MISSES = 60  # alternatives that may be of no use, one after the other, until there are no more to choose
AGAIN, TIMES = 0.05, 3  # the share of the fastest that is measured so often, so that none of them is only lucky
CLEARLY = 1.25  # as in `loop`: times faster than the control

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Part:
    """Candidates of sketch number `sketch`: `rows` (N, D) of alternatives, each another program.

    `features` (N, F) are theirs, by the names of all `columns`; `decisions` are those of the sketch, with another one
    where the program has ranges.
    """

    sketch: int
    rows: NDArray[np.int64]
    features: NDArray[np.float32]
    columns: tuple[str, ...]
    decisions: tuple[Decision, ...]


@dataclass(frozen=True)
class Wanted:
    """Which part of a space is recorded: about `size` candidates of so many `sketches`, with these pins.

    `likely` are numbers of ranges, as in tuning.
    """

    size: int
    sketches: int = 2
    seed: int = 0
    pins: Mapping[str, str] = field(default_factory=dict)
    likely: Likely = field(default_factory=dict)


def choose(space: Space, features: FeatureMap, wanted: Wanted) -> list[Part]:
    """The wanted candidates, by chance.  Raises UsageError where pins leave none."""
    try:
        search_space = SearchSpace(space, wanted.pins)
    except ValueError as error:
        raise UsageError(str(error)) from None
    rng = np.random.default_rng([wanted.seed, 11])
    numbers = sorted(rng.permutation(search_space.open)[: wanted.sketches].tolist())
    each = -(-wanted.size // len(numbers))
    found = [(n, _sublattice(search_space, features, n, each, rng)) for n in numbers]
    return [
        Part(n, rows, features.matrix(n, rows), tuple(features.columns), space.sketches[n].decisions)
        for n, rows in found
        if len(rows)
    ]


def with_boundaries(part: Part, sketch: str) -> Part:
    """Candidates for all sizes: each with each of the boundaries, as the last decision and as features."""
    rows = np.repeat(part.rows, len(BOUNDARIES), axis=0)
    chosen = np.tile(np.arange(len(BOUNDARIES)), len(part.rows))
    features = np.repeat(part.features, len(BOUNDARIES), axis=0)
    one_of = (chosen[:, None] == np.arange(len(BOUNDARIES))).astype(np.float32)
    boundary = Decision(f"{sketch}/{FREE}", "boundary", BOUNDARIES, tuple(range(len(BOUNDARIES))))
    return Part(
        part.sketch, np.concatenate([rows, chosen[:, None]], axis=1), np.concatenate([features, one_of], axis=1),
        (*part.columns, *(f"{FREE}:{name}" for name in BOUNDARIES)), (*part.decisions, boundary),
    )  # fmt: skip


def _sublattice(
    search_space: SearchSpace, features: FeatureMap, number: int, size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """The candidates of some alternatives of a sketch's decisions: added one by one until there are `size`."""
    from ..candidates.evolution import distinct, row_fingerprints

    def programs(kept: list[list[int]]) -> NDArray[np.int64]:
        grid = np.stack([g.ravel() for g in np.meshgrid(*kept, indexing="ij")], axis=1).astype(np.int64)
        rows = grid[search_space.keep(number, grid)]
        return rows[distinct(row_fingerprints(features.matrix(number, rows)))[0]] if len(rows) else rows

    start = search_space.draw(rng, number, 1)
    if not len(start) or not start.shape[1]:
        return start
    kept = [[int(c)] for c in start[0]]
    found, misses = programs(kept), 0
    while len(found) < size and misses < MISSES:
        decision = int(rng.integers(len(kept)))
        others = [int(v) for v in search_space.allowed[number][decision] if v not in kept[decision]]
        trial = [list(values) for values in kept]
        if others:
            trial[decision] = sorted([*kept[decision], others[int(rng.integers(len(others)))]])
        more = programs(trial) if others and np.prod([len(v) for v in trial]) <= LARGEST else found
        if len(found) < len(more) <= 1.25 * size:
            kept, found, misses = trial, more, 0
        else:
            misses += 1
    return found


@dataclass
class Progress:
    """What ``FILE.part`` holds: a line that says of what, and then a line for each measurement."""

    path: Path
    about: dict[str, Any]
    results: dict[int, list[tuple[float, str]]] = field(default_factory=dict)
    at_sizes: dict[int, list[tuple[float, ...]]] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    control: int | None = None
    untuned_us: float | None = None

    def __post_init__(self) -> None:
        if not self.path.exists():
            self._append(self.about)
            return
        try:
            whole = self.path.read_text().rpartition("\n")[0]  # the last line may have been cut off
            self.path.write_text(f"{whole}\n" if whole else "")
            lines = [json.loads(line) for line in whole.splitlines() if line.strip()] or [self.about]
            if not whole.strip():
                self._append(self.about)
            is_mine = lines[0] == self.about
            for line in lines[1:] if is_mine else ():
                self._take(line)
        except OSError as error:
            raise StorageError(f"cannot read {self.path}: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{self.path} is damaged; remove it, or give another file: {error}") from None
        if not is_mine:
            raise UsageError(
                f"{self.path} was begun for another space, with other options or by another version; "
                f"remove it, or give another file"
            )

    def add(self, number: int, us: float | None, status: str, code: str = "", at: Sequence[float] = ()) -> None:
        """Keep a measurement of a candidate, of ranges with what it took `at` each size; -1 is the untuned program."""
        line = {"n": number, "us": us, "status": status, "code": code, **({"at": list(at)} if at else {})}
        self._append(line)
        self._take(line)

    def us(self, number: int) -> float:
        """The latency of a candidate: the median of its measurements."""
        return statistics.median(us for us, _ in self.results[number])

    def times(self, number: int) -> tuple[float, ...]:
        """What a candidate of ranges took at each size: the medians of its measurements."""
        return tuple(map(statistics.median, zip(*self.at_sizes.get(number, ()), strict=True)))

    def valid(self) -> list[int]:
        """Candidates that hold, fastest first."""
        good = [n for n, found in self.results.items() if all(status == OK for _, status in found)]
        return sorted(good, key=self.us)

    def _take(self, line: Mapping[str, Any]) -> None:
        number, us = int(line["n"]), float("nan") if line["us"] is None else float(line["us"])
        self.at_sizes.setdefault(number, []).extend([tuple(map(float, line["at"]))] if "at" in line else [])
        if number < 0:
            self.untuned_us = us
            return
        self.results.setdefault(number, []).append((us, str(line["status"])))
        if line["code"]:
            self.codes.setdefault(str(line["code"]), number)
        if line["status"] == OK and (self.control is None or us * CLEARLY < self.us(self.control)):
            self.control = number

    def _append(self, line: Mapping[str, Any]) -> None:
        try:
            with self.path.open("a") as file:
                file.write(json.dumps(line, sort_keys=True) + "\n")
        except OSError as error:
            raise StorageError(f"cannot write {self.path}: {error.strerror or error}") from None


class Recorder:
    """Measures the candidates of some parts of a task's space, for at most `seconds` in this call.

    Those of a program of ranges are measured at `sizes`, of which the space is that of the one in the `middle`.
    """

    def __init__(
        self, task: Task, space: Space, parts: list[Part], progress: Progress, executor: Executor,
        sizes: Sizes | None = None,
    ) -> None:  # fmt: skip
        self.task, self.space, self.progress, self.executor, self.sizes = task, space, progress, executor, sizes
        self.candidates = [(part.sketch, tuple(row)) for part in parts for row in part.rows.tolist()]
        self._control: tuple[int, Control] | None = None

    def run(self, seconds: float | None, tell: Tell) -> bool:
        """Measure a chunk at least; whether nothing is left, the fastest having been measured several times."""
        end = None if seconds is None else time.monotonic() + seconds
        if self.progress.untuned_us is None:
            self._measure_untuned()
        for numbers in self._chunks():
            self._measure(numbers)
            best = self.progress.valid()[:1]
            fastest = f", the best {latency(self.progress.us(best[0]))}" if best else ""
            tell(f"{len(self.progress.results)} of {len(self.candidates)} candidates{fastest}")
            if end is not None and time.monotonic() > end:
                return False
        return True

    def _chunks(self) -> Iterator[list[int]]:
        """What is not measured yet, a chunk at a time; then the fastest again."""
        open_numbers = [n for n in range(len(self.candidates)) if n not in self.progress.results]
        for start in range(0, len(open_numbers), CHUNK):
            yield open_numbers[start : start + CHUNK]
        for _ in range(TIMES - 1):
            fast = self.progress.valid()[: int(AGAIN * len(self.candidates)) + 1]
            again = [n for n in fast if len(self.progress.results[n]) < TIMES]
            for start in range(0, len(again), CHUNK):
                yield again[start : start + CHUNK]

    def _job(self, number: int) -> Build:
        sketch, choice = self.candidates[number]
        chosen = Choice(self.space.sketches[sketch].name, choice, dict(self.task.interface))
        return Build(script=self.task.script, target=self.task.target, choice=chosen)

    def _measure(self, numbers: list[int]) -> None:
        """Build and measure candidates, those with the same code once."""
        if self.sizes is not None:
            for number in numbers:
                self._measure_at(self.sizes, number)
            return
        progress, control = self.progress, self.progress.control
        wanted = numbers if control is None or (self._control and self._control[0] == control) else [*numbers, control]
        replies = dict(zip(wanted, self.executor.build([self._job(n) for n in wanted]), strict=True))
        if control is not None and control in replies and isinstance(built := replies[control], Built):
            self._control = control, Control(built.kernel, progress.us(control))
        waiting: list[tuple[int, Built]] = []
        for number in numbers:
            reply = replies[number]
            if isinstance(reply, Failed):
                self._fail(number, reply)
            elif (same := progress.codes.get(reply.code_hash)) is not None and number not in progress.results:
                us, status = progress.results[same][0]
                progress.add(number, us if status == OK else None, status)
            else:
                waiting.append((number, reply))
        best = progress.valid()[:1]
        jobs = [
            Measure(kernel=built.kernel, work=self.task.name, seed=0, called=self.task.called, repeat_ms=REPEAT_MS,
                    best_us=progress.us(best[0]) if best else None, control=self._control[1] if self._control else None)
            for _, built in waiting
        ]  # fmt: skip

        def done(index: int, reply: Measured | Failed) -> None:
            number, built = waiting[index]
            if isinstance(reply, Failed):
                self._fail(number, reply, built.code_hash)
            else:
                progress.add(number, statistics.median(reply.samples) * 1e6, OK, built.code_hash)

        self.executor.measure(jobs, done)

    def _measure_at(self, sizes: Sizes, number: int) -> None:
        """Take the schedule of one size over to all, and measure it at each that was drawn."""
        (sketch, choice), progress = self.candidates[number], self.progress
        *own, boundary = choice
        one, func = self.space.func, self.task.work.func
        try:
            trace = self.space.sketches[sketch].schedule(tuple(own)).trace.to_json()
            made = general(trace, one, func, self.task.target, BOUNDARIES[boundary])
        except ScheduleError:
            progress.add(number, None, "refused")
            return
        job = Build(script=self.task.script, target=self.task.target, trace=made.trace.to_json())
        (built,) = self.executor.build([job])
        if isinstance(built, Failed):
            self._fail(number, built)
            return
        if (same := progress.codes.get(built.code_hash)) is not None and number not in progress.results:
            us, status = progress.results[same][0]
            at = progress.at_sizes[same][0] if status == OK else ()
            progress.add(number, us if status == OK else None, status, at=at)
            return
        jobs = [
            Measure(kernel=at_point(built.kernel, made.func, point), work=sizes.at(point).name, seed=0,
                    called=self.task.called, repeat_ms=REPEAT_MS)
            for point in sizes.points
        ]  # fmt: skip
        replies = self.executor.measure(jobs)
        if failed := [reply for reply in replies if isinstance(reply, Failed)]:
            self._fail(number, failed[0], built.code_hash)
            return
        found = [statistics.median(reply.samples) * 1e6 for reply in replies if isinstance(reply, Measured)]
        progress.add(number, sizes.mean(found), OK, built.code_hash, found)

    def _fail(self, number: int, reply: Failed, code: str = "") -> None:
        """Keep a failure that is the candidate's own; another one leaves the candidate for the next call."""
        if KINDS[reply.kind].teaches:
            self.progress.add(number, None, reply.status, code)

    def _measure_untuned(self) -> None:
        built = self.executor.build([Build(script=self.task.script, target=self.task.target)])[0]
        reply: Reply = built
        if isinstance(built, Built) and self.sizes is not None:
            entry, turns = (built.kernel, self.task.work.func), Turns(0, REPEAT_MS * 1e-3)
            reply = self.sizes.samples(through(self.executor), [entry], turns)[0]
        elif isinstance(built, Built):
            job = Measure(kernel=built.kernel, work=self.task.name, seed=0, called=self.task.called)
            reply = self.executor.measure([job])[0]
        if not isinstance(reply, Measured):
            raise NoSchedule(f"the untuned program of {self.task.work} could not be measured: {reply}")
        self.progress.add(-1, statistics.median(reply.samples) * 1e6, OK)


def record_space(
    task: Task, path: Path, executor: Executor, wanted: Wanted, seconds: float | None = None, tell: Tell = print
) -> Recording | None:
    """Measure part of a task's space into `path`; None where `seconds` ended it and a later call may go on."""
    from ...cost_model.features import FeatureMap
    from ...space.design.space import generate

    if wanted.likely and not task.work.func.stated:
        raise UsageError(f"--likely is about ranges, and {task.work} has one shape")
    sizes = Sizes.of(task, wanted.likely) if task.work.func.stated else None
    own = task.work.func if sizes is None else sizes.at(sizes.middle).work.func
    space = generate(own, task.target, task.interface)
    features = FeatureMap(space.sketches, task.target)
    if sizes is None:
        parts = choose(space, features, wanted)
    else:
        found = choose(space, features, replace(wanted, size=-(-wanted.size // len(BOUNDARIES))))
        parts = [with_boundaries(part, space.sketches[part.sketch].name) for part in found]
    if not parts:
        raise NoSchedule(f"the rules find nothing to schedule in {task.work}")
    about = {
        "workload": task.work.name, "params": dict(task.work.params or task.work.shape),
        "interface": dict(task.interface),
        "target": task.target.key, "space": space.version, **asdict(wanted),
        "likely": {} if sizes is None else sizes.versions, "candidates": sum(len(part.rows) for part in parts),
    }  # fmt: skip
    progress = Progress(path.with_name(path.name + ".part"), about)
    recorder = Recorder(task, space, parts, progress, executor, sizes)
    if not recorder.run(seconds, tell):
        return None
    missing = [n for n in range(len(recorder.candidates)) if n not in progress.results]
    if missing:
        raise NoSchedule(f"{len(missing)} candidates failed for reasons outside of them; run the same command again")
    roofed = executor.measure([MeasureRoof(target=task.target, dtype=task.work.peak_dtype)])[0]
    roof = roofed.roof if isinstance(roofed, Roofed) else Roof(0.0, 0.0)
    recording = _recording(task, space, parts, progress, roof, sizes)
    try:
        save(recording, path)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from None
    progress.path.unlink()
    return recording


def _recording(
    task: Task, space: Space, parts: list[Part], progress: Progress, roof: Roof, sizes: Sizes | None
) -> Recording:
    columns, together = parts[0].columns, np.concatenate([part.features for part in parts])
    differ = [f for f, column in enumerate(together.T) if len(np.unique(column)) > 1]
    useful = [f for f in differ if not columns[f].startswith("sketch:")]
    sketches, start = [], 0
    for part in parts:
        whole = space.sketches[part.sketch]
        taken = [np.unique(column) for column in part.rows.T]
        several = [d for d, values in enumerate(taken) if len(values) > 1]
        decisions = tuple(
            replace(item, labels=tuple(item.labels[v] for v in taken[d]), values=tuple(range(len(taken[d]))), table={})
            for d in several
            for item in [part.decisions[d]]
        )
        rows = np.stack([np.searchsorted(taken[d], part.rows[:, d]) for d in several], axis=1)
        found = [progress.results[n] for n in range(start, start + len(rows))]
        statuses = tuple(next((s for _, s in each if s != OK), OK) for each in found)
        numbers = [progress.us(start + n) if s == OK else float("nan") for n, s in enumerate(statuses)]
        times: list[tuple[float, ...]] = [()] * len(rows)
        if sizes is not None:
            none = (float("nan"),) * len(sizes.points)
            times = [progress.times(start + n) if s == OK else none for n, s in enumerate(statuses)]
            numbers = [sizes.mean(at) for at in times]
        sketches.append(
            RecordedSketch(
                whole.name, None, task.target, (),  # type: ignore[arg-type]  # nothing is scheduled
                recorded=decisions, rows=rows.astype(np.int64), latencies=np.asarray(numbers, np.float64),
                statuses=statuses, features=tuple(columns[f] for f in useful),
                table=np.ascontiguousarray(part.features[:, useful]),
                times=np.asarray(times, np.float64).reshape(len(rows), -1),
            )
        )  # fmt: skip
        start += len(rows)
    return Recording(
        task.work.name, dict(task.work.params), task.work.dtype, dict(task.interface), task.target,
        float(progress.untuned_us or 0.0), roof, tuple(sketches),
        () if sizes is None else tuple((dict(p.values), p.weight) for p in sizes.points),
    )  # fmt: skip
