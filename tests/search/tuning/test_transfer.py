"""What programs of the same form were fastest with: which are near, and how their candidates are taken over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from record_makers import make_record

from stridesmith import configs
from stridesmith.errors import TemporaryError
from stridesmith.ir.target import THREAD_POOL, Target
from stridesmith.search.candidates.relatives import distance, form, taken_over
from stridesmith.search.candidates.search_space import SearchSpace
from stridesmith.search.records.database import Database
from stridesmith.search.tasks.interface import interface_of
from stridesmith.search.tasks.task import Task
from stridesmith.search.tuning import transfer
from stridesmith.search.tuning.study import Study, Transferred
from stridesmith.search.tuning.transfer import OF_CPU, TRIED, Transfer
from stridesmith.space.design.space import Space, generate
from stridesmith.space.workloads import workload

CPU = configs.target("cpu-avx2")


def task(**shape: int) -> Task:
    """A convolution with a constant kernel."""
    work = workload("conv2d", **({"ci": 16, "co": 24, "h": 10, "w": 10, "k": 3} | shape))
    return Task(work, CPU, interface_of(work))


def space_of(task: Task) -> Space:
    return generate(task.work.func, task.target, task.interface)


def stored(
    database: Database, task: Task, seed: int, latency_us: float = 20.0, **more: object
) -> tuple[str, list[int]]:
    """A random candidate of a task as a record in a database; its sketch and its choice."""
    space = space_of(task)
    sketch = space.sketches[seed % len(space.sketches)]
    choice = sketch.draw(np.random.default_rng(seed), 1)[0].tolist()
    fields = {
        "script": task.script, "interface": task.interface, "target": task.target.to_json(), "sketch": sketch.name,
        "choice": choice, "space_version": space.version, "workload": "conv2d", "params": {}, **more,
    }  # fmt: skip
    database.put_record(make_record(latency_us, **fields))
    return sketch.name, choice


def named(space: Space, sketch: str, choice: list[int]) -> dict[str, str]:
    """The labels of a candidate by decision."""
    decisions = next(s for s in space.sketches if s.name == sketch).decisions
    return {d.name: d.labels[chosen] for d, chosen in zip(decisions, choice, strict=True)}


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "records.db")


def test_the_nearest_program_is_the_one_whose_numbers_have_the_least_ratios() -> None:
    """Each pair of numbers counts once, however often it stands in the text."""
    mine, near, far = (task(h=h, w=h).script for h in (10, 12, 40))
    assert 0 == distance(mine, mine) < distance(mine, near) < distance(mine, far)
    assert distance("x[7] + 7", "x[3] + 3") == distance("x[7]", "x[3]") == 1
    assert form("float32 v1[12, 4] + 0.25") == "float32 v1[#, #] + #.25"


def test_the_fastest_of_the_nearest_is_taken_over(database: Database) -> None:
    """Of one relative only its fastest; others come after it, at most so many; decisions have the same names."""
    mine = task()
    near, middle, far = task(h=12), task(h=20), task(h=80)
    stored(database, near, 1, 30.0)
    best = stored(database, near, 2, 20.0)
    second = stored(database, middle, 3)
    stored(database, far, 4)
    search_space = SearchSpace(space_of(mine))
    found = list(Transfer(database).candidates(mine, search_space))
    assert len(found) == TRIED and all(search_space.possible(key) for key in found)
    for key, relative, (name, choice) in zip(found, (near, middle), (best, second), strict=True):
        sketch = search_space.sketches[key[0]]
        wanted, taken = named(space_of(relative), name, choice), named(space_of(mine), sketch.name, list(key[1:]))
        assert sketch.name == name
        assert sum(taken.get(decision) == label for decision, label in wanted.items()) >= len(wanted) - 4


def test_nothing_is_taken_from_other_forms_devices_and_versions(database: Database) -> None:
    """Nor from what fits no space: a database may hold what another machine's rules have made."""
    mine = task()
    stored(database, task(h=12, stride=2), 1)
    stored(database, task(h=12), 2, target=configs.target("cpu-avx512").to_json())
    stored(database, task(h=14), 4, space_version=0)
    stored(database, task(h=15), 5, sketch="no such sketch")
    assert list(Transfer(database).candidates(mine, SearchSpace(space_of(mine)))) == []
    _, choice = stored(database, task(h=16), 6)
    assert len(list(Transfer(database).candidates(mine, SearchSpace(space_of(mine))))) == 1
    stored(database, task(h=16), 6, 1.0, choice=[99] * len(choice))
    stored(database, task(h=17), 7, choice=choice[1:])
    assert list(Transfer(database).candidates(mine, SearchSpace(space_of(mine)))) == []


def test_another_interface_of_the_same_program_is_the_nearest(database: Database) -> None:
    """Its decisions are those of this one where both have them; the same interface comes before others."""
    mine = task()
    stored(database, replace(mine, interface=dict.fromkeys(mine.interface, "fixed")), 3)
    search_space = SearchSpace(space_of(mine))
    (other,) = Transfer(database).candidates(mine, search_space)
    assert search_space.possible(other)


def test_pins_are_kept(database: Database) -> None:
    """What a relative decided otherwise than a pin says is decided as the pin says."""
    mine = task()
    stored(database, task(h=12), 1)
    space = space_of(mine)
    (free,) = Transfer(database).candidates(mine, SearchSpace(space))
    at, item = next((k, d) for k, d in enumerate(space.sketches[free[0]].decisions) if d.name.endswith("parallel"))
    other = next(label for k, label in enumerate(item.labels) if k != free[1 + at])
    pinned = SearchSpace(space, {"parallel": other})
    for key in Transfer(database).candidates(mine, pinned):
        assert pinned.possible(key) and item.labels[key[1 + at]] == other


@pytest.mark.parametrize("method", ["scripts", "best"])
def test_a_database_that_does_not_answer_has_no_relatives(
    database: Database, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that is not given in time is no end of a run, and is waited for once; afterwards they are there."""
    mine, asked = task(), list[object]()
    for number, height in enumerate((12, 14), 1):
        stored(database, task(h=height), number)
    relatives, search_space = Transfer(database), SearchSpace(space_of(mine))

    def locked(*given: object) -> None:
        asked.append(given)
        raise TemporaryError("the database is locked")

    with monkeypatch.context() as patched:
        patched.setattr(database, method, locked)
        assert list(relatives.candidates(mine, search_space)) == [] and len(asked) == 1
    assert len(list(relatives.candidates(mine, search_space))) == 2


def test_a_program_of_the_same_run_is_a_relative_once_it_has_a_record(database: Database) -> None:
    mine, other = task(), task(h=12)
    relatives, search_space = Transfer(database), SearchSpace(space_of(mine))
    assert list(relatives.candidates(mine, search_space)) == []
    relatives.add(other.script)
    assert list(relatives.candidates(mine, search_space)) == []
    stored(database, other, 1)
    assert len(list(relatives.candidates(mine, search_space))) == 1


def test_an_alternative_that_is_not_there_becomes_the_nearest() -> None:
    """Tiles of 6 where the axis has no room for them become the largest that fit."""
    source, sketch = space_of(task(h=30, w=30)).sketches[0], space_of(task(h=4, w=4)).sketches[0]
    at, item = next((k, d) for k, d in enumerate(source.decisions) if "6" in d.labels and d.name.endswith("tile:s2"))
    choice = [0] * len(source.decisions)
    choice[at] = item.labels.index("6")
    mine = next(d for d in sketch.decisions if d.name == item.name)
    column = f"{item.name.rsplit('/', 1)[-1]}:reg"
    largest = max(mine.table[column])
    taken = taken_over(source, choice, sketch)[sketch.decisions.index(mine)]
    assert "6" not in mine.labels and mine.table[column][taken] == largest


def test_a_study_asks_for_them_first_and_never_twice(database: Database) -> None:
    """They are told like any others, and a task that has records of its own is not asked for them again."""
    mine = task()
    stored(database, task(h=12), 1)
    relatives = Transfer(database)
    (key,) = relatives.candidates(mine, SearchSpace(space_of(mine)))
    study = Study(space_of(mine), transferred=Transferred(lambda space: relatives.candidates(mine, space)))
    asked = [candidate for _ in range(3) for candidate in study.ask(4)]
    assert asked[0].key == key
    assert len({candidate.key for candidate in asked}) == len(asked) == 12
    study.tell(asked[0], 3.0)
    both = Study(space_of(mine), transferred=Transferred(lambda _: [key, key, asked[1].key]))
    assert [candidate.key for candidate in both.ask(1)] == [key]
    assert both.ask(2)[0].key == asked[1].key
    again = Study(space_of(mine), transferred=Transferred(lambda _: [asked[1].key]))
    again.seed_records([make_record(
        script=mine.script, sketch=space_of(mine).sketches[key[0]].name, choice=list(key[1:]),
        space_version=space_of(mine).version,
    )])  # fmt: skip
    assert again.seeded == 1 and not again._ask_first(4)


DEVICE = replace(configs.target("opencl-cpu"), features=THREAD_POOL)


@pytest.fixture
def as_device(monkeypatch: pytest.MonkeyPatch) -> Target:
    """An OpenCL device that is the processor of `CPU`."""
    monkeypatch.setattr(transfer, "processor_of", lambda target: CPU if target == DEVICE else None)
    return DEVICE


def test_what_the_cpu_found_is_the_first_of_its_opencl_device(database: Database, as_device: Target) -> None:
    """The fastest first, each unlike the others; decisions of the same names are the same, and lanes are lanes."""
    on_cpu = task()
    mine = replace(on_cpu, target=as_device)
    known = [stored(database, on_cpu, seed, 10.0 + seed) for seed in range(1, 2 * OF_CPU)]
    name, choice = known[0]
    stored(database, on_cpu, 1, 9.0, choice=[*choice[:-1], choice[-1] - 1 if choice[-1] else 1])
    search_space = SearchSpace(space_of(mine))
    found = list(Transfer(database).candidates(mine, search_space))
    assert len(found) == len(set(found)) == OF_CPU and all(search_space.possible(key) for key in found)
    sketch = search_space.sketches[found[0][0]]
    wanted, taken = named(space_of(on_cpu), name, choice), named(space_of(mine), sketch.name, list(found[0][1:]))
    assert sketch.name == name
    lanes = next(label for decision, label in wanted.items() if "x" in label and "/tile:" in decision).split("x")[1]
    assert lanes == next(label for decision, label in taken.items() if "/vector:" in decision)
    assert sum(taken.get(decision) == label for decision, label in wanted.items()) >= len(wanted) - 5


def test_lessons_of_the_cpu_are_what_its_candidates_took(database: Database, as_device: Target) -> None:
    """Of those that are possible; another device, and a program that the database does not know, has none."""
    on_cpu = task()
    mine = replace(on_cpu, target=as_device)
    for seed in range(1, 20):
        stored(database, on_cpu, seed, 10.0 + seed)
    search_space = SearchSpace(space_of(mine))
    lessons = Transfer(database).lessons(mine, search_space)
    assert lessons and all(search_space.possible(key) for key in lessons)
    assert set(lessons.values()) <= {10.0 + seed for seed in range(1, 20)}
    assert Transfer(database).lessons(on_cpu, SearchSpace(space_of(on_cpu))) == {}
    other = replace(task(h=12), target=as_device)
    assert Transfer(database).lessons(other, SearchSpace(space_of(other))) == {}


def test_a_database_that_does_not_answer_has_no_lessons(
    database: Database, as_device: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it has no relatives."""
    on_cpu = task()
    stored(database, on_cpu, 1)
    mine = replace(on_cpu, target=as_device)

    def locked(*_: object, **__: object) -> None:
        raise TemporaryError("the database is locked")

    monkeypatch.setattr(database, "top", locked)
    search_space = SearchSpace(space_of(mine))
    assert Transfer(database).lessons(mine, search_space) == {}
    assert list(Transfer(database).candidates(mine, search_space)) == []


def test_what_one_anchor_decided_is_not_taken_for_another() -> None:
    """Both have axes of the same canonical names; lanes of vectors are those of the same anchor."""
    work = workload("softmax", rows=40, cols=96)
    interface = interface_of(work)
    on_cpu, of_device = (generate(work.func, target, interface) for target in (CPU, DEVICE))
    source = next(s for s in on_cpu.sketches if len(s.parts) > 1 and sum("/tile:s" in d.name for d in s.decisions) > 2)
    sketch = next(s for s in of_device.sketches if s.name == source.name)
    rng = np.random.default_rng(0)
    for choice in source.draw(rng, 50).tolist():
        taken = taken_over(source, choice, sketch)
        lanes = {
            (d.name.rpartition("/")[0], column): values[chosen]
            for d, chosen in zip(source.decisions, choice, strict=True)
            for column, values in d.table.items() if column.endswith(":lane")
        }  # fmt: skip
        for item, chosen in zip(sketch.decisions, taken, strict=True):
            for column, values in item.table.items():
                wanted = lanes.get((item.name.rpartition("/")[0], column))
                if wanted in list(values):
                    assert values[chosen] == wanted, item.name
