"""Files that users name: what the system refuses is one paragraph, and what is read has an end.

As `errors`, `figures`, `forks`, `invocation`, `numerals` and `version`, a module at the root that every package may
use.
"""

from __future__ import annotations

import mmap
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import StorageError, StridesmithError, UsageError
from .invocation import COMMAND

DATABASE = b"SQLite format 3\0"
"""What a database of SQLite begins with."""
NO_TEXT = re.compile("[\udc80-\udcff]")
"""What Python has in the place of bytes that are no UTF-8."""


def is_database(path: Path) -> bool:
    """Whether a file that can be read is a database, or empty, as a new one is."""
    with doing(f"read {path}"), path.open("rb") as file:
        return file.read(len(DATABASE)) in (DATABASE, b"")


def refuse_other(path: Path, what: str, *marks: bytes) -> None:
    """Raise StorageError where `what` is to be written and a file stands that it did not write.

    What it wrote has one of the `marks` in it.  An empty file may be replaced, and what is no file is written to.
    """
    try:
        if not path.is_file() or not path.stat().st_size:  # a pipe would wait for who writes
            return
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            is_database = data[: len(DATABASE)] == DATABASE
            if not is_database and any(data.find(mark) >= 0 for mark in marks):
                return
    except (OSError, ValueError):
        return
    if is_database:
        raise StorageError(f"{path} is a database, whose records {what} would replace: give another file")
    raise StorageError(
        f"{path} is there already, and not as `{COMMAND}` writes {what}: give another file, or move it away first"
    )


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Raise StorageError for what the system refuses while a file that a user named is read or written.

    ``with doing(f"write the report {path}")``: the text says what could not be done, why, and with which other file.
    """
    try:
        yield
    except BrokenPipeError:  # who reads the output has gone, which is no fault of a file
        raise
    except OSError as error:
        raise StorageError(f"cannot {what}: {reason(error, what)}") from error
    except ValueError as error:
        if not is_no_name(error):
            raise
        raise StorageError(f"cannot {what}: no file can be called so") from error


def reason(error: OSError, told: str = "") -> str:
    """Why the system refuses, and for which file, unless that was told."""
    why = error.strerror or str(error)
    if isinstance(error, FileNotFoundError) and not error.filename:  # nothing else is looked for without a name
        return "the folder that this runs in is not there any more; run it in another one"
    name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes | os.PathLike) else ""
    folder = os.path.dirname(name)
    if isinstance(error, FileNotFoundError) and folder and not os.path.isdir(folder):
        return f"the folder {folder} is not there"
    return why if not name or name in told else f"{why} ({name})"


def is_no_name(error: ValueError) -> bool:
    """Whether Python says so of a path that holds what no name of a file can: a null byte, or half a character."""
    return isinstance(error, UnicodeEncodeError) or "null byte" in str(error) or "null character" in str(error)


def at_home(text: str) -> Path:
    """A path whose ``~`` or ``~user`` is that user's folder; one of nobody's stays as it is."""
    return Path(os.path.expanduser(text))


def shown(path: Path | str) -> str:
    """A path as people read it: with ``~`` for the user's folder, which also says less of who the user is."""
    text, home = str(path), os.path.expanduser("~")
    return f"~{text[len(home) :]}" if len(home) > 1 and (text == home or text.startswith(home + os.sep)) else text


def legible(text: str) -> str:
    """A text in which bytes of a name that are no UTF-8, halves of characters in Python, are written as ``\\xff``."""
    return NO_TEXT.sub(lambda half: f"\\x{ord(half[0]) - 0xDC00:02x}", text)


def quoted(word: str) -> str:
    """A word of a command line as it can be pasted into a shell; bytes that are no UTF-8 as Bash has them."""
    if not NO_TEXT.search(word):
        return shlex.quote(word)
    escaped = word.replace("\\", r"\\").replace("'", r"\'")
    return f"$'{legible(escaped)}'"


def small_text(path: Path, what: str, most: int, kind: type[StridesmithError] = UsageError) -> str:
    """The text of a file of at most so many bytes.  Raises an error of this `kind`, in which the file is called `what`.

    No more than that is read, also of a device that has no end.
    """
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
        if len(data) <= most:
            return data.decode("utf-8-sig")  # editors of Windows write a mark before the text
    except OSError as error:
        raise kind(f"cannot read {what} {path}: {error.strerror or error}") from None
    except ValueError as error:
        why = "no file can be called so" if is_no_name(error) else "it is not UTF-8 text; save it as UTF-8"
        raise kind(f"cannot read {what} {path}: {why}") from None
    raise kind(f"{path} is larger than {most >> 20} MiB; {what} is a short text")
