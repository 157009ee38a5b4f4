"""What one call of the package takes for a program, all take; what none can take is a TypeError with a sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from record_makers import make_record

import stridesmith as ss

WORK = ss.workload("matmul", m=6, n=7, k=5)
CPU = ss.Target("cpu", threads=1)
A, B = np.ones((6, 5), np.float32), np.ones((5, 7), np.float32)
MAP = "lambda i, j: [i // 4, j, i % 4]"


@pytest.fixture(scope="module")
def record() -> ss.Record:
    """A record of the workload's untuned program."""
    facts = {"script": WORK.script, "workload": "matmul", "params": dict(WORK.params), "stage": "race"}
    interface = {"a": "fixed", "b": "fixed", "c": "fixed"}
    return make_record(id="abcdef0123456789", trace=None, target=CPU.to_json(), interface=interface, **facts)


@pytest.fixture(scope="module")
def db(record: ss.Record, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with the record."""
    path = str(tmp_path_factory.mktemp("subject") / "best.db")
    with ss.Database(path) as database:
        database.put_record(record)
    return path


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in a file."""
    path = tmp_path_factory.mktemp("subject") / "mine.py"
    path.write_text(WORK.script, encoding="utf-8")
    return path


def interpreted(what: Any) -> None:
    out = np.zeros((6, 7), np.float32)
    ss.interpret(what, A, B, out)
    assert (out == 5).all()


def refused_for_its_trials(what: Any) -> None:
    with pytest.raises(ss.UsageError, match="trials=0"):
        ss.tune(what, trials=0)


EVERYWHERE: dict[str, Callable[[Any], object]] = {
    "build": lambda what: ss.build(what, CPU)(A, B),
    "lower": lambda what: ss.lower(what, CPU),
    "verify": ss.verify,
    "interpret": interpreted,
    "Schedule": ss.Schedule,
    "generate": lambda what: ss.generate(what, CPU),
    "from_func": ss.from_func,
    "scripted": lambda what: ss.scripted("mine", what, CPU, lambda sch: None),
    "propose_pad_values": lambda what: ss.propose_pad_values(what, "a", MAP),
    "simplify": ss.transform.simplify,
    "settings of tune": refused_for_its_trials,
}
LOWEST = {"verify", "interpret", "from_func", "simplify"}
"""What takes neither names nor files, which packages above know."""


@pytest.mark.parametrize("call", EVERYWHERE)
def test_all_take_what_stands_for_a_program(call: str, record: ss.Record, script: Path) -> None:
    """A function, a module, a workload, a schedule, a record, a text; where names are known, a name and a file."""
    kinds = [WORK.func, ss.Module((WORK.func,)), WORK, ss.Schedule(WORK.func), record, WORK.script]
    for what in (*kinds, *([] if call in LOWEST else [script, str(script)])):
        EVERYWHERE[call](what)
    if call not in (*LOWEST, "build", "settings of tune"):
        EVERYWHERE[call]("matmul")


def test_look_ups_take_it_as_well(db: str, record: ss.Record, script: Path) -> None:
    """And the id of a record, or how it begins."""
    kinds: list[Any] = [WORK, WORK.func, ss.Schedule(WORK.func), WORK.script, script, str(script)]
    for what in (*kinds, record, record.id, record.id[:5]):
        assert (ss.load(what, CPU, db)(A, B) == 5).all()
    with ss.Database(db) as database:
        assert all(database.best(what, CPU) == record for what in (*kinds, record))
        assert all(database.records(what, CPU) == [record] for what in kinds)
    with pytest.raises(ss.NoRecord, match=r"has no record of matmul\(m=1024"):
        ss.load("matmul", CPU, db)


def test_a_workload_is_replayed(db: str, record: ss.Record) -> None:
    """As the table of docs/python.md has it: the best record of a workload, or the record."""
    for what in (WORK, record.id):
        assert ss.replay(what, target=CPU, db=db).record == record.id


@pytest.mark.parametrize("call", [*EVERYWHERE, "load", "replay", "best"])
def test_what_is_no_program_is_a_type_error(call: str, db: str) -> None:
    """It says what is taken, and what was given."""
    with ss.Database(db, read_only=True) as database:
        asked = {
            "load": lambda what: ss.load(what, CPU, db), "replay": lambda what: ss.replay(what, target=CPU, db=db),
            "best": lambda what: database.best(what, CPU), **EVERYWHERE, "settings of tune": ss.tune,
        }[call]  # fmt: skip
        for what, kind in ((3, "int"), (None, "NoneType"), ([WORK], "list")):
            with pytest.raises(TypeError, match=f"takes a program: a PrimFunc .* something of type {kind}"):
                asked(what)
        with pytest.raises(TypeError, match=r"of type function; `@ss.prim_func` makes one of a Python function"):
            asked(interpreted)
        two = ss.Module((WORK.func, ss.workload("row_sum").func))
        if call not in ("verify", "Schedule"):
            with pytest.raises(TypeError, match=r"takes one function, but the module has matmul, row_sum"):
                asked(two)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ss.build("matmul", np.int64(3)), "a target is a text, as 'cpu', or an `ss.Target`, but .* type int64"),
        (lambda: ss.Target(["cpu"]), "a target is a text, .* type list"),
        (lambda: ss.Target("cpu", threads="two"), "the number of threads is a whole number, but got 'two'"),
        (lambda: ss.workload(None), "`workload` takes the name of a workload, but .* type NoneType"),
        (lambda: ss.parse(b"text"), "`parse` takes the text of a script, but .* type bytes"),
        (lambda: ss.load("matmul", db=3), "a database is named by a path or a URL, but .* type int"),
        (lambda: ss.Database("own.db").get(3), "the id of a record is a text, but .* type int"),
        (lambda: ss.Database("own.db").merge("text"), "a database takes records, but .* type str"),
        (lambda: ss.Database("own.db").put_record({}), "a database takes records, but .* type dict"),
        (lambda: ss.Database("own.db").best("matmul", 3), "a target is a text, .* type int"),
    ],
)
def test_what_is_of_another_type_is_said(
    call: Callable[[], Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what is taken, and what was given."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=words):
        call()


def test_names_and_files_where_only_programs_are_known() -> None:
    """The text says where the program of a name is."""
    with pytest.raises(TypeError, match=r"`verify` takes .* but got 'matmul'; .* `ss.workload\(name\).func`"):
        ss.verify("matmul")
    with pytest.raises(ss.UsageError, match="did you mean 'matmul'"):
        ss.build("matmull", CPU)
    with pytest.raises(ss.UsageError, match=r"cannot read the script none\.py"):
        ss.load("none.py", CPU)


def test_a_model_is_no_program_and_the_other_way_round() -> None:
    """`compile` takes models, `generate` devices, each with a sentence."""
    with pytest.raises(TypeError, match=r"`compile` takes a model: .* type Workload; `ss.build` and `ss.load` make"):
        ss.compile(WORK)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"`generate` takes a Target, as `ss.Target\('cpu'\)` gives, but got 'cpu'"):
        ss.generate(WORK, "cpu")  # type: ignore[arg-type]
