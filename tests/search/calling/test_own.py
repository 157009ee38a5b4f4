"""Schedules of the user's own: timed, recorded, and in the final race of later searches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stridesmith as ss
from stridesmith.backends import cpu_topology
from stridesmith.backends.devices import discover
from stridesmith.backends.host_load import Load
from stridesmith.cli import main
from stridesmith.errors import UsageError
from stridesmith.search.calling import collection, own, timed
from stridesmith.search.workers.bench import Bench, Limits

WORK = ss.workload("matmul", m=24, n=32, k=16)
ONE = discover("cpu", 1)


PATIENT = Limits(build=300.0, call=100.0, measure=300.0)
"""A machine that is busy with other tests is no fault of a schedule."""


@pytest.fixture(scope="module")
def bench() -> Any:
    with Bench(PATIENT) as made:
        yield made


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stridesmith.search.workers.bench.Limits", lambda: PATIENT)


def mine(moves: bool = False) -> ss.Schedule:
    sch = ss.Schedule(WORK)
    if moves:
        sch.transform_layout("matmul", "b", lambda k, j: [j // 8, k, j % 8])
    sch.split("j", [None, 8])
    sch.vectorize("j_1")
    return sch


def test_the_time_of_more_threads_than_cores_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the figure, as what else kept the machine busy; nothing where each thread has a core."""
    monkeypatch.setattr(cpu_topology, "usable_threads", lambda: 1)
    crowded = ss.build(mine(), ss.Target("cpu", threads=2))
    told = "2 threads were asked for, where this process may use 1 cores"
    assert told in repr(crowded.time(seconds=0.01))
    assert told not in repr(ss.build(mine(), ONE).time(seconds=0.01))


def test_a_schedule_becomes_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bench: Any) -> None:
    """Verified, raced, told as the user's, and found by whoever looks for its workload."""
    monkeypatch.setattr(own, "Bench", lambda: bench)
    monkeypatch.setattr(type(bench), "close", lambda self: None)
    with ss.Database(tmp_path / "x.db") as database:
        record = database.add(mine(), ONE)
        assert record.verified and record.ok and (record.run, record.sketch) == ("yours", "yours")
        assert record.workload == "matmul" and record.params["m"] == 24
        assert {record.id} <= {each.id for each in database.every()}
        (row,) = database.rows()
        assert row["workload"] == "matmul" and row["latency_us"] > 0
        assert repr(database).startswith("<Database") and "matmul" in database._repr_html_()


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ("text", TypeError, r"but got something of type str; the text of a trace is made one by `ss.Trace.from_script"),
        (None, TypeError, "NoneType"),
    ],
)
def test_what_is_no_schedule_is_said(given: Any, error: type[Exception], words: str, tmp_path: Path) -> None:
    """With what is taken."""
    with ss.Database(tmp_path / "x.db") as database, pytest.raises(error, match=words):
        database.add(given)


def test_schedules_are_a_list() -> None:
    """One alone is refused with what is taken."""
    with pytest.raises(TypeError, match=r"`schedules` is a list of `ss\.Schedule`, but got something of type Schedule"):
        ss.tune(WORK, ONE, trials=1, schedules=mine())  # type: ignore[arg-type]


def test_a_layout_that_the_interface_forbids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bench: Any) -> None:
    """A fixed argument stays where it is; that is a sentence with what to ask for."""
    monkeypatch.setattr(own, "Bench", lambda: bench)
    monkeypatch.setattr(type(bench), "close", lambda self: None)
    with ss.Database(tmp_path / "x.db") as database:
        with pytest.raises(ss.StridesmithError, match=r"`b` is fixed.*call it free or constant"):
            database.add(mine(moves=True), ONE)
        assert database.add(mine(moves=True), ONE, interface={"b": "constant"}).ok


def test_a_wrong_schedule_never_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bench: Any) -> None:
    """A trace that gives another result is a failure that is stored, and an error."""
    monkeypatch.setattr(own, "Bench", lambda: bench)
    monkeypatch.setattr(type(bench), "close", lambda self: None)
    task = own.task_of(mine(), ONE)
    broken = own.record_of(mine(), task).changed(trace=[["split", {"loop": "nowhere", "factors": [None, 8]}]])
    monkeypatch.setattr(own, "record_of", lambda *_: broken)
    with ss.Database(tmp_path / "x.db") as database:
        with pytest.raises(ss.StridesmithError, match="the schedule"):
            own.add(database, mine(), task, bench)
        assert database.best(task.script, task.target, task.interface) is None


def test_a_kernel_times_itself() -> None:
    """Median, spread and speed of useful operations, on random numbers or on what is given."""
    kernel = ss.build(mine(), ss.Target("cpu", 1), {"a": "fixed", "b": "fixed", "c": "fixed"})
    found = kernel.time(seconds=0.05)
    low, high = found.middle_us
    assert 0 < low <= found.latency_us <= high and found.flops == 2 * 24 * 32 * 16
    assert "us, half of" in repr(found) and "GFLOP/s" in repr(found)
    a, b = np.ones((24, 16), np.float32), np.ones((16, 32), np.float32)
    assert kernel.time(a, b, seconds=0.02).latency_us > 0
    with pytest.raises(TypeError, match="takes 2 inputs"):
        kernel.time(a)
    with pytest.raises(ValueError, match="`b` must have shape"):
        kernel.time(a, a)


def test_a_busy_machine_is_said_beside_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a line of its own, and nothing on a quiet machine."""
    kernel = ss.build(mine(), ONE)
    for busy, told in (
        (1.5, "other processes keep 1.5 of 2 processors busy: what was measured took longer"),
        (0.0, ""),
    ):
        monkeypatch.setattr(timed, "look", lambda busy=busy: Load(busy, 0.0, False, 2))
        found = kernel.time(seconds=0.01)
        assert found.note.startswith(told) and bool(found.note) is bool(told)
        assert repr(found).count("\n") == bool(told)


@pytest.mark.parametrize("seconds", [0, -1, "long", float("nan"), True])
def test_times_to_measure_are_numbers_above_zero(seconds: Any) -> None:
    """Of a kernel as of a race."""
    kernel = ss.build(mine(), ONE)
    for call in (lambda: kernel.time(seconds=seconds), lambda: ss.race({"a": kernel, "b": kernel}, seconds=seconds)):
        with pytest.raises(ss.UsageError, match="a number above 0, but got"):
            call()
    for number in (np.float32(0.01), np.int64(1)):
        assert timed.checked_seconds(number) == pytest.approx(float(number))  # type: ignore[arg-type]


def test_objects_print_in_a_line() -> None:
    """And have a table or a program for notebooks."""
    sch, kernel, target = mine(), ss.build(mine(), ONE), ss.Target("cpu", 1)
    space = ss.generate(WORK, target)
    for value, words in (
        (sch, "<Schedule of matmul: 2 instructions>"),
        (WORK.func, "<PrimFunc matmul(a: float32[24, 16]"),
        (kernel, "<Kernel matmul(a: float32[24, 16], b: float32[16, 32]) -> c: float32[24, 32] on "),
        (target, "<Target cpu: "),
        (space, "<Space of matmul on cpu: "),
        (sch.module, "<Module of matmul>"),
        (WORK, "<Workload matmul(m=24,n=32,k=16,"),
    ):
        assert repr(value).startswith(words) and len(repr(value)) < 200, repr(value)
        html = value._repr_html_()
        assert html.startswith(("<pre", "<div")) and "<script" not in html
    assert repr(sch.trace) == "<Trace: 2 instructions>" and ss.Trace.from_script(str(sch.trace)) == sch.trace
    assert repr(ss.IndexMap.make("lambda i, j: [j, i // 4, i % 4]")) == "<IndexMap lambda i, j: [j, i // 4, i % 4]>"
    taken, _, given = ss.build(mine(moves=True), ONE).signature
    assert repr(taken) == "<input a: float32[24, 16]>" and repr(given).startswith("<output c: float32[24, 32]")


def test_the_table_of_a_database_needs_pandas_alone_for_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, it is said what to install."""
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ss.ToolMissing, match="pip install pandas"):
        collection.frame([])


def test_the_program_as_it_is_written_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """`show --as-written` needs no record: it measures and explains the program without a schedule."""
    words = ["--workload", "matmul", "--shape", "m=24,n=32,k=16", "--threads", "1"]
    assert main(["show", *words, "--as-written", "--format", "json"]) == 0
    event = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert event["event"] == "diagnosis" and event["latency_us"] > 0 and "untuned" in event["schedule"]
    assert main(["show", "--record", "abcd", "--as-written"]) == 2
    assert "a record is shown with its own schedule" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sch.split(loop='nowhere', factors=[None, 8])", "nowhere"),
        ("import os", "calls such as"),
        ("sch.split(", "line 1"),
        ("# nothing yet", "has no step; it takes lines as `stridesmith show --trace` prints them"),
    ],
)
def test_a_file_that_is_no_schedule(text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--from` reads it and says what is wrong, with the line; nothing is executed."""
    path = tmp_path / "mine.txt"
    path.write_text(text)
    for more in (["--trials", "1"], ["--dry-run"]):
        assert main(["--workload", "matmul", "--shape", "m=24,n=32,k=16", "--from", str(path), *more]) == 2
        assert words in capsys.readouterr().err


def test_a_database_that_is_only_read_takes_no_schedule(tmp_path: Path) -> None:
    """Said before anything is measured."""
    ss.Database(tmp_path / "x.db").close()
    database = ss.Database(tmp_path / "x.db", read_only=True)
    with database, pytest.raises(ss.StridesmithError, match="for reading only"):
        database.add(mine(), ONE)


def test_a_closed_database_is_not_opened_again(tmp_path: Path) -> None:
    """Whatever is asked of it is answered before anything is measured; it still tells what it was."""
    database = ss.Database(tmp_path / "x.db")
    database.close()
    for asked in (lambda: database.add(mine(), ONE), lambda: database.get("ab"), database.winners, database.rows):
        with pytest.raises(UsageError, match=r"x\.db was closed; open it anew"):
            asked()
    assert repr(database).endswith("x.db: closed>") and database._repr_html_() is None
    database.close()


def test_a_search_begins_with_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--from` takes the id of one, or the beginning of it; one that is not there is told with what it takes."""
    place = tmp_path / "x.db"
    with ss.Database(place) as database:
        number = database.add(mine(), ONE).id
    asked = ["--workload", "matmul", "--shape", "m=24,n=32,k=16", "--db", str(place), "--dry-run", "--from"]
    assert main([*asked, number[:12]]) == 0
    assert main([*asked, "0" * 16]) == 3
    told = " ".join(capsys.readouterr().err.split())
    assert "there is no such file, and no record '0000000000000000'" in told and "or the id of a record" in told


class Foreign:
    """An array of a library that is not NumPy, as PyTorch has them."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data

    def __dlpack__(self, **options: Any) -> Any:
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.data.__dlpack_device__()

    def __array_namespace__(self) -> Any:
        return Library


class Library:
    @staticmethod
    def from_dlpack(data: np.ndarray) -> Foreign:
        return Foreign(np.from_dlpack(data))


def test_results_are_of_the_library_of_the_inputs() -> None:
    """In the same memory; arrays of NumPy give NumPy's, and `out` is given back as it came."""
    kernel = ss.build(mine(), ONE, {"a": "fixed", "b": "fixed", "c": "fixed"})
    a, b = np.ones((24, 16), np.float32), np.ones((16, 32), np.float32)
    assert isinstance(kernel(a, b), np.ndarray)
    found = kernel(Foreign(a), b)
    assert isinstance(found, Foreign) and (found.data == 16).all()
    out = np.zeros((24, 32), np.float32)
    assert kernel(Foreign(a), b, out=out) is out
