"""The database keeps every acknowledged record, and never touches what is not its own."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from record_makers import SCRIPT, TARGET, make_record

from stridesmith.backends.devices import discover
from stridesmith.errors import BadRecord, NoRecord, StorageError, TemporaryError, UsageError
from stridesmith.ir.target import Target
from stridesmith.search.records import database as module
from stridesmith.search.records import rows, sqlite_file
from stridesmith.search.records.database import Database
from stridesmith.search.records.place import default_path
from stridesmith.search.records.reading import reading
from stridesmith.search.records.record import Record
from stridesmith.search.records.run_facts import RunFacts
from stridesmith.search.records.sqlite_file import read_only_uri


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "tuned.db"


def fill(path: Path, count: int, trace_size: int = 1) -> list[Record]:
    records = [make_record(10.0 + n, trial=n, trace=[["op", {"n": n}]] * trace_size) for n in range(count)]
    with Database(path) as database:
        database.put_records(records)
    return records


def test_a_record_comes_back_equal(path: Path) -> None:
    """What is put is what is got, over a reopening, by id and by a prefix of it."""
    records = [make_record(5.0), make_record(None, message="off by one")]
    with Database(path) as database:
        assert database.put_records(records) == [r.id for r in records]
    with Database(str(path)) as database:
        assert [database.get(r.id) for r in records] == records
        assert database.get(records[0].id[:10]) == records[0]
        assert sorted(r.id for r in database.every()) == sorted(r.id for r in records)
        assert database.size == 2


def test_putting_a_record_again_replaces_it(path: Path) -> None:
    """An id is one row."""
    record = make_record(5.0)
    with Database(path) as database:
        database.put_record(record)
        database.put_record(record.measured([4e-6], 0.0, "race"))
        assert database.size == 1
        assert database.get(record.id).latency_us == pytest.approx(4.0)


def test_best_is_by_program_device_and_interface(path: Path) -> None:
    """A faster record of another program, device or interface is never the best of this one."""
    mine = make_record(10.0)
    other_device = Target(kind="cpu", name="Test CPU", vendor="Test", isa="avx2", threads=4)
    with Database(path) as database:
        database.put_records(
            [
                mine,
                make_record(20.0),
                make_record(1.0, script=SCRIPT + " "),
                make_record(1.0, target=other_device.to_json()),
                make_record(2.0, interface={"a": "free", "b": "constant", "c": "fixed"}),
                make_record(1.0, verified=False),
                make_record(None),
            ]
        )
        assert database.best(SCRIPT, TARGET, dict(mine.interface)) == mine
        assert database.best(SCRIPT, TARGET).latency_us == 2.0
        assert database.best(SCRIPT, TARGET, verified=False).latency_us == 1.0
        assert database.best("def other(): pass", TARGET) is None
        assert len(database.records(SCRIPT, TARGET, dict(mine.interface))) == 4


def test_a_race_outranks_a_trial(path: Path) -> None:
    """A lucky trial does not displace what the final race found."""
    raced, lucky = make_record(10.0, stage="race"), make_record(9.0)
    with Database(path) as database:
        database.put_records([lucky, raced])
        assert database.best(SCRIPT, TARGET) == raced
        assert database.top(SCRIPT, TARGET) == [raced, lucky]


def test_text_decides_where_hashes_collide(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two programs of one hash keep their records apart."""
    monkeypatch.setattr(rows, "script_hash", lambda script: "0" * 64)
    one, two = make_record(3.0, script="def one(): pass"), make_record(2.0, script="def two(): pass")
    with Database(path) as database:
        database.put_records([one, two, make_record(4.0, script="def two(): pass")])
        assert database.best("def one(): pass", TARGET) == one
        assert database.best("def two(): pass", TARGET) == two


def test_merged_records_must_be_verified_here(path: Path) -> None:
    """A record from elsewhere counts for nothing until it is measured here, and replaces nothing."""
    mine = make_record(10.0)
    liar = make_record(0.001, stage="race")
    with Database(path) as database:
        database.put_record(mine)
        assert database.merge([liar, mine.changed(samples=[1e-9], latency_us=1e-3)]) == 1
        assert database.merge([liar]) == 0
        assert database.best(SCRIPT, TARGET) == mine
        assert liar.id in {r.id for r in database.top(SCRIPT, TARGET)}


def test_an_unknown_or_ambiguous_id_is_told_apart(path: Path) -> None:
    """No record is exit 3; several are a usage error; a wild text is not a pattern."""
    with Database(path) as database:
        database.put_records([make_record(id=f"abc{n:013x}") for n in range(2)])
        with pytest.raises(NoRecord, match="fff"):
            database.get("fff")
        with pytest.raises(UsageError, match="several"):
            database.get("abc")
        for text in ("%", "", "a_", "'; DROP TABLE records"):
            with pytest.raises(NoRecord):
                database.get(text)


def test_reading_creates_nothing(path: Path) -> None:
    """Opening for reading a database that is not there gives an empty one and leaves no file or folder."""
    with Database(path, read_only=True) as database:
        assert database.best(SCRIPT, TARGET) is None
        assert database.size == 0
        with pytest.raises(StorageError, match="reading only"):
            database.put_record(make_record())
    assert not path.parent.exists()


def test_a_file_in_a_folder_that_cannot_be_written_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no index can be made beside it, as in the image of a container; not while another run's log waits there."""
    fill(path, 3)
    monkeypatch.setattr(sqlite_file.os, "access", lambda *_: False)
    assert read_only_uri(path).endswith("?mode=ro&immutable=1")
    with Database(path, read_only=True) as database:
        assert database.size == 3
        assert [file.name for file in path.parent.iterdir()] == [path.name]
    path.with_name(f"{path.name}-wal").write_bytes(b"log")
    assert read_only_uri(path).endswith("?mode=ro")


def test_a_file_that_may_only_be_read_is_refused_before_anything_is_measured(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another user, in a folder that may be written: SQLite opens it, and would refuse the first record."""
    fill(path, 3)
    monkeypatch.setattr(sqlite_file.os, "access", lambda *_: False)
    with pytest.raises(StorageError, match=r"cannot write the database .*: it is read-only; give another path"):
        Database(path)


@pytest.mark.parametrize("read_only", [True, False])
def test_a_link_that_leads_to_itself_is_no_missing_database(tmp_path: Path, read_only: bool) -> None:
    """It is neither empty nor can one be made there."""
    loop = tmp_path / "loop.db"
    loop.symlink_to(loop)
    with pytest.raises(StorageError, match=r"cannot read the database .*loop.db: Too many levels of symbolic links"):
        Database(loop, read_only=read_only)


def test_a_device_of_this_machine_is_known_by_its_kind(path: Path) -> None:
    """As users write it; a key names any device."""
    here = discover("cpu")
    with Database(path) as database:
        database.put_record(make_record(target=here.to_json()))
        assert database.best(SCRIPT, "cpu") == database.best(SCRIPT, here.key) == database.best(SCRIPT, here)
        assert database.best(SCRIPT, "cpu") is not None


def test_reading_changes_nothing(path: Path) -> None:
    """Opening for reading leaves the file's bytes as they were."""
    fill(path, 3)
    before = path.read_bytes()
    with Database(path, read_only=True) as database:
        assert database.size == 3
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"my notes", b"PK\x03\x04" + b"\0" * 5000, b"SQLite", b"\0"])
@pytest.mark.parametrize("read_only", [True, False])
def test_a_file_that_is_no_database_is_never_touched(path: Path, content: bytes, read_only: bool) -> None:
    """Without SQLite's magic: StorageError, the same bytes, and no other file."""
    path.parent.mkdir()
    path.write_bytes(content)
    stamp = path.stat().st_mtime_ns
    with pytest.raises(StorageError, match="left untouched"):
        Database(path, read_only=read_only)
    assert path.read_bytes() == content
    assert path.stat().st_mtime_ns == stamp
    assert os.listdir(path.parent) == [path.name]


def test_somebody_elses_sqlite_file_is_refused(path: Path) -> None:
    """A sound SQLite file with tables that are not ours is only added to if it is empty."""
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE meta (key TEXT, value TEXT)")
    connection.commit()
    connection.close()
    with pytest.raises(StorageError, match="schema version None"):
        Database(path)


def test_another_schema_version_is_refused(path: Path) -> None:
    """A database of a newer version is not guessed at."""
    fill(path, 1)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE meta SET value = '99'")
    connection.commit()
    connection.close()
    with pytest.raises(StorageError, match="schema version 99"):
        Database(path)


def test_a_damaged_database_is_salvaged_and_the_run_goes_on(path: Path) -> None:
    """Rows outside the damage are kept, the old file is renamed, the note names it."""
    records = {r.id: r for r in fill(path, 400, trace_size=20)}
    data = bytearray(path.read_bytes())
    rng = random.Random(0)
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 4096] = rng.randbytes(4096)
    path.write_bytes(data)
    with pytest.raises(StorageError, match="damaged"):
        Database(path, read_only=True)
    with Database(path) as database:
        saved = list(database.every())
        assert len(saved) > 300
        assert all(records[r.id] == r for r in saved)
        assert "damaged" in database.notes[0]
        database.put_record(make_record())
    kept = [p for p in path.parent.iterdir() if "damaged-" in p.name and not p.name.endswith(("-wal", "-shm"))]
    assert [p.read_bytes() for p in kept] == [bytes(data)]
    assert kept[0].name in database.notes[0]


def test_tables_that_look_alike_keep_their_own_rows(path: Path) -> None:
    """Devices, choices and runs have three columns each: read page by page, types tell whose a row is."""
    records = {r.id: r for r in fill(path, 30, trace_size=20)}
    with Database(path) as database:
        database.put_run(RunFacts(name="r1"))
        database.put_choice("network", TARGET, [1, 2])
    path.write_bytes(path.read_bytes()[:-4096])
    with Database(path) as database:
        assert "rows were saved" in database.notes[0]
        saved = list(database.every())
        assert len(saved) > 15 and all(records[r.id] == r for r in saved)
        assert set(database.runs()) == {"r1"} and database.choice("network", TARGET) == [1, 2]
        assert len(database.notes) == 1
    with sqlite3.connect(path) as connection:
        assert [connection.execute(f"select count(*) from {t}").fetchone()[0] for t in ("devices", "choices")] == [1, 1]


@pytest.mark.parametrize("share", range(1, 20))
def test_a_cut_database_keeps_what_stands_before_the_cut(tmp_path: Path, share: int) -> None:
    """Cut at any place, a database opens with rows that are all true, and nearly all that precede the cut."""
    path = tmp_path / "tuned.db"
    records = {r.id: r for r in fill(path, 200, trace_size=30)}
    data = path.read_bytes()
    size = len(data) * share // 20 + share
    path.write_bytes(data[:size])
    with Database(path) as database:
        saved = list(database.every())
        assert all(records[r.id] == r for r in saved)
        database.put_record(make_record(1.0))
        assert database.best(SCRIPT, TARGET).latency_us == 1.0
    if share > 10:
        assert len(saved) > 0.6 * len(records) * share / 20


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"30303", b"30503"), (b"TestCPUx", b"TestCPUy"), (b"@workload", b"@Workload"), (b"1.7e-05", b"1.6e-05"),
        (b"zq=fixed", b"zq=fixee"),
    ],
)  # fmt: skip
def test_a_record_of_which_a_digit_has_changed_is_left_out(path: Path, old: bytes, new: bytes) -> None:
    """The file is sound for SQLite; the others are there, and the note says which is missing."""
    script = "def main(): pass  # @workload"
    device = Target(kind="cpu", name="TestCPUx", vendor="T", isa="avx2", threads=1)
    target = device.to_json()
    given = [make_record(17.0, script=script, target=target, params={"m": 30303}, interface={"zq": "fixed"})]
    others = [make_record(5.0, trace=[["op", {"n": n}]]) for n in range(5)]
    with Database(path) as database:
        database.put_records([*given, *others])
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))
    with Database(path) as database:
        assert sorted(r.id for r in database.every()) == sorted(r.id for r in others)
        assert len(list(database.every())) == len(others)
        assert [given[0].id in note and "checksum" in note for note in database.notes] == [True]
        with pytest.raises(BadRecord, match="checksum"):
            database.get(given[0].id)


def test_a_record_whose_program_is_another_ones_is_left_out(path: Path) -> None:
    """What a row refers to counts as its own."""
    first, second = make_record(5.0), make_record(6.0, script=SCRIPT + " ")
    with Database(path) as database:
        database.put_records([first, second])
    with sqlite3.connect(path) as connection:
        one = connection.execute("SELECT workload_id FROM records WHERE id = ?", (first.id,)).fetchone()
        connection.execute("UPDATE records SET workload_id = ?", one)
    with Database(path) as database:
        assert [r.id for r in database.every()] == [first.id] and second.id in database.notes[0]


def older(path: Path) -> None:
    """Take away what later versions have added."""
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE records DROP COLUMN checksum")
        connection.execute("DROP TABLE runs")
        connection.execute("UPDATE meta SET value = '1'")


def test_a_database_without_checksums_is_read_and_gets_them(path: Path) -> None:
    """Who may only read takes its records as they are; who writes adds the column, and old rows stay without."""
    records = {r.id: r for r in fill(path, 4)}
    older(path)
    with Database(path, read_only=True) as database:
        assert {r.id: r for r in database.every()} == records and not database.notes
    with Database(path) as database:
        new = make_record(3.0)
        database.put_record(new)
        assert {r.id: r for r in database.every()} == {**records, new.id: new}
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT count(*), count(checksum) FROM records").fetchone()
        assert found == (5, 1)
        assert connection.execute("SELECT value FROM meta").fetchall() == [("2",)]


def test_a_database_that_is_busy_is_brought_up_to_date_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is used as it is; who has it open writes checksums as soon as another one has made room for them."""
    fill(path, 1)
    older(path)
    monkeypatch.setattr(module, "MIGRATE_SECONDS", 0.05)
    lock = sqlite3.connect(path, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    with Database(path) as early:
        lock.execute("ROLLBACK")
        early.put_record(make_record(2.0))
        Database(path).close()
        early.put_record(make_record(3.0))
        assert early.size == 3
    found = lock.execute("SELECT latency_us, checksum IS NOT NULL FROM records WHERE latency_us < 10").fetchall()
    assert sorted(found) == [(2.0, 0), (3.0, 1)]
    lock.close()


def test_damage_in_a_large_file_is_salvaged_once_it_was_met(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is too large to be checked each time is checked when a query has met damage."""
    records = {r.id: r for r in fill(path, 400, trace_size=20)}
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 4096] = random.Random(0).randbytes(4096)
    path.write_bytes(data)
    monkeypatch.setattr(sqlite_file, "CHECKED_BYTES", 4096)
    with Database(path) as database, pytest.raises(StorageError, match="damaged"):
        list(database.every())
    with pytest.raises(StorageError, match="`stridesmith` with --db"):
        Database(path, read_only=True)
    with Database(path) as database:
        saved = list(database.every())
        assert len(saved) > 300 and all(records[r.id] == r for r in saved)
    assert not Path(f"{path}{sqlite_file.SUSPECT}").exists()


def test_a_file_that_proves_to_be_sound_is_suspect_no_more(path: Path) -> None:
    """It is checked whole once, by a writer; who only reads changes nothing."""
    fill(path, 1)
    sqlite_file.suspect(path)
    mark = Path(f"{path}{sqlite_file.SUSPECT}")
    Database(path, read_only=True).close()
    assert mark.exists()
    Database(path).close()
    assert not mark.exists()


def test_who_has_a_file_open_that_is_salvaged_goes_on_in_the_new_one(path: Path) -> None:
    """Nothing that is stored after the salvage ends in the old file."""
    fill(path, 400, trace_size=20)
    with Database(path) as early:
        assert early.size == 400
        data = bytearray(path.read_bytes())
        middle = len(data) // 2 // 4096 * 4096
        data[middle : middle + 4096] = random.Random(0).randbytes(4096)
        path.write_bytes(data)
        with Database(path) as late:
            assert "rows were saved" in late.notes[0]
        new = make_record(3.0)
        early.put_record(new)
    with Database(path) as database:
        assert database.get(new.id) == new


def test_a_database_that_is_removed_while_it_is_open_is_begun_anew(path: Path) -> None:
    """What is stored afterwards is kept in a new file, and a note says so; nothing goes into a file without a name."""
    with Database(path) as database:
        database.put_record(make_record(1.0))
        for one in path.parent.glob(path.name + "*"):
            one.unlink()
        later = make_record(2.0)
        database.put_record(later)
        assert [note for note in database.notes if "was removed while it was in use" in note]
    with Database(path) as again:
        assert list(again.every()) == [later]


def test_a_database_in_the_place_of_which_another_one_came_is_left_alone(path: Path) -> None:
    """It is named, and nothing is written into it."""
    with Database(path) as database:
        database.put_record(make_record(1.0))
        for one in path.parent.glob(path.name + "*"):
            one.unlink()
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE mine (a)")
        other.close()
        with pytest.raises(StorageError, match="has no tables of stridesmith any more: another file has taken its"):
            database.put_record(make_record(2.0))
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]


def test_a_salvage_waits_for_who_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is being written would be lost."""
    fill(path, 1)
    monkeypatch.setattr(sqlite_file, "SALVAGE_SECONDS", 0.05)
    monkeypatch.setattr(sqlite_file, "inspect", lambda path: "damaged")
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(TemporaryError, match="locked"):
        Database(path)
    writer.close()


def test_a_folder_that_cannot_be_made_is_told_with_what_to_do(tmp_path: Path) -> None:
    """As in a home that may only be read."""
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="give another path with --db"):
        Database(tmp_path / "file" / "folder" / "tuned.db")


def test_a_damaged_database_without_checksums_is_salvaged(path: Path) -> None:
    """Its rows have a column less."""
    records = {r.id: r for r in fill(path, 200, trace_size=30)}
    older(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 4])
    with Database(path) as database:
        saved = list(database.every())
        assert len(saved) > 100 and all(records[r.id] == r for r in saved)


def test_an_empty_file_becomes_a_database(path: Path) -> None:
    """SQLite itself leaves an empty file when a process ends early."""
    path.parent.mkdir()
    path.touch()
    with Database(path, read_only=True) as database:
        assert database.size == 0
    fill(path, 1)
    with Database(path, read_only=True) as database:
        assert database.size == 1


def test_a_locked_database_is_temporary(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process's lock ends in exit 75 after the busy time, and the next try succeeds."""
    fill(path, 1)
    for home in ("database", "engine"):
        monkeypatch.setattr(f"stridesmith.search.records.{home}.BUSY_SECONDS", 0.2)
    holder = sqlite3.connect(path)
    with Database(path) as database:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(TemporaryError, match="locked"):
            database.put_record(make_record())
        holder.rollback()
        database.put_record(make_record())
        assert database.size == 2
    holder.close()


def test_a_short_lock_is_waited_for(path: Path) -> None:
    """A writer that holds the lock for half a second delays another, and harms nobody."""
    fill(path, 1)
    holder = sqlite3.connect(path, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.5, holder.rollback)
    timer.start()
    start = time.monotonic()
    with Database(path) as database:
        database.put_record(make_record())
    assert time.monotonic() - start > 0.3
    timer.join()
    holder.close()


def test_four_writers_lose_nothing(path: Path) -> None:
    """Four processes put 50 records each into one new file: 200 rows, each once."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from record_makers import make_record\n"
        "from stridesmith.search.records.database import Database\n"
        "with Database(sys.argv[1]) as database:\n"
        "    for n in range(50):\n"
        "        print(database.put_record(make_record(float(n + 1))))\n"
    )
    tests = str(Path(__file__).parents[2])
    workers = [
        subprocess.Popen([sys.executable, "-c", code, str(path), tests], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    acknowledged = [line for worker in workers for line in worker.communicate()[0].split()]
    assert [worker.returncode for worker in workers] == [0] * 4
    with Database(path, read_only=True) as database:
        stored = [r.id for r in database.every()]
    assert len(acknowledged) == 200
    assert sorted(stored) == sorted(acknowledged)


def test_a_killed_writer_loses_nothing_acknowledged(path: Path) -> None:
    """SIGKILL in the middle of writing: every id that was printed is there."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from record_makers import make_record\n"
        "from stridesmith.search.records.database import Database\n"
        "database = Database(sys.argv[1])\n"
        "while True: print(database.put_record(make_record()), flush=True)\n"
    )
    tests = str(Path(__file__).parents[2])
    writer = subprocess.Popen([sys.executable, "-c", code, str(path), tests], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledged = [writer.stdout.readline().strip() for _ in range(20)]
    writer.kill()
    acknowledged += [line for line in writer.stdout.read().split() if len(line) == 16]
    writer.wait()
    with Database(path) as database:
        stored = {r.id for r in database.every()}
        assert not database.notes
    assert set(acknowledged) <= stored


def test_a_row_that_does_not_validate_is_skipped_and_named(path: Path) -> None:
    """A row changed by hand is told about, and hides no other."""
    records = fill(path, 3)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE records SET payload = '{\"trace\": NaN}' WHERE id = ?", (records[0].id,))
    connection.commit()
    connection.close()
    with Database(path) as database:
        assert database.best(SCRIPT, TARGET) == records[1]
        assert records[0].id in database.notes[0]


@pytest.mark.parametrize("url", ["", " ", "/proc/none/x.db", "nosuch://x/y", "mysql+nosuch://x/y", "://", "/tmp"])
def test_a_wrong_url_is_one_sentence(url: str) -> None:
    """What names no database is a usage or a storage error, never a traceback of SQLAlchemy."""
    with pytest.raises((UsageError, StorageError)):
        Database(url)


def test_the_default_path_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STRIDESMITH_DB decides, else the user's data folder."""
    monkeypatch.setenv("STRIDESMITH_DB", str(tmp_path / "x.db"))
    assert Database().path == tmp_path / "x.db"
    monkeypatch.delenv("STRIDESMITH_DB")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_path() == str(tmp_path / "data" / "stridesmith" / "stridesmith.db")
    assert Database(read_only=True).size == 0
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("url", ["there.db", "missing.db", "", " ", "/proc/none/x.db"])
def test_a_database_that_is_not_there_is_not_opened(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no file that may be made opens as it would be opened, with its error."""
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "there.db", 1)
    try:
        with reading(url) as database:
            assert (database is None) == (url in ("missing.db", "/proc/none/x.db"))
            assert url != "there.db" or database.size == 1
    except (UsageError, StorageError):
        assert not url.strip()


def test_a_sqlite_url_and_a_path_are_the_same(path: Path) -> None:
    """`sqlite:///x.db` and `x.db` open one database."""
    record = fill(path, 1)[0]
    with Database(f"sqlite:///{path}", read_only=True) as database:
        assert database.get(record.id) == record
        assert database.name == str(path)


@pytest.mark.parametrize("folder", ["c#", "why?", "a%41", "two words", "grün", "x&mode=memory"])
def test_a_file_is_read_where_it_was_written_whatever_its_folder_is_called(tmp_path: Path, folder: str) -> None:
    """What URLs give a meaning to is a part of the name; nothing is made elsewhere."""
    path = tmp_path / folder / "tuned.db"
    record = fill(path, 1)[0]
    with Database(path, read_only=True) as database:
        assert database.get(record.id) == record
        assert database.name == str(path)
    assert os.listdir(tmp_path) == [folder]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db:54x2/k",
        "postgresql://me:sec:ret@ure@db/k",
        "postgresql://me:sec@ret@db/k",
        "postgresql://me:sec@ret:ure@db/k",
        "sec ret://",
    ],
)
def test_a_url_that_cannot_be_read_is_not_shown(url: str) -> None:
    """A password with characters that have a meaning in URLs stays secret; how they are written is said."""
    with pytest.raises(UsageError, match="%40 stands for an @") as error:
        Database(url)
    assert not any(part in str(error.value) for part in ("sec", "ret", "54x2"))


def test_a_disk_that_is_full_during_a_salvage_leaves_the_damaged_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite says that the disk is full in its own words; it is a storage error as any other."""
    fill(path, 5)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])

    def full(*_: object) -> int:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(sqlite_file, "_refill", full)
    with pytest.raises(StorageError, match="could not be salvaged: database or disk is full"):
        Database(path)
    assert path.stat().st_size == len(data) // 2


def test_all_records_come_in_pages_oldest_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No record is missed or told twice where one page ends and the next one begins."""
    monkeypatch.setattr(module, "PAGE", 3)
    records = [make_record(5.0, created=float(n // 4)) for n in range(20)]
    with Database(path) as database:
        database.put_records(random.Random(1).sample(records, len(records)))
        assert [r.id for r in database.every()] == [r.id for r in sorted(records, key=lambda r: (r.created, r.id))]


def test_a_sqlite_url_of_two_slashes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would name a host and no file, so that records would go nowhere."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="three slashes"):
        Database("sqlite://tuned.db")
    assert os.listdir(tmp_path) == []


def test_facts_of_runs_are_kept(tmp_path: Path) -> None:
    """Stored by name, replaced by the same name, and a row that does not validate is noted."""
    path = tmp_path / "a.db"
    with Database(path) as database:
        database.put_run(RunFacts(name="r1", trials=3, activities={"building": 1.5}))
        database.put_run(RunFacts(name="r2"))
        database.put_run(RunFacts(name="r1", trials=4))
    with sqlite3.connect(path) as connection:
        connection.execute("update runs set payload = ? where name = ?", ('{"name": "r2", "seconds": -1}', "r2"))
    with Database(path, read_only=True) as database:
        assert {name: facts.trials for name, facts in database.runs().items()} == {"r1": 4}
        assert "r2" in database.notes[0] and "seconds" in database.notes[0]


def test_a_database_from_before_there_were_facts_of_runs(tmp_path: Path) -> None:
    """Reads as without any, and is completed by the next writer."""
    path = tmp_path / "a.db"
    Database(path).close()
    older(path)
    with Database(path, read_only=True) as database:
        assert database.runs() == {}
    with Database(path) as database:
        database.put_run(RunFacts(name="r1"))
        assert set(database.runs()) == {"r1"}


def test_a_file_on_a_network_is_warned_of(tmp_path: Path) -> None:
    """The innermost mount decides."""
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nhost:/x {tmp_path} nfs4 rw 0 0\ntmpfs {tmp_path}/local tmpfs rw 0 0\n")
    kinds = [sqlite_file.network_of(place / "tuned.db", mounts) for place in (tmp_path, tmp_path / "local", Path("/"))]
    assert kinds == ["nfs4", "", ""] and sqlite_file.network_of(tmp_path / "x.db", tmp_path / "none") == ""
