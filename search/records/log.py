"""Logs: records as lines of JSON in a file, for export, import, and what a database would not take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ...errors import BadRecord, StorageError
from ...files import doing, refuse_other
from ...invocation import COMMAND
from .record import MAX_LINE, Record, from_line, to_line

MARK = b'{"schema_version":'
"""What a line of a log begins with."""


def write_log(records: Iterable[Record], path: Path) -> int:
    """Write JSON lines to `path` (a file is replaced in one step, or stays as it is); return how many."""
    refuse_other(path, "a log", MARK)
    is_file = path.is_file() or not path.exists()  # a device or a pipe is written to, and stays what it is
    place = path.with_name(path.name + ".partial") if is_file else path
    count = 0
    try:
        with doing(f"write the log {path}"):
            with place.open("w", encoding="utf-8") as file:
                for record in records:
                    file.write(to_line(record) + "\n")
                    count += 1
            if is_file:
                place.replace(path)
    finally:
        if is_file:  # a part of a log takes room where there may be none
            with suppress(OSError):
                place.unlink(missing_ok=True)
    return count


def read_log(path: Path) -> Iterator[Record | BadRecord]:
    """Each line of a log as a record, or as the reason why it is refused.

    A torn or hostile line never hides its neighbours.  A line longer than
    `MAX_LINE` is refused without being read into memory as a whole.
    """
    with doing(f"read the log {path}"):
        if path.is_char_device():
            raise StorageError(f"cannot read the log {path}: it is a device, which may have no end")
    with doing(f"read the log {path}"), path.open("rb") as file:
        number = 0
        while raw := file.readline(MAX_LINE + 1):
            number += 1
            if len(raw) > MAX_LINE:
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(MAX_LINE + 1)
                yield BadRecord(f"{path}, line {number}: longer than {MAX_LINE} bytes")
            elif raw.strip():
                yield _line_of(path, number, raw)


def _line_of(path: Path, number: int, raw: bytes) -> Record | BadRecord:
    try:
        return from_line(raw.decode("utf-8"))
    except UnicodeDecodeError:
        return BadRecord(f"{path}, line {number}: not UTF-8 text, as `{COMMAND} export` writes it")
    except BadRecord as error:
        return BadRecord(f"{path}, line {number}: {error}")
