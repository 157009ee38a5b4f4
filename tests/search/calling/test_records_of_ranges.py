"""Records of ranges are records like others: of the user's own schedules, from elsewhere, replayed and compared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stridesmith as ss
from stridesmith.backends.devices import discover
from stridesmith.cli import main
from stridesmith.search.calling import foreign, own, side_by_side
from stridesmith.search.calling import replay as replaying
from stridesmith.search.records.log import write_log
from stridesmith.search.records.record import Record
from stridesmith.search.tuning import at_sizes
from stridesmith.search.workers.bench import Bench, Limits
from stridesmith.space.workloads import from_func

WORK = ss.workload("matmul", m=(1, 64), n=32, k=16)
ONE = discover("cpu", 1)
OPTIONS = ["--workload", "matmul", "--shape", "m=1..64,n=32,k=16", "--threads", "1"]


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench(Limits(build=300.0, call=100.0, measure=300.0)) as made:
        yield made


@pytest.fixture(autouse=True)
def _one_bench(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """All share one process, and few sizes."""
    monkeypatch.setattr(at_sizes, "SIZES", 2)
    monkeypatch.setattr(foreign, "CALL_SECONDS", 100.0)
    for module in (foreign, own, replaying, side_by_side):
        monkeypatch.setattr(module, "Bench", lambda: bench)
    monkeypatch.setattr(Bench, "close", lambda self: None)


def rows(count: int) -> ss.Schedule:
    sch = ss.Schedule(WORK)
    _, inner = sch.split("i", [None, count])
    j0, j1 = sch.split("j", [None, 16])
    sch.reorder("i_0", j0, "k", inner, j1)
    sch.unroll(inner)
    sch.vectorize(j1)
    return sch


@pytest.fixture
def record(tmp_path: Path) -> Record:
    with ss.Database(tmp_path / "mine.db") as database:
        return database.add(rows(4), ONE)


def check(kernel: Any) -> None:
    for m in (1, 5, 64):
        a, b = np.ones((m, 16), np.float32), np.arange(512, dtype=np.float32).reshape(16, 32)
        np.testing.assert_array_equal(kernel(a, b), a @ b)


def test_a_schedule_of_ranges_becomes_a_record(record: Record, tmp_path: Path) -> None:
    """Verified at sizes, timed at some, found by who looks for its workload; a slower one does not take its place."""
    assert record.verified and record.run == "yours" and record.params["m"] == "1..64"
    with ss.Database(tmp_path / "mine.db") as database:
        slow = database.add(ss.Schedule(WORK), ONE)
        assert slow.ok
        best = database.best(WORK, ONE, {"a": "fixed", "b": "fixed", "c": "fixed"})
        assert best is not None and best.id == record.id
    check(ss.load(WORK, ONE, db=tmp_path / "mine.db"))


def test_a_wrong_schedule_of_ranges_never_counts(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one that a primitive refuses."""
    broken = record.changed(id="0" * 16, trace=[["split", {"loop": "nowhere", "factors": [None, 8]}]])
    monkeypatch.setattr(own, "record_of", lambda *_: broken)
    with ss.Database(tmp_path / "mine.db") as database, pytest.raises(ss.StridesmithError, match="the schedule"):
        database.add(rows(4), ONE)


def test_an_imported_record_of_ranges_is_tried_and_then_counts(record: Record, tmp_path: Path) -> None:
    """A look-up verifies and times it at sizes; what it claimed is forgotten."""
    write_log([record.changed(samples=[1e-12] * 3, latency_us=1e-6)], tmp_path / "log.jsonl")
    db = tmp_path / "theirs.db"
    assert main(["import", str(tmp_path / "log.jsonl"), "--db", str(db)]) == 0
    check(ss.load(WORK, ONE, db=db))
    with ss.Database(db) as database:
        (found,) = [each for each in database.every() if each.id == record.id]
        assert found.verified and found.latency_us is not None and found.latency_us > 1e-3


def test_another_device_s_record_of_ranges_is_tried(record: Record, tmp_path: Path) -> None:
    """With the sizes that were likely there."""
    other = {**record.target, "name": "Another CPU"}
    claim = record.changed(id="f" * 16, target=other, versions={**record.versions, "likely": "m=1:0.5"})
    with ss.Database(tmp_path / "both.db") as database:
        database.put_records([claim])
    check(ss.load(WORK, ONE, db=tmp_path / "both.db"))
    with ss.Database(tmp_path / "both.db") as database:
        found = database.best(WORK, ONE, record.interface)
        assert found is not None and found.versions["likely"] == "m=1:0.5"


def test_replay_and_compare(record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                            monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """From the command, at the same sizes."""
    monkeypatch.setattr(side_by_side, "RACES", 2)
    monkeypatch.setattr(side_by_side, "SECONDS", 0.01)
    db = str(tmp_path / "mine.db")
    assert main(["replay", *OPTIONS, "--db", db, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["verified"] and told["record"] == record.id
    with ss.Database(tmp_path / "other.db") as database:
        database.add(rows(2), ONE)
    assert main(["compare", db, str(tmp_path / "other.db"), "--race", "--format", "json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    compared = next(line for line in told if line["event"] == "compared")
    assert compared["basis"] == "turns" and compared["shape"]["m"] == "1..64"


def test_a_record_of_ranges_is_shown_at_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the time, the speed and the schedule of each, and what runs for which sizes."""
    monkeypatch.setattr("stridesmith.search.workers.bench.Bench", lambda: bench)
    several = ss.Schedule(WORK)
    steps = rows(4).trace.to_json()
    several.specialize([[{"m": [1, 1]}, [["unroll", {"loop": "i"}]]], [{}, steps]])
    db = str(tmp_path / "x.db")
    with ss.Database(db) as database:
        record = database.add(several, ONE)
    assert main(["show", *OPTIONS, "--db", db, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [each["sizes"] for each in told["schedules"]] == [{"m": "1..1"}, {}]
    assert next((each["size"], each["schedule"]) for each in told["sizes"]) == ({"m": 1}, 1)
    assert all(each["latency_us"] > 0 and each["gflops"] > 0 and each["roofline_fraction"] for each in told["sizes"])
    assert main(["show", "--record", record.id, "--db", db, "--format", "plain"]) == 0
    shown = capsys.readouterr().out
    assert "in the geometric mean over the sizes" in shown and "Schedule 2: all others" in shown


def test_the_space_of_ranges_is_that_of_the_sizes_that_are_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where nothing is built, and beside what is not possible."""
    assert main(["show", *OPTIONS, "--space", "--target", "cpu-avx2", "--format", "json"]) == 0
    shapes = [json.loads(line)["shape"]["m"] for line in capsys.readouterr().out.splitlines()]
    assert len(shapes) > 1 and all(isinstance(m, int) for m in shapes)
    assert main([*OPTIONS, "--dry-run", "--format", "json"]) == 0
    assert [json.loads(line)["shape"]["m"] for line in capsys.readouterr().out.splitlines()] == shapes
    assert main([*OPTIONS, "--dry-run", "--pin", "a=b"]) == 2
    assert "a search for ranges takes neither --stop-at nor --pin nor --trace" in capsys.readouterr().err


def test_a_program_of_ones_own_is_named_with_its_ranges() -> None:
    """As a workload of the library is."""
    work = from_func(WORK.func)
    assert str(work) == "matmul(m=1..64) float32" and dict(work.shape) == {"m": "1..64"} and not work.params


def test_a_shape_without_a_record_names_the_ranges_that_have_it(record: Record, tmp_path: Path) -> None:
    """Where the device has a record of them; not of those that do not hold it."""
    db = tmp_path / "mine.db"
    for m, named in ((5, True), (65, False)):
        with pytest.raises(ss.NoRecord) as caught:
            ss.load(ss.workload("matmul", m=m, n=32, k=16), ONE, db=db)
        has = f'record {record.id} of {record.title} has this shape among its ranges: `ss.load("{record.id}")`'
        assert (has in str(caught.value)) == named
