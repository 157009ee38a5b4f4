"""Replay: what a record claims is built, proven, verified and measured again before it is believed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from record_makers import make_record

from stridesmith.backends.devices import discover
from stridesmith.errors import BadRecord, DeviceMissing, StridesmithError, TemporaryError, WrongResult
from stridesmith.search.calling.replay import replay
from stridesmith.search.records.database import Database
from stridesmith.search.records.record import Record
from stridesmith.search.tasks.task import Roof, name_of, stored_work
from stridesmith.search.workers.protocol import Build, Built, Compiled, Failed, Measure, Measured, Raced
from stridesmith.space.workloads import workload

WORK = workload("matmul", m=8, n=8, k=8)
HERE = discover("cpu", threads=1)
ROOF = Roof(1.0, 1.0)


def record_here(latency_us: float = 20.0, **fields: Any) -> Record:
    """A record of a small product on this machine."""
    own = {"script": WORK.script, "workload": WORK.name, "params": dict(WORK.params), "target": HERE.to_json()}
    return make_record(latency_us, **{**own, **fields})


class Bench:
    """Answers every job at once; `samples` are seconds per call, of which the untuned program takes ten times those."""

    def __init__(self, samples: list[float] | None = None, build: Failed | None = None, race: Any = None) -> None:
        self.samples = samples or [20e-6] * 3
        self.built, self.raced = build, race
        self.jobs: list[Any] = []

    def run(self, job: Any) -> Any:
        self.jobs.append(job)
        if isinstance(job, Build):
            return self.built or Built(kernel=Compiled(job.trace, ()), code_hash="")
        if isinstance(job, Measure):
            return self._time(job.kernel)
        return self.raced or Raced(results=tuple(map(self._time, job.kernels)), roof=ROOF)

    def _time(self, kernel: Any) -> Measured:
        factor = 10 if kernel.artifact is None else 1
        return Measured(samples=tuple(factor * s for s in self.samples), max_abs_error=1e-6)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "tuned.db")


def test_a_record_that_holds_is_reported(database: Database) -> None:
    """The event has every field, the trace was rebuilt from the record, and the data was fresh."""
    record = record_here(trace=[["op", {"n": 1}]])
    database.put_record(record)
    bench = Bench([21e-6, 22e-6, 23e-6])
    event = replay(record, database, bench=bench).event()
    assert event == {
        "event": "replayed", "record": record.id, "latency_us": pytest.approx(22.0), "recorded_us": 20.0,
        "slower": False, "verified": True, "max_abs_error": 1e-6, "device": HERE.name,
    }  # fmt: skip
    assert bench.jobs[0].trace == record.trace
    assert bench.jobs[1].work == name_of(WORK)
    assert database.get(record.id) == record
    again = Bench()
    replay(record, database, bench=again)
    assert again.jobs[1].seed != bench.jobs[1].seed


@pytest.mark.parametrize(("latency_us", "slower"), [(23.9, False), (24.1, True)])
def test_slower_means_more_than_a_fifth(latency_us: float, slower: bool) -> None:
    """20 % is the line between noise and `slower`."""
    assert replay(record_here(20.0), bench=Bench([latency_us * 1e-6])).slower is slower


def test_an_imported_record_counts_with_what_is_measured_here(database: Database) -> None:
    """A lie of a nanosecond becomes the truth, verified."""
    lie = record_here(0.001)
    database.merge([lie])
    assert database.best(WORK, HERE) is None
    with Database(database.path, read_only=True) as reading:
        replay(reading.get(lie.id), reading, bench=Bench([30e-6]))
    best = database.best(WORK, HERE)
    assert best is not None
    assert (best.id, best.latency_us, best.verified) == (lie.id, pytest.approx(30.0), True)


@pytest.mark.parametrize(
    ("replies", "error", "status"),
    [
        ({"race": Raced(results=(Failed(status="wrong", message="at [0]"),), roof=ROOF)}, WrongResult, "wrong"),
        ({"race": Failed(status="crash:SIGSEGV")}, WrongResult, "crash:SIGSEGV"),
        ({"build": Failed(status="refused", message="out of bounds")}, BadRecord, "refused"),
        ({"build": Failed(status="build_timeout")}, TemporaryError, "ok"),
        ({"race": Failed(status="infrastructure")}, StridesmithError, "ok"),
    ],
)
def test_a_record_that_fails_is_never_believed_again(
    database: Database, replies: dict[str, Any], error: type[Exception], status: str
) -> None:
    """A candidate's own fault takes the record back; a busy machine's does not."""
    record = record_here()
    database.put_record(record)
    with pytest.raises(error, match=record.id):
        replay(record, database, bench=Bench(**replies))
    assert database.get(record.id).status == status
    assert (database.best(WORK, HERE) is None) is (status != "ok")


def test_what_another_version_measured_survives_a_refusal(database: Database) -> None:
    """A version that does not know a primitive leaves the record to those that do; a wrong result counts."""
    record = record_here(versions={"stridesmith": "9.9"})
    database.put_record(record)
    with pytest.raises(BadRecord, match="no primitive"):
        replay(record, database, bench=Bench(build=Failed(status="refused", message="there is no primitive `fly`")))
    assert database.get(record.id) == record
    with pytest.raises(WrongResult):
        replay(record, database, bench=Bench(race=Raced(results=(Failed(status="wrong"),), roof=ROOF)))
    assert database.get(record.id).status == "wrong"


def test_another_device_needs_permission(database: Database) -> None:
    """Exit 4 names both devices; with `any_device` nothing is written into the record."""
    elsewhere = replace(HERE, name="Another CPU")
    record = record_here(target=elsewhere.to_json(), verified=False)
    database.put_record(record)
    with pytest.raises(DeviceMissing, match="Another CPU"):
        replay(record, database, bench=Bench())
    assert replay(record, database, any_device=True, bench=Bench()).device == HERE.name
    assert database.get(record.id) == record


def test_a_failed_candidate_has_nothing_to_replay() -> None:
    """The sentence names the kind of failure."""
    with pytest.raises(BadRecord, match="wrong"):
        replay(make_record(None), bench=Bench())


@pytest.mark.parametrize("spoil", [lambda p: {**p, "m": 9}, lambda p: {}, lambda p: {"zz": 1}])
def test_the_program_text_decides_over_name_and_parameters(spoil: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """A record whose parameters give another program is judged by its own text."""
    spoilt = spoil(dict(WORK.params))
    record = record_here(params=spoilt)
    assert stored_work(WORK.name, WORK.params, WORK.script).name == "matmul"
    assert stored_work(WORK.name, WORK.params, WORK.script).params
    assert record.params == spoilt
    assert not stored_work(record.workload, record.params, record.script).params
