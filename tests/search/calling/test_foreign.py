"""Records from elsewhere: proven, verified and raced before they are trusted; a wrong or slower one never wins."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from record_makers import make_record

from stridesmith.backends.data import arguments_of
from stridesmith.backends.devices import discover
from stridesmith.cli import main
from stridesmith.errors import NoRecord, WrongResult
from stridesmith.ir.stmt import PrimFunc
from stridesmith.search.calling import foreign
from stridesmith.search.calling.foreign import Outcome, best_here, try_records
from stridesmith.search.calling.kernel import load
from stridesmith.search.calling.replay import replay
from stridesmith.search.records.database import Database
from stridesmith.search.records.record import Record
from stridesmith.search.tasks.interface import interface_of
from stridesmith.search.tasks.task import Task
from stridesmith.search.tuning.elsewhere import in_interface
from stridesmith.search.tuning.race import untuned_id
from stridesmith.search.workers.protocol import Build, Built, Compiled, Failed, Measured, Race, Raced
from stridesmith.space.design.space import generate
from stridesmith.space.schedule import Schedule
from stridesmith.space.workloads import from_func, workload

WORK = workload("matmul", m=9, n=10, k=11)
HERE = discover("cpu", threads=1)
OTHER = replace(HERE, name="Another CPU")
TASK = Task(WORK, HERE, interface_of(WORK))
UNTUNED_US = 50.0


def foreign_record(name: str, claimed_us: float = 10.0, **fields: Any) -> Record:
    """What another device has measured, with a trace that the bench below knows by name."""
    own = {
        "script": WORK.script, "workload": WORK.name, "params": dict(WORK.params), "target": OTHER.to_json(),
        "interface": TASK.interface, "trace": [[name, {}]],
    }  # fmt: skip
    return make_record(claimed_us, **{**own, **fields})


class Bench:
    """A device on which a trace takes the microseconds that are given for it, or fails in the way that is."""

    def __init__(self, **results: float | Failed) -> None:
        self.results = {"untuned": UNTUNED_US, **results}
        self.jobs: list[Any] = []
        self.lock = threading.Lock()

    def run(self, job: Any) -> Any:
        with self.lock:
            self.jobs.append(job)
        if isinstance(job, Build):
            name = "untuned" if job.trace is None else job.trace[0][0]
            found = self.results[name]
            if isinstance(found, Failed) and found.kind in ("refused", "build_error", "build_timeout"):
                return found
            return Built(kernel=Compiled(name, ()), code_hash=name)  # type: ignore[arg-type]
        if isinstance(job, Race):
            return Raced(results=tuple(self._time(kernel.artifact, 1.0) for kernel in job.kernels), roof=None)
        return self._time(job.kernel.artifact, 1.1)

    def _time(self, name: Any, factor: float) -> Measured | Failed:
        found = self.results[name]
        return found if isinstance(found, Failed) else Measured(samples=(found * factor * 1e-6,) * 3, max_abs_error=0.0)

    def names(self, kind: type) -> list[str]:
        return ["untuned" if job.trace is None else job.trace[0][0] for job in self.jobs if isinstance(job, kind)]


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "tuned.db")


def best(database: Database) -> Record | None:
    return database.best(WORK, HERE, TASK.interface)


BAD: dict[str, tuple[float | Failed, str]] = {
    "wrong": (Failed(status="wrong", message="at [0, 0]"), "wrong: at [0, 0]"),
    "out_of_bounds": (Failed(status="refused", message="leaves its buffer"), "refused: leaves its buffer"),
    "crash": (Failed(status="crash:SIGSEGV"), "crash:SIGSEGV: it failed"),
    "endless": (Failed(status="run_timeout", message="no sign"), "run_timeout: no sign"),
    "slow": (60.0, "it takes 60.00 us here, and the program as it was written 50.00 us"),
    "slowest": (500.0, "it takes 550.0 us here, and the program as it was written 55.00 us"),
}


@pytest.mark.parametrize("is_imported", [True, False], ids=["imported", "other device"])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_one_is_refused_with_its_reason_and_never_wins(database: Database, name: str, is_imported: bool) -> None:
    """Whatever it claims; what became of it is a record of this device, and it is not tried again."""
    result, reason = BAD[name]
    claim = foreign_record(name, 0.001, **({"target": HERE.to_json()} if is_imported else {}))
    database.merge([claim], "stranger.jsonl")
    told: list[Outcome] = []
    bench = Bench(**{name: result})
    winner = best_here(TASK, database, told.append, bench)
    (verdict,) = told[0].verdicts
    assert (verdict.trusted, verdict.reason) == (False, reason) and reason in verdict.sentence
    assert verdict.event()["imported"] == "stranger.jsonl"
    if isinstance(result, Failed):
        assert winner is None and best(database) is None and verdict.here.status == result.status
    else:
        assert winner is not None and winner.id == untuned_id(TASK) and winner == best(database)
    assert [r.status for r in database.records(WORK, HERE) if r.trace] == [verdict.here.status]
    asked = len(bench.jobs)
    assert best_here(TASK, database, told.append, bench) == winner and len(bench.jobs) == asked


@pytest.mark.parametrize("is_imported", [True, False], ids=["imported", "other device"])
def test_a_good_one_is_raced_and_trusted(database: Database, is_imported: bool) -> None:
    """It counts with what was measured here, and tells where it comes from."""
    fields = {"target": HERE.to_json()} if is_imported else {}
    claim = foreign_record("fast", 3.0, **fields)
    database.merge([claim], "team.jsonl")
    bench = Bench(fast=20.0)
    with Database(database.path, read_only=True) as reading:
        winner = best_here(TASK, reading, bench=bench)
    assert winner == best(database) and winner is not None
    assert (winner.latency_us, winner.stage, winner.verified) == (pytest.approx(20.0), "race", True)
    assert winner.imported == "team.jsonl" and winner.origin == ("" if is_imported else claim.id)
    assert bench.names(Build) == ["untuned", "fast"], "the first build loads what builds need"
    assert [len(job.kernels) for job in bench.jobs if isinstance(job, Race)] == [2]


def test_the_likest_device_comes_first_and_trying_ends_with_what_is_trusted(database: Database) -> None:
    """What was imported for this device, the same model, the same instruction set, then others, two at a time."""
    targets = {"isa": OTHER, "model": replace(HERE, threads=7), "else": replace(OTHER, isa="neon")}
    database.put_records([foreign_record(name, target=t.to_json()) for name, t in targets.items()])
    database.merge([foreign_record("imported", target=HERE.to_json())])
    bench = Bench(imported=70.0, model=Failed(status="wrong"), isa=20.0, **{"else": 10.0})
    winner = best_here(TASK, database, bench=bench)
    assert winner is not None and winner.latency_us == pytest.approx(10.0)
    assert [n for n in bench.names(Build) if n != "untuned"] == ["imported", "model", "isa", "else"]
    first = Bench(fast=10.0)
    again = Database(database.path.with_name("second.db"))  # type: ignore[union-attr]
    again.put_records([foreign_record("fast", 1.0), foreign_record("fast", 2.0), foreign_record("never", 3.0)])
    best_here(TASK, again, bench=first)
    assert "never" not in first.names(Build)


def test_an_own_record_stands_until_one_beats_it_in_a_race(database: Database) -> None:
    """A look-up does not race at all where there is one; a replay of a stranger's races it, both with new times."""
    own = foreign_record("own", 15.0, target=HERE.to_json(), stage="race")
    database.put_record(own)
    slower, faster = foreign_record("slower", 1.0), foreign_record("faster", 2.0)
    database.put_records([slower, faster])
    bench = Bench(own=30.0, slower=31.0, faster=29.0)
    assert best_here(TASK, database, bench=bench) == own and not bench.jobs
    found = replay(slower, database, any_device=True, bench=bench)
    assert found.tried is not None and f"record {own.id} of this device 30.00 us" in found.tried.verdicts[0].reason
    winner = best(database)
    assert winner is not None and (winner.id, winner.latency_us) == (own.id, pytest.approx(30.0))
    found = replay(faster, database, any_device=True, bench=bench)
    assert found.tried is not None and found.tried.verdicts[0].trusted and "tried" not in found.event()
    winner = best(database)
    assert winner is not None and winner.origin == faster.id and database.get(faster.id) == faster


def test_what_did_not_race_leaves_an_own_record_its_place(database: Database) -> None:
    """Far too slow for a race, a stranger changes nothing: the best keeps the times of the race that it has won."""
    own = foreign_record("own", 15.0, target=HERE.to_json(), stage="race")
    second = foreign_record("second", 16.0, target=HERE.to_json(), stage="race")
    slow = foreign_record("slow", 1.0)
    database.put_records([own, second, slow])
    replay(slow, database, any_device=True, bench=Bench(own=15.0, second=16.0, slow=400.0))
    assert best(database) == own and database.get(second.id) == second


def test_a_race_on_a_busier_machine_displaces_nobody(database: Database) -> None:
    """The reason says what others did meanwhile, and the own record stays as it was."""
    own = foreign_record("own", 15.0, target=HERE.to_json(), stage="race", busy=0.0)
    stranger = foreign_record("stranger", 1.0)
    database.put_records([own, stranger])

    class Busy(Bench):
        def run(self, job: Any) -> Any:
            reply = super().run(job)
            return replace(reply, busy=1.2) if isinstance(reply, Raced) else reply

    found = replay(stranger, database, any_device=True, bench=Busy(own=30.0, stranger=29.0))
    assert found.tried is not None
    reason = (
        f"29.00 us here while others keep 1.2 processors busy, and record {own.id} of this device took 15.00 us while"
    )
    assert reason in found.tried.verdicts[0].reason
    assert best(database) == own


def test_an_own_record_that_no_longer_holds_is_taken_back(database: Database) -> None:
    """Unless the machine may have been at fault."""
    own = foreign_record("own", 15.0, target=HERE.to_json(), stage="race")
    stranger = foreign_record("stranger")
    database.put_records([own, stranger])
    for failure, status in ((Failed(status="run_timeout"), "ok"), (Failed(status="wrong"), "wrong")):
        try_records(TASK, [stranger], database, Bench(own=failure, stranger=20.0))
        assert database.get(own.id).status == status


def test_a_fault_of_the_machine_is_no_verdict(database: Database) -> None:
    """A lost worker leaves an imported record as it was; another device's is tried again."""
    imported, other = foreign_record("imported", target=HERE.to_json()), foreign_record("other")
    database.merge([imported, other])
    lost = Failed(status="infrastructure", message="lost")
    before = database.get(imported.id)
    assert best_here(TASK, database, bench=Bench(imported=lost, other=lost)) is None
    assert database.get(imported.id) == before
    winner = best_here(TASK, database, bench=Bench(imported=30.0, other=20.0))
    assert winner is not None and winner.origin == other.id


def test_nothing_is_trusted_where_the_untuned_program_is_wrong(database: Database) -> None:
    """Then it is the reference that cannot be."""
    database.put_record(foreign_record("fast"))
    with pytest.raises(WrongResult, match="differs from its reference"):
        best_here(TASK, database, bench=Bench(fast=1.0, untuned=Failed(status="wrong", message="at [0]")))
    assert best(database) is None


def test_ranks_that_ask_at_once_get_the_same_winner(database: Database) -> None:
    """One of them measures, the others find its result."""
    database.put_records([foreign_record("fast"), foreign_record("faster")])
    bench = Bench(fast=20.0, faster=19.0)
    winners: list[Record | None] = []

    def ask() -> None:
        with Database(database.path, read_only=True) as own:
            winners.append(best_here(TASK, own, bench=bench))

    ranks = [threading.Thread(target=ask) for _ in range(6)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert len({w.id for w in winners if w is not None}) == 1 and None not in winners
    assert len([job for job in bench.jobs if isinstance(job, Race)]) == 1


def test_another_machines_target_is_asked_for_without_a_race(database: Database) -> None:
    """Nothing can be measured for it here."""
    database.put_record(foreign_record("fast", target=HERE.to_json()))
    bench = Bench(fast=1.0)
    assert best_here(Task(WORK, OTHER, TASK.interface), database, bench=bench) is None and not bench.jobs


def test_what_a_log_says_of_its_own_trust_is_not_believed(database: Database) -> None:
    """Neither that it is verified, nor that it stands for another record; its mark always fits."""
    shielding = foreign_record("shielding", target=HERE.to_json(), versions={"origin": "0" * 16, "imported": "me"})
    crowded = foreign_record("crowded", versions={f"v{n}": "1" for n in range(64)}, stage="race")
    database.merge([shielding, crowded], "a\x1bb" * 200)
    for record in (database.get(shielding.id), database.get(crowded.id)):
        assert (record.verified, record.stage, record.origin) == (False, "trial", "")
        assert record.imported.startswith("a?b") and len(record.imported) == 200


def best_of_device(database: Database) -> Record:
    found = best(database)
    assert found is not None
    return found


def real_records() -> tuple[Record, Record, Record]:
    """A fast schedule, one that is illegal, and one that moves a fixed argument, as a stranger would send them."""
    space = generate(WORK.func, HERE, TASK.interface)
    sketch = space.sketches[0]
    trace = sketch.trace(sketch.draw(np.random.default_rng(0), 1)[0].tolist()).to_json()
    moved = [["transform_layout", {"block": "matmul", "buffer": "a", "index_map": "lambda i, j: (j, i)"}]]
    bad = [["split", {"loop": "nowhere", "factors": [2, None]}]]
    return tuple(foreign_record("", trace=t, target=OTHER.to_json()) for t in (trace, bad, moved))  # type: ignore


def test_what_the_program_itself_lays_out_stays_there() -> None:
    """An argument that is fixed lies as the program says, be that plainly or in a layout of its own."""
    schedule = Schedule(WORK.func)
    schedule.transform_layout("matmul", "a", "lambda i, j: [j, i]")
    laid_out = Task(from_func(schedule.func), HERE, TASK.interface)

    def built(func: PrimFunc) -> Built:
        return Built(kernel=Compiled({}, arguments_of(func)), code_hash="")  # type: ignore[typeddict-item]

    plain, moved = built(WORK.func), built(schedule.func)
    schedule.transform_layout("matmul", "a", "lambda j, i: [j * 9 + i]")
    flat = built(schedule.func)  # another shape of the same memory
    assert in_interface(TASK, plain) is plain
    assert in_interface(laid_out, moved) is moved and in_interface(laid_out, flat) is flat
    for task, reply in ((TASK, moved), (TASK, flat), (laid_out, plain)):
        refused = in_interface(task, reply)
        assert isinstance(refused, Failed) and refused.status == "refused" and "`a` is fixed" in refused.message


def test_a_real_kernel_is_loaded_from_a_strangers_log(
    database: Database, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the log to the kernel: `import`, `load`, `best`, with the reasons of those that were refused."""
    for name in ("BUILD_SECONDS", "CALL_SECONDS", "PATIENCE_SECONDS"):
        monkeypatch.setattr(foreign, name, 60.0)
    good, bad, moved = real_records()
    other = Database(tmp_path / "other.db")
    bad, moved = bad.changed(samples=[3e-6], latency_us=3.0), moved.changed(samples=[1.0], latency_us=1e6)
    other.put_records([good, bad, moved])
    log, here = str(tmp_path / "log.jsonl"), str(database.path)
    assert main(["export", log, "--db", str(other.path)]) == 0
    assert main(["import", log, "--db", here]) == 0
    shape = ["--workload", "matmul", "--shape", "m=9,n=10,k=11", "--threads", "1", "--db", here]
    capsys.readouterr()
    assert main(["best", *shape, "--format", "json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    tried = {event["record"]: event for event in events if event["event"] == "tried"}
    assert tried[good.id]["status"] == "ok" and tried[bad.id]["status"] == "refused" and tried[bad.id]["reason"]
    assert events[-1]["event"] == "record" and events[-1]["verified"]
    assert main(["best", "--db", here, "--format", "plain"]) == 0
    winner = best_of_device(database)
    shown = capsys.readouterr().out
    assert winner.origin in shown and winner.imported in shown and ("log.jsonl" in shown) == bool(winner.origin)
    kernel = load(WORK, "cpu", db=here, threads=1)
    a, b = np.random.default_rng(1).random((9, 11), np.float32), np.random.default_rng(2).random((11, 10), np.float32)
    assert np.allclose(kernel(a, b), a @ b, atol=1e-4)
    main(["replay", "--record", moved.id, "--any-device", "--db", here])
    assert "is fixed" in capsys.readouterr().err
    assert all(not r.ok for r in database.records(WORK, HERE) if r.origin in (bad.id, moved.id))


def test_without_any_the_answer_is_the_command_that_makes_one(database: Database) -> None:
    """As before."""
    assert foreign.RACE_SECONDS < 1
    with pytest.raises(NoRecord, match="stridesmith --workload matmul"):
        load(WORK, "cpu", db=str(database.path), threads=1)
