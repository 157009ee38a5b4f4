"""Records that a database does not take at the moment: lines of JSON in a file beside it, until it takes them.

A record is told (to the search, to the user) only when it is in the database or in such a file, so that a driver that
is killed while the database is locked or full loses none.  A file belongs to the process that holds a lock on it; the
next run takes up those whose owner is dead.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ...errors import BadRecord, StorageError, TemporaryError
from .log import read_log
from .record import Record, to_line

if TYPE_CHECKING:
    from .database import Database

ENDING = ".spool.jsonl"
TAKE_SECONDS = 1.0  # how long a run that begins waits for a lock, deaf to signals


class Spool:
    """The file of this process for one database, made when it is first needed."""

    def __init__(self, database: Database) -> None:
        self._folder, self._name = place_of(database)
        self.path = self._folder / f"{self._name}.{os.getpid()}-{os.urandom(3).hex()}{ENDING}"
        self._file: FileIO | None = None

    def append(self, records: Iterable[Record]) -> None:
        """Write records to the disk.  Raises StorageError where that fails too."""
        try:
            file = self._file = self._file or self._open()
            whole = os.fstat(file.fileno()).st_size
            try:
                rest = memoryview(b"".join(to_line(record).encode() + b"\n" for record in records))
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), whole)  # half a line would spoil the one that follows
                raise
        except OSError as error:
            raise StorageError(f"cannot keep records in {self.path}: {error.strerror or error}") from None

    def _open(self) -> FileIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        while True:
            file = self.path.open("ab", buffering=0)
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_there(self.path, file):
                return file
            file.close()  # another run found it before we had the lock, and removed it

    def clear(self) -> None:
        """The database has them all: remove the file."""
        file, self._file = self._file, None
        if file is not None:
            self.path.unlink(missing_ok=True)
            file.close()

    def leave(self) -> None:
        """Let the next run take the file up."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def place_of(database: Database) -> tuple[Path, str]:
    """The folder of the files of a database, and how their names begin: beside it, or in the user's data folder."""
    if database.path is not None:
        return database.path.parent, database.path.name
    import platformdirs

    digest = hashlib.sha256(database.name.encode()).hexdigest()[:12]
    return Path(platformdirs.user_data_dir("stridesmith")), f"server-{digest}"


def take_up(database: Database) -> list[str]:
    """Put into the database what dead runs have left in files; sentences that say so.

    A file that the database does not take now stays, and so does one with lines that cannot be read: the others of
    it are stored.  A database that is locked or away is asked once.
    """
    notes = []
    for path in _files_of(database):
        with _owned(path) as is_ours:
            if not is_ours:
                continue
            found = list(read_log(path))
            records = [item for item in found if isinstance(item, Record)]
            try:
                database.put_records(records, TAKE_SECONDS, older=True)
            except (TemporaryError, StorageError) as error:
                notes.append(f"{len(records)} records of an earlier run are still in {path}: {error}")
                if isinstance(error, TemporaryError):
                    break
                continue
            bad = [item for item in found if isinstance(item, BadRecord)]
            if bad and not _is_torn(path, len(bad)):
                path.rename(path.with_name(path.name + ".refused"))
                notes.append(f"{len(bad)} lines of {path}.refused are no records: {bad[0]}")
            else:
                path.unlink(missing_ok=True)
            if records:
                notes.append(f"{len(records)} records that an earlier run had to keep in a file are stored now")
    return notes


def _files_of(database: Database) -> list[Path]:
    """What the runs of a database have left; the name of another one may begin with this one's."""
    folder, name = place_of(database)
    mine = re.compile(rf"{re.escape(name)}\.[0-9]+-[0-9a-f]+{re.escape(ENDING)}")
    try:
        return sorted(path for path in folder.iterdir() if mine.fullmatch(path.name))
    except OSError:
        return []


def _is_torn(path: Path, bad: int) -> bool:
    """Whether all that is wrong is a last line without an end: its run was killed while it wrote, and told nothing."""
    return bad == 1 and not path.read_bytes().endswith(b"\n")


@contextmanager
def _owned(path: Path) -> Iterator[bool]:
    """Whether the file belongs to nobody any more; meanwhile it belongs to us."""
    try:
        file = path.open("rb")
    except OSError:
        yield False
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield _is_there(path, file)  # who held the lock before may have removed it


def _is_there(path: Path, file: IO[bytes]) -> bool:
    """Whether an open file still has its name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
