"""The tuning run, without a device: what is counted, when it stops, what is kept."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import tempfile
import threading
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import fake_executor
import numpy as np
import optuna
import pytest
import synthetic_space as synthetic
from record_makers import make_record

from stridesmith.backends import cpu_topology
from stridesmith.backends.host_load import Load
from stridesmith.configs.load import target as described
from stridesmith.errors import (
    DeviceLost,
    Interrupted,
    NoSchedule,
    StorageError,
    TemporaryError,
    UsageError,
    WrongResult,
)
from stridesmith.search.records.database import Database
from stridesmith.search.records.log import read_log
from stridesmith.search.records.record import Record
from stridesmith.search.records.spool import Spool
from stridesmith.search.records.status import DEVICE_LOST, FAILURES
from stridesmith.search.records.writer import RecordWriter
from stridesmith.search.tasks.interface import interface_of
from stridesmith.search.tasks.task import Roof, Task, TypePeak, caches_of, peak_dtypes, performance
from stridesmith.search.tuning import budget, elsewhere, loop, race, tuner
from stridesmith.search.tuning.loop import CLEARLY
from stridesmith.search.tuning.mirror import SERVER_SECONDS, mirror_place
from stridesmith.search.tuning.settings import TuneSettings, settings
from stridesmith.search.tuning.study import Study, optuna_storage
from stridesmith.search.workers.protocol import (
    Build,
    CheckDevice,
    Failed,
    Job,
    Measure,
    Measured,
    MeasureRoof,
    Race,
    Raced,
)
from stridesmith.space.design import space as space_module
from stridesmith.space.workloads import workload

WORK = workload("matmul", m=127, n=129, k=131)
DONE = {
    "event", "workload", "shape", "dtype", "interface", "target", "device", "threads", "latency_us", "gflops",
    "peak_gflops", "peak_fraction", "roofline_fraction", "baseline_us", "trials", "failed", "seconds", "activities",
    "stopped_by",
    "sampler", "seed", "verified", "max_abs_error", "record", "db", "nodes",
}  # fmt: skip


class World:
    """A run's surroundings: a database path, a fake executor, and the events that came."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.monkeypatch = monkeypatch
        self.events: list[dict[str, Any]] = []
        self.use(fake_executor.space())

    def use(self, space: synthetic.Space) -> None:
        self.space = space
        self.executor = fake_executor.FakeExecutor(space)
        task = Task(WORK, space.target, interface_of(WORK))
        self.task = task
        self.monkeypatch.setattr(tuner, "resolve", lambda _: task)
        self.monkeypatch.setattr(space_module, "generate", lambda *_: space)

    def run(self, **options: Any) -> Record:
        self.events = []
        asked = {"workload": "matmul", "db": str(self.path), "mirror": False, "sampler": "random", **options}
        return tuner.tune(settings(**asked), self.events.append, self.executor)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]

    @property
    def done(self) -> dict[str, Any]:
        (event,) = self.of("done")
        return event

    def stored(self) -> list[Record]:
        with Database(self.path, read_only=True) as database:
            return list(database.every())


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path / "tuned.db", monkeypatch)


@pytest.mark.parametrize(
    ("options", "is_first"),
    [({}, True), ({"resume": False}, False), ({"sampler": "random"}, False)],
)
def test_a_search_begins_with_the_best_of_a_program_of_the_same_form(
    world: World, options: dict[str, Any], is_first: bool
) -> None:
    """With the default sampler, and where it may learn from what is stored."""
    best = world.run(trials=12, sampler="stridesmith")
    work = workload("matmul", m=61, n=67, k=71)
    other = Task(work, world.space.target, interface_of(work))
    world.monkeypatch.setattr(tuner, "resolve", lambda _: other)
    world.run(trials=4, **({"sampler": "stridesmith"} | options))
    first = min((r for r in world.stored() if r.script == other.script and r.trial >= 0), key=lambda r: r.trial)
    assert ((first.sketch, first.choice) == (best.sketch, best.choice)) is is_first


def test_a_run_ends_with_the_record_that_it_names(world: World) -> None:
    """The winner of the race is returned, named by `done`, verified, and the database's best."""
    record = world.run(trials=24)
    assert set(world.done) >= DONE
    assert world.events[-1] is world.done
    assert world.done["record"] == record.id
    assert world.done["verified"] is True
    assert world.done["stopped_by"] == "trials"
    assert world.done["latency_us"] == record.latency_us
    assert world.done["baseline_us"] == pytest.approx(5000.0)
    with Database(world.path, read_only=True) as database:
        assert database.best(WORK, world.space.target, interface_of(WORK)) == record
    assert record.stage == "race"
    assert world.executor.closed == 1


def test_start_comes_first_and_trials_are_announced_after_they_are_kept(world: World) -> None:
    """Each `trial` event names a record that another process can already read."""
    seen: list[bool] = []

    def look(event: dict[str, Any]) -> None:
        world.events.append(event)
        if event["event"] == "trial":
            seen.append(event["record"] in {r.id for r in world.stored()})

    tuner.tune(
        settings(workload="matmul", db=str(world.path), trials=5, mirror=False, sampler="random"), look, world.executor
    )
    assert world.events[0]["event"] == "start"
    assert seen == [True] * 5
    assert [event["trials"] for event in world.of("trial")] == [1, 2, 3, 4, 5]


def test_trials_count_what_was_sent_to_a_builder(world: World) -> None:
    """Candidates that fail in a builder or a run count; the untuned program, and finalists, do not."""
    world.executor.build_faults = {
        3: Failed(status="build_error", message="no"), 5: Failed(status="build_timeout"),
    }  # fmt: skip
    world.executor.measure_faults = {
        4: Failed(status="crash:SIGSEGV", message="null store"), 6: Failed(status="wrong", message="tail"),
        7: Failed(status="run_timeout"), 8: Failed(status="oom"), 9: Failed(status="infrastructure"),
    }  # fmt: skip
    world.run(trials=20)
    expected = dict.fromkeys(FAILURES, 0) | dict.fromkeys(
        ("build_error", "build_timeout", "crash", "wrong", "run_timeout", "oom", "infrastructure"), 1
    )
    assert world.done["failed"] == expected
    assert world.done["trials"] == 20
    assert len(world.of("trial")) == 20
    statuses = [record.status for record in world.stored()]
    assert len(statuses) == 20
    assert "crash:SIGSEGV" in statuses


def test_a_run_without_a_result_quotes_the_most_frequent_failure(world: World) -> None:
    """What most of its candidates failed with stands in the message, with how often."""
    no = Failed(status="build_error", message="no such lane")
    world.executor.build_faults = dict.fromkeys(range(40), no) | {3: Failed(status="build_error", message="odd")}
    with pytest.raises(NoSchedule, match=r"none was valid .*; most often, [4-9] times, since no such lane"):
        world.run(trials=8)


def test_refused_candidates_are_counted_apart(world: World) -> None:
    """What the schedule refuses goes to no builder, is no trial, and is remembered."""
    world.use(fake_executor.space(lambda choice: choice[synthetic.PLACE] == 0))
    world.run(trials=20)
    refused = world.done["failed"]["refused"]
    assert refused > 0
    assert world.done["trials"] == 20 == len(world.of("trial"))
    assert sum(record.status == "refused" for record in world.stored()) == refused


def test_seconds_are_told_by_activity(world: World) -> None:
    """The activities add up to the run's seconds; building and measuring are among them."""
    world.run(trials=24)
    spent = world.done["activities"]
    assert sum(spent.values()) == pytest.approx(world.done["seconds"], abs=0.01)
    assert min(spent["building"], spent["measuring"], spent["race"]) > 0


def test_a_part_of_the_next_batch_is_built_while_the_batch_is_asked_for(world: World) -> None:
    """From the second round on a quarter goes to the builders before the study answers, and no trial is lost."""
    asked = threading.Event()
    built_before: list[int] = []

    def ask(self: Study, count: int, learn: bool = True, deadline: float | None = None) -> list[Any]:
        if len(self.study.trials) > 16:
            asked.wait(5)
            built_before.append(world.executor.built)
        return original(self, count, learn, deadline)

    def building(event: dict[str, Any]) -> None:
        world.events.append(event)
        if event["event"] == "trial":
            asked.clear()
        if str(event.get("phase", "")).startswith("building 4 "):
            threading.Timer(0.2, asked.set).start()

    original = Study.ask
    world.monkeypatch.setattr(Study, "ask", ask)
    options = settings(workload="matmul", db=str(world.path), mirror=False, sampler="random", trials=48)
    tuner.tune(options, building, world.executor)
    assert world.done["trials"] == 48 == len(world.of("trial"))
    assert built_before[0] == 16 + 1 + 4  # a batch, the untuned program, and what was held back


def test_candidates_take_turns_with_a_good_one(world: World) -> None:
    """Each after the first is timed beside one measured before, which gives way only to one that is clearly faster."""
    world.run(trials=48)
    first, *later = [job for job in world.executor.of(Measure) if job.kernel.artifact is not None]
    assert first.control is None
    known = [job.control.latency_us for job in later]
    controls = list(dict.fromkeys(known))
    assert len(controls) > 1
    assert all(latency * CLEARLY < before for before, latency in pairwise(controls))
    assert all(latency <= job.best_us * CLEARLY for latency, job in zip(known, later, strict=True))


def test_a_space_of_the_callers_own_is_scheduled_here(world: World) -> None:
    """Builders cannot derive it: their jobs have traces, and refusals are counted all the same."""
    space = fake_executor.space(lambda choice: choice[synthetic.PLACE] == 0)
    options = settings(workload="matmul", db=str(world.path), mirror=False, sampler="random", trials=20)
    tuner.tune(options, world.events.append, world.executor, generate=lambda *_: space)
    built = world.executor.of(Build)
    assert built and all(job.choice is None for job in built)
    assert world.done["trials"] == 20 == len(world.of("trial"))
    assert world.done["failed"]["refused"] > 0


def test_the_same_code_races_once(world: World) -> None:
    """Candidates that came out as the same code share their samples, and one seat in the race."""
    build = world.executor._build
    world.executor._build = lambda job: replace(build(job), code_hash=str(world.executor.built % 3))
    world.run(trials=24)
    assert world.done["duplicates"] == 21
    (race,) = world.executor.of(Race)
    assert sum(kernel.artifact is not None for kernel in race.kernels) == 3


def test_what_races_is_built_from_the_records_traces(world: World) -> None:
    """The winner is the program that a replay will find, not what a builder once made of a choice."""
    world.run(trials=20)
    traces = {str(r.trace) for r in world.stored()}
    (race,) = world.executor.of(Race)
    rebuilt = [job.trace for job in world.executor.of(Build) if job.trace]
    assert [kernel.artifact for kernel in race.kernels] == rebuilt
    assert {str(trace) for trace in rebuilt} <= traces


def test_the_limit_of_trials_is_exact_for_any_batch(world: World) -> None:
    """Rounds of seven end at exactly ten."""
    world.run(trials=10, batch=7)
    assert world.done["trials"] == 10
    assert [event["trials"] for event in world.of("round")] == [7, 10]


def test_a_wrong_candidate_never_wins(world: World) -> None:
    """The fastest samples are worth nothing when verification failed, in a trial or in the race."""

    def spoil(reply: Raced) -> Raced:
        results = list(reply.results)
        fastest = min(range(len(results)), key=lambda i: statistics.median(results[i].samples))
        results[fastest] = Failed(status="wrong", message="differs at [0, 0]")
        world.executor.race_reply = lambda other: other
        return replace(reply, results=tuple(results))

    world.executor.race_reply = spoil
    record = world.run(trials=16)
    wrong = [r for r in world.stored() if r.status == "wrong"]
    assert len(wrong) == 1
    assert record.id != wrong[0].id
    assert world.done["failed"]["wrong"] == 1
    assert world.done["verified"] is True


def test_the_only_candidate_does_not_win_when_the_race_finds_it_wrong(world: World) -> None:
    """Fresh data prove it wrong: there is no schedule, whatever its trial had said."""
    wrong = Failed(status="wrong", message="differs at [0, 0]")
    world.executor.race_reply = lambda reply: replace(reply, results=(wrong,) * len(reply.results))
    with pytest.raises(NoSchedule, match="none was valid"):
        world.run(trials=1)
    assert [record.status for record in world.stored()] == ["wrong"]


def test_a_candidate_that_is_refused_leaves_its_number_to_nobody(world: World) -> None:
    """Numbers of trials are distinct over rounds, with gaps where a schedule refused."""
    world.use(fake_executor.space(lambda choice: choice[synthetic.PLACE] == 0))
    world.run(trials=40)
    numbers = [event["trial"] for event in world.of("trial")]
    assert len(numbers) == 40 == len(set(numbers))


def test_code_that_timed_out_is_not_run_again(world: World) -> None:
    """Candidates that come out as the same code share a time-out, which costs its deadline once."""
    original = world.executor.build
    world.executor.build = lambda jobs, done=None: [replace(r, code_hash="same") for r in original(jobs, done)]
    world.executor.measure_faults = {1: Failed(status="run_timeout", message="10 s")}
    with pytest.raises(NoSchedule):
        world.run(trials=16)
    assert world.executor.measured == 2  # the untuned program, too


def test_a_race_that_is_lost_as_a_whole_is_run_one_by_one(world: World) -> None:
    """A crash in the race does not cost the run its result."""
    world.executor.race_reply = lambda reply: Failed(status="crash:SIGSEGV", message="in the race")
    record = world.run(trials=8)
    assert record.verified
    assert world.done["peak_fraction"] is None
    assert world.done["latency_us"] == record.latency_us


def test_a_race_on_a_busier_machine_displaces_nobody(world: World) -> None:
    """What won on a quiet machine stays the best, with its figures, until a race on one as quiet says otherwise."""

    def busy(processors: float, times: float = 1.0, slow: Record | None = None) -> None:
        def raced(reply: Raced) -> Raced:
            found = [result for result in reply.results if isinstance(result, Measured)]
            of = None if slow is None else min(found, key=lambda one: abs(one.samples[1] - slow.samples[1]))
            results = (replace(r, samples=tuple(s * times * (2 if r is of else 1) for s in r.samples)) for r in found)
            return replace(reply, results=tuple(results), busy=processors)

        world.executor.race_reply = raced

    busy(0.1)
    quiet = world.run(trials=8)
    assert quiet.busy == 0.1 and quiet in world.stored()
    busy(1.5, times=1.5, slow=quiet)
    found = world.run(trials=1)
    assert found.id == quiet.id and found.latency_us == pytest.approx(3.0 * (quiet.latency_us or 0.0), rel=0.1)
    (note,) = [event["message"] for event in world.of("note") if "1.5 processors" in event["message"]]
    assert f"record {quiet.id}, which took {quiet.latency_us:.4g} us" in note and "stays the best" in note
    with Database(world.path, read_only=True) as database:
        assert database.best(WORK, world.space.target, interface_of(WORK)) == quiet
    busy(0.2, slow=quiet)
    assert world.run(trials=1).id != quiet.id, "a race that is as quiet decides"
    assert not any("stays the best" in event["message"] for event in world.of("note"))


def test_the_untuned_program_wins_where_nothing_is_faster(world: World) -> None:
    """A program that no candidate beats is its own best schedule, one record however often it wins."""
    world.executor.untuned_us = 0.5
    first = world.run(trials=6)
    second = world.run(trials=6)
    assert first.trace is None
    assert second.id == first.id
    assert sum(r.trace is None for r in world.stored()) == 1


def test_a_wrong_untuned_program_stops_everything(world: World) -> None:
    """Exit 5: without a right baseline no result can be trusted."""
    world.executor.measure = lambda jobs, done=None: [Failed(status="wrong", message="nan")]
    with pytest.raises(WrongResult, match="differs from its reference"):
        world.run(trials=4)
    assert world.executor.closed == 1


def test_an_untuned_program_that_is_too_slow_costs_only_the_baseline(world: World) -> None:
    """A run without a baseline goes on, says why, and reports null."""
    build = world.executor._build
    timeout = Failed(status="build_timeout")
    world.executor._build = lambda job: timeout if job.choice is None and job.trace is None else build(job)
    world.run(trials=4)
    assert world.done["baseline_us"] is None
    (race,) = world.executor.of(Race)
    assert all(kernel.artifact is not None for kernel in race.kernels)
    assert any("untuned" in note["message"] for note in world.of("note"))


def test_an_untuned_program_is_left_out_where_it_is_one_work_item(world: World) -> None:
    """On a device that runs items in step it would take seconds; a small one is measured there, too."""
    task = world.task
    gpu = replace(task.target, kind="opencl", warp=32, is_cpu_device=False)
    for size, is_measured in ((16, True), (1024, False)):
        work = workload("matmul", m=size, n=size, k=size)
        world.monkeypatch.setattr(tuner, "resolve", lambda _, work=work: Task(work, gpu, interface_of(work)))
        world.run(trials=4)
        assert (world.done["baseline_us"] is not None) is is_measured
        notes = [note["message"] for note in world.of("note") if "single work-item" in note["message"]]
        assert bool(notes) is not is_measured
    assert "would take some 8.6 s: left out" in notes[0]


def test_no_valid_candidate_is_no_schedule(world: World) -> None:
    """Exit 3, with the failures by kind, all of them recorded."""
    world.executor.build_faults = {n: Failed(status="build_error", message="x") for n in range(100)}
    with pytest.raises(NoSchedule, match="build_error 6"):
        world.run(trials=6)
    assert [r.status for r in world.stored()] == ["build_error"] * 6


def test_stop_at_is_a_share_of_the_roofline(world: World) -> None:
    """The run ends in the round in which a candidate comes near enough to the roof."""
    target = Roof(100.0, 1e10).fraction(world.task, 200.0)
    world.run(stop_at=target)
    assert world.done["stopped_by"] == "target"
    assert world.of("round")[-1]["best_us"] <= 200.0
    assert all(event["best_us"] > 200.0 for event in world.of("round")[:-1])


@pytest.mark.parametrize("lasting", [True, False])
def test_a_share_of_a_roof_that_is_not_known_ends_no_run(world: World, lasting: bool) -> None:
    """The roof is measured again in every round; if it stays unknown, the run ends after the default of trials."""
    normal = world.executor._measure
    world.monkeypatch.setattr(budget, "DEFAULT_TRIALS", 40)

    def measure(job: Job) -> Any:
        fails = isinstance(job, MeasureRoof) and (lasting or not world.executor.of(MeasureRoof))
        reply = normal(job)
        return Failed(status="infrastructure", message="busy") if fails else reply

    world.executor._measure = measure  # type: ignore[method-assign]
    world.run(stop_at=Roof(100.0, 1e10).fraction(world.task, 200.0))
    assert world.done["stopped_by"] == ("trials" if lasting else "target")
    assert (world.done["trials"] == 40) == lasting and (len(world.executor.of(MeasureRoof)) == 2) == (not lasting)
    (note,) = [event["message"] for event in world.of("note") if "the device's limits" in event["message"]]
    assert "busy" in note and "after 40 candidates" in note


def test_phases_name_the_round_that_they_belong_to(world: World) -> None:
    """The first one is 1, and what is told between two rounds' ends has the number of the second one."""
    world.run(trials=64)
    ended = 0
    for event in world.events:
        if event["event"] == "round":
            assert event["round"] == ended + 1
            ended = event["round"]
        elif event["event"] == "phase" and "round" in event:
            assert event["round"] == ended + 1
    assert ended > 2


@pytest.mark.parametrize("error", [TemporaryError, StorageError])
def test_a_database_that_is_away_for_a_while_costs_no_result(world: World, error: type[Exception]) -> None:
    """Neither while schedules of other devices are looked up, nor in the final race."""

    def away(*_: Any, **__: Any) -> Any:
        raise error("the server is away")

    for name in ("elsewhere", "top"):
        world.monkeypatch.setattr(Database, name, away)
    record = world.run(trials=8)
    assert record.ok and record.stage == "trial" and world.done["record"] == record.id
    notes = [event["message"] for event in world.of("note")]
    assert any("schedules of other devices are not tried: the server is away" in note for note in notes)
    assert any("there was no final race" in note and "the server is away" in note for note in notes)


def test_a_database_that_goes_away_during_the_race_leaves_what_has_raced(world: World) -> None:
    """What was raced is the result, although nobody can say whether the database has anything faster."""
    world.run(trials=4)

    def away(*_: Any, **__: Any) -> Any:
        raise StorageError("the disk is broken")

    race = world.executor.race_reply

    def raced(reply: Raced) -> Raced | Failed:
        world.monkeypatch.setattr(Database, "best", away)
        return race(reply)

    world.executor.race_reply = raced
    assert world.run(trials=4).stage == "race"


def test_seconds_end_a_run_and_trials_are_unlimited_then(world: World) -> None:
    """A time limit holds from the start of the clock, the final race included."""
    world.run(seconds=3.0)
    assert world.done["stopped_by"] == "seconds"
    assert world.done["seconds"] < 4.0
    assert world.done["trials"] > 16


def test_builds_of_a_run_with_a_time_limit_end_with_it(world: World) -> None:
    """A compiler that hangs may keep the run for what it has left, not for the deadline of a build."""
    world.run(seconds=3.0)
    built = [job for job in world.executor.of(Build) if job.choice]
    assert built and all(0.0 <= job.deadline <= 3.0 for job in built)
    before = len(world.executor.of(Build))
    world.run(trials=4, resume=False)
    built = [job for job in world.executor.of(Build)[before:] if job.choice]
    assert built and not any(job.deadline for job in built)


def test_what_the_end_of_a_run_stops_is_no_failure_of_its_candidate(world: World) -> None:
    """A build that a run with a time limit cut short is kept as one for which there was no time."""
    world.executor.build_faults = {4: Failed(status="build_timeout", message="cut")}
    world.run(seconds=3.0)
    assert world.done["failed"]["build_timeout"] == 0
    assert world.done["failed"]["out_of_time"] == 1


def test_an_interrupt_is_one_also_where_the_database_is_away(world: World) -> None:
    """With nothing to show for it the exit code is still that of the signal."""

    def interrupted(_: int) -> None:
        world.monkeypatch.setattr(Database, "best", away)
        os.kill(os.getpid(), signal.SIGINT)

    def away(*_: Any, **__: Any) -> Any:
        raise TemporaryError("the server is away")

    world.executor.on_measure = interrupted
    with pytest.raises(Interrupted, match="none was valid"):
        world.run(trials=8)


def test_an_exhausted_space_ends_the_run(world: World) -> None:
    """When everything is known, more trials are not waited for."""
    pins = {"sketch": "k0", "order": "s0>s1", "boundary:s0": "branch", "boundary:s1": "branch", "layout:i1": "#0",
            "place:i1": "#0", "tile:s0": "8", "tile:r0": "1"}  # fmt: skip
    world.run(trials=1000, pins=pins)
    assert world.done["stopped_by"] == "exhausted"
    assert 0 < world.done["trials"] <= 20
    with pytest.raises(UsageError, match="names no decision"):
        world.run(pins={"nonsense": "1"})


def test_resuming_measures_nothing_twice_and_adds_new_trials(world: World) -> None:
    """A second run has all of its trials on new candidates, and its winner is at least as good."""
    first = world.run(trials=16)
    second = world.run(trials=16, seed=1)
    ours = [r for r in world.stored() if r.trace is not None]
    assert len(ours) == 32 == len({(r.sketch, *r.choice) for r in ours})
    with Database(world.path, read_only=True) as database:
        assert database.best(WORK, world.space.target) == second
    assert second.latency_us <= 1.1 * first.latency_us
    assert any("16 stored measurements" in note["message"] for note in world.of("note"))


def test_what_failed_with_a_driver_is_avoided_with_that_version(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reason is told; with another version of the driver the same candidates may be tried again."""
    driver = replace(world.space.target, kind="opencl", versions="driver 1.0")
    world.task = replace(world.task, target=driver)
    monkeypatch.setattr(tuner, "resolve", lambda _: world.task)
    world.executor.measure_faults[2] = Failed(status="crash:SIGSEGV", message="the worker process ended")
    world.run(trials=16)
    (bad,) = [record for record in world.stored() if record.failure]
    world.run(trials=16, seed=1)
    (told,) = [event["message"] for event in world.of("note") if "failed with this driver" in event["message"]]
    assert "1 candidates" in told and "driver 1.0" in told and "crash:SIGSEGV: the worker process ended" in told
    assert [(r.sketch, r.choice) for r in world.stored()].count((bad.sketch, bad.choice)) == 1
    world.task = replace(world.task, target=replace(driver, versions="driver 2.0"))
    world.run(trials=16, seed=2)
    notes = [event["message"] for event in world.of("note")]
    assert not any("failed with this driver" in note for note in notes)
    assert any("1 candidates that failed with another version" in note for note in notes)


def test_what_an_upgrade_refuses_is_asked_for_once(world: World) -> None:
    """The best record of another version stays as it is, and is named."""
    world.run(trials=8)
    slow = max((record for record in world.stored() if record.ok), key=lambda record: record.latency_us or 0.0)
    older = {**slow.versions, "stridesmith": "0.0.9"}
    lie = slow.changed(id="f" * 16, versions=older, samples=[1e-9], latency_us=1e-3, stage="race")
    with Database(world.path) as database:
        database.put_record(lie)
    build, asked = world.executor._build, []

    def refusing(job: Build) -> Any:
        if job.trace != slow.trace:
            return build(job)
        asked.append(job)
        return Failed(status="refused", message="there is no such primitive")

    world.executor._build = refusing
    assert world.run(trials=8, seed=1, finalists=2).id != lie.id
    assert len(asked) == 1
    (note,) = [event["message"] for event in world.of("note") if "another version of stridesmith" in event["message"]]
    assert lie.id in note and "there is no such primitive" in note
    assert next(record for record in world.stored() if record.id == lie.id).ok


def test_what_fails_in_a_race_failed_with_the_driver_of_that_race(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver's next version is told of by its own failures, although what they take back is older."""
    driver = replace(world.space.target, kind="opencl", versions="driver 1.0")
    world.task = replace(world.task, target=driver)
    monkeypatch.setattr(tuner, "resolve", lambda _: world.task)
    first = world.run(trials=8)
    world.task = replace(world.task, target=replace(driver, versions="driver 2.0"))
    build, crash = world.executor._build, Failed(status="crash:SIGSEGV", message="in the compiler")
    world.executor._build = lambda job: crash if job.trace == first.trace else build(job)
    world.run(trials=8, seed=1)
    record = next(record for record in world.stored() if record.id == first.id)
    assert record.failure and record.versions["target"] == "driver 2.0"


def test_fresh_ignores_what_is_stored_and_deletes_nothing(world: World) -> None:
    """The same seed asks for the same candidates again."""
    first = world.run(trials=8)
    second = world.run(trials=8, resume=False)
    keys = [(r.run, (r.sketch, *r.choice)) for r in world.stored()]
    by_run = {run: {key for r, key in keys if r == run} for run in {run for run, _ in keys}}
    one, two = by_run.values()
    assert one == two
    assert first.run != second.run


def test_a_lying_record_is_measured_before_it_counts(world: World) -> None:
    """An imported nanosecond is raced, and gets the latency that it deserves."""
    honest = world.run(trials=8)
    slow = max((r for r in world.stored() if r.ok), key=lambda r: r.latency_us)  # type: ignore[return-value]
    with Database(world.path) as database:
        lie = slow.changed(id="f" * 16, samples=[1e-9], latency_us=1e-3)
        database.merge([lie])
    world.run(trials=8, seed=3)
    assert world.done["record"] != lie.id
    told = next(r for r in world.stored() if r.id == lie.id)
    assert not told.verified or told.latency_us > honest.latency_us


@pytest.mark.parametrize(
    ("at", "number", "code"),
    [(1, signal.SIGINT, 130), (6, signal.SIGINT, 130), (21, signal.SIGINT, 130), (6, signal.SIGTERM, 143),
     (6, signal.SIGHUP, 129)],
)  # fmt: skip
def test_signals_keep_the_best_so_far(world: World, at: int, number: signal.Signals, code: int) -> None:
    """During a round: `done` says so, everything announced is stored, and the executor is closed."""
    if signal.getsignal(number) is signal.SIG_IGN:  # what `nohup` does, and a run then respects
        signal.signal(number, signal.SIG_DFL)
    before = signal.getsignal(number)
    world.executor.on_measure = lambda measured: os.kill(os.getpid(), number) if measured == at else None
    with pytest.raises(Interrupted) as raised:
        world.run(trials=64)
    assert raised.value.exit_code == code and signal.getsignal(number) is before
    assert world.executor.closed == 1
    announced = {event["record"] for event in world.of("trial")}
    assert announced == {r.id for r in world.stored()}
    if at > 1:
        assert world.done["stopped_by"] == "interrupt"
        assert world.done["record"] in announced


LOST = Failed(status=DEVICE_LOST, message="the device does not answer")


@pytest.mark.parametrize("stage", ["build_faults", "measure_faults"])
def test_a_lost_device_ends_the_run_which_goes_on_later(world: World, stage: str) -> None:
    """What was measured is kept, nothing more is tried, and the error says what to do; the next run goes on."""
    getattr(world.executor, stage).update(dict.fromkeys(range(12, 100), LOST))
    world.executor.check_reply = LOST
    with pytest.raises(DeviceLost, match=r"is lost: the device does not answer; .* the same command goes on") as caught:
        world.run(trials=40)
    assert caught.value.exit_code == 4
    assert world.done["stopped_by"] == "device" and world.done["record"] in str(caught.value)
    assert len(world.executor.of(CheckDevice)) == 1 and not world.executor.of(Race)
    kept = {event["record"] for event in world.of("trial")}
    assert kept <= {record.id for record in world.stored()}
    assert [event["status"] for event in world.of("trial")].count(DEVICE_LOST) == 1
    world.use(fake_executor.space())
    world.run(trials=4)
    assert world.done["stopped_by"] == "trials"


@pytest.mark.parametrize("stage", ["build_faults", "measure_faults"])
def test_a_candidate_that_loses_a_device_fails_alone(world: World, stage: str) -> None:
    """Where the device answers afterwards, the run goes on with the trials behind; nobody learns from that one."""
    getattr(world.executor, stage)[3] = LOST
    world.run(trials=24)
    statuses = [event["status"] for event in world.of("trial")]
    assert len(statuses) == 24 and statuses.count(DEVICE_LOST) == 1 and statuses.count("ok") == 23
    assert len(world.executor.of(CheckDevice)) == 1
    assert "answers again" in world.of("note")[0]["message"]


def test_a_lost_race_is_told(world: World) -> None:
    """A device that is lost in the final race leaves the best of the trials, and the run says so."""
    world.executor.race_reply = lambda reply: LOST
    normal = world.executor._measure
    world.executor._measure = lambda job: LOST if world.executor.of(Race) else normal(job)  # type: ignore[method-assign]
    record = world.run(trials=8)
    assert record.stage == "trial"
    assert any("there was no final race" in event["message"] for event in world.of("note"))


def test_a_trace_that_cannot_be_written_costs_neither_the_end_nor_the_true_error(world: World) -> None:
    """A full disk: exit code 74 after a run that went well, a note after another error; the workers end."""
    with pytest.raises(StorageError, match="cannot write the trace /dev/full"):
        world.run(trials=4, trace="/dev/full")
    assert world.of("done") and world.executor.closed == 1
    world.executor.on_measure = lambda measured: os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(Interrupted) as raised:
        world.run(trials=64, trace="/dev/full")
    assert raised.value.exit_code == 130 and world.executor.closed == 2
    assert "cannot write the trace" in world.of("note")[-1]["message"]


def test_the_study_is_mirrored_for_optuna(world: World) -> None:
    """`optuna.load_study` on the mirror gives every measured trial with its latency."""
    world.run(trials=12, mirror=True)
    with Database(world.path) as database:
        storage = optuna_storage(mirror_place(database))
    study = optuna.load_study(study_name=world.task.study_name, storage=storage)
    values = sorted(t.value or 0.0 for t in study.get_trials(states=[optuna.trial.TrialState.COMPLETE]))
    trials = sorted(event["latency_us"] for event in world.of("trial"))
    assert values == pytest.approx(trials)


def test_the_mirror_grows_while_the_run_goes_on(world: World) -> None:
    """After each round another process finds that round's trials, and the run's journal is locked by no reader."""
    with Database(world.path) as database:
        place = mirror_place(database)
    found: list[int] = []

    def look(event: dict[str, Any]) -> None:
        if event["event"] == "round":
            study = optuna.load_study(study_name=world.task.study_name, storage=optuna_storage(place))
            found.append(len(study.get_trials(states=[optuna.trial.TrialState.COMPLETE])))

    asked = {"workload": "matmul", "db": str(world.path), "sampler": "random", "trials": 36, "batch": 12}
    tuner.tune(settings(**asked), look, world.executor)
    assert found == sorted(found) and found[0] >= 6 and found[-1] == 36


def test_a_server_gets_the_study_after_all_else_and_in_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `done`, until the run's seconds are over; not at all after Ctrl-C."""
    copied: list[tuple[str, float]] = []

    def copy(study: Study, place: str, name: str, until: float | None = None) -> int:
        assert until is not None
        copied.append((world.events[-1]["event"], until - time.monotonic()))
        return 0

    monkeypatch.setattr(Study, "mirror", copy)
    monkeypatch.setattr(Database, "__init__", _serving(Database.__init__))
    world.run(trials=8, mirror=True)
    world.run(trials=8, seconds=4 * SERVER_SECONDS, mirror=True)
    assert [after for after, _ in copied] == ["done", "done"]
    assert SERVER_SECONDS / 2 < copied[0][1] <= SERVER_SECONDS < copied[1][1] < 4 * SERVER_SECONDS
    world.executor.on_measure = lambda measured: os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(Interrupted):
        world.run(trials=64, mirror=True)
    assert len(copied) == 2


def _serving(init: Any) -> Any:
    """A database that passes for one on a server."""

    def make(self: Database, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        self.path = None

    return make


def test_a_run_tells_where_its_seconds_went_and_what_the_device_can_do(world: World) -> None:
    """Beside the records: activities that add up, limits, samples of the untuned program, why it ended."""
    world.executor.untuned_us = 100.0  # fast enough to be in the race
    record = world.run(trials=24)
    with Database(world.path, read_only=True) as database:
        (facts,) = database.runs().values()
        assert database.runs(["another"]) == {}
    assert facts.name == record.run and facts.trials == 24 and facts.stopped_by == "trials"
    assert sum(facts.activities.values()) == pytest.approx(facts.seconds)
    assert facts.seconds == pytest.approx(world.done["seconds"], abs=0.5)
    assert (facts.peak_gflops, facts.bandwidth) == (fake_executor.ROOF.peak_gflops, fake_executor.ROOF.bandwidth)
    assert statistics.median(facts.baseline) == pytest.approx(world.done["baseline_us"] * 1e-6)


def test_records_say_what_the_model_foretold(world: World) -> None:
    """The default sampler's candidates carry the score of their batch; the estimate comes before what was learned."""
    world.run(trials=36, sampler="stridesmith", batch=12)
    told = [r.foretold for r in sorted(world.stored(), key=lambda r: r.trial) if r.foretold is not None]
    assert len(told) >= 30
    assert told[0].model == "estimate" and told[-1].model == "learned"
    assert [t.batch for t in told] == sorted(t.batch for t in told)


def test_a_trace_shows_the_run(world: World, tmp_path: Path) -> None:
    """Activities follow each other without a gap, proposals have a lane, and the best latency is a counter."""
    path = tmp_path / "trace.json"
    world.run(trials=24, trace=str(path))
    found = json.loads(path.read_text())["traceEvents"]
    lanes = {e["args"]["name"]: e["tid"] for e in found if e["name"] == "thread_name"}
    assert {"activities", "proposing"} <= set(lanes)
    spans = [e for e in found if e["ph"] == "X" and e["tid"] == lanes["activities"]]
    assert spans[0]["ts"] == 0 and spans[0]["name"] == "startup"
    for one, two in pairwise(spans):
        assert one["ts"] + one["dur"] == pytest.approx(two["ts"], abs=1)
    counted = [e["args"]["value"] for e in found if e["ph"] == "C"]
    assert counted == sorted(counted, reverse=True) and counted[-1] == min(
        e["latency_us"] for e in world.of("trial") if e["latency_us"]
    )


def test_a_trace_that_cannot_be_written_ends_the_run_before_it_begins(world: World, tmp_path: Path) -> None:
    """Exit 74, with the path and the reason."""
    with pytest.raises(StorageError, match=r"cannot write the trace .*t\.json: the folder .*nowhere is not there"):
        world.run(trials=24, trace=str(tmp_path / "nowhere" / "t.json"))
    assert world.executor.jobs == []


def test_records_are_spooled_while_the_database_is_locked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock in the middle of a run costs nothing once it is gone."""
    put = Database.put_records
    calls = iter(range(1000))

    def sometimes(self: Database, records: Any, seconds: float) -> list[str]:
        if 3 <= next(calls) < 6:
            raise TemporaryError("locked")
        return put(self, records)

    monkeypatch.setattr(Database, "put_records", sometimes)
    monkeypatch.setattr("stridesmith.search.records.writer.RETRY_SECONDS", 0.0)
    world.run(trials=12, batch=4)
    assert len(world.stored()) == 12
    assert any("kept in a file" in note["message"] for note in world.of("note"))


def test_what_cannot_be_written_at_the_end_is_in_a_log(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing can be spooled either, exit 74 or 75 names the log, and the log has the records."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    record = world.run(trials=4)
    with Database(tmp_path / "other.db") as database:
        writer = RecordWriter(database)

        def full(records: Any, seconds: float) -> list[str]:
            raise StorageError("the disk is full")

        database.put_records = full  # type: ignore[method-assign]
        monkeypatch.setattr(Spool, "append", lambda self, records: full(records, 0))
        writer.put([record])
        with pytest.raises(StorageError, match="stridesmith import"):
            writer.flush()
    (log,) = tmp_path.glob("stridesmith-unsaved-*.jsonl")
    assert list(read_log(log)) == [record]


def test_a_run_in_a_thread_works(world: World) -> None:
    """Signals are the main thread's business; a notebook may tune from another."""
    result: list[Record] = []
    thread = threading.Thread(target=lambda: result.append(world.run(trials=4)))
    thread.start()
    thread.join()
    assert result[0].verified


def test_faults_go_to_the_trials_that_were_named(world: World) -> None:
    """`3:null_store` is built into the third candidate, and a fake latency into its measurement."""
    world.run(trials=6, faults={3: "null_store", 5: "drop_tail+fake_latency"})
    builds = [job.fault for job in world.executor.of(Build) if job.choice]
    assert builds[:6] == [None, None, "null_store", None, "drop_tail", None]
    measures = [job.fault for job in world.executor.of(Measure)]
    assert measures[:6] == [None, None, None, None, "fake_latency", None]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "either a workload or a script"),
        ({"workload": "matmul", "script": "x"}, "either a workload or a script"),
        ({"workload": "matmul", "trials": 0}, "trials=0"),
        ({"workload": "matmul", "seconds": float("nan")}, "seconds"),
        ({"workload": "matmul", "stop_at": 1.5}, "stop_at=1.5"),
        ({"workload": "matmul", "interface": "mine"}, "interface='mine'"),
        ({"workload": "matmul", "shap": {}}, "shap"),
    ],
)
def test_wrong_options_are_one_sentence(options: dict[str, Any], sentence: str) -> None:
    """Each wrong option is named with its value."""
    with pytest.raises(UsageError, match=sentence):
        settings(**options)


def test_the_limits_are_those_of_the_interface() -> None:
    """256 trials by default; none when only seconds or stop-at is given."""
    assert TuneSettings(workload="matmul").trial_limit == 256
    assert TuneSettings(workload="matmul", seconds=5).trial_limit is None
    assert TuneSettings(workload="matmul", stop_at=0.5).trial_limit is None
    assert TuneSettings(workload="matmul", seconds=5, trials=7).trial_limit == 7


def test_faults_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """STRIDESMITH_FAULTS reads TRIAL:FAULT, and refuses anything else."""
    monkeypatch.setenv("STRIDESMITH_FAULTS", "3:null_store,5:drop_tail+fake_latency")
    assert TuneSettings(workload="matmul").faults == {3: "null_store", 5: "drop_tail+fake_latency"}
    monkeypatch.setenv("STRIDESMITH_FAULTS", "soon")
    with pytest.raises(UsageError, match="TRIAL:FAULT"):
        TuneSettings(workload="matmul")


def test_an_interface_is_a_word_for_each_argument() -> None:
    """Weights are constant by default, one word is for all that can have it, outputs are never constant."""
    conv = workload("conv2d")
    weights = conv.constants[0]
    assert interface_of(conv)[weights] == "constant"
    assert set(interface_of(WORK).values()) == {"fixed"}
    assert [interface_of(WORK, "constant")[b.name] for b in WORK.func.buffers] == ["constant", "constant", "fixed"]
    output = WORK.outputs[0]
    with pytest.raises(UsageError, match="cannot be constant"):
        interface_of(WORK, {output: "constant"})
    with pytest.raises(UsageError, match="no argument"):
        interface_of(WORK, {"zz": "free"})
    with pytest.raises(UsageError, match="did you mean 'free'"):
        interface_of(WORK, "fre")


def test_metrics_follow_their_definitions(world: World) -> None:
    """gflops = flops / time; the roofline is the lower of the peak and intensity times bandwidth."""
    task = replace(world.task)
    flops = 2 * 127 * 129 * 131
    nbytes = 4 * (127 * 131 + 131 * 129 + 127 * 129)
    assert task.work.flops == flops
    assert task.bytes_moved == nbytes
    facts = performance(task, 100.0, Roof(50.0, 1e9))
    assert facts["gflops"] == pytest.approx(flops / 100e-6 / 1e9)
    assert facts["peak_fraction"] == pytest.approx(facts["gflops"] / 50)
    roof = min(50.0, flops / nbytes * 1.0)
    assert facts["roofline_fraction"] == pytest.approx(facts["gflops"] / roof)


@pytest.mark.parametrize(
    ("caches", "bandwidth", "cached"),
    [((), 1e9, False), (((1 << 18, 9e9),), 9e9, True), (((1 << 12, 99e9), (1 << 18, 9e9)), 9e9, True),
     (((1 << 12, 99e9),), 1e9, False), (((1 << 18, 5e8),), 1e9, True)],
)  # fmt: skip
def test_the_roof_is_that_of_the_memory_that_the_data_come_from(
    caches: tuple[tuple[int, float], ...], bandwidth: float, cached: bool, world: World
) -> None:
    """The smallest cache that holds all arguments, 200 kB, else memory; no cache is slower than that."""
    task = replace(world.task)
    roof = Roof(1e6, 1e9, caches_of(caches))
    facts = performance(task, 100.0, roof)
    assert (facts["bandwidth"], facts["cached"]) == (bandwidth, cached)
    assert facts["roofline_fraction"] == pytest.approx(task.bytes_moved / bandwidth / 100e-6)
    assert caches_of(roof.to_lists()) == roof.caches


def test_the_roof_of_a_program_has_the_peak_of_the_type_that_it_multiplies() -> None:
    """As the limits of a network's device know it; of a type that was not measured it is that of all others."""
    roof = Roof(100.0, 1e12, peaks=(TypePeak("bfloat16", 200.0), TypePeak("uint8", 400.0)))
    works = [workload("matmul", m=64, n=64, k=64, dtype=dtype) for dtype in ("float32", "bfloat16", "uint8", "int8")]
    assert [roof.of(work).peak_gflops for work in works] == [100.0, 200.0, 400.0, 100.0]
    assert peak_dtypes(works) == ("bfloat16", "int8", "uint8")
    target = described("cpu-avx512")
    seconds = [roof.of(work).seconds(Task(work, target, interface_of(work))) for work in works[:2]]
    assert seconds == pytest.approx([2 * 64**3 / 1e11, 2 * 64**3 / 2e11])


def test_a_busy_machine_and_more_threads_than_cores_are_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, as notes, and what others took stands beside the result and in what is stored of the run."""
    monkeypatch.setattr(tuner, "look", lambda: Load(busy=1.25, stolen=0.0, throttled=False, processors=2))
    monkeypatch.setattr(cpu_topology, "usable_threads", lambda: 1)
    monkeypatch.setattr(tuner, "_ray_executor", lambda *_, **__: world.executor)
    target = replace(world.task.target, kind="cpu", threads=64)
    task = Task(WORK, target, interface_of(WORK))
    monkeypatch.setattr(tuner, "resolve", lambda _: task)
    world.events = []
    asked = {"workload": "matmul", "db": str(world.path), "mirror": False, "sampler": "random", "trials": 4}
    tuner.tune(settings(**asked), world.events.append)
    told = [event["message"] for event in world.of("note")]
    assert any("other processes keep 1.2 of 2 processors" in note and "`stridesmith doctor`" in note for note in told)
    assert any("64 threads were asked for, where this process may use 1 cores" in note for note in told)
    assert (world.done["busy"], world.done["cores"], world.done["threads"]) == (1.25, 1, 64)
    with Database(world.path, read_only=True) as database:
        assert [(facts.busy, facts.cores) for facts in database.runs().values()] == [(1.25, 1)]


def test_the_result_tells_its_spread_its_run_and_what_the_search_called_the_best(world: World) -> None:
    """The middle half of the winner's samples is around its latency."""
    record = world.run(trials=24)
    done = world.done
    assert done["run"] == record.run and done["search_us"] == min(
        event["latency_us"] for event in world.of("trial") if event["latency_us"] is not None
    )
    if len(record.samples) >= 4:
        assert done["low_us"] <= done["latency_us"] <= done["high_us"]


def test_ranks_of_few_candidates_are_not_told(world: World) -> None:
    """A correlation of two or three says nothing."""
    world.run(trials=6, sampler="stridesmith", batch=3)
    assert [event["rank_correlation"] for event in world.of("round")] == [None] * len(world.of("round"))


def stored_elsewhere(world: World, **devices: tuple[dict[str, Any], float, list[int]]) -> dict[str, Record]:
    """A record of another device for each name: its facts, what was measured there, and the choice."""
    records = {}
    for name, (facts, us, choice) in devices.items():
        target = replace(world.space.target, **facts)
        trace = [["candidate", {"sketch": 0, "choice": choice}]]
        records[name] = Record(
            script=WORK.script, workload="matmul", interface=dict(interface_of(WORK)), target=target.to_json(),
            trace=trace, samples=[us * 1e-6] * 3, latency_us=us, verified=True,
        )  # fmt: skip
    with Database(world.path) as database:
        database.put_records(list(records.values()))
    return records


def test_schedules_of_other_devices_are_tried_and_a_bad_one_never_wins(world: World) -> None:
    """The likest device first; wrong and slow ones lose; each is tried once; the record says where it comes from."""
    latency = world.executor.device
    latency.noise = np.random.default_rng(0)
    choices = world.space.sketches[0].draw(np.random.default_rng(1), 3000)
    ranked = choices[np.argsort([latency(0, choice) for choice in choices])].tolist()
    fast, wrong, slow = ranked[0], ranked[1], ranked[-1]
    records = stored_elsewhere(
        world, other=({"isa": "neon", "name": "C", "vendor": "Y"}, 1.0, slow),
        same_isa=({"name": "B", "vendor": "X"}, 3.0, wrong), same_model=({"threads": 7}, 9.0, fast),
    )  # fmt: skip
    of = {json.dumps([["candidate", {"sketch": 0, "choice": c}]]): c for c in (fast, wrong, slow)}
    tried: list[list[int]] = []
    times = world.executor._time

    def time(trace: Any, factor: float) -> Any:
        choice = of.get(json.dumps(trace))
        if choice is not None and factor == 1.0:
            tried.append(choice)
        return Failed(status="wrong", message="made to be") if choice == wrong else times(trace, factor)

    world.executor._time = time  # type: ignore[method-assign]
    winner = world.run(trials=8)
    assert tried == [fast, wrong, slow]
    assert winner.versions["origin"] == records["same_model"].id and winner.device_key == world.space.target.key
    assert winner.latency_us == world.done["latency_us"] != 9.0
    outcomes = {r.versions["origin"]: r.status for r in world.stored() if "origin" in r.versions}
    assert [outcomes[records[name].id] for name in ("same_model", "same_isa", "other")] == ["ok", "wrong", "ok"]
    assert world.done["trials"] == 8 and not world.done["failed"]["wrong"], "they are no trials"
    tried.clear()
    world.run(trials=8)
    assert not [choice for choice in tried if choice != fast], "what was tried is not tried again"
    world.run(trials=4, resume=False)
    assert not [choice for choice in tried if choice != fast], "a fresh run does without"


def test_a_schedule_of_ranges_is_tried_as_those_of_other_devices(world: World) -> None:
    """Once, by the steps that it has for the shape; the record says where it comes from."""
    choice = world.space.sketches[0].draw(np.random.default_rng(1), 1).tolist()[0]
    trace = [["candidate", {"sketch": 0, "choice": choice}]]
    record = make_record(1.0)
    world.monkeypatch.setattr(elsewhere, "of_ranges", lambda *_: [(record, trace)])
    for _ in range(2):
        world.run(trials=4)
        (tried,) = [r for r in world.stored() if "origin" in r.versions]
        assert tried.trace == trace and tried.ok and tried.versions["origin"] == record.id


@pytest.mark.parametrize("limit", [{"seconds": 1.0}, {"trials": 1000}])
def test_schedules_of_other_devices_are_not_tried_when_the_run_is_over(world: World, limit: dict[str, Any]) -> None:
    """Neither where their builds could outlast it, nor where the space was exhausted in the first round."""
    if "trials" in limit:
        world.monkeypatch.setattr(loop.Loop, "_play_round", lambda _: "exhausted")
    choice = world.space.sketches[0].draw(np.random.default_rng(1), 1).tolist()[0]
    stored_elsewhere(world, other=({"threads": 7}, 1.0, choice))
    with contextlib.suppress(NoSchedule):
        world.run(**limit)
    assert not [r for r in world.stored() if "origin" in r.versions]


@pytest.mark.parametrize("at_build", [True, False])
def test_a_schedule_of_another_device_that_failed_by_no_fault_of_its_own_is_tried_again(
    world: World, at_build: bool
) -> None:
    """In the next run, where its build had no time or its measurement was lost; then it is known."""
    choice = world.space.sketches[0].draw(np.random.default_rng(1), 1).tolist()[0]
    stored_elsewhere(world, other=({"threads": 7}, 1.0, choice))

    def tried() -> list[str]:
        world.run(trials=4)
        return [r.status for r in world.stored() if "origin" in r.versions]

    if at_build:
        world.executor.build_faults = {6: Failed(status="build_timeout", message="cut")}
    else:
        world.executor.measure_faults = {6: Failed(status="infrastructure", message="lost")}
    first = "out_of_time" if at_build else "infrastructure"
    assert tried() == [first]
    assert sorted(tried()) == sorted(tried()) == sorted([first, "ok"])


def test_the_first_results_do_not_wait_for_the_whole_first_batch(world: World) -> None:
    """A few candidates are measured before the others are built; more workers are asked for where that pays."""
    world.run(trials=40)
    kinds = [type(job) for job in world.executor.jobs if isinstance(job, Build | Measure)]
    assert kinds[:5] == [Build] * 2 + [Measure] * 2 + [Build]
    assert [event["trial"] for event in world.of("trial")][:16] == list(range(1, 17))
    assert world.executor.scaled == [True]
    for trials, pays in ((16, False), (32, False), (33, True)):
        world.executor.scaled.clear()
        world.run(trials=trials, resume=False)
        assert world.executor.scaled == [pays], trials


def test_a_record_that_nobody_has_verified_goes_with_its_first_failure() -> None:
    """Also with one that may have been the machine's: else it would take the race of every run."""
    reply = Failed(status="run_timeout", message="10 s")
    task = Task(WORK, fake_executor.space().target, interface_of(WORK))
    for verified in (True, False):
        outcome = race.Race()
        race._disqualify(outcome, make_record(verified=verified), reply, task)
        assert len(outcome.failed) == (not verified)
    lost = Failed(status="infrastructure", message="the process is gone")
    race._disqualify(outcome := race.Race(), make_record(verified=False), lost, task)
    assert not outcome.failed
