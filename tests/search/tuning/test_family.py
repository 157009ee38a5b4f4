"""A search of ranges begins with what is stored of their shapes, and one of a shape with what is stored of ranges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from record_makers import make_record

import stridesmith as ss
from stridesmith.backends.devices import discover
from stridesmith.search.records.database import Database
from stridesmith.search.records.record import Record
from stridesmith.search.tasks.interface import interface_of
from stridesmith.search.tasks.task import Task
from stridesmith.search.tuning import ranged
from stridesmith.search.tuning.at_sizes import Sizes
from stridesmith.search.tuning.family import known_inside, of_ranges
from stridesmith.search.tuning.settings import resolve, settings
from stridesmith.space.workloads import from_func

ONE = discover("cpu", 1)
ROWS = ss.workload("matmul", m=(1, 64), n=32, k=16)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "tuned.db")


def rows(work: Any, count: int) -> list[Any]:
    sch = ss.Schedule(work.func)
    sch.unroll(sch.split("i", [None, count])[1])
    return sch.trace.to_json()


def stored(database: Database, work: Any, trace: list[Any], us: float = 9.0) -> Record:
    task = Task(work, ONE, interface_of(work))
    record = make_record(us, **task.recorded(), trace=trace)
    database.put_records([record])
    return record


@pytest.mark.parametrize("is_script", [False, True], ids=["library", "script"])
def test_a_search_of_ranges_takes_the_best_of_shapes_inside(
    database: Database, is_script: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few, from small to large; not those of other programs; their schedules race as others do."""
    work = from_func(ROWS.func) if is_script else ROWS
    for m in (2, 16, 17, 18, 50, 65):
        wide = ss.workload("matmul", m=m, n=32, k=16)
        stored(database, from_func(wide.func) if is_script else wide, rows(wide, 2))
    stored(database, ss.workload("matmul", m=16, n=48, k=16), rows(ss.workload("matmul", m=16, n=48, k=16), 2))
    sizes = Sizes.of(Task(work, ONE, interface_of(work)), {})
    found = known_inside(database, sizes)
    assert [point.values for point, _ in found] == [{"m": 2}, {"m": 17}, {"m": 50}]
    program = {"script": work.script} if is_script else {"workload": work.name, "params": dict(work.shape)}
    asked = settings(**program, target=ONE, db=str(database.path))
    notes: list[str] = []
    search = ranged._Search(asked, Sizes.of(resolve(asked), {}), lambda e: notes.append(str(e.get("message"))), None)
    known = search._known([found[1][0]])
    assert [point.values["m"] for point, _ in known] == [2, 50] and "of other sizes take part: m=2; m=50" in notes[0]
    monkeypatch.setattr(ranged, "BOUNDARIES", ("peel",))
    entries = list(search._entries(known))
    assert [entry.of for entry in entries] == [f"record {known[0][1][0].id}, peel"], "the other one is the same"
    assert not ranged._Search(settings(**program, target=ONE, resume=False), sizes, None, None)._known([])


def test_a_search_of_one_shape_takes_the_schedule_that_ranges_have_for_it(database: Database) -> None:
    """That of the case in which the shape lies; where the program of the shape refuses it, or lies outside, none."""
    one = ss.workload("matmul", m=3, n=32, k=16)
    cases = [[{"m": [1, 4]}, rows(ROWS, 2)], [{}, rows(ROWS, 8)]]
    record = stored(database, ROWS, [["specialize", {"cases": cases}]])
    stored(database, ss.workload("matmul", m=(1, 64), n=48, k=16), rows(ROWS, 4))

    def found(m: int) -> list[tuple[Record, list[Any]]]:
        work = ss.workload("matmul", m=m, n=32, k=16)
        return of_ranges(database, Task(work, ONE, interface_of(work)))

    ((origin, trace),) = found(3)
    assert origin.id == record.id and trace == rows(ROWS, 2) and rows(one, 2) == trace
    assert found(40)[0][1] == rows(ROWS, 8) and found(65) == []
    stored(database, ROWS, [["split", {"loop": "nowhere", "factors": [None, 2]}]], 1.0)
    assert found(3) == []
