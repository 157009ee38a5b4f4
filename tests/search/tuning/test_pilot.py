"""The pilot of a run for an OpenCL device that is this machine's CPU: when there is one, and what becomes of it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_executor
import pytest

from stridesmith.backends.devices import processor_of
from stridesmith.errors import Interrupted, TemporaryError
from stridesmith.ir.target import THREAD_POOL, Target
from stridesmith.search.records.database import Database
from stridesmith.search.records.record import Record
from stridesmith.search.tasks.interface import interface_of
from stridesmith.search.tasks.task import Task
from stridesmith.search.tuning import tuner
from stridesmith.search.tuning.pilot import FEWEST, SHARE_OF_SECONDS, SHARE_OF_TRIALS, SHORTEST
from stridesmith.search.tuning.settings import settings
from stridesmith.search.tuning.transfer import OF_CPU
from stridesmith.search.workers.protocol import Build, Measure
from stridesmith.space.design import space as space_module
from stridesmith.space.workloads import workload

WORK = workload("matmul", m=127, n=129, k=131)
DEVICE = Target(kind="opencl", name="a CPU", platform="driver", threads=2, features=THREAD_POOL)
CPU = processor_of(DEVICE)
TRIALS = 20
OF_PILOT = int(SHARE_OF_TRIALS * TRIALS)


class World:
    """Runs for a device in a synthetic space, each with an executor of its own; the events of the last one."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.monkeypatch = path, monkeypatch
        self.events: list[dict[str, Any]] = []
        self.space = fake_executor.space()
        self.executor = fake_executor.FakeExecutor(self.space)
        monkeypatch.setattr(space_module, "generate", lambda *_: self.space)
        self.use(DEVICE)

    def use(self, device: Target) -> None:
        self.monkeypatch.setattr(tuner, "resolve", lambda _: Task(WORK, device, interface_of(WORK)))

    def run(self, **options: Any) -> Record:
        self.events = []
        self.executor.jobs.clear()
        asked = {"workload": "matmul", "db": str(self.path), "mirror": False, "trials": TRIALS, **options}
        return tuner.tune(settings(**asked), self.events.append, self.executor)

    def built(self, kind: str) -> list[Build]:
        """The candidates of a kind of device, in the order in which they came."""
        return [job for job in self.executor.of(Build) if job.target.kind == kind and job.choice is not None]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]

    def notes(self) -> str:
        return " ".join(event["message"] for event in self.of("note"))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path / "tuned.db", monkeypatch)


def test_candidates_are_native_code_of_the_cpu_first(world: World) -> None:
    """With the threads of the device; they are no trials of it."""
    record = world.run()
    mine, pilots = world.built("opencl"), world.built("cpu")
    assert (len(pilots), len(mine)) == (OF_PILOT, TRIALS)
    candidates = [job for job in world.executor.of(Build) if job.choice is not None]
    assert candidates[:OF_PILOT] == pilots and {job.target for job in pilots} == {CPU}
    (done,) = world.of("done")
    assert done["trials"] == TRIALS and record.device == DEVICE
    assert world.of("trial")[-1]["trials"] == TRIALS
    assert f"native code of the CPU first; the fastest of {OF_PILOT} takes" in world.notes()


def test_the_fastest_of_the_pilot_are_what_the_device_gets_first(world: World) -> None:
    """As many as are unlike each other."""
    world.run()
    with Database(world.path, read_only=True) as database:
        best = database.top(WORK.script, str(CPU and CPU.key), count=OF_PILOT, raced_first=False)
    mine = [(job.choice.sketch, list(job.choice.indices)) for job in world.built("opencl") if job.choice]
    assert mine[0] == (best[0].sketch, best[0].choice)
    first = [(record.sketch, record.choice) for record in best if (record.sketch, record.choice) in mine[:OF_CPU]]
    assert len(first) >= 3 and mine[: len(first)] == first


def test_records_are_those_of_the_device_that_measured(world: World) -> None:
    """The pilot's are of the CPU, and none of them takes part in the race."""
    world.run()
    with Database(world.path, read_only=True) as database:
        assert CPU is not None
        of_cpu = database.records(WORK.script, CPU)
        of_device = database.records(WORK.script, DEVICE)
    assert len(of_cpu) == OF_PILOT and {record.stage for record in of_cpu} == {"trial"}
    assert len([record for record in of_device if record.sketch != "untuned"]) == TRIALS


def test_what_is_stored_of_the_cpu_is_not_tried_again(world: World) -> None:
    """A later run has all of its trials for the device, and learns from the pilot's records all the same."""
    world.run()
    world.run(trials=TRIALS)
    assert not world.built("cpu") and len(world.built("opencl")) == TRIALS


def test_a_fresh_run_has_a_pilot_of_its_own(world: World) -> None:
    """It takes nothing from what is stored of the CPU, and its first candidates are those of its own pilot."""
    world.run()
    world.run(resume=False, seed=1)
    pilots = [(job.choice.sketch, job.choice.indices) for job in world.built("cpu") if job.choice]
    mine = [(job.choice.sketch, job.choice.indices) for job in world.built("opencl") if job.choice]
    assert len(pilots) == OF_PILOT and len(mine) == TRIALS
    assert set(mine[:3]) <= set(pilots)


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": "random"},
        {"pins": {"order": "s0>s1"}},
        {"trials": int(FEWEST / SHARE_OF_TRIALS) - 1},
        {"seconds": 0.9 * SHORTEST / SHARE_OF_SECONDS},
    ],
    ids=["another sampler", "pins", "few trials", "few seconds"],
)
def test_there_is_none_where_it_would_not_help(world: World, options: dict[str, Any]) -> None:
    """What the user asks for is about the device alone, or too little for both."""
    world.run(**options)
    assert not world.built("cpu") and world.built("opencl")


@pytest.mark.parametrize(
    "device",
    [replace(DEVICE, features=""), replace(DEVICE, is_cpu_device=False, features=""), CPU],
    ids=["the driver's threads", "a GPU", "the CPU itself"],
)
def test_other_devices_have_no_pilot(world: World, device: Target) -> None:
    """A driver that has threads of its own, or another processor, takes other times."""
    world.use(device)
    world.run()
    assert processor_of(device) is None
    assert {job.target for job in world.executor.of(Build)} == {device}


def test_a_pilot_ends_with_its_share_of_the_seconds(world: World) -> None:
    """Each candidate takes so long that few fit; the device has the rest."""
    world.executor.on_measure = lambda number: time.sleep(0.25)
    world.run(trials=None, seconds=14.0)
    pilots, mine = world.built("cpu"), world.built("opencl")
    assert 2 <= len(pilots) <= SHARE_OF_SECONDS * 14.0 / 0.25 + 2 and len(mine) > len(pilots)
    assert all(job.deadline is not None for job in pilots), "no build outlasts the share"


def test_an_interrupt_within_it_ends_the_run(world: World) -> None:
    """What was measured of the CPU is kept."""

    def interrupt(number: int) -> None:
        if number == 3:
            raise KeyboardInterrupt

    world.executor.on_measure = interrupt
    with pytest.raises(Interrupted, match=r"of 0 candidates none was valid .*; 2 others were tried as native code"):
        world.run()
    assert not world.built("opencl")
    with Database(world.path, read_only=True) as database:
        assert CPU is not None and len(database.records(WORK.script, CPU)) == 2


def test_what_cannot_teach_does_not_count_as_tried(world: World) -> None:
    """Records of another version of the space, and failures."""
    world.run()
    with Database(world.path) as database:
        assert CPU is not None
        known = database.records(WORK.script, CPU)
        database.put_records([record.changed(id=f"{k:016x}", space_version=0) for k, record in enumerate(known)])
        database.put_records([record.failed("wrong", "made to fail") for record in known])
    world.run(trials=TRIALS)
    assert len(world.built("cpu")) == OF_PILOT


def test_a_locked_database_is_no_end_of_a_pilot(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins as if nothing were stored of the CPU."""
    real = Database.top

    def top(self: Database, work: Any, target: Any, *rest: Any, **more: Any) -> Any:
        if target == CPU:
            raise TemporaryError("the database is locked")
        return real(self, work, target, *rest, **more)

    monkeypatch.setattr(Database, "top", top)
    world.run()
    assert len(world.built("cpu")) == OF_PILOT and len(world.built("opencl")) == TRIALS


def test_a_pilot_without_a_valid_candidate_is_no_end(world: World) -> None:
    """The device has its own candidates then."""
    failed = fake_executor.Failed(status="wrong", message="made to fail")
    world.executor.measure_faults = dict.fromkeys(range(1, OF_PILOT + 1), failed)
    world.run()
    (done,) = world.of("done")
    assert done["failed"]["wrong"] == 0 and done["trials"] == TRIALS and "native code" not in world.notes()
    measured = world.executor.of(Measure)
    assert len(measured) >= TRIALS
