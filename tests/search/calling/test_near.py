"""Where there is no record of what was asked for, those that are near are named, with the options that find them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from record_makers import make_record

import stridesmith as ss
from stridesmith.cli import main
from stridesmith.ir.target import Target

WORK = ss.workload("matmul", m=6, n=7, k=5)
FIXED = {"a": "fixed", "b": "fixed", "c": "fixed"}
CPU = ss.Target("cpu", threads=1)
OTHER = Target(kind="opencl", name="Test GPU", vendor="Test", platform="Test Platform")
SHAPE = ("--workload", "matmul", "--shape", "m=6,n=7,k=5")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The program as a user's own."""
    path = tmp_path / "mine.py"
    path.write_text(WORK.script, encoding="utf-8")
    return path


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """A database with a record of one thread and a constant `b`, one of two threads, one of a GPU, and a failed one."""
    path = tmp_path / "near.db"
    facts = {"script": WORK.script, "workload": "matmul", "params": dict(WORK.params), "trace": None, "stage": "race"}
    constant, two = FIXED | {"b": "constant"}, replace(CPU, threads=CPU.threads + 1)
    with ss.Database(str(path)) as database:
        for number, (target, interface, us) in enumerate(
            [(CPU, constant, 12.0), (two, constant, 8.0), (OTHER, FIXED, 3.0), (CPU, FIXED, None)], 1
        ):
            record = make_record(us, id=f"{number:x}" * 16, target=target.to_json(), interface=interface, **facts)
            database.put_record(record)
    return path


def told(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command says that ends with exit code 3."""
    assert main([*arguments, "--threads", "1"]) == 3
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [("emit", "-o", "x.so"), ("show", "--trace"), ("replay",), ("best",), ("report", "-o", "x.html")]
)
def test_commands_name_records_that_are_near(
    command: tuple[str, ...], db: Path, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Of the same program, by an option each; the one that is nearest comes first."""
    monkeypatch.chdir(tmp_path)
    for work in (SHAPE, ("--script", str(script))):
        text = told((*command, *work, "--db", str(db)), capsys)
        assert "has no record of matmul" in text and "with the interface a=fixed,b=fixed,c=fixed" in text
        first = "record 1111111111111111 (12.00 us) by `--interface b=constant`"
        third = "record 3333333333333333 (3.000 us) by `--target 'opencl:Test Platform:Test GPU'`"
        assert first in text and "--interface b=constant --threads 2" in text
        assert third.replace("'", "") in text.replace("'", "")
        assert "4444" not in text and "to make one, run `stridesmith" in text


def test_the_options_find_what_they_were_told_for(db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command with the option that was named gives the record that was named."""
    text = told(("show", "--trace", *SHAPE, "--db", str(db)), capsys)
    found = re.search(r"record (\w+) \(12.00 us\) by `([^`]*)`", text)
    assert found is not None
    options = found[2].split()
    assert main(["show", "--trace", *SHAPE, "--db", str(db), "--threads", "1", *options, "--format", "json"]) == 0
    assert f'"record": "{found[1]}"' in capsys.readouterr().out


def test_python_names_arguments(db: Path) -> None:
    """As a call has them."""
    for asked in (ss.load, ss.replay):
        with pytest.raises(ss.NoRecord) as caught:
            asked(WORK, target=CPU, db=str(db))
        assert 'record 1111111111111111 (12.00 us) by `interface="b=constant"`' in str(caught.value)
        assert '`interface="b=constant", threads=2`' in str(caught.value)


def test_nothing_near_is_nothing_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty database has the command alone."""
    text = told(("show", "--trace", *SHAPE, "--db", str(tmp_path / "none.db")), capsys)
    assert "there are others" not in text and "to make one, run `stridesmith --workload matmul" in text
