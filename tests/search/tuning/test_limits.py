"""A limit of seconds, in simulated time: whatever takes long, a run ends by then with the best so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fake_executor
import pytest

from stridesmith.errors import NoSchedule
from stridesmith.ir import deadline
from stridesmith.search.records.database import Database
from stridesmith.search.tasks.interface import interface_of
from stridesmith.search.tasks.task import Task
from stridesmith.search.tuning import clock, tuner
from stridesmith.search.tuning.clock import Clock
from stridesmith.search.tuning.race import untuned_id
from stridesmith.search.tuning.scheduler import Scheduler, Terms
from stridesmith.search.tuning.settings import settings
from stridesmith.search.workers.executor import NO_TIME
from stridesmith.search.workers.protocol import Build, Job, Measure, MeasureRoof, Race
from stridesmith.space.design import space as space_module
from stridesmith.space.workloads import workload

SMALL, LARGE = workload("matmul", m=8, n=9, k=11), workload("matmul", m=1024, n=1024, k=1024)


@dataclass
class Costs:
    """Seconds that things take."""

    start: float = 1.0
    build: float = 0.1
    measure: float = 0.1
    untuned: float = 0.1
    race: float = 0.5
    roof: float = 0.8
    derive: float = 0.1


class World:
    """A run whose time passes where its executor and its design space say so, and nowhere else."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, costs: Costs) -> None:
        self.path, self.costs, self.now = path, costs, 1000.0
        self.events: list[tuple[float, dict[str, Any]]] = []
        monkeypatch.setattr(clock.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(tuner, "resolve", lambda asked: self.task)  # type: ignore[has-type]
        monkeypatch.setattr(clock, "crowding", lambda: 1.0)
        monkeypatch.setattr(space_module, "generate", self.generate)
        self.space = fake_executor.space()
        self.executor = Timed(self)
        self.task = Task(SMALL, self.space.target, interface_of(SMALL))

    def generate(self, *_: Any) -> Any:
        """A space of ten steps, between which it looks at the clock."""
        for _ in range(10):
            self.now += self.costs.derive / 10
            deadline.look()
        return self.space

    def run(self, seconds: float, **options: Any) -> Any:
        began = self.now
        self.now += self.costs.start
        asked = {"workload": "matmul", "db": str(self.path), "mirror": False, "sampler": "random", "start": began}
        try:
            return tuner.tune(settings(**asked, seconds=seconds, **options), self.hear, self.executor)
        finally:
            self.took = self.now - began

    def hear(self, event: dict[str, Any]) -> None:
        self.events.append((self.now, event))

    def notes(self) -> str:
        return "; ".join(event["message"] for _, event in self.events if event["event"] == "note")

    @property
    def done(self) -> dict[str, Any]:
        return self.events[-1][1]


class Timed(fake_executor.FakeExecutor):
    """An executor whose jobs take their time, and which gives up what is not done by `until`."""

    def __init__(self, world: World) -> None:
        super().__init__(world.space)
        self.world, self.late = world, 0

    def build(self, jobs: Iterable[Job[Any]], done: Callable[[int, Any], None] | None = None) -> list[Any]:
        return self._each(jobs, self._build, done)

    def measure(self, jobs: Iterable[Job[Any]], done: Callable[[int, Any], None] | None = None) -> list[Any]:
        return self._each(jobs, self._measure, done)

    def _each(self, jobs: Iterable[Job[Any]], do: Callable[[Any], Any], done: Any) -> list[Any]:
        replies = []
        for index, job in enumerate(jobs):
            end = self.world.now + self._cost(job)
            until = math.inf if self.until is None else max(self.until, self.world.now)
            self.world.now = min(end, until)
            self.late += end > until
            replies.append(NO_TIME if end > until else do(job))
            if done is not None:
                done(index, replies[-1])
        return replies

    def _cost(self, job: Job[Any]) -> float:
        costs = self.world.costs
        if isinstance(job, Race):
            return costs.race + job.seconds + (costs.roof if job.roof else 0.0)
        if isinstance(job, Measure):
            return costs.untuned if job.kernel.artifact is None else costs.measure
        return costs.roof if isinstance(job, MeasureRoof) else costs.build


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    return lambda **costs: World(tmp_path / "tuned.db", monkeypatch, Costs(**costs))


@pytest.mark.parametrize("seconds", [3.0, 5.0, 10.0, 30.0])
@pytest.mark.parametrize(
    "costs",
    [
        {}, {"build": 0.7}, {"build": 3.0}, {"measure": 0.9}, {"measure": 6.0}, {"untuned": 60.0}, {"race": 20.0},
        {"roof": 20.0}, {"derive": 1.5}, {"start": 2.4}, {"build": 1.0, "measure": 1.0, "race": 3.0, "roof": 4.0},
    ],
)  # fmt: skip
def test_a_run_ends_in_its_time(world: Callable[..., World], seconds: float, costs: dict[str, float]) -> None:
    """With the best that there was time for; where there was none for anything, the error says so."""
    there = world(**costs)
    try:
        record = there.run(seconds)
    except NoSchedule:
        assert max(costs.values()) > 0.2 * seconds
    else:
        assert record.latency_us is not None and there.done["record"] == record.id
        assert there.done["seconds"] <= seconds
    assert there.took <= seconds and there.executor.closed == 1


def test_a_short_run_has_its_first_candidate_measured_alone(world: Callable[..., World]) -> None:
    """What others would take is not waited for."""
    there = world(build=0.4)
    there.run(4.0)
    built = [job for job in there.executor.jobs if isinstance(job, Build | Measure)]
    assert isinstance(built[0], Build) and isinstance(built[1], Measure)
    assert there.done["trials"] > 1


def test_an_untuned_program_that_would_take_a_large_share_is_left_out(world: Callable[..., World]) -> None:
    """By its operations, before it is tried; a long run has time for it."""
    there = world()
    there.task = Task(LARGE, there.space.target, interface_of(LARGE))
    there.run(5.0)
    assert there.done["baseline_us"] is None
    assert "the untuned program would take some 4.3 s of 5: left out" in there.notes()
    there.run(100.0, trials=4)
    assert there.done["baseline_us"] is not None


def test_where_no_candidate_was_in_time_the_untuned_program_is_the_result(world: Callable[..., World]) -> None:
    """Candidates that no builder had the time for have not failed; nothing else is known of the device."""
    there = world()
    there.executor._build = (  # type: ignore[method-assign]
        lambda job, build=there.executor._build: NO_TIME if job.choice is not None else build(job)
    )
    record = there.run(4.0)
    assert record.id == untuned_id(there.task) and record.trace is None
    assert record.latency_us == pytest.approx(there.executor.untuned_us)
    assert "before any candidate had been measured" in there.notes() and there.took <= 4.0
    with Database(there.path, read_only=True) as database:
        best = database.best(there.task.script, there.task.target, there.task.interface)
        assert best is not None and best.id == record.id


def test_a_space_that_takes_too_long_leaves_time_for_the_untuned_program(world: Callable[..., World]) -> None:
    """Deriving it stops at its share of the seconds."""
    there = world(derive=50.0)
    record = there.run(20.0)
    assert record.id == untuned_id(there.task) and "before the design space had been derived" in there.notes()
    assert there.took <= 20.0


def test_the_best_of_trials_stands_where_there_is_no_time_for_a_race(world: Callable[..., World]) -> None:
    """Nothing is built for a race that could not end."""
    there = world(measure=3.2)
    record = there.run(5.0)
    assert record.stage == "trial" and not [job for job in there.executor.jobs if isinstance(job, Race)]
    assert "there was no final race" in there.notes()


def test_limits_of_the_device_are_measured_where_there_is_time_left(world: Callable[..., World]) -> None:
    """In a short run after the race, which is not to be lost for them; in a long one beside it."""
    there = world(race=0.2, roof=0.5)
    there.run(8.0)
    (race,) = [job for job in there.executor.jobs if isinstance(job, Race)]
    assert not race.roof and there.done["peak_gflops"] == fake_executor.ROOF.peak_gflops
    there.executor.jobs.clear()
    there.run(60.0)
    assert all(job.roof for job in there.executor.jobs if isinstance(job, Race))


def test_time_that_is_not_needed_at_the_end_goes_to_candidates(world: Callable[..., World]) -> None:
    """More than half of a run whose every part is quick."""
    there = world(start=0.3, race=0.1, roof=0.2)
    there.run(10.0)
    trials = [now for now, event in there.events if event["event"] == "trial"]
    assert trials[-1] - trials[0] > 5.5


# ---------------------------------------------------------------- several tasks


@pytest.mark.parametrize("seconds", [5.0, 10.0, 30.0])
@pytest.mark.parametrize(
    "costs",
    [{}, {"build": 0.5}, {"build": 4.0}, {"measure": 0.6}, {"measure": 7.0}, {"derive": 2.0}, {"race": 20.0},
     {"build": 1.0, "measure": 1.0, "derive": 1.0}],
)  # fmt: skip
def test_several_tasks_leave_the_caller_its_seconds(
    world: Callable[..., World], seconds: float, costs: dict[str, float]
) -> None:
    """Each has a kernel where that could be, and none takes what others, or the caller, need."""
    there = world(**costs)
    work = [workload("matmul", m=m, n=9, k=11) for m in range(10, 18)]
    tasks = [(Task(one, there.space.target, interface_of(one)), 1) for one in work]
    began = there.now
    with Database(there.path) as database:
        scheduler = Scheduler(tasks, database, there.executor, Clock(began, seconds), Terms(ending=1.0))
        scheduler.play()
    assert there.now - began <= seconds - min(clock.CLOSING_SECONDS, clock.CLOSING_SHARE * seconds) - 0.5 + 1e-6
    known = sum(share.best_us is not None for share in scheduler.shares)
    assert known == len(tasks) or sum(costs.values()) * len(tasks) > 0.5 * seconds
    assert all(share.best_us is not None or share.is_given_up for share in scheduler.shares)
