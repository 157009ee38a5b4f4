"""A space is measured once, in as many calls as it takes, and replays then as the device that it was measured on."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from stridesmith.cli import main
from stridesmith.commands import record_space as command
from stridesmith.commands.output import Output
from stridesmith.cost_model.features import FeatureMap
from stridesmith.errors import NoSchedule, StorageError, UsageError
from stridesmith.ir.target import Target
from stridesmith.search.candidates.general import BOUNDARIES
from stridesmith.search.records.database import Database
from stridesmith.search.records.record import Record
from stridesmith.search.tasks import recording as module
from stridesmith.search.tasks.interface import interface_of
from stridesmith.search.tasks.recording import Recording, load, of_target, save
from stridesmith.search.tasks.task import Roof, Task
from stridesmith.search.tuning import record_space as recorder
from stridesmith.search.tuning.ranged import tune as tune_ranges
from stridesmith.search.tuning.record_space import Wanted, record_space
from stridesmith.search.tuning.settings import settings
from stridesmith.search.tuning.tuner import tune
from stridesmith.search.workers import executor as executor_module
from stridesmith.search.workers.executor import RayExecutor
from stridesmith.search.workers.protocol import (
    Build,
    Built,
    Compiled,
    Failed,
    Measured,
    MeasureRoof,
    Race,
    Raced,
    Roofed,
)
from stridesmith.search.workers.recorded import RecordedExecutor
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import workload

SIZE = 120
TARGET = Target(kind="cpu", name="Test CPU", vendor="Test", isa="avx2", threads=1, vector_bits=256)
Capture = pytest.CaptureFixture[str]


class Machine:
    """Latencies by a hash of the choice; some candidates do not build, some are wrong, and one worker was lost."""

    def __init__(self) -> None:
        self.until: float | None = None
        self.notes: list[str] = []
        self.timeline = None
        self.built: list[str] = []
        self.lost = 1

    def build(self, jobs: Any, done: Any = None) -> list[Any]:
        return [self._build(job) for job in jobs]

    def _build(self, job: Build) -> Built | Failed:
        name = "untuned" if job.choice is None else f"{job.choice.sketch} {job.choice.indices}"
        self.built.append(name)
        if number(name) % 17 == 0:
            return Failed(status="build_error", message="made to fail")
        code: Any = {"kind": "cpu", "entry": "", "code": name, "target": {}, "params": [], "workspaces": [],
                     "launches": []}  # fmt: skip
        return Built(kernel=Compiled(code, ()), code_hash=name)

    def measure(self, jobs: Any, done: Any = None) -> list[Any]:
        replies = []
        for index, job in enumerate(jobs):
            replies.append(self._measure(job))
            if done is not None:
                done(index, replies[-1])
        return replies

    def _measure(self, job: Any) -> Any:
        if isinstance(job, MeasureRoof):
            return Roofed(roof=Roof(100.0, 1e10))
        if self.lost and len(self.built) > 40:
            self.lost -= 1
            return Failed(status="infrastructure", message="lost")
        value = number(job.kernel.artifact["code"])
        if value % 23 == 0:
            return Failed(status="wrong", message="made to be wrong")
        return Measured(samples=((10.0 + value % 1000) * 1e-6,) * 3, max_abs_error=0.0)


def number(name: str) -> int:
    return zlib.crc32(name.encode())


@pytest.fixture(scope="module")
def task() -> Task:
    work = workload("matmul", m=12, n=20, k=8)
    return Task(work, TARGET, interface_of(work))


@pytest.fixture(scope="module")
def file(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording, by as many calls as it takes: one loses a worker."""
    path = tmp_path_factory.mktemp("spaces") / "matmul.space"
    with pytest.raises(NoSchedule, match="run the same command again"):
        record_space(task, path, Machine(), Wanted(SIZE), tell=str)  # type: ignore[arg-type]
    machine = Machine()
    machine.lost = 0
    record_space(task, path, machine, Wanted(SIZE), tell=str)  # type: ignore[arg-type]
    return path


def same(left: Recording, right: Recording) -> bool:
    return all(
        a.decisions == b.decisions and a.statuses == b.statuses and np.array_equal(a.rows, b.rows)
        and np.allclose(a.latencies, b.latencies, rtol=1e-6, equal_nan=True)
        and np.array_equal(a.table, b.table, equal_nan=True)
        for a, b in zip(left.sketches, right.sketches, strict=True)
    )  # fmt: skip


def test_recording_goes_on_where_the_last_call_ended(
    task: Task, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls that measure a chunk each make the same file as one call, also after one that was killed as it wrote."""
    monkeypatch.setattr(recorder, "CHUNK", 32)
    path, part = tmp_path / "sliced.space", tmp_path / "sliced.space.part"
    measured, calls = 0, 0
    while True:
        machine = Machine()
        machine.lost = 0
        found = record_space(task, path, machine, Wanted(SIZE), seconds=1e-9, tell=str)  # type: ignore[arg-type]
        if found is not None:
            break
        lines = part.read_text().splitlines()
        assert len(lines) > measured and len(machine.built) <= 32 + 2, "a call measures a chunk, and its control"
        measured, calls = len(lines), calls + 1
        part.write_text(part.read_text() + '{"n": 3, "us"')
    assert calls > 2 and same(found, load(file)) and not part.exists()
    with pytest.raises(UsageError, match="begun for another space"):
        part.write_text(lines[0] + "\n")
        record_space(task, path, Machine(), Wanted(SIZE + 1), tell=str)  # type: ignore[arg-type]


def test_a_part_that_was_cut_is_begun_again_or_refused(tmp_path: Path) -> None:
    """Empty or without a whole line: as if it were not there; a damaged line, a folder that is not: one paragraph."""
    about, part = {"size": 3}, tmp_path / "x.part"
    for text in ("", '{"si', "\n\n"):
        part.write_text(text)
        recorder.Progress(part, about).add(0, 5.0, "ok")
        assert recorder.Progress(part, about).results == {0: [(5.0, "ok")]}
    for line in ("{", "[]", "{}", '{"n": []}'):
        part.write_text(json.dumps(about) + f"\n{line}\n")
        with pytest.raises(UsageError, match="is damaged"):
            recorder.Progress(part, about)
    with pytest.raises(StorageError, match="cannot write"):
        recorder.Progress(tmp_path / "none" / "x.part", about)


def test_a_file_says_what_the_space_was(task: Task, file: Path) -> None:
    """Candidates, features, failures and the untuned program; every one of at least as many as were asked for."""
    found = load(file)
    space = generate(task.work.func, task.target, task.interface)
    parts = recorder.choose(space, FeatureMap(space.sketches, task.target), Wanted(SIZE))
    assert found.size == sum(len(part.rows) for part in parts) >= SIZE
    assert found.untuned_us == pytest.approx(10.0 + number("untuned") % 1000)
    statuses = {status for sketch in found.sketches for status in sketch.statuses}
    assert statuses == {"ok", "build_error", "wrong"}
    for part, sketch in zip(parts, found.sketches, strict=True):
        whole = FeatureMap(space.sketches, task.target)
        matrix = dict(zip(whole.columns, whole.matrix(part.sketch, part.rows).T, strict=True))
        columns = sketch.columns(sketch.rows)
        assert "estimate" in columns and len(columns) > 10
        assert all(np.array_equal(columns[name], matrix[name], equal_nan=True) for name in columns)
        for row, choice in zip(sketch.rows[:20], part.rows[:20].tolist(), strict=True):
            us, status = sketch.result(row)
            name = f"{space.sketches[part.sketch].name} {tuple(choice)}"
            assert status != "ok" or us == pytest.approx(10.0 + number(name) % 1000)


def test_a_recording_is_a_device(file: Path, tmp_path: Path) -> None:
    """A run on it finds its best, builds nothing, is the same for the same seed, and its records stand apart."""
    traces = []
    for turn in range(2):
        events: list[dict[str, Any]] = []
        asked = settings(workload="matmul", params={"m": 12, "n": 20, "k": 8}, target=f"recorded:{file}", trials=60,
                         db=str(tmp_path / f"{turn}.db"), mirror=False)  # fmt: skip
        record = tune(asked, events.append)
        traces.append([(e["trial"], e["latency_us"], e["status"]) for e in events if e["event"] == "trial"])
        assert list(events[-1]["nodes"]) == ["the recording"]
        assert "(recorded" in record.device_key and record.device_key != TARGET.key
    assert traces[0] == traces[1] and len(traces[0]) == 60
    assert record.latency_us == pytest.approx(min(us for _, us, _ in traces[0] if us), rel=1e-6)


def test_the_command_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file stands behind `-o`; without it there is nothing to do."""
    given: list[tuple[Any, Path]] = []

    def recorded(task: Task, path: Path, *_: Any, **__: Any) -> None:
        given.append((task.work.params["n"], path))

    monkeypatch.setattr(recorder, "record_space", recorded)
    work = ["record-space", "--workload", "matmul", "--shape", "m=3,n=4,k=5"]
    assert main([*work, "-o", str(tmp_path / "x.space")]) == 0
    assert given == [(4, tmp_path / "x.space")]
    assert main([*work]) == 2 and "-o" in capsys.readouterr().err


def test_recorded_and_real_devices_try_nothing_of_each_other(task: Task, file: Path, tmp_path: Path) -> None:
    """A trace of the one is none of the other; one that a recording gets all the same is refused."""
    recording, db = load(file), str(tmp_path / "both.db")
    here = {"script": task.script, "workload": "matmul", "interface": dict(task.interface), "samples": [1e-6] * 3,
            "latency_us": 1.0, "verified": True}  # fmt: skip
    real = Record(**here, target=replace(TARGET, threads=3).to_json(), trace=[])
    played = Record(**here, target=recording.target.to_json(), trace=[["recorded", {}]])
    with Database(db) as database:
        database.put_records([real, played])
        assert database.elsewhere(task.script, TARGET, task.interface, 2) == [real]
    shape = {"m": 12, "n": 20, "k": 8}
    tune(settings(workload="matmul", params=shape, target=f"recorded:{file}", trials=4, db=db, mirror=False))
    with Database(db) as database:
        assert not [record for record in database.every() if "origin" in record.versions]
    for trace in ([], [[]], ["x"]):  # type: ignore[var-annotated]
        reply = RecordedExecutor(recording).build([Build(script=task.script, target=TARGET, trace=trace)])[0]
        assert isinstance(reply, Failed) and reply.status == "refused"


def test_the_command_needs_no_other_name_for_the_work(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--target recorded:FILE` says all; another program is refused."""
    common = ["--target", f"recorded:{file}", "--trials", "4", "--db", str(tmp_path / "x.db"), "--format", "json"]
    trace = tmp_path / "trace.json"
    assert main([*common, "--trace", str(trace)]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["trials"] == 4
    names = [event["name"] for event in json.loads(trace.read_text())["traceEvents"]]
    assert names.count("Build") > 4 and "Measure" in names, "the untuned program and four candidates"
    best = ["best", "--target", f"recorded:{file}", "--db", str(tmp_path / "x.db"), "--format", "json"]
    for work in ([], ["--workload", "matmul", "--shape", "m=12,n=20,k=8"]):
        assert main([*best, *work]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 1
    assert main([*common, "--workload", "matmul", "--shape", "m=3"]) == 2
    assert "leave out --workload" in capsys.readouterr().err


def test_a_recording_is_shown_and_not_recorded_again(file: Path, tmp_path: Path, capsys: Capture) -> None:
    """What would be searched is what was recorded."""
    target, space = f"recorded:{file}", load(file).space
    for words in (["--dry-run"], ["show", "--space"]):
        assert main([*words, "--target", target, "--format", "json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["size"], told["target"]) == (space.size, load(file).target.key)
        assert main([*words, "--target", target, "--workload", "matmul", "--shape", "m=3"]) == 2
        assert "leave out --workload" in capsys.readouterr().err
    assert main(["record-space", "--workload", "matmul", "--target", target, "-o", str(tmp_path / "x.space")]) == 2
    assert "is recorded already" in capsys.readouterr().err


def test_recording_joins_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the one that RAY_ADDRESS names, either: one host measures."""
    addresses: list[str | None] = []

    def measure(task: Task, path: Path, executor: RayExecutor, *_: Any) -> None:
        addresses.append(executor._session.address)

    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    monkeypatch.setattr(executor_module, "LocalPool", MagicMock())
    monkeypatch.setattr(recorder, "record_space", measure)
    options = command.SpaceOptions(workload="matmul", target="cpu", size=16, sketches=1)
    assert command.run(tmp_path / "a.space", options, Output("json")) == 0
    assert addresses == [None]


def test_candidates_that_were_not_recorded_are_not_there(file: Path) -> None:
    """Neither drawn nor let through by the mask."""
    sketch = load(file).sketches[0]
    sizes = [len(d) for d in sketch.decisions]
    everything = np.stack([g.ravel() for g in np.meshgrid(*map(np.arange, sizes), indexing="ij")], axis=1)
    assert sketch.mask(everything).sum() == len(sketch.rows)
    drawn = sketch.draw(np.random.default_rng(0), 50, [np.arange(n) for n in sizes])
    assert sketch.mask(drawn).all() and len(drawn) == 50
    assert len(everything) > len(sketch.rows), "the mask has nothing to do in this test"
    with pytest.raises(KeyError):
        sketch.result(everything[~sketch.mask(everything)][0])


class MachineOfSizes(Machine):
    """Builds traces for all sizes; a kernel takes by a hash of its steps, and every other one more where m is large."""

    def _build(self, job: Build) -> Built | Failed:
        name = "untuned" if job.trace is None else json.dumps(job.trace)
        self.built.append(name)
        code: Any = {"kind": "cpu", "entry": "", "code": name, "target": {}, "params": [], "workspaces": [],
                     "launches": []}  # fmt: skip
        return Built(kernel=Compiled(code, ()), code_hash=name)

    def _measure(self, job: Any) -> Any:
        if isinstance(job, MeasureRoof):
            return Roofed(roof=Roof(100.0, 1e10))
        kernels = job.kernels if isinstance(job, Race) else (job.kernel,)
        found = tuple(self._time(kernel, job.work.params["m"]) for kernel in kernels)
        return Raced(results=found, roof=None) if isinstance(job, Race) else found[0]

    def _time(self, kernel: Compiled, m: int) -> Measured | Failed:
        value = number(kernel.artifact["code"])
        if value % 11 == 0:
            return Failed(status="wrong", message="made to be wrong")
        us = 10.0 + m if value % 2 else 40.0
        return Measured(samples=((us + value % 10) * 1e-6,) * 3, max_abs_error=0.0)


@pytest.fixture(scope="module")
def file_of_ranges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = workload("matmul", m=(1, 64), n=20, k=8)
    path, of_ranges = tmp_path_factory.mktemp("spaces") / "ranges.space", Task(work, TARGET, interface_of(work))
    record_space(of_ranges, path, MachineOfSizes(), Wanted(24), tell=str)  # type: ignore[arg-type]
    return path


def test_a_space_of_ranges_is_measured_at_sizes(file_of_ranges: Path, tmp_path: Path) -> None:
    """Each schedule of the size in the middle with each boundary; what is read again is what was written."""
    found = load(file_of_ranges)
    assert found.work.func.stated and len(found.sizes) > 3 and sum(w for _, w in found.sizes) == pytest.approx(1.0)
    sketch = found.sketches[0]
    assert sketch.times.shape == (len(sketch.rows), len(found.sizes))
    assert any(d.labels == BOUNDARIES for d in sketch.decisions)
    weights = np.array([weight for _, weight in found.sizes])
    good = np.array([status == "ok" for status in sketch.statuses])
    assert np.allclose(np.exp(np.log(sketch.times[good]) @ weights), sketch.latencies[good], rtol=1e-5)
    assert np.isnan(sketch.times[~good]).all() and good.any()
    again = tmp_path / "again.space"
    save(found, again)
    assert same(load(again), found) and np.array_equal(load(again).sketches[0].times, sketch.times, equal_nan=True)
    save(replace(found, sketches=(replace(sketch, times=sketch.times[:, 1:]), *found.sketches[1:])), again)
    with pytest.raises(UsageError, match="arrays that do not fit together"):
        load(again)


def test_a_search_of_a_recorded_space_of_ranges_finds_thresholds(file_of_ranges: Path, tmp_path: Path) -> None:
    """Its candidates are schedules for all sizes; the record has those that are the fastest for a part of them."""
    found, events = load(file_of_ranges), list[dict[str, Any]]()
    asked = settings(workload="matmul", params={"m": "1..64", "n": 20, "k": 8}, trials=64, mirror=False,
                     target=f"recorded:{file_of_ranges}", db=str(tmp_path / "r.db"))  # fmt: skip
    record = tune_ranges(asked, events.append)
    (done,) = [event for event in events if event["event"] == "done"]
    assert done["record"] == record.id and done["latency_us"] == record.latency_us and done["gflops"] > 0
    assert record.trace is not None and record.trace[0][0] == "specialize" and record.latency_us is not None
    assert record.latency_us < found.best_us, "several are faster than the fastest one"
    assert RecordedExecutor(found)._result(record.trace)[0] == pytest.approx(record.latency_us)
    assert tune_ranges(asked.model_copy(update={"trials": 1})).latency_us == pytest.approx(record.latency_us)
    with pytest.raises(UsageError, match="was measured at sizes of its own; leave --likely out"):
        tune_ranges(asked.model_copy(update={"likely": {"m": {1: 0.5}}}))


def test_what_is_no_recording_is_refused(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing, empty, cut, pickled, of another format, or with arrays that do not fit: one paragraph each."""
    sound, bad = load(file), tmp_path / "bad.space"
    pickled = io.BytesIO()
    np.lib.format.write_array(pickled, np.asarray([{}], object), allow_pickle=True)
    texts = [b"", b"PK\3\4", file.read_bytes()[:-40], b"#!/bin/sh\n"]
    for text in texts:
        bad.write_bytes(text)
        with pytest.raises(UsageError, match="no recorded space: it is no archive of arrays, as `stridesmith record"):
            of_target(f"recorded:{bad}")
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("about.npy", pickled.getvalue())
    with pytest.raises(UsageError, match="no recorded space"):
        load(bad)
    first = sound.sketches[0]
    for changed in (
        replace(first, latencies=first.latencies[:-1]), replace(first, rows=first.rows + 9),
        replace(first, latencies=np.where(np.arange(len(first.rows)) == 1, -1.0, first.latencies)),
    ):  # fmt: skip
        save(replace(sound, sketches=(changed, *sound.sketches[1:])), bad)
        with pytest.raises(UsageError, match="sketch 0"):
            load(bad)
    with np.load(file) as archive:
        arrays = dict(archive)
    deep, signed = np.frombuffer(b"[" * 100_000, np.uint8), arrays["rows.0"].astype(np.int8)
    signed[0, 0] = -1
    for name, array in (("about", deep), ("rows.0", signed)):
        np.savez(tmp_path / "bad.npz", **arrays | {name: array})
        with pytest.raises(UsageError, match="no recorded space"):
            load(tmp_path / "bad.npz")
    for unknown in ("vanished", "ok:x"):
        changed = replace(first, statuses=(unknown, *first.statuses[1:]))
        with pytest.raises(UsageError, match=f"with the status '{unknown}', which is none"):
            RecordedExecutor(replace(sound, sketches=(changed, *sound.sketches[1:])))
    monkeypatch.setattr(module, "FORMAT", 2)
    with pytest.raises(UsageError, match="its format is 1"):
        load(file)
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    with pytest.raises(UsageError, match="too large"):
        load(file)
    with pytest.raises(UsageError, match="cannot read"):
        of_target(f"recorded:{tmp_path}/none.space")
