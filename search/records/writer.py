"""Records on their way to the database, spooled to disk while that is locked or full."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import StorageError, StridesmithError, TemporaryError
from ...invocation import COMMAND
from .log import write_log
from .record import Record
from .spool import Spool

if TYPE_CHECKING:
    from .database import Database

RETRY_SECONDS = 5.0  # between two attempts
PUT_SECONDS = 1.0  # how long the search waits for a lock, deaf to signals
FLUSH_SECONDS = 2.0  # for what is left at an interrupt
SETTLE_SECONDS = 30.0  # for what is left at the end


class RecordWriter:
    """Writes records to a database, and spools what it cannot write yet.

    A record that was put is in the database, or on disk beside it (see `spool`); only where neither can be written
    is it in memory.  `flush` at the end of a run leaves nothing there.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.notes: list[str] = []
        self._waiting: dict[str, Record] = {}
        self._spool = Spool(database)
        self._is_kept = True  # whether the file has all that waits
        self._retry = 0.0

    def put(self, records: Iterable[Record]) -> None:
        """Store records now, or spool them while the database is locked or full."""
        new = {record.id: record for record in records}
        self._waiting.update(new)
        if time.monotonic() >= self._retry:
            try:
                self._write(PUT_SECONDS)
            except (TemporaryError, StorageError) as error:
                self._retry = time.monotonic() + RETRY_SECONDS
                self.notes.append(f"{error}; {len(self._waiting)} records are kept in a file and written later")
            else:
                return
        self._keep(new if self._is_kept else self._waiting)

    def settle(self, seconds: float | None = None) -> None:
        """Wait for a database that is locked; what it still refuses then, `flush` is about."""
        end = time.monotonic() + (SETTLE_SECONDS if seconds is None else seconds)
        while self._waiting and time.monotonic() < end:
            try:
                self._write(PUT_SECONDS)
            except TemporaryError:
                continue
            except StorageError:
                return

    def flush(self) -> None:
        """Write what waits; raises the database's error, with the name of the file that holds it instead."""
        try:
            self._write(FLUSH_SECONDS)
        except (TemporaryError, StorageError) as error:
            raise type(error)(f"{error}. {self._rescue()}") from None

    def _write(self, seconds: float) -> None:
        if self._waiting:
            self.database.put_records(list(self._waiting.values()), seconds)
            self._waiting.clear()
        self._spool.clear()
        self._is_kept = True

    def _keep(self, records: dict[str, Record]) -> None:
        try:
            self._spool.append(records.values())
            self._is_kept = True
        except StorageError as error:
            self._is_kept = False
            self.notes.append(str(error))

    def _rescue(self) -> str:
        """Leave what waits to the next run, or put it into a log in the folder for temporary files."""
        if not self._is_kept:
            self._keep(self._waiting)
        count = len(self._waiting)
        if self._is_kept:
            self._spool.leave()
            return (
                f"{count} records are in {self._spool.path}; the next run with this database takes them up, "
                f"and `{COMMAND} import` adds them to another one"
            )
        log = Path(tempfile.gettempdir()) / f"stridesmith-unsaved-{os.getpid()}-{int(time.time())}.jsonl"
        try:
            write_log(self._waiting.values(), log)
        except StridesmithError:
            return f"{count} records could not be written anywhere and are lost"
        self._waiting.clear()
        return f"{count} records are in {log}; `{COMMAND} import {log}` adds them later"
