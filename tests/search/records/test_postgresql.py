"""A team's database: a real PostgreSQL server, written by several, restarted and read by those who may only read."""

from __future__ import annotations

import glob
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from record_makers import SCRIPT, TARGET, make_record

from stridesmith.cli import main
from stridesmith.errors import StorageError, TemporaryError
from stridesmith.search.records import database as module
from stridesmith.search.records import spool, tables
from stridesmith.search.records import turn as turns
from stridesmith.search.records.database import Database
from stridesmith.search.records.record import Record
from stridesmith.search.records.turn import turn
from stridesmith.search.records.writer import RecordWriter

FOLDERS = sorted(map(Path, glob.glob("/usr/lib/postgresql/*/bin")))
FOLDERS += [Path(found).parent for found in [shutil.which("initdb")] if found]
BIN = next((folder for folder in reversed(FOLDERS) if (folder / "initdb").exists()), None)

pytestmark = [
    pytest.mark.skipif(BIN is None or sys.platform != "linux", reason="PostgreSQL is not installed"),
    pytest.mark.timeout(120),
]


class Server:
    """A server of this test's own; its processes belong to `postgres` where the tests run as root."""

    def __init__(self, folder: Path) -> None:
        assert BIN is not None
        self.folder, self.user = folder, "postgres" if os.getuid() == 0 else None
        if self.user:
            shutil.chown(folder, self.user)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._run("initdb", "-D", str(folder / "data"), "-U", "owner", "-A", "trust", "--no-sync", "-E", "UTF8")

    def _run(self, program: str, *arguments: str) -> None:
        assert BIN is not None
        subprocess.run([str(BIN / program), *arguments], check=True, capture_output=True, user=self.user, cwd="/")

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-l", log, "-w", "-o", options, "start")

    def stop(self) -> None:
        """As a crash does: every connection is cut."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")

    def url(self, name: str = "postgres", role: str = "owner") -> str:
        return f"postgresql://{role}@127.0.0.1:{self.port}/{name}"

    def execute(self, statement: str, name: str = "postgres") -> None:
        engine = sa.create_engine(self.url(name).replace("postgresql", "postgresql+psycopg"))
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sa.text(statement))
        engine.dispose()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ss-pg-", ignore_cleanup_errors=True) as name:
        made = Server(Path(name))
        made.start()
        try:
            yield made
        finally:
            made.stop()


@pytest.fixture
def url(server: Server, request: pytest.FixtureRequest) -> str:
    """A database of the test's own on the server."""
    name = f"db{abs(hash(request.node.name)):x}"
    server.execute(f"CREATE DATABASE {name}")
    return server.url(name)


def test_a_server_answers_as_a_file_does(url: str, tmp_path: Path) -> None:
    """The same records give the same best, top and winners, in the same order."""
    stages = ("race", *["trial"] * 4)
    records = [make_record(5.0 + n % 7, trial=n, stage=stages[n % 5], created=float(n)) for n in range(40)]
    records += [make_record(None, trial=99), make_record(1.0, interface={"a": "free"})]
    records.append(make_record(2.0, verified=False))
    found = []
    for place in (url, str(tmp_path / "same.db")):
        with Database(place) as database:
            database.put_records(records)
            database.put_records(records[:3])
            best, top = database.best(SCRIPT, TARGET), database.top(SCRIPT, TARGET, count=6)
            assert best is not None
            found.append((best.id, [r.id for r in top], [r.id for r in database.winners()], database.size,
                          [r.id for r in database.every()],
                          database.get(records[7].id[:10])))  # fmt: skip
    assert found[0] == found[1]


WRITER = """
import sys
sys.path.insert(0, sys.argv[3])
from record_makers import make_record
from stridesmith.search.records.database import Database
with Database(sys.argv[1]) as database:
    for number in range(50):
        record = make_record(10.0, trial=number)
        database.put_record(record)
        print(record.id, flush=True)
"""


def test_writers_lose_nothing_while_the_server_crashes(server: Server, url: str) -> None:
    """Four processes make the tables at once and write; the server is cut and started twice: none lost, none double."""
    helpers = str(Path(__file__).parents[2])
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, url, str(n), helpers], stdout=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    told: list[str] = []

    def listen(writer: subprocess.Popen[str]) -> None:
        assert writer.stdout is not None
        told.extend(line.strip() for line in writer.stdout)

    threads = [threading.Thread(target=listen, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for count in (20, 90):
        deadline = time.monotonic() + 60
        while len(told) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        server.stop()
        server.start()
    for thread in threads:
        thread.join()
    assert [writer.wait() for writer in writers] == [0] * 4
    with Database(url) as database:
        stored = [record.id for record in database.every()]
    assert len(told) == 200 and sorted(stored) == sorted(told)


def test_tables_of_later_versions_are_made_by_one_process_at_a_time(url: str) -> None:
    """Many open an older database at once, or keep a choice in it."""
    with Database(url) as database, database._engine.begin() as connection:
        first_version(connection)
    ready, wrong = threading.Barrier(8), list[Exception]()

    def work() -> None:
        ready.wait()
        try:
            with Database(url) as database:
                ready.wait()
                database.put_choice("network", TARGET, [1])
                database.put_record(make_record())
        except Exception as error:
            wrong.append(error)
            ready.abort()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    with Database(url) as database, database._engine.connect() as connection:
        assert connection.execute(sa.text("SELECT count(*), count(checksum) FROM records")).one() == (8, 8)


def first_version(connection: sa.Connection) -> None:
    """Take away what later versions have added."""
    for statement in ("DROP TABLE runs", "DROP TABLE choices", "ALTER TABLE records DROP COLUMN checksum",
                      "UPDATE meta SET value = '1'"):  # fmt: skip
        connection.execute(sa.text(statement))


def test_a_role_that_may_not_change_tables_uses_them_as_they_are(server: Server, url: str) -> None:
    """Its records have no checksums, and are read."""
    name = url.rpartition("/")[2]
    with Database(url) as database, database._engine.begin() as connection:
        first_version(connection)
    server.execute("DO $$ BEGIN CREATE ROLE writer LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    server.execute("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO writer", name)
    server.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO writer", name)
    with Database(server.url(name, "writer")) as database:
        record = make_record(3.0)
        database.put_record(record)
        assert database.get(record.id) == record


def test_tables_that_somebody_keeps_busy_hold_up_nobody(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open transaction that has read a table keeps it from being changed: nobody is kept waiting behind that."""
    monkeypatch.setattr(tables, "MIGRATE_SECONDS", 0.2)
    with Database(url) as database, database._engine.begin() as connection:
        first_version(connection)
    with Database(url, read_only=True) as reader, reader._engine.connect() as busy:
        busy.execute(sa.text("SELECT count(*) FROM records"))
        start = time.monotonic()
        with Database(url) as database:
            database.put_record(make_record())
        assert time.monotonic() - start < 5
    with Database(url) as database, database._engine.connect() as connection:
        assert connection.execute(sa.text("SELECT value FROM meta")).scalar() == "2"


def test_what_a_server_that_is_down_does_not_take_is_spooled(
    server: Server, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A put fails in its time, the writer keeps the records on disk, and writes them when the server is back."""
    monkeypatch.setattr(spool, "place_of", lambda database: (tmp_path, "server"))
    with Database(url) as database:
        writer = RecordWriter(database)
        writer.put([make_record(3.0)])
        server.stop()
        try:
            start = time.monotonic()
            with pytest.raises(TemporaryError, match="does not answer"):
                database.put_records([make_record(4.0)], 0.5)
            writer.put([make_record(5.0), make_record(6.0)])
            assert time.monotonic() - start < 8 and len(list(tmp_path.iterdir())) == 1
        finally:
            server.start()
        writer.flush()
        assert database.size == 3 and not list(tmp_path.iterdir())


def test_a_role_that_may_only_read_suffices_to_look_up(
    server: Server, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`stridesmith best` finds the record; writing is refused with the reason."""
    name = url.rpartition("/")[2]
    with Database(url) as database:
        database.put_record(make_record(7.0))
    server.execute("DO $$ BEGIN CREATE ROLE reader LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    server.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader", name)
    reader = server.url(name, "reader")
    with Database(reader, read_only=True) as database:
        best = database.best(SCRIPT, TARGET)
        assert best is not None and best.latency_us == pytest.approx(7.0)
    with Database(reader) as database, pytest.raises(StorageError, match="may only be read with this role"):
        database.put_record(make_record(1.0))
    assert main(["best", "--db", reader, "--format", "json"]) == 0
    assert best.id in capsys.readouterr().out


def test_one_at_a_time_is_inside_whatever_its_role(server: Server, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ranks that ask at once each waits for its turn; who has waited too long goes on."""
    server.execute("DO $$ BEGIN CREATE ROLE rank LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    name = url.rpartition("/")[2]
    with Database(url):  # which makes the tables
        server.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO rank", name)
    inside, most = [], []

    def ask(place: str) -> None:
        with Database(place, read_only=True) as database, turn(database, "a task"):
            inside.append(place)
            most.append(len(inside))
            time.sleep(0.05)
            inside.pop()

    ranks = [threading.Thread(target=ask, args=(server.url(name, role),)) for role in ("owner", "rank") * 3]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert most == [1] * 6
    monkeypatch.setattr(turns, "PATIENCE_SECONDS", 0.2)
    with Database(url) as one, Database(url) as other, turn(one, "b"), turn(other, "b"), turn(other, "c"):
        pass


def test_an_export_outlives_a_restart_of_the_server(server: Server, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records that are left come over a new connection; where the server stays away, the error says so."""
    monkeypatch.setattr(module, "PAGE", 2)
    records = [make_record(5.0, created=float(n)) for n in range(6)]
    with Database(url) as database:
        database.put_records(records)
    with Database(url, read_only=True) as database:
        exported = database.every()
        found = [next(exported)]
        server.stop()
        server.start()
        found += exported
        assert [record.id for record in found] == [record.id for record in records]
        exported = database.every()
        next(exported)
        monkeypatch.setattr(module, "READ_SECONDS", 0.3)
        server.stop()
        try:
            with pytest.raises(TemporaryError, match="does not answer"):
                list(exported)
            with pytest.raises(TemporaryError, match="does not answer"), turn(database, "a task"):
                pass
        finally:
            server.start()


def test_a_lock_that_the_server_has_lost_costs_nothing(server: Server, url: str) -> None:
    """Whoever had its turn while the server was restarted goes on."""
    with Database(url) as database:
        with turn(database, "a task"):
            server.stop()
            server.start()
        assert database.size == 0


def test_a_server_that_is_not_there_or_refuses_is_told_in_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """No password is shown; what will not pass is not waited for."""
    monkeypatch.setattr(module, "READ_SECONDS", 0.5)
    start = time.monotonic()
    with pytest.raises(TemporaryError, match=r"owner:\*\*\*@127.*does not answer"):
        Database("postgresql://owner:secret@127.0.0.1:9/team")
    monkeypatch.setattr(module, "READ_SECONDS", 60.0)
    with pytest.raises(StorageError, match="does not exist"):
        Database(server.url("nothing_of_this_name"))
    assert time.monotonic() - start < 10


def test_records_that_are_read_are_validated(url: str) -> None:
    """A row that somebody has changed by hand is skipped, and the next best is found."""
    bad, good = make_record(1.0), make_record(2.0)
    with Database(url) as database:
        database.put_records([bad, good])
        engine = database._engine
        with engine.begin() as connection:
            connection.execute(sa.text(f"UPDATE records SET payload = '{{}}' WHERE id = '{bad.id}'"))
        found: Record | None = database.best(SCRIPT, TARGET)
        assert found is not None and found.id == good.id and "skipped record" in database.notes[0]
