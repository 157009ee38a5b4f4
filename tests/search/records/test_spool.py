"""What a database does not take is on disk before it is told, and the next run takes it up."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from record_makers import make_record

from stridesmith.errors import StorageError, TemporaryError
from stridesmith.search.records import spool as spool_module
from stridesmith.search.records import writer as writer_module
from stridesmith.search.records.database import Database
from stridesmith.search.records.record import to_line
from stridesmith.search.records.spool import ENDING, Spool, take_up
from stridesmith.search.records.writer import RecordWriter

KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from record_makers import make_record
from stridesmith.search.records.database import Database
from stridesmith.search.records.writer import RecordWriter
writer = RecordWriter(Database(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for number in range(5):
    writer.put([make_record(id=f"{number:016x}")])
    print("told", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database, and a writer that has no patience."""
    for name in ("PUT_SECONDS", "FLUSH_SECONDS"):
        monkeypatch.setattr(writer_module, name, 0.05)
    Database(tmp_path / "tuned.db").close()
    return tmp_path / "tuned.db"


def locked(path: Path) -> sqlite3.Connection:
    """A connection that has the file for itself."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    return other


def spools(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"*{ENDING}*"))


def test_a_run_that_is_killed_while_the_database_is_locked_loses_nothing(path: Path) -> None:
    """All that was told is in the database when the next run has begun, and the file is gone."""
    command = [sys.executable, "-c", KILLED, str(path), str(Path(__file__).parents[2])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None and run.stdin is not None and run.stdout.readline() == "ready\n"
        other = locked(path)
        run.stdin.write("go\n")
        run.stdin.flush()
        assert run.stdout.read().count("told") == 5
    assert run.returncode == -signal.SIGKILL
    other.close()
    with Database(path) as database:
        assert database.size == 0
        (note,) = take_up(database)
        assert "5 records" in note and database.size == 5
        assert take_up(database) == []
    assert spools(path) == []


def test_nothing_stays_spooled_once_the_lock_is_gone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next put writes all; before, each record was in the file."""
    monkeypatch.setattr(writer_module, "RETRY_SECONDS", 0.0)
    with Database(path) as database:
        writer, other = RecordWriter(database), locked(path)
        for number in (1, 2):
            writer.put([make_record(id=f"{number:016x}")])
            (file,) = spools(path)
            assert len(file.read_text().splitlines()) == number
        other.close()
        writer.put([make_record(id=f"{3:016x}")])
        assert database.size == 3 and spools(path) == []


def test_a_run_that_ends_with_the_database_locked_leaves_its_file(path: Path) -> None:
    """The error names it; the next run takes it up."""
    with Database(path) as database:
        writer, other = RecordWriter(database), locked(path)
        writer.put([make_record()])
        with pytest.raises(TemporaryError, match="next run with this database takes them up"):
            writer.flush()
        other.close()
        assert len(take_up(database)) == 1 and database.size == 1


def test_what_was_disproved_meanwhile_stays_disproved(path: Path) -> None:
    """A record waits in a file, is replayed and found to be wrong; another one is new."""
    waiting, new = make_record(3.0), make_record(4.0)
    with Database(path) as database:
        spooled = Spool(database)
        spooled.append([waiting, new])
        spooled.leave()
        database.put_record(waiting.failed("wrong", "differs"))
        take_up(database)
        assert database.get(waiting.id).status == "wrong" and database.get(new.id) == new


def test_the_file_of_a_run_that_lives_is_left_alone(path: Path) -> None:
    """Whoever holds the lock on it writes it to the database itself."""
    with Database(path) as database:
        spooled = Spool(database)
        spooled.append([make_record()])
        assert take_up(database) == [] and database.size == 0
        assert spools(path) == [spooled.path]
        spooled.leave()


@pytest.mark.parametrize(("tail", "refused"), [('{"torn', False), ('{"hostile": 1}\n', True)])
def test_what_is_no_record_hides_nothing(path: Path, tail: str, refused: bool) -> None:
    """A torn last line was never told; other lines that are no records are kept for whoever wants to look."""
    file = path.with_name(f"{path.name}.1-a{ENDING}")
    file.write_text(to_line(make_record()) + "\n" + tail)
    with Database(path) as database:
        notes = take_up(database)
        assert database.size == 1 and any("refused" in note for note in notes) == refused
    assert [p.name.endswith(".refused") for p in spools(path)] == [True] * refused


def test_a_database_that_is_still_locked_keeps_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later run tries again."""
    monkeypatch.setattr(spool_module, "TAKE_SECONDS", 0.05)
    with Database(path) as database:
        spooled = Spool(database)
        spooled.append([make_record()])
        spooled.leave()
        other = locked(path)
        (note,) = take_up(database)
        assert "still in" in note and spools(path) == [spooled.path]
        other.close()
        assert len(take_up(database)) == 1 and os.listdir(path.parent).count(spooled.path.name) == 0


@pytest.mark.parametrize("name", ["tuned.db", "tuned[1].db", "t*d.db"])
def test_the_files_of_another_database_are_left_alone(tmp_path: Path, name: str) -> None:
    """A database takes up its own, whatever characters its name has, and none of one whose name begins with its own."""
    with Database(tmp_path / name) as database, Database(tmp_path / f"{name}.bak") as other:
        mine, theirs = Spool(database), Spool(other)
        for spooled in (mine, theirs):
            spooled.append([make_record()])
            spooled.leave()
        assert len(take_up(database)) == 1 and database.size == 1
        assert not mine.path.exists() and theirs.path.exists()
        assert len(take_up(other)) == 1 and other.size == 1


def test_a_database_that_is_locked_is_asked_for_one_file_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that begins does not wait for the lock once for each file, and waits briefly."""
    monkeypatch.setattr(spool_module, "TAKE_SECONDS", 0.2)
    with Database(path) as database:
        for _ in range(30):
            spooled = Spool(database)
            spooled.append([make_record()])
            spooled.leave()
        other = locked(path)
        start = time.monotonic()
        assert len(take_up(database)) == 1 and time.monotonic() - start < 4
        other.close()
        assert len(take_up(database)) == 30 and database.size == 30


def test_a_disk_that_is_full_in_the_middle_of_a_line_leaves_whole_lines(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be spooled is not there by half: what is, once there is room, can be read."""
    with Database(path) as database:
        spooled = Spool(database)
        spooled.append([make_record(id="a" * 16)])

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch, pytest.raises(StorageError, match="No space left"):
            patch.setattr(spool_module.os, "fsync", full)
            spooled.append([make_record(id="b" * 16)])
        spooled.append([make_record(id="c" * 16)])
        spooled.leave()
        assert len(take_up(database)) == 1
        assert sorted(record.id[0] for record in database.every()) == ["a", "c"] and spools(path) == []
