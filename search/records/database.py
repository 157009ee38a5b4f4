"""The database of records: SQLAlchemy, SQLite by default, PostgreSQL by URL; its tables are in `tables`.

Several processes may write: each write is one short transaction.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from ...errors import BadRecord, NoRecord, StorageError, UsageError
from ...invocation import COMMAND
from ...ir.script.programs import Program, is_text
from ...space.workloads.taking import workload_of
from ..tasks.device import Device
from ..tasks.interface import interface_key
from ..tasks.task import RECORDED_DEVICE
from . import sqlite_file
from .engine import BUSY_SECONDS, attempt, engine_of, locate
from .place import url_of
from .record import Record, marked, printable
from .rows import RACED_FIRST, device_id, dump, is_program, joined, record_of, upsert
from .run_facts import RunFacts, from_text
from .status import OK, failure_kind
from .tables import (
    CHOICES,
    DEVICES,
    META,
    MIGRATE_SECONDS,
    RECORDS,
    RUNS,
    TABLES,
    VERSION,
    VERSIONS,
    WORKLOADS,
    ddl,
    insert_if_new,
    insert_or_replace,
    lock_schema,
    migrate,
    version_of,
    widths,
)

if TYPE_CHECKING:
    from ...ir.target import Target

T = TypeVar("T")

READ_SECONDS = 10.0  # how long a server that does not answer is asked again
PAGE = 200  # rows that are fetched at once
RESERVES = 3  # records of a program that are looked at where the best ones do not validate


class Database:
    """Records by workload and device, shared by any number of processes.

    `url` is a path, a SQLAlchemy URL, or None for the default path.  With
    `read_only` nothing is ever created or changed, and a missing file reads as an
    empty database.  `notes` holds sentences for the user, such as what a salvage
    saved.  Once it is closed, whatever is asked of it raises UsageError.
    """

    def __init__(self, url: str | os.PathLike[str] | None = None, *, read_only: bool = False) -> None:
        self.notes: list[str] = []
        self._noted: set[str] = set()
        self.read_only, self.is_closed = read_only, False
        self.url, self.path = locate(url_of(url))
        missing = self._prepare_file() if self.path is not None else False
        self._engine = engine_of(self.url, self.path, read_only, missing)
        self._attempt(lambda: self._open_schema(create=not read_only or missing), READ_SECONDS)

    def put_record(self, record: Record) -> str:
        """Store or replace one record (by its id); it is durable when this returns."""
        return self.put_records([record])[0]

    def put_records(self, records: Sequence[Record], seconds: float | None = None, *, older: bool = False) -> list[str]:
        """Store or replace records in one transaction: all of them, or none.

        Waits so many `seconds` for another process that has a SQLite file locked, or for a server that does not
        answer, by default `BUSY_SECONDS`.  Records that are `older` than what is stored leave those alone that were
        disproved since.
        """
        self._refuse_read_only()
        _refuse_others(records)

        def put() -> None:
            with self._write(seconds) as connection:
                for record in sorted(records, key=lambda record: record.id):  # all writers in one order: no deadlock
                    if older and self._is_disproved(connection, record):
                        continue
                    upsert(connection, record, self._has_checksums(connection))

        self._attempt(put, BUSY_SECONDS if seconds is None else seconds)
        return [record.id for record in records]

    def put_run(self, facts: RunFacts, seconds: float | None = None) -> None:
        """Store or replace what a run tells; waits for a lock as `put_records` does."""
        self._refuse_read_only()
        values = {"created": facts.created, "payload": facts.to_text()}

        def put() -> None:
            with self._write(seconds) as connection:
                insert_or_replace(connection, RUNS, {"name": facts.name, **values})

        self._attempt(put, BUSY_SECONDS if seconds is None else seconds)

    def runs(self, names: Iterable[str] | None = None) -> dict[str, RunFacts]:
        """What runs tell, all or those of these names, by name, oldest first; what does not validate is noted."""
        wanted = None if names is None else set(names)

        def fetch() -> list[tuple[str, str]]:
            with self._read() as connection:
                if not sa.inspect(connection).has_table("runs"):
                    return []  # written before there were any
                rows = connection.execute(sa.select(RUNS.c.name, RUNS.c.payload).order_by(RUNS.c.created))
                return [(name, payload) for name, payload in rows]

        rows = self._attempt(fetch, READ_SECONDS)
        found: dict[str, RunFacts] = {}
        for name, payload in rows:
            if wanted is None or name in wanted:
                try:
                    found[name] = from_text(payload)
                except BadRecord as error:
                    self.notes.append(f"skipped the run {printable(str(name))} of {self.name}: {error}")
        return found

    def best(
        self,
        work: Program,
        target: Target | str,
        interface: Mapping[str, str] | None = None,
        *,
        verified: bool = True,
    ) -> Record | None:
        """The fastest record of this program on this device, or None.

        What a final race measured comes before what only a trial measured.
        `target` is a device's key, or what names a device of this machine, as ``cpu``.  `interface` None accepts every
        interface; `verified` asks for records whose results were compared on this machine's behalf.
        """
        where = [RECORDS.c.status == "ok", *([RECORDS.c.verified] if verified else [])]
        return next(self._select(work, target, interface, where, order=RACED_FIRST, limit=1), None)

    def records(
        self,
        work: Program,
        target: Target | str,
        interface: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        """Every record of this program on this device, failed ones included, oldest first."""
        order = (RECORDS.c.created, RECORDS.c.id)
        return list(self._select(work, target, interface, order=order, limit=limit))

    def top(
        self,
        work: Program,
        target: Target | str,
        interface: Mapping[str, str] | None = None,
        count: int = 4,
        raced_first: bool = True,
    ) -> list[Record]:
        """The fastest records, unverified ones included; raced ones first, unless all are to be compared."""
        order = RACED_FIRST if raced_first else (RECORDS.c.latency_us, RECORDS.c.id)
        return list(self._select(work, target, interface, [RECORDS.c.status == "ok"], order=order, limit=count))

    def elsewhere(self, work: Program, target: Target, interface: Mapping[str, str], count: int) -> list[Record]:
        """The `count` fastest records of each other device of this kind, the likest devices first.

        Likest is the same model, then the same instruction set; their latencies say nothing of this one.  A recorded
        space is no device: its traces build nothing.
        """
        script = _script_of(work)
        query = sa.select(DEVICES.c.key).distinct().select_from(RECORDS.join(WORKLOADS).join(DEVICES))
        real = ~DEVICES.c.key.contains(RECORDED_DEVICE, autoescape=True)
        query = query.where(*is_program(script), real, RECORDS.c.status == "ok")
        keys = [str(row["key"]) for row in self._fetch(query)]
        tops = [self.top(script, key, interface, count) for key in sorted(keys) if key != target.key]
        found = [(top[0].device, top) for top in tops if top and top[0].device.kind == target.kind]

        def unlikeness(device: Target) -> int:
            if (device.vendor, device.name) == (target.vendor, target.name):
                return 0
            return 1 if device.isa == target.isa else 2

        return [record for _, top in sorted(found, key=lambda pair: unlikeness(pair[0])) for record in top]

    def get(self, record_id: str) -> Record:
        """The record of this id, or of the only id that starts with it; NoRecord otherwise."""
        if not isinstance(record_id, str):
            raise TypeError(f"the id of a record is a text, but got something of type {type(record_id).__name__}")
        if not record_id or not all(c in "0123456789abcdef" for c in record_id):
            raise NoRecord(f"no record {record_id!r} in {self.name}: an id is up to 16 hexadecimal digits")
        rows = self._fetch(joined(self._checked).where(RECORDS.c.id.like(record_id + "%")).limit(2))
        if len(rows) > 1:
            raise UsageError(f"several records in {self.name} start with {record_id!r}; give more of the id")
        if not rows:
            raise NoRecord(f"no record {record_id!r} in {self.name}; `{COMMAND} best` lists what there is")
        return record_of(rows[0])

    def every(self) -> Iterator[Record]:
        """All records, oldest first, for export; rows that do not validate go to `notes`.

        Each page is a query of its own, which is asked again where the server has lost the link meanwhile.
        """
        order = RECORDS.c.created, RECORDS.c.id
        ids = [row["id"] for row in self._fetch(sa.select(RECORDS.c.id).order_by(*order))]
        for start in range(0, len(ids), PAGE):
            page = RECORDS.c.id.in_(ids[start : start + PAGE])
            yield from self._valid(self._fetch(joined(self._checked).where(page).order_by(*order)))

    def merge(self, records: Iterable[Record], source: str = "") -> int:
        """Add records from elsewhere, unverified until they are tried here; return how many were new.

        They are marked as what `source`, a file perhaps, has brought.  A record that is already here stays as it is,
        so that a merge can neither overwrite a measurement nor vouch for one.
        """
        self._refuse_read_only()
        records = list(records)
        _refuse_others(records)
        given = sorted((marked(record, source) for record in records), key=lambda record: record.id)

        def put() -> int:
            count = 0
            with self._write() as connection:
                for record in given:
                    if connection.execute(sa.select(RECORDS.c.id).where(RECORDS.c.id == record.id)).first() is None:
                        upsert(connection, record, self._has_checksums(connection))
                        count += 1
            return count

        return self._attempt(put, BUSY_SECONDS)

    def imported(self, work: Program, target: Target | str, interface: Mapping[str, str], count: int) -> list[Record]:
        """The `count` records that claim to be fastest on this very device and were never verified here."""
        where = [RECORDS.c.status == "ok", ~RECORDS.c.verified]
        return list(self._select(work, target, interface, where, order=RACED_FIRST, limit=count))

    def winners(self) -> list[Record]:
        """The best verified record of each (program, device, interface), by workload name."""
        best: dict[tuple[str, str, str], Record] = {}
        each = (RECORDS.c.workload_id, RECORDS.c.device_id, RECORDS.c.interface)
        rank = sa.func.row_number().over(partition_by=each, order_by=RACED_FIRST)
        measured = sa.select(RECORDS.c.id, rank.label("rank")).where(RECORDS.c.status == "ok", RECORDS.c.verified)
        ranked = measured.subquery()
        first = sa.select(ranked.c.id).where(ranked.c.rank <= RESERVES)
        query = joined(self._checked).where(RECORDS.c.id.in_(first)).order_by(*RACED_FIRST)
        for record in self._valid(self._fetch(query)):
            best.setdefault((record.script, record.device_key, interface_key(dict(record.interface))), record)
        return sorted(best.values(), key=lambda r: (r.workload, r.device_key, r.id))

    def put_choice(self, network: str, target: Target, choice: Any, seconds: float | None = None) -> None:
        """Keep what was chosen for a whole network on a device, as JSON, in place of what was kept before.

        Waits so many `seconds` as `put_records` does.
        """
        self._refuse_read_only()

        def put() -> None:
            with self._write(seconds) as connection:
                if not sa.inspect(connection).has_table(CHOICES.name):  # a database of an earlier version
                    lock_schema(connection)
                    CHOICES.create(connection, checkfirst=True)
                values = {"network": network, "device_id": device_id(connection, target), "payload": dump(choice)}
                insert_or_replace(connection, CHOICES, values)

        self._attempt(put, BUSY_SECONDS if seconds is None else seconds)

    def choice(self, network: str, target: Target) -> Any:
        """What is kept for a network on a device, as JSON that may be anything; None where nothing is."""
        query = sa.select(CHOICES.c.payload).join(DEVICES).where(
            CHOICES.c.network == network, DEVICES.c.key == target.key
        )  # fmt: skip

        def fetch() -> str | None:
            with self._read() as connection:
                return connection.execute(query).scalar() if sa.inspect(connection).has_table(CHOICES.name) else None

        found = self._attempt(fetch, READ_SECONDS)
        try:
            return None if found is None else json.loads(found)
        except (ValueError, RecursionError) as error:
            raise BadRecord(f"the choice of layouts for a network in {self.name} cannot be read: {error}") from None

    def scripts(self, target: Target, newest: int, having: Sequence[str] = ()) -> list[str]:
        """The texts, `having` these parts, of programs with a verified record on a device: the `newest` of them."""
        on = sa.select(DEVICES.c.id).where(DEVICES.c.key == target.key).scalar_subquery()
        mine = (RECORDS.c.workload_id == WORKLOADS.c.id, RECORDS.c.device_id == on)
        known = sa.exists().where(*mine, RECORDS.c.status == "ok", RECORDS.c.verified)
        parts = [WORKLOADS.c.script.contains(part, autoescape=True) for part in having]
        query = sa.select(WORKLOADS.c.script).where(known, *parts).order_by(WORKLOADS.c.id.desc()).limit(newest)
        return [str(row["script"]) for row in self._fetch(query)]

    @property
    def name(self) -> str:
        """The path, or the URL without its password: what a summary prints."""
        return str(self.path) if self.path is not None else self.url.render_as_string(hide_password=True)

    @property
    def size(self) -> int:
        """Number of records."""
        return int(self._fetch(sa.select(sa.func.count().label("count")).select_from(RECORDS))[0]["count"])

    @contextmanager
    def advisory_lock(self, number: int) -> Iterator[Callable[[], bool]]:
        """What tries to get a server's lock of this number, which is held until the end; see `turn`."""

        def asked() -> bool:
            if connection.dialect.name != "postgresql":
                return True
            return bool(connection.execute(sa.select(sa.func.pg_try_advisory_lock(number))).scalar())

        connection = self._attempt(self._engine.connect, READ_SECONDS)
        connection.detach()  # closed and not kept for others, it lets go of the lock
        try:
            yield lambda: self._attempt(asked, 0.0)
        finally:
            with suppress(sa.exc.SQLAlchemyError):  # a link that was lost has let go of the lock already
                connection.close()

    def close(self) -> None:
        """Let go of its connections."""
        self.is_closed = True
        self._engine.dispose()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepare_file(self) -> bool:
        """Check, repair or make room for the file; True when reading must do without one."""
        assert self.path is not None
        state = sqlite_file.inspect(self.path)
        if state == "damaged":
            if self.read_only:
                raise StorageError(
                    f"the database {self.path} is damaged; `{COMMAND}` with --db {self.path} "
                    f"saves what can be read into a new file and keeps the old one"
                )
            old, rows = sqlite_file.salvage(self.path, ddl(), widths())
            if old != self.path:
                self.notes.append(
                    f"the database {self.path} was damaged: {rows} rows were saved into a new file, "
                    f"and the old one was renamed to {old}"
                )
        if self.read_only:
            return state in ("missing", "empty")
        sqlite_file.refuse_unwritable(self.path)
        with suppress(OSError):
            sqlite_file.trust(self.path)
        if kind := sqlite_file.network_of(self.path):
            self.notes.append(
                f"the database {self.path} is on a network file system ({kind}), where SQLite may lose records when "
                f"several hosts write; use one on this machine, or a server: --db postgresql://host/name"
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"cannot make the folder of the database {self.path}: {error.strerror}; give another path with --db "
                f"or STRIDESMITH_DB"
            ) from None
        return False

    def _open_schema(self, create: bool) -> None:
        self._is_open = False
        with self._read() as connection:
            known = sa.inspect(connection).has_table("meta")
        if create and not known:
            with self._write() as connection:
                lock_schema(connection)
                TABLES.create_all(connection, checkfirst=True)
                insert_if_new(connection, META, {"key": "schema", "value": VERSION})
        with self._read() as connection:
            if not sa.inspect(connection).has_table("meta"):
                raise StorageError(f"{self.name} is a database, but not one of stridesmith; it was left untouched")
            version = version_of(connection)
        if version not in VERSIONS:
            raise StorageError(
                f"{self.name} has schema version {version}, but this stridesmith reads version {VERSION}; "
                f"use the version that wrote it, or export there and import here"
            )
        if version != VERSION and not self.read_only:
            # Where this role may not change tables, or somebody keeps them busy, it is used as it is.
            with suppress(sa.exc.ProgrammingError, sa.exc.OperationalError), self._write(MIGRATE_SECONDS) as connection:
                migrate(connection)
            with self._read() as connection:
                version = version_of(connection)
        self._checked, self._is_open = version == VERSION, True

    def _select(
        self,
        work: Program,
        target: Target | str,
        interface: Mapping[str, str] | None,
        where: Sequence[sa.ColumnElement[bool]] = (),
        *,
        order: Sequence[Any],
        limit: int | None = None,
    ) -> Iterator[Record]:
        script = _script_of(work)
        key = target if isinstance(target, str) and "|" in target else Device.here(target).key
        # As single numbers they let the index give the records in order of rank; of a join all would be sorted.
        known = sa.select(sa.func.min(WORKLOADS.c.id)).where(*is_program(script))
        on = sa.select(DEVICES.c.id).where(DEVICES.c.key == key)
        query = joined(self._checked).where(
            RECORDS.c.workload_id == known.scalar_subquery(),
            RECORDS.c.device_id == on.scalar_subquery(),
        )
        if interface is not None:
            query = query.where(RECORDS.c.interface == interface_key(interface))
        yield from self._stream(query.where(*where).order_by(*order), limit)

    def _stream(self, query: sa.Select[Any], limit: int | None = None) -> Iterator[Record]:
        """Validated records of a query, in pages; a row that does not validate is noted and skipped."""
        size = min(limit or PAGE, PAGE)
        count = 0
        start = 0
        while True:
            rows = self._fetch(query.limit(size).offset(start))
            for record in self._valid(rows):
                count += 1
                yield record
                if count == limit:
                    return
            start += len(rows)
            if len(rows) < size:
                return

    def _valid(self, rows: Iterable[dict[str, Any]]) -> Iterator[Record]:
        """Rows as records; one that does not validate is noted, once, and skipped."""
        for row in rows:
            try:
                yield record_of(row)
            except BadRecord as error:
                note = f"skipped record {printable(str(row['id']))} of {self.name}: {error}"
                if note not in self._noted:
                    self._noted.add(note)
                    self.notes.append(note)

    def _is_disproved(self, connection: sa.Connection, record: Record) -> bool:
        """Whether the stored record of this id is a failure that takes its measurement back."""
        status = connection.execute(sa.select(RECORDS.c.status).where(RECORDS.c.id == record.id)).scalar()
        failure = None if status is None or status == OK else failure_kind(status)
        return failure is not None and record.is_disproved_by(failure)

    def _has_checksums(self, connection: sa.Connection) -> bool:
        """Whether its tables are of the present version, to which somebody else may have brought them by now."""
        self._checked = self._checked or version_of(connection) == VERSION
        return self._checked

    def _refuse_closed(self) -> None:
        if self.is_closed:
            raise UsageError(f"the database {self.name} was closed; open it anew to use it")

    def _refuse_read_only(self) -> None:
        self._refuse_closed()
        if self.read_only:
            raise StorageError(f"{self.name} was opened for reading only")

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        with self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _write(self, seconds: float | None = None) -> Iterator[sa.Connection]:
        if self._is_open and self.path is not None and not self.path.exists():
            self.notes.append(
                f"the database {self.path} was removed while it was in use: a new one was begun, with what is stored "
                f"from now on"
            )
            self._open_schema(create=True)
        options = {"stridesmith_write": True, "stridesmith_seconds": seconds}
        with self._engine.connect().execution_options(**options) as connection, connection.begin():
            yield connection

    def _fetch(self, query: sa.Select[Any]) -> list[dict[str, Any]]:
        """All rows of a query."""

        def fetch() -> list[dict[str, Any]]:
            with self._read() as connection:
                return [dict(row) for row in connection.execute(query).mappings()]

        return self._attempt(fetch, READ_SECONDS)

    def _attempt(self, act: Callable[[], T], seconds: float) -> T:
        self._refuse_closed()
        return attempt(act, self.name, seconds, self.path)


def _refuse_others(records: Sequence[object]) -> None:
    """Raise TypeError for what is no sequence of records."""
    kinds = [type(one).__name__ for one in records if not isinstance(one, Record)]
    if kinds:
        raise TypeError(f"a database takes records, but got something of type {kinds[0]}")


def _script_of(work: Program) -> str:
    """The text of a program by which records are found: of what stands for one, or itself."""
    if isinstance(work, str) and is_text(work):
        return work
    return work.script if isinstance(work, Record) else workload_of(work, "Database").script
