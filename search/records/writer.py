"""Records on their way to the database, kept aside while that is locked or full."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import StorageError, StridesmithError, TemporaryError
from .log import write_log
from .record import Record

if TYPE_CHECKING:
    from .database import Database

RETRY_SECONDS = 5.0


class RecordWriter:
    """Writes records to a database, and keeps aside what it cannot write yet.

    A record that was put is either in the database or in memory until `flush`
    has written it; `flush` at the end of a run leaves nothing behind: what the
    database still refuses goes to a log beside it.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.notes: list[str] = []
        self._aside: dict[str, Record] = {}
        self._retry = 0.0

    def put(self, records: Iterable[Record]) -> None:
        """Store records now, or keep them aside while the database is locked or full."""
        self._aside.update((record.id, record) for record in records)
        if time.monotonic() < self._retry:
            return
        try:
            self._write()
        except (TemporaryError, StorageError) as error:
            self._retry = time.monotonic() + RETRY_SECONDS
            self.notes.append(f"{error}; {len(self._aside)} records are kept aside and written later")

    def flush(self) -> None:
        """Write what is aside; raises the database's error, with the name of the log that holds it instead."""
        try:
            self._write()
        except (TemporaryError, StorageError) as error:
            raise type(error)(f"{error}. {self._rescue()}") from None

    def _write(self) -> None:
        if self._aside:
            self.database.put_records(list(self._aside.values()))
            self._aside.clear()

    def _rescue(self) -> str:
        """Put what is aside into a log, beside the database or in the folder for temporary files."""
        folders = [Path(tempfile.gettempdir())]
        if self.database.path is not None:
            folders.insert(0, self.database.path.parent)
        count = len(self._aside)
        for folder in folders:
            log = folder / f"stridesmith-unsaved-{os.getpid()}-{int(time.time())}.jsonl"
            try:
                write_log(self._aside.values(), log)
            except StridesmithError:
                log.unlink(missing_ok=True)
                continue
            self._aside.clear()
            return f"{count} records are in {log}; `tune import {log}` adds them later"
        return f"{count} records could not be written anywhere and are lost"
