"""A database that is only read, and is opened where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .place import is_missing

if TYPE_CHECKING:
    from .database import Database


@contextmanager
def reading(url: str | None) -> Iterator[Database | None]:
    """A database to read; None where there is none yet."""
    if is_missing(url):
        yield None
        return
    from .database import Database

    with Database(url, read_only=True) as database:
        yield database
