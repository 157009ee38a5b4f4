"""What is written for users takes the place of no database."""

from __future__ import annotations

from pathlib import Path

import pytest

import stridesmith as ss
from stridesmith.cli import main
from stridesmith.errors import StorageError
from stridesmith.files import refuse_database


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


def test_other_files_may_be_replaced(tmp_path: Path) -> None:
    """A log of before, and what is not there."""
    (tmp_path / "log.jsonl").write_text("{}")
    refuse_database(tmp_path / "log.jsonl", "the log")
    refuse_database(tmp_path / "other", "the log")
    (tmp_path / "own.db").write_bytes(b"SQLite format 3\0...")
    with pytest.raises(StorageError, match="records the log would replace: give another file"):
        refuse_database(tmp_path / "own.db", "the log")


def test_shares_of_sizes_are_asked_for_in_their_form() -> None:
    """A number in the place of numbers with shares."""
    with pytest.raises(ss.UsageError, match=r"likely=4: likely numbers of a size are given with their shares"):
        ss.tune(ss.workload("matmul", m=(1, 64), n=8, k=8), likely={"m": 4}, trials=1)
