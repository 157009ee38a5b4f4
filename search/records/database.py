"""The database of records: SQLAlchemy, SQLite by default, PostgreSQL by URL.

```
meta       key | value                        the schema's version
workloads  id | hash | collision | name | params | script     canonical programs
devices    id | key | target                                  Target.key and its facts
records    id | workload_id | device_id | interface | ... | payload
```

A hash finds and full text decides: two programs of one hash are two rows with
different `collision` numbers.  What look-ups need is a column, the rest of a
record is JSON in `payload`; every row read is validated as if it came from a
stranger.  Several processes may write: each write is one short transaction.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateIndex, CreateTable

from ...errors import BadRecord, NoRecord, StorageError, TemporaryError, UsageError
from ..tasks.interface import interface_key, pairs
from . import sqlite_file
from .record import SCHEMA, Record, printable, script_hash, validate

if TYPE_CHECKING:
    from ...ir.target import Target
    from ...space.workloads import Workload

BUSY_SECONDS = 30.0
_PAYLOAD = (
    "trace", "choice", "samples", "versions", "message",
    "space_version", "max_abs_error", "seed", "dtype", "run",
)  # fmt: skip

_schema = sa.MetaData()
_meta = sa.Table(
    "meta", _schema, sa.Column("key", sa.String(64), primary_key=True), sa.Column("value", sa.Text, nullable=False)
)
_workloads = sa.Table(
    "workloads",
    _schema,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.Column("collision", sa.Integer, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("params", sa.Text, nullable=False),
    sa.Column("script", sa.Text, nullable=False),
    sa.UniqueConstraint("hash", "collision"),
)
_devices = sa.Table(
    "devices",
    _schema,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("key", sa.String(500), nullable=False, unique=True),
    sa.Column("target", sa.Text, nullable=False),
)
_records = sa.Table(
    "records",
    _schema,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("workload_id", sa.ForeignKey("workloads.id"), nullable=False),
    sa.Column("device_id", sa.ForeignKey("devices.id"), nullable=False),
    sa.Column("interface", sa.Text, nullable=False),
    sa.Column("status", sa.String(40), nullable=False),
    sa.Column("stage", sa.String(8), nullable=False),
    sa.Column("verified", sa.Boolean, nullable=False),
    sa.Column("latency_us", sa.Float),
    sa.Column("trial", sa.Integer, nullable=False),
    sa.Column("sketch", sa.Text, nullable=False),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Index("records_by_speed", "workload_id", "device_id", "status", "latency_us"),
)


def default_path() -> str:
    """STRIDESMITH_DB, or ``stridesmith.db`` in the user's data folder."""
    if given := os.environ.get("STRIDESMITH_DB"):
        return given
    import platformdirs

    return str(Path(platformdirs.user_data_dir("stridesmith")) / "stridesmith.db")


class Database:
    """Records by workload and device, shared by any number of processes.

    `url` is a path, a SQLAlchemy URL, or None for the default path.  With
    `read_only` nothing is ever created or changed, and a missing file reads as an
    empty database.  `notes` holds sentences for the user, such as what a salvage
    saved.
    """

    def __init__(self, url: str | os.PathLike[str] | None = None, *, read_only: bool = False) -> None:
        self.notes: list[str] = []
        self.read_only = read_only
        self.url, self.path = _locate(default_path() if url is None else os.fspath(url))
        missing = self._prepare_file() if self.path is not None else False
        self._engine = _engine(self.url, self.path, read_only, missing)
        with self._errors():
            self._open_schema(create=not read_only or missing)

    def put_record(self, record: Record) -> str:
        """Store or replace one record (by its id); it is durable when this returns."""
        return self.put_records([record])[0]

    def put_records(self, records: Sequence[Record], seconds: float | None = None) -> list[str]:
        """Store or replace records in one transaction: all of them, or none.

        Waits so many `seconds` for another process that has a SQLite file locked, by default `BUSY_SECONDS`.
        """
        self._refuse_read_only()
        with self._errors(), self._write(seconds) as connection:
            for record in records:
                _upsert(connection, record)
        return [record.id for record in records]

    def best(
        self,
        work: Workload | str,
        target: Target | str,
        interface: Mapping[str, str] | None = None,
        *,
        verified: bool = True,
    ) -> Record | None:
        """The fastest record of this program on this device, or None.

        What a final race measured comes before what only a trial measured.
        `interface` None accepts every interface; `verified` asks for records
        whose results were compared on this machine's behalf.
        """
        order = (sa.case((_records.c.stage == "race", 0), else_=1), _records.c.latency_us, _records.c.id)
        where = [_records.c.status == "ok", *([_records.c.verified] if verified else [])]
        found = self._select(work, target, interface, where, order=order)
        return next(found, None)

    def records(
        self,
        work: Workload | str,
        target: Target | str,
        interface: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        """Every record of this program on this device, failed ones included, oldest first."""
        order = (_records.c.created, _records.c.id)
        return list(self._select(work, target, interface, order=order, limit=limit))

    def top(
        self, work: Workload | str, target: Target | str, interface: Mapping[str, str] | None = None, count: int = 4
    ) -> list[Record]:
        """The fastest records, unverified ones included, raced ones first."""
        order = (sa.case((_records.c.stage == "race", 0), else_=1), _records.c.latency_us, _records.c.id)
        return list(self._select(work, target, interface, [_records.c.status == "ok"], order=order, limit=count))

    def failures(self, work: Workload | str, target: Target | str) -> dict[str, int]:
        """How many records of each failure kind there are."""
        counts: dict[str, int] = {}
        for record in self._select(work, target, None, [_records.c.status != "ok"], order=(_records.c.created,)):
            counts[record.failure or ""] = counts.get(record.failure or "", 0) + 1
        return counts

    def get(self, record_id: str) -> Record:
        """The record of this id, or of the only id that starts with it; NoRecord otherwise."""
        if not record_id or not all(c in "0123456789abcdef" for c in record_id):
            raise NoRecord(f"no record {record_id!r} in {self.name}: an id is up to 16 hexadecimal digits")
        with self._errors(), self._read() as connection:
            query = _joined().where(_records.c.id.like(record_id + "%")).limit(2)
            rows = connection.execute(query).mappings().all()
        if len(rows) > 1:
            raise UsageError(f"several records in {self.name} start with {record_id!r}; give more of the id")
        if not rows:
            raise NoRecord(f"no record {record_id!r} in {self.name}; `tune best` lists what there is")
        return _record(dict(rows[0]))

    def every(self) -> Iterator[Record]:
        """All records, oldest first, for export; rows that do not validate go to `notes`."""
        yield from self._stream(_joined().order_by(_records.c.created, _records.c.id))

    def merge(self, records: Iterable[Record]) -> int:
        """Add records from elsewhere, unverified until they are replayed here; return how many were new.

        A record that is already here stays as it is, so that a merge can neither
        overwrite a measurement nor vouch for one.
        """
        self._refuse_read_only()
        count = 0
        with self._errors(), self._write() as connection:
            for record in records:
                if connection.execute(sa.select(_records.c.id).where(_records.c.id == record.id)).first() is None:
                    _upsert(connection, record.changed(verified=False, stage="trial"))
                    count += 1
        return count

    def winners(self) -> list[Record]:
        """The best verified record of each (program, device, interface), by workload name."""
        best: dict[tuple[str, str, str], Record] = {}
        rank = sa.case((_records.c.stage == "race", 0), else_=1)
        query = _joined().where(_records.c.status == "ok", _records.c.verified).order_by(rank, _records.c.latency_us)
        for record in self._stream(query):
            best.setdefault((record.script, record.device_key, interface_key(dict(record.interface))), record)
        return sorted(best.values(), key=lambda r: (r.workload, r.device_key, r.id))

    def workload_names(self) -> list[str]:
        """Names of the stored workloads."""
        query = sa.select(_workloads.c.name).distinct().order_by(_workloads.c.name)
        with self._errors(), self._read() as connection:
            return list(connection.execute(query).scalars())

    @property
    def name(self) -> str:
        """The path, or the URL without its password: what a summary prints."""
        return str(self.path) if self.path is not None else self.url.render_as_string(hide_password=True)

    @property
    def size(self) -> int:
        """Number of records."""
        with self._errors(), self._read() as connection:
            return int(connection.execute(sa.select(sa.func.count()).select_from(_records)).scalar_one())

    def close(self) -> None:
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
                    f"the database {self.path} is damaged; `tune` with --db {self.path} "
                    f"saves what can be read into a new file and keeps the old one"
                )
            aside, rows = sqlite_file.salvage(self.path, _ddl(), {t.name: len(t.c) for t in _schema.sorted_tables})
            if aside != self.path:
                self.notes.append(
                    f"the database {self.path} was damaged: {rows} rows were saved into a new file, "
                    f"and the old one was renamed to {aside}"
                )
        if self.read_only:
            return state in ("missing", "empty")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot make the folder of the database {self.path}: {error.strerror}") from None
        return False

    def _open_schema(self, create: bool) -> None:
        with self._read() as connection:
            known = sa.inspect(connection).has_table("meta")
        if create and not known:
            with self._write() as connection:
                _schema.create_all(connection, checkfirst=True)
                _insert_if_new(connection, _meta, {"key": "schema", "value": str(SCHEMA)})
        with self._read() as connection:
            if not sa.inspect(connection).has_table("meta"):
                raise StorageError(f"{self.name} is a database, but not one of stridesmith; it was left untouched")
            value = connection.execute(sa.select(_meta.c.value).where(_meta.c.key == "schema")).scalar()
        if value != str(SCHEMA):
            raise StorageError(
                f"{self.name} has schema version {value}, but this stridesmith reads version {SCHEMA}; "
                f"use the version that wrote it, or export there and import here"
            )

    def _select(
        self,
        work: Workload | str,
        target: Target | str,
        interface: Mapping[str, str] | None,
        where: Sequence[sa.ColumnElement[bool]] = (),
        *,
        order: Sequence[Any],
        limit: int | None = None,
    ) -> Iterator[Record]:
        script = work if isinstance(work, str) else work.script
        key = target if isinstance(target, str) else target.key
        query = _joined().where(
            _workloads.c.hash == script_hash(script), _workloads.c.script == script, _devices.c.key == key
        )
        if interface is not None:
            query = query.where(_records.c.interface == interface_key(interface))
        yield from self._stream(query.where(*where).order_by(*order), limit)

    def _stream(self, query: sa.Select[Any], limit: int | None = None) -> Iterator[Record]:
        """Validated records; a row that does not validate is noted and skipped."""
        size = min(limit or 200, 200)
        count = 0
        start = 0
        while limit is None or count < limit:
            with self._errors(), self._read() as connection:
                rows = [dict(row) for row in connection.execute(query.limit(size).offset(start)).mappings()]
            for row in rows:
                try:
                    record = _record(row)
                except BadRecord as error:
                    self.notes.append(f"skipped record {printable(str(row['id']))} of {self.name}: {error}")
                    continue
                count += 1
                yield record
                if limit is not None and count >= limit:
                    return
            start += len(rows)
            if len(rows) < size:
                return

    def _refuse_read_only(self) -> None:
        if self.read_only:
            raise StorageError(f"{self.name} was opened for reading only")

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        with self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _write(self, seconds: float | None = None) -> Iterator[sa.Connection]:
        options = {"stridesmith_write": True, "stridesmith_seconds": seconds}
        with self._engine.connect().execution_options(**options) as connection, connection.begin():
            yield connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Storage's own exceptions as ours, with what to do."""
        try:
            yield
        except sa.exc.OperationalError as error:
            cause = error.orig or error
            if sqlite_file.is_lock(cause):
                raise TemporaryError(sqlite_file.locked(self.name)) from None
            raise StorageError(_advice(self.name, str(cause))) from None
        except sa.exc.SQLAlchemyError as error:
            raise StorageError(_advice(self.name, str(getattr(error, "orig", None) or error))) from None


def _advice(name: str, text: str) -> str:
    lower = text.lower()
    if "full" in lower:
        return f"cannot write the database {name}: the disk is full; make room or give another path with --db"
    if "readonly" in lower or "read-only" in lower:
        return f"cannot write the database {name}: it is read-only; give another path with --db"
    if "unable to open" in lower:
        return f"cannot open the database {name}: check that its folder exists and may be written, or use --db"
    if "malformed" in lower or "not a database" in lower:
        return f"the database {name} was damaged while in use; run the same command again to salvage it"
    return f"the database {name} failed: {text.splitlines()[0][:300]}"


def _locate(text: str) -> tuple[sa.URL, Path | None]:
    """The SQLAlchemy URL, and the path when it is a SQLite file."""
    if "://" not in text:
        if not text.strip() or "\0" in text:
            raise UsageError("the database needs a path or a URL, as in --db tuned.db")
        path = Path(text).expanduser().absolute()
        return sa.URL.create("sqlite", database=str(path)), path
    try:
        url = sa.make_url(text)
    except sa.exc.ArgumentError:
        raise UsageError(f"{text!r} is no database URL; examples: tuned.db, postgresql://host/name") from None
    if url.get_backend_name() != "sqlite":
        return url, None
    if not url.database or url.database == ":memory:":
        return url, None
    path = Path(url.database).expanduser().absolute()
    return url.set(database=str(path)), path


def _engine(url: sa.URL, path: Path | None, read_only: bool, missing: bool) -> sa.Engine:
    if url.get_backend_name() != "sqlite":
        try:
            return sa.create_engine(url, pool_pre_ping=True)
        except (sa.exc.ArgumentError, ImportError) as error:
            raise StorageError(f"cannot use the database {url.render_as_string(hide_password=True)}: {error}") from None
    if path is None or missing:
        engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool, connect_args={"check_same_thread": False})
    elif read_only:
        location = path.as_uri().removeprefix("file://")
        engine = sa.create_engine(f"sqlite:///file:{location}?mode=ro&uri=true", connect_args={"timeout": BUSY_SECONDS})
    else:
        engine = sa.create_engine(url, connect_args={"timeout": BUSY_SECONDS})
    sa.event.listen(engine, "connect", _connected if not read_only else _manual)
    sa.event.listen(engine, "begin", _begin)
    return engine


def _manual(connection: Any, _: object) -> None:
    """Transactions are begun by `_begin`: sqlite3's own start too late to be sure of the lock."""
    connection.isolation_level = None


def _connected(connection: Any, _: object) -> None:
    _manual(connection, _)
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    options = connection.get_execution_options()
    seconds = options.get("stridesmith_seconds")
    patience = BUSY_SECONDS if seconds is None else seconds
    connection.exec_driver_sql(f"PRAGMA busy_timeout={int(1000 * patience)}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("stridesmith_write", False) else "BEGIN")


def _ddl() -> str:
    """The SQL of an empty database, schema version included."""
    from sqlalchemy.dialects import sqlite

    dialect = sqlite.dialect()
    parts = [str(CreateTable(table).compile(dialect=dialect)) for table in _schema.sorted_tables]
    parts += [str(CreateIndex(i).compile(dialect=dialect)) for t in _schema.sorted_tables for i in t.indexes]
    return ";".join([*parts, f"INSERT INTO meta VALUES ('schema', '{SCHEMA}');"])


def _joined() -> sa.Select[Any]:
    columns = [c for c in _records.c if c.name not in ("workload_id", "device_id")]
    names = (_workloads.c.script, _workloads.c.name.label("workload"), _workloads.c.params)
    return sa.select(*columns, *names).select_from(_records.join(_workloads).join(_devices))


def _record(row: dict[str, Any]) -> Record:
    """A row as a validated record."""
    try:
        payload = json.loads(row.pop("payload"))
        data = row | {"target": json.loads(row["target"]), "params": json.loads(row["params"])} | payload
        data["interface"] = pairs(row["interface"], "an interface")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BadRecord(f"record {row.get('id')!r} cannot be read: {error}") from None
    return validate(data)


def _upsert(connection: sa.Connection, record: Record) -> None:
    data = record.model_dump()
    values = {
        "workload_id": _workload_id(connection, record),
        "device_id": _device_id(connection, record),
        "interface": interface_key(dict(record.interface)),
        "target": _dump(record.target),
        "payload": _dump({name: data[name] for name in _PAYLOAD}),
        **{name: data[name] for name in ("status", "stage", "verified", "latency_us", "trial", "sketch", "created")},
    }
    changed = connection.execute(_records.update().where(_records.c.id == record.id).values(**values))
    if changed.rowcount == 0:
        _insert_if_new(connection, _records, {"id": record.id, **values})


def _workload_id(connection: sa.Connection, record: Record) -> int:
    digest = script_hash(record.script)
    for _ in range(8):
        query = sa.select(_workloads.c.id, _workloads.c.script).where(_workloads.c.hash == digest)
        rows = connection.execute(query).all()
        for number, script in rows:
            if script == record.script:
                return int(number)
        new = {"hash": digest, "collision": len(rows), "name": record.workload}
        _insert_if_new(connection, _workloads, {**new, "params": _dump(record.params), "script": record.script})
    raise StorageError(f"cannot store the program of record {record.id}: eight others have its hash")


def _device_id(connection: sa.Connection, record: Record) -> int:
    key = record.device_key
    _insert_if_new(connection, _devices, {"key": key, "target": _dump(record.target)})
    return int(connection.execute(sa.select(_devices.c.id).where(_devices.c.key == key)).scalar_one())


def _insert_if_new(connection: sa.Connection, table: sa.Table, values: dict[str, Any]) -> None:
    """Insert, unless another writer was first."""
    insert: Callable[[sa.Table], Any]
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert
    else:
        from sqlalchemy.dialects.sqlite import insert
    connection.execute(insert(table).values(**values).on_conflict_do_nothing())


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
