"""What is done with a database file before SQLAlchemy opens it.

A file without SQLite's magic is somebody else's and is never touched.  One with
the magic that is damaged is copied, every row that can still be read goes into
a new file, the old one is renamed, and the run goes on.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ...errors import StorageError, TemporaryError
from .salvage import rows_of_pages

MAGIC = b"SQLite format 3\0"
FORMATS = slice(2, 4)  # behind the magic and the size of pages: the versions of those who may write and read the file
CHECKED_BYTES = 128 * 2**20  # more would take longer than half a second, and is checked once it is suspect
SUSPECT = ".suspect"  # beside a file in which a query met damage
SALVAGE_SECONDS = 5.0  # that a damaged file is read for, a choice
NETWORK = (
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "beegfs", "gpfs", "ceph", "glusterfs", "fuse.glusterfs",
    "fuse.sshfs", "afs", "9p",
)  # fmt: skip


def inspect(path: Path) -> str:
    """`"missing"`, `"empty"`, `"sound"` or `"damaged"`; StorageError for what is no database."""
    try:
        path.stat()  # `exists` says of a link that leads to itself that nothing is there
        if path.is_dir():
            raise StorageError(f"{path} is a folder; give the path of a file for the database")
        with path.open("rb") as file:
            head, formats = file.read(len(MAGIC)), file.read(FORMATS.stop)[FORMATS]
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError as error:
        raise StorageError(f"cannot read the database {path}: {error.strerror or error}") from None
    if not head:
        return "empty"
    if head != MAGIC:
        raise StorageError(
            f"{path} is not a stridesmith database (it does not start with SQLite's magic) and was left untouched; "
            f"give another path with --db or STRIDESMITH_DB"
        )
    if any(number not in (1, 2) for number in formats):
        return "damaged"  # SQLite would read it, and refuse to write
    return "sound" if _sound(path) else "damaged"


def _sound(path: Path) -> bool:
    try:
        with closing(sqlite3.connect(read_only_uri(path), uri=True, timeout=30)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if path.stat().st_size > CHECKED_BYTES and not Path(f"{path}{SUSPECT}").exists():
                return True
            # With the indices, out of which SQLite reads values, too.
            return bool(connection.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok")
    except sqlite3.OperationalError as error:
        if is_lock(error):
            raise TemporaryError(locked(path)) from None
        if "disk" in str(error) or "unable to open" in str(error):
            raise StorageError(f"cannot read the database {path}: {error}") from None
        return False
    except (sqlite3.DatabaseError, UnicodeDecodeError):  # the latter of messages that quote what they found
        return False


def network_of(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """The kind of the network file system on which `path` lies; empty where it is none, or nobody tells."""
    try:
        lines = [line.split() for line in mounts.read_text().splitlines()]
    except OSError:
        return ""
    whole = path.absolute().parent
    above = [(len(words[1]), words[2]) for words in lines if len(words) > 2 and whole.is_relative_to(words[1])]
    kind = max(above, default=(0, ""))[1]
    return kind if kind in NETWORK else ""


def suspect(path: Path) -> None:
    """Let the next one who opens the file check it whole, however large it is."""
    with suppress(OSError):
        Path(f"{path}{SUSPECT}").touch()


def trust(path: Path) -> None:
    """The file was checked whole and is sound, or a new one has taken its place."""
    Path(f"{path}{SUSPECT}").unlink(missing_ok=True)


def is_damage(error: BaseException) -> bool:
    """True for what SQLite says of a file whose structure is not right."""
    text = str(error).lower()
    return "malformed" in text or "not a database" in text


def is_lock(error: BaseException) -> bool:
    """True for SQLite's busy and locked errors."""
    text = str(error).lower()
    return "locked" in text or "busy" in text


def locked(path: object) -> str:
    return f"the database {path} is locked by another process; try again, or give another one with --db"


def unwritable(path: object) -> str:
    return f"cannot write the database {path}: it is read-only; give another path with --db"


def refuse_unwritable(path: Path) -> None:
    """Raise StorageError for a file that is there and may only be read: SQLite would say so at the first record."""
    if path.exists() and not os.access(path, os.W_OK):
        raise StorageError(unwritable(path))


def salvage(path: Path, create: str, expected: dict[str, tuple[int, ...]]) -> tuple[Path, int]:
    """Rename a damaged file and put what it still holds into a new one at `path`.

    `create` is the SQL of an empty database, `expected` how many columns a row of
    each table may have: all of them, or only the first ones.  Returns the old
    file's new name and the number of rows saved.  Several processes may find the
    damage at once: the first repairs, the others wait and find a sound file.
    Who has the file open for writing waits meanwhile, and finds the new one (see
    `engine`).
    """
    with _exclusive(path), _without_writers(path):
        if inspect(path) != "damaged":
            return path, 0
        old = _free_name(path)
        with tempfile.TemporaryDirectory(prefix=".salvage-", dir=path.parent) as folder:
            copy = Path(folder) / "copy.db"
            for suffix in ("", "-wal"):
                if (source := Path(f"{path}{suffix}")).exists():
                    shutil.copyfile(source, f"{copy}{suffix}")
            fresh = Path(folder) / "fresh.db"
            count = _refill(copy, fresh, create, expected)
            for suffix in ("-wal", "-shm", ""):
                if (source := Path(f"{path}{suffix}")).exists():
                    source.rename(f"{old}{suffix}")
            fresh.rename(path)
        trust(path)
    return old, count


@contextmanager
def _without_writers(path: Path) -> Iterator[None]:
    """Keep writers out, if the file is whole enough for a lock.  Raises TemporaryError where one does not let go."""
    with closing(sqlite3.connect(path, timeout=SALVAGE_SECONDS, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.DatabaseError as error:
            if is_lock(error):
                raise TemporaryError(locked(path)) from None
        yield


def _refill(copy: Path, fresh: Path, create: str, expected: dict[str, tuple[int, ...]]) -> int:
    count = 0
    with closing(sqlite3.connect(fresh)) as new:
        new.executescript(create)
        info = {table: new.execute(f"PRAGMA table_info({table})").fetchall() for table in expected}
        types = {table: [column[2] for column in columns] for table, columns in info.items()}
        for table, widths in expected.items():
            names = [column[1] for column in info[table]]
            for width in widths:
                values = ", ".join("?" * width)
                statement = f"INSERT OR IGNORE INTO {table} ({', '.join(names[:width])}) VALUES ({values})"
                for row in _rows(copy, table, names, width, types):
                    with suppress(sqlite3.IntegrityError):
                        count += new.execute(statement, row).rowcount
        new.commit()
    return count


def _rows(
    copy: Path, table: str, names: list[str], width: int, types: dict[str, list[str]]
) -> Iterator[tuple[object, ...]]:
    """Rows of `width` columns read through SQL from both ends, then from the raw pages; duplicates are harmless.

    A page does not say whose it is, so that the `types` of all tables tell which one a row belongs to.
    """
    own = types[table][:width]
    for order in ("ASC", "DESC"):
        try:
            with closing(sqlite3.connect(copy)) as old:
                old.text_factory = text_of
                old.execute("PRAGMA writable_schema=ON")  # lets SQLite open a file that was cut
                found = [column[1] for column in old.execute(f"PRAGMA table_info({table})")]
                if set(names[width:]) & set(found):  # its rows have been read as whole ones
                    continue
                query = f"SELECT {', '.join(names[:width])} FROM {table} NOT INDEXED ORDER BY rowid {order}"
                for row in old.execute(query):
                    if _fits(row, own):
                        yield row
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            continue
    others = [other for name, other in types.items() if name != table]
    for row in rows_of_pages(copy, width):
        is_another = not _fits(row, own, exact=True) and any(_fits(row, other, exact=True) for other in others)
        if _fits(row, own) and not is_another:
            yield row


def _fits(row: tuple[object, ...], types: list[str], *, exact: bool = False) -> bool:
    """Whether the values have the types of a table; not `exact` where one is a float that SQLite stored as an integer.

    Integers stand for the floats that have no fraction, to save space.
    """
    if len(row) != len(types):
        return False
    for value, kind in zip(row, types, strict=True):
        wanted: type | tuple[type, ...] = str
        if kind in ("INTEGER", "BOOLEAN"):
            wanted = int
        elif kind == "FLOAT":
            wanted = float if exact else (float, int)
        if value is not None and not isinstance(value, wanted):
            return False
    return True


def _free_name(path: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1000):
        name = path.with_name(f"{path.name}.damaged-{stamp}" + (f"-{number}" if number else ""))
        if not name.exists():
            return name
    raise StorageError(f"cannot find a free name beside {path} for the damaged file")


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """A context for one repair at a time, through a lock file."""
    import fcntl

    lock = Path(f"{path}.repair-lock")
    while True:
        try:
            handle = os.open(lock, os.O_CREAT | os.O_RDWR, 0o644)
        except OSError as error:
            raise StorageError(f"the database {path} is damaged and its folder cannot be written: {error}") from None
        fcntl.flock(handle, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), lock.stat()):
                break
        os.close(handle)  # who had it has removed it
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise StorageError(f"the database {path} is damaged and could not be salvaged: {error}") from None
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)


def text_of(raw: bytes) -> str:
    """A text column, of which damage may have made something else: whether it is what was stored is asked later."""
    return raw.decode("utf-8", "replace")


def read_only_uri(path: Path) -> str:
    """The URI by which SQLite opens a file only to read it.

    A file that is written ahead of (WAL) needs an index beside it, also for those who read.  Where the folder cannot be
    written, and no run has left a log there, the file is one that nobody changes, and is read without.
    """
    log = path.with_name(f"{path.name}-wal")
    alone = not os.access(path.absolute().parent, os.W_OK) and not (log.exists() and log.stat().st_size)
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if alone else ''}"
