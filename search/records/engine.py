"""Where a database lives and how it is spoken to: SQLite files by path, servers by URL; their errors as ours.

A server's connection may be lost at any time.  Whatever is asked of it is one transaction that may be repeated, so it
is asked again, over a new connection, until the patience of the caller ends.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from ...errors import StorageError, StridesmithError, TemporaryError, UsageError
from ...files import at_home
from ...invocation import COMMAND
from . import sqlite_file

T = TypeVar("T")

BUSY_SECONDS = 30.0  # that SQLite waits for another process' lock
CONNECT_SECONDS = 5  # to a server
PAUSE_SECONDS = 0.2  # between two attempts
POSTGRESQL = ("postgresql", "postgres")
DRIVER = "postgresql+psycopg"
LINK = {
    "connect_timeout": CONNECT_SECONDS, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3,
    "tcp_user_timeout": 10_000, "application_name": "stridesmith",
}  # fmt: skip
PASSING = ("08", "40", "53", "57P", "55P03")
"""How the SQLSTATE begins of what passes: lost links, lost races, too many clients, a server that restarts, locks."""
FORBIDDEN = ("42501", "25006")
FINAL = ("authentication failed", "does not exist", "no password", "no pg_hba.conf entry", "name or service not known")


def locate(text: str) -> tuple[sa.URL, Path | None]:
    """The SQLAlchemy URL, and the path when it is a SQLite file."""
    if "://" not in text:
        if not text.strip() or "\0" in text:
            raise UsageError("the database needs a path or a URL, as in --db tuned.db")
        path = at_home(text).absolute()
        return sa.URL.create("sqlite", database=str(path)), path
    url = _url_of(text)
    if url.drivername in POSTGRESQL:
        return url.set(drivername=DRIVER), None
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise UsageError(
            f"records are kept in files of SQLite or in PostgreSQL, not by {url.drivername}; give a path, as tuned.db, "
            f"or a URL, as postgresql://user@host/name"
        )
    if url.get_backend_name() != "sqlite":
        return url, None
    if url.host or url.username:
        raise UsageError("a SQLite URL has three slashes before a path, as sqlite:///tuned.db; the path alone will do")
    if not url.database or url.database == ":memory:":
        return url, None
    path = at_home(url.database).absolute()
    return url.set(database=str(path)), path


def _url_of(text: str) -> sa.URL:
    """Parse a URL.  The error shows no part of a text that cannot be parsed, since it may hold a password anywhere."""
    with contextlib.suppress(sa.exc.ArgumentError, ValueError):
        url = sa.make_url(text)
        if "@" not in (url.host or ""):
            return url
    raise UsageError(
        "the database's URL cannot be read; one is written as postgresql://user:password@host:5432/name, where %40 "
        "stands for an @ in the password, %3A for a : and %2F for a /; a file is named by its path, as tuned.db"
    )


def engine_of(url: sa.URL, path: Path | None, read_only: bool, missing: bool) -> sa.Engine:
    """What connects to a database; a file that is `missing` reads as an empty one."""
    if url.get_backend_name() != "sqlite":
        return _server(url)
    if path is None or missing:
        engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool, connect_args={"check_same_thread": False})
    elif read_only:
        engine = _reader(path)
    else:
        engine = sa.create_engine(url, connect_args={"timeout": BUSY_SECONDS})
    sa.event.listen(engine, "connect", _connected if not read_only else _manual)
    sa.event.listen(engine, "begin", _begin)
    if path is not None and not missing and not read_only:
        _follow(engine, path)
    return engine


def _reader(path: Path) -> sa.Engine:
    """What opens a file only to read it, by SQLite's own URI: one of SQLAlchemy's is unquoted before SQLite sees it."""
    location = sqlite_file.read_only_uri(path)

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(location, uri=True, timeout=BUSY_SECONDS, check_same_thread=False)

    return sa.create_engine("sqlite://", creator=connect, poolclass=sa.pool.QueuePool)


def _follow(engine: sa.Engine, path: Path) -> None:
    """Connect again where the file is gone, or another process has put a new one in its place, as a salvage does."""

    def connected(_: object, record: Any) -> None:
        record.info["file"] = os.stat(path)

    def taken(_: object, record: Any, __: object) -> None:
        with contextlib.suppress(PermissionError):
            if not path.exists() or not os.path.samestat(record.info["file"], os.stat(path)):
                raise sa.exc.DisconnectionError(f"{path} is another file")

    sa.event.listen(engine, "connect", connected)
    sa.event.listen(engine, "checkout", taken)


def _server(url: sa.URL) -> sa.Engine:
    name = url.render_as_string(hide_password=True)
    try:
        is_postgresql = url.get_backend_name() == "postgresql"
        return sa.create_engine(url, pool_pre_ping=True, connect_args=LINK if is_postgresql else {})
    except ImportError as error:
        extra = "; install its driver: pip install 'stridesmith[postgres]'" if "psycopg" in str(error) else ""
        raise StorageError(f"cannot use the database {name}: {error}{extra}") from None
    except sa.exc.ArgumentError as error:
        raise StorageError(f"cannot use the database {name}: {error}") from None


def _manual(connection: Any, _: object) -> None:
    """Transactions are begun by `_begin`: sqlite3's own start too late to be sure of the lock."""
    connection.isolation_level = None
    connection.text_factory = sqlite_file.text_of


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


def attempt(act: Callable[[], T], name: str, seconds: float, path: Path | None = None) -> T:
    """``act()``, which is repeated for `seconds` while what went wrong may pass.

    A file at `path` that proves to be damaged is suspect from then on.  Raises TemporaryError where it did not pass,
    and StorageError for all else.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            return act()
        except sa.exc.DBAPIError as error:
            if path is not None and sqlite_file.is_damage(error.orig or error):
                sqlite_file.suspect(path)
            found = _translated(error, name)
            if not _may_pass(error) or time.monotonic() + PAUSE_SECONDS > end:
                raise found from None
        except sa.exc.SQLAlchemyError as error:
            raise StorageError(_advice(name, str(error))) from None
        time.sleep(PAUSE_SECONDS)


def _may_pass(error: sa.exc.DBAPIError) -> bool:
    """Whether a server lost the link, is starting, or let another one go first; SQLite waits for locks by itself."""
    is_of_link = isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError)
    if not is_of_link or sqlite_file.is_lock(error.orig or error):
        return False
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return str(state).startswith(PASSING)
    is_server = type(error.orig).__module__.partition(".")[0] not in ("sqlite3", "_sqlite3")
    text = str(error.orig).lower()
    return is_server and not any(words in text for words in FINAL)


def _translated(error: sa.exc.DBAPIError, name: str) -> StridesmithError:
    """Storage's own exception as ours, with what to do."""
    cause = error.orig or error
    if sqlite_file.is_lock(cause):
        return TemporaryError(sqlite_file.locked(name))
    if _may_pass(error):
        return TemporaryError(f"the server of the database {name} does not answer: {_line(str(cause))}; try again")
    if str(getattr(cause, "sqlstate", "")) in FORBIDDEN:
        return StorageError(f"the database {name} may only be read with this role: {_line(str(cause))}")
    return StorageError(_advice(name, str(cause)))


def _advice(name: str, text: str) -> str:
    lower = text.lower()
    if "full" in lower:
        return f"cannot write the database {name}: the disk is full; make room or give another path with --db"
    if "readonly" in lower or "read-only" in lower:
        return sqlite_file.unwritable(name)
    if "unable to open" in lower:
        return f"cannot open the database {name}: check that its folder exists and may be written, or use --db"
    if "no such table" in lower:
        return (
            f"the database {name} has no tables of stridesmith any more: another file has taken its place; move that "
            f"away, or give another path with --db"
        )
    if sqlite_file.is_damage(Exception(text)):
        return f"the database {name} is damaged; `{COMMAND}` with it saves what can be read and keeps the old file"
    return f"the database {name} failed: {_line(text)}"


def _line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0][:300]
