"""What is written for users takes the place of no database."""

from __future__ import annotations

from pathlib import Path

import pytest
from record_makers import make_record

import stridesmith as ss
from stridesmith.cli import main
from stridesmith.errors import StorageError
from stridesmith.files import refuse_other
from stridesmith.search.records.log import MARK


@pytest.mark.parametrize("arguments", [["export"], ["report", "-o"]])
def test_a_log_or_a_report_replaces_no_database(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command ends with what to do, and the database is as it was."""
    path = tmp_path / "own.db"
    ss.Database(str(path)).close()
    before = path.read_bytes()
    assert main([*arguments, str(path), "--db", str(path)]) != 0
    assert "give another file" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_what_a_command_wrote_may_be_replaced_and_nothing_else(tmp_path: Path) -> None:
    """A log of before, an empty file, and what is not there; a database, whose records would be lost, and a text."""
    (tmp_path / "log.jsonl").write_text('{"schema_version":1}')
    (tmp_path / "empty").touch()
    for name in ("log.jsonl", "empty", "other"):
        refuse_other(tmp_path / name, "a log", MARK)
    (tmp_path / "own.db").write_bytes(b"SQLite format 3\0...")
    with pytest.raises(StorageError, match="records a log would replace: give another file"):
        refuse_other(tmp_path / "own.db", "a log", MARK)
    (tmp_path / "notes").write_text("notes")
    with pytest.raises(StorageError, match="notes is there already, and not as `stridesmith` writes a log: give anoth"):
        refuse_other(tmp_path / "notes", "a log", MARK)


@pytest.mark.parametrize(
    "arguments",
    [["export"], ["report", "-o"], ["--workload", "matmul", "--shape", "m=8,n=8,k=8", "--trials", "1", "--trace"]],
)
def test_no_command_replaces_a_text_of_somebody(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor writes beside it."""
    path = tmp_path / "notes.txt"
    path.write_text("do not lose this")
    assert main([*arguments, str(path), "--db", str(tmp_path / "x.db")]) == StorageError.exit_code
    assert "move it away first" in capsys.readouterr().err
    assert path.read_text() == "do not lose this"


@pytest.mark.parametrize("format", ["so", "c", "ll", "asm", "script"])
def test_a_library_replaces_its_like_and_nothing_else(format: str, tmp_path: Path) -> None:
    """A second one takes the place of the first; neither a text nor what stands where its header goes is lost."""
    kernel = ss.build(ss.workload("matmul", m=4, n=4, k=4))
    path = tmp_path / {"so": "libmine.so", "script": "mine.py"}.get(format, f"mine.{format}")
    try:
        first = kernel.export(path, format)
    except ss.StridesmithError as error:
        pytest.skip(str(error))  # no linker
    assert kernel.export(path, format) == first
    for file in first:
        before = {each: each.read_bytes() for each in first}
        file.write_text("somebody's own")
        with pytest.raises(StorageError, match=f"{file.name} is there already, and not as `stridesmith` writes"):
            kernel.export(path, format)
        assert {each: each.read_bytes() for each in first} == before | {file: b"somebody's own"}
        file.write_bytes(before[file])


def test_a_database_is_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`import` says how a log is made of it."""
    path = tmp_path / "own.db"
    ss.Database(str(path)).close()
    assert main(["import", str(path), "--db", str(tmp_path / "other.db")]) == 2
    assert f"own.db is a database; `stridesmith export LOG --db {path}` writes its records" in capsys.readouterr().err


def test_records_from_elsewhere_alone_are_told_with_the_command_that_tries_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are there, and count for nothing yet."""
    work, fixed = ss.workload("matmul", m=4, n=4, k=4), {"a": "fixed", "b": "fixed", "c": "fixed"}
    foreign = make_record(params=dict(work.params), script=work.script, interface=fixed)
    with ss.Database(str(tmp_path / "own.db")) as database:
        database.merge([foreign], "team.jsonl")
    assert main(["best", "--db", str(tmp_path / "own.db"), "--target", "cpu"]) == 3
    told = capsys.readouterr().err
    assert "own.db has 1 record from elsewhere, none of which has been proven, verified and timed here yet" in told
    command = f"stridesmith best --workload matmul --shape m=4,n=4,k=4 --target cpu --db {tmp_path / 'own.db'}"
    assert f"`{command}` does so for matmul(m=4,n=4,k=4,transpose_a=0,transpose_b=0) float32" in told


def test_what_cannot_be_compared_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A text that is neither a database nor a log is a mistake of the command, not of a disk."""
    ss.Database(str(tmp_path / "own.db")).close()
    (tmp_path / "notes.txt").write_text("hello\nworld\n")
    assert main(["compare", str(tmp_path / "own.db"), str(tmp_path / "notes.txt")]) == 2
    told = capsys.readouterr().err
    assert "notes.txt is neither a database nor a log with records; `stridesmith compare` takes" in told


def test_shares_of_sizes_are_asked_for_in_their_form() -> None:
    """A number in the place of numbers with shares."""
    with pytest.raises(ss.UsageError, match=r"likely=4: likely numbers of a size are given with their shares"):
        ss.tune(ss.workload("matmul", m=(1, 64), n=8, k=8), likely={"m": 4}, trials=1)
