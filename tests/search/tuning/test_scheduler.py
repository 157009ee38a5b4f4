"""Several tasks in one run, without a device: who gets the seconds, what is kept, what a second run starts from."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_executor
import numpy as np
import pytest

from stridesmith.errors import Interrupted, TemporaryError
from stridesmith.ir.deadline import OutOfTime
from stridesmith.search.records import writer
from stridesmith.search.records.database import Database
from stridesmith.search.records.record import Record
from stridesmith.search.records.run_facts import RunFacts
from stridesmith.search.tasks.interface import interface_of
from stridesmith.search.tasks.task import Task
from stridesmith.search.tuning import sampler, scheduler
from stridesmith.search.tuning.clock import Clock
from stridesmith.search.tuning.scheduler import FIRST, FIRST_MS, Scheduler, Terms
from stridesmith.search.workers import kernel_cache
from stridesmith.search.workers.protocol import Build, Built, Failed, Measure, MeasureRoof, to_text
from stridesmith.space.design import space as space_module
from stridesmith.space.workloads import workload

LARGE = workload("matmul", m=8, n=9, k=11)
SMALL = workload("matmul", m=7, n=9, k=11)


class World:
    """Two tasks, one three times in the model, on the synthetic device; a clock that each measurement moves on."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.database = Database(path / "records.db")
        self.events: list[dict[str, Any]] = []
        space = fake_executor.space()
        monkeypatch.setattr(space_module, "generate", lambda *_: space)
        self.executor = fake_executor.FakeExecutor(space)
        self.tasks = [(Task(work, space.target, interface_of(work)), n) for work, n in ((LARGE, 3), (SMALL, 1))]
        self.now = 0.0
        self.executor.on_measure = self.tick
        world = self

        class Ticking(Clock):
            @property
            def seconds(self) -> float:
                return world.now

        self.clock = Ticking
        monkeypatch.setattr(sampler, "POPULATION", 600)
        monkeypatch.setattr(scheduler.clocks, "crowding", lambda: 1.0)

    def tick(self, number: int) -> None:
        self.now += 0.4

    def run(self, seconds: float) -> Scheduler:
        self.now = 0.0
        terms = Terms(emit=self.events.append)
        found = Scheduler(self.tasks, self.database, self.executor, self.clock(limit=seconds), terms)
        found.stopped_by = found.play()  # type: ignore[attr-defined]
        return found


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_every_task_has_a_kernel_before_any_is_improved(world: World) -> None:
    """The first turns are one for each task, the largest first; from then on the whole is predicted, and falls."""
    done = world.run(20)
    turns = [event for event in world.events if event["event"] == "turn"]
    assert [turn["task"] for turn in turns[:2]] == [0, 1]
    assert turns[0]["trials"] == FIRST and turns[1]["trials"] == 2 * FIRST
    assert turns[0]["predicted_us"] is None
    predicted = [turn["predicted_us"] for turn in turns[1:] if "raced" not in turn]
    assert predicted == sorted(predicted, reverse=True) and predicted[-1] < predicted[0]
    best = [(world.database.best(task.script, task.target, task.interface), n) for task, n in world.tasks]
    assert all(record is not None and record.stage == "race" for record, _ in best)
    assert done.predicted_us == pytest.approx(sum(n * record.latency_us for record, n in best))


def test_nothing_delays_the_first_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until each task has a kernel no workers are started, no roof is measured, and a guide is not asked."""
    known: dict[str, list[bool]] = {"workers": [], "roof": [], "guide": []}
    measured = world.executor.measure
    terms = Terms(emit=world.events.append)
    found = Scheduler(world.tasks, world.database, world.executor, world.clock(limit=20), terms)

    def note(what: str) -> None:
        known[what].append(all(share.best_us is not None for share in found.shares))

    def measure(jobs: Iterable[Any], *rest: Any) -> Any:
        some = list(jobs)
        if any(isinstance(job, MeasureRoof) for job in some):
            note("roof")
        return measured(some, *rest)

    class Watching:
        def revise(self, scheduler: Scheduler) -> None:
            note("guide")

        def predicted_us(self, scheduler: Scheduler) -> float | None:
            us = [share.best_us for share in scheduler.shares]
            return None if None in us else sum(one for one in us if one is not None)

    monkeypatch.setattr(world.executor, "measure", measure)
    monkeypatch.setattr(world.executor, "scale_up", lambda pays: note("workers"))
    found.guide = Watching()
    found.play()
    assert all(when and all(when) for when in known.values()), known


def test_first_candidates_are_timed_briefly(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """They say what a task takes; the others take part in a comparison."""
    asked: list[tuple[object, float]] = []
    measured = world.executor.measure

    def measure(jobs: Iterable[Any], *rest: Any) -> Any:
        some = list(jobs)
        asked.extend((job.work, job.repeat_ms) for job in some if isinstance(job, Measure))
        return measured(some, *rest)

    monkeypatch.setattr(world.executor, "measure", measure)
    world.run(40)
    for task, _ in world.tasks:
        times = [ms for work, ms in asked if work == task.name]
        assert times[:FIRST] == [FIRST_MS] * FIRST and set(times[FIRST:]) == {Measure.repeat_ms}


def test_the_likest_device_is_asked_first(world: World) -> None:
    """The best schedule of each task there is measured in the task's first turn here, and is where that goes on."""
    device, sketch = world.executor.device, world.executor.space.sketches[0]
    choice = sketch.draw(np.random.default_rng(1), 1)[0].tolist()

    def with_a_fast_one(number: int, asked: Sequence[int]) -> float:
        return device(number, asked) / (1000 if (number, list(asked)) == (0, choice) else 1)

    world.executor.device = with_a_fast_one
    (task, _), _ = world.tasks
    stranger = Record(
        script=task.script, workload=task.work.name, interface=dict(task.interface), samples=[1e-6] * 3, latency_us=1.0,
        target=replace(task.target, threads=7).to_json(), verified=True,
        trace=[["candidate", {"sketch": 0, "choice": choice}]],
    )  # fmt: skip
    world.database.put_records([stranger])
    world.run(20)
    turns = [event for event in world.events if event["event"] == "turn"]
    (here,) = (r for r in world.database.records(task.script, task.target, task.interface) if r.origin)
    assert here.origin == stranger.id and here.latency_us != stranger.latency_us
    assert turns[0]["best_us"] < 1 and turns[0]["trials"] == FIRST  # no other is that fast


def test_a_first_turn_has_what_a_program_of_the_same_form_was_fastest_with(world: World) -> None:
    """The first candidate of a new task is the best of the nearest one that the database has."""
    world.run(20)
    (near, _) = world.tasks[1]
    best = world.database.best(near.script, near.target, near.interface)
    work = workload("matmul", m=6, n=9, k=11)
    new = Task(work, near.target, interface_of(work))
    world.tasks = [(new, 1)]
    world.run(2)
    first = world.database.records(new.script, new.target, new.interface)[0]
    assert best is not None and (first.sketch, first.choice) == (best.sketch, best.choice)


def test_what_counts_more_gets_more(world: World) -> None:
    """Of two tasks that gain alike, the one that the model calls three times is tried more often."""
    done = world.run(40)
    large, small = (share.run.results.trials for share in done.shares)
    assert large > small > FIRST


def test_a_second_run_starts_from_what_is_known(world: World) -> None:
    """Its first prediction is the last one of the first run, and no first turn is needed."""
    first = world.run(20)
    world.events.clear()
    world.run(10)
    start, *rest = world.events
    assert start["event"] == "tasks" and start["predicted_us"] == pytest.approx(first.predicted_us)
    turns = [event for event in rest if event["event"] == "turn"]
    assert turns[0]["trials"] > FIRST


def test_ctrl_c_keeps_what_was_measured(world: World) -> None:
    """Every record that was announced is in the database."""

    def stop(number: int) -> None:
        world.tick(number)
        if number == 7:
            raise KeyboardInterrupt

    world.executor.on_measure = stop
    with pytest.raises(Interrupted, match="what was measured so far"):
        world.run(20)
    assert world.database.size == 6


def test_a_locked_database_holds_up_the_end_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C that is told with where the records are; what tasks tell beside them is given up with the first."""
    facts: list[RunFacts] = []

    def refuse(asked: list[Any]) -> Any:
        def put(thing: Any, seconds: float | None = None) -> None:
            asked.append(thing)
            raise TemporaryError("the database is locked")

        return put

    def interrupt(number: int) -> None:
        world.tick(number)
        if number == 10:
            raise KeyboardInterrupt

    monkeypatch.setattr(world.database, "put_run", refuse(facts))
    world.run(5)
    assert len(facts) == 1, "both tasks have something to tell"
    monkeypatch.setattr(world.database, "put_records", refuse([]))
    world.executor.measured = 0
    world.executor.on_measure = interrupt
    with pytest.raises(Interrupted, match=r"interrupted; .*is locked.*records are in") as raised:
        world.run(20)
    assert raised.value.exit_code == 130 and len(facts) == 1


def test_races_take_a_share_and_begin_where_two_are_close(world: World) -> None:
    """A tenth of the seconds; a task whose two fastest are close comes before one whose fastest is far ahead.

    Nothing that is late is waited for, but what comes after the run may take its time.
    """
    limits = []
    world.executor.on_measure = lambda number: (limits.append(world.executor.until), world.tick(number))[1]
    done = world.run(30)
    assert None not in limits and world.executor.until is None
    turns = [event for event in world.events if event["event"] == "turn"]
    searched = max(turn["seconds"] for turn in turns if "raced" not in turn)
    assert len([turn for turn in turns if "raced" in turn]) == 2
    assert turns[-1]["seconds"] - searched <= 3.0
    share = done.shares[1]
    record = next(iter(share.run.results.valid.values()))

    def undecided(*latencies: float) -> float:
        found = [record.measured([us * 1e-6] * 3, 0.0, "trial").changed(id=f"{int(us):016x}") for us in latencies]
        share.run.results.valid = {r.id: r for r in found}
        return share.undecided_us

    assert undecided(100.0, 101.0) > 10 * undecided(100.0, 120.0) == 10 * undecided(100.0)


def test_a_task_in_play_is_played_again_only_if_it_is_worth_much_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its turn has not told yet what the next one may gain, and another task's turn can be prepared meanwhile."""

    def again(factor: float) -> float:
        """The share of turns of the task that had the turn before, where one in play has to be worth so much more."""
        monkeypatch.setattr(scheduler, "PLAYING", factor)
        (folder := tmp_path / str(factor)).mkdir()
        world = World(folder, monkeypatch)
        world.tasks = [(task, 1) for task, _ in world.tasks]
        world.run(60)
        turns = [event["task"] for event in world.events if event["event"] == "turn" and "raced" not in event]
        assert len(turns) > 8
        return sum(one == other for one, other in itertools.pairwise(turns[2:])) / len(turns)

    found = [again(factor) for factor in (1.0, scheduler.PLAYING, 1e6)]
    assert found[0] >= found[1] >= found[2] == 0 < found[0], found


def test_what_has_raced_need_not_be_built_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who makes a model of the winners finds them compiled, by the question that it asks (`models.run.kernels`)."""
    kept: dict[str, Built] = {}
    monkeypatch.setattr(kernel_cache, "store", kept.__setitem__)
    done = world.run(30)
    raced = [share.run.task for share in done.shares if share.raced_us is not None]
    assert raced
    for task in raced:
        best = world.database.best(task.script, task.target, task.interface)
        assert best is not None
        job = Build(script=task.script, target=task.target, trace=best.trace)
        assert isinstance(kept[to_text(job)], Built)


def test_what_a_task_takes_does_not_change_with_its_race(world: World) -> None:
    """For comparing it with tasks that had none: a race tells what the luckiest of some trials takes."""
    done = world.run(30)
    raced = [share for share in done.shares if share.raced_us is not None]
    assert raced and all(share.best_us == share.raced_us for share in raced)
    assert all(share.trial_us == share.run.results.best_us for share in raced)


def many(world: World, count: int) -> None:
    """Have the world so many tasks."""
    work = [workload("matmul", m=m, n=9, k=11) for m in range(10, 10 + count)]
    world.tasks = [(replace(world.tasks[0][0], work=one, interface=interface_of(one)), 1) for one in work]


def test_a_short_run_has_one_candidate_of_each_task(world: World) -> None:
    """Where first turns would take too long: all in one batch; seconds that are left go where the gain is."""
    many(world, 20)
    batches: list[int] = []
    build = world.executor.build
    world.executor.build = lambda jobs: batches.append(len(replies := build(jobs))) or replies  # type: ignore
    done = world.run(24)
    assert batches[0] == 20 and done.stopped_by == "seconds"  # type: ignore[attr-defined]
    assert all(share.best_us is not None for share in done.shares) and done.predicted_us is not None
    assert max(share.turns for share in done.shares) > 1 > min(share.turns for share in done.shares)
    assert world.now < 24


def test_first_turns_that_take_long_make_way_for_single_candidates(world: World) -> None:
    """What is left is looked at after each of them."""
    many(world, 10)
    world.executor.on_measure = lambda number: setattr(world, "now", world.now + 2.0)
    done = world.run(60)
    trials = [event["trials"] for event in world.events if event["event"] == "turn"]
    assert trials[0] == FIRST and all(share.best_us is not None for share in done.shares)
    assert 10 <= trials[9] < 10 * FIRST


def test_a_crowded_machine_has_single_candidates_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where others compute, too, a first turn takes as many times as long; programs as written are compiled first."""
    monkeypatch.setattr(scheduler.clocks, "crowding", lambda: 10.0)
    world.run(30)
    built = world.executor.of(Build)
    assert [job.choice for job in built[:2]] == [None, None] and {job.script for job in built[:2]} == {
        task.script for task, _ in world.tasks
    }
    assert [job.choice is not None for job in built[2:4]] == [True, True]


def test_what_was_built_and_not_measured_is_not_taken_as_it_was_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The untuned program is slower than what the estimate likes, and would have the only record."""
    many(world, 10)
    monkeypatch.setattr(scheduler.clocks, "crowding", lambda: 10.0)
    late = Failed(status="out_of_time", message="the time of the run was over")
    world.executor.on_measure = lambda number: setattr(world, "now", world.now + 3.0)
    world.executor.measure_faults = dict.fromkeys(range(5, 11), late)
    done = world.run(30)
    cut = [share for share in done.shares if share.best_us is None]
    assert cut and all(share.is_given_up and share.untuned_us is None for share in cut)
    assert sum(share.best_us is not None for share in done.shares) > 1


def test_what_there_is_no_time_for_is_taken_as_it_was_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks whose design space cannot be derived in time; a whole is known nevertheless, and compiled."""
    kept: dict[str, Built] = {}
    monkeypatch.setattr(kernel_cache, "store", kept.__setitem__)

    def late(*_: Any) -> Any:
        raise OutOfTime

    monkeypatch.setattr(space_module, "generate", late)
    done = world.run(20)
    assert all(share.best_us == world.executor.untuned_us for share in done.shares) and done.trials == 0
    jobs = [Build(script=task.script, target=task.target) for task, _ in world.tasks]
    assert all(isinstance(kept[to_text(job)], Built) for job in jobs)
    notes = [event["message"] for event in world.events if event["event"] == "note"]
    assert sum("could not be derived in time" in note for note in notes) == 2


def test_the_fastest_candidate_is_compiled_also_without_a_race(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who makes a model of it finds it by the question for its record."""
    kept: dict[str, Built] = {}
    monkeypatch.setattr(kernel_cache, "store", kept.__setitem__)
    monkeypatch.setattr(Scheduler, "_races", lambda self: None)
    done = world.run(10)
    for share in done.shares:
        task = share.run.task
        best = world.database.best(task.script, task.target, task.interface)
        assert best is not None and best.latency_us == share.best_us
        assert isinstance(kept[to_text(Build(script=task.script, target=task.target, trace=best.trace))], Built)


def test_phases_say_what_is_done_from_the_start(world: World) -> None:
    """Before the first turn is over."""
    world.run(10)
    before = itertools.takewhile(lambda event: event["event"] != "turn", world.events)
    phases = [event["phase"] for event in before if event["event"] == "phase"]
    assert phases[0] == "deriving the design space of matmul" and "building 3 candidates" in phases


def test_no_turn_begins_in_the_seconds_of_the_caller(world: World) -> None:
    """Who asked has said what it needs at the end."""
    asked = world.tasks, world.database, world.executor
    done = [Scheduler(*asked, world.clock(limit=20), Terms(ending=ending)) for ending in (1.0, 8.0)]
    assert done[0].left() - done[1].left() == pytest.approx(7.0)


def test_what_a_database_refuses_to_the_end_is_told_and_taken_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends as it would, with a note that says where the records are; the next run begins by storing them."""
    monkeypatch.setattr(writer, "SETTLE_SECONDS", 0.05)

    def refuse(records: Any, seconds: float | None = None) -> Any:
        raise TemporaryError("the database is locked")

    with monkeypatch.context() as locked:
        locked.setattr(world.database, "put_records", refuse)
        done = world.run(5)
        assert done.stopped_by == "seconds"  # type: ignore[attr-defined]
        notes = [event["message"] for event in world.events if event["event"] == "note"]
        assert "kept in a file" in notes[0] and "the next run with this database takes them up" in notes[-1]
        assert world.database.size == 0
    world.events.clear()
    world.run(1)
    assert any("had to keep in a file are stored now" in event.get("message", "") for event in world.events)
    assert world.database.size >= done.trials


def test_a_server_that_does_not_answer_costs_what_is_stored_and_not_the_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks are tuned as if they were new, do without other devices' schedules, and keep their trials."""

    def silent(*_: Any, **__: Any) -> Any:
        raise TemporaryError("the server does not answer")

    for name in ("best", "records", "elsewhere", "top"):
        monkeypatch.setattr(world.database, name, silent)
    done = world.run(30)
    assert all(share.best_us is not None for share in done.shares)
    for note in ("begins without what is stored", "of other devices are not tried", "no race, its trials stand"):
        assert any(note in event.get("message", "") for event in world.events), note
