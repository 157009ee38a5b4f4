"""Where the database is, told without the library that opens it: that takes a third of a second to load."""

from __future__ import annotations

import os
from pathlib import Path

from ...files import at_home


def default_path() -> str:
    """STRIDESMITH_DB, or ``stridesmith.db`` in the user's data folder."""
    if given := os.environ.get("STRIDESMITH_DB"):
        return given
    import platformdirs

    return str(Path(platformdirs.user_data_dir("stridesmith")) / "stridesmith.db")


def url_of(url: str | os.PathLike[str] | None) -> str:
    """What names a database, as a text; the default one for None.  Raises TypeError for what is no path and no URL."""
    if url is not None and not isinstance(url, str | bytes | os.PathLike):
        raise TypeError(f"a database is named by a path or a URL, but got something of type {type(url).__name__}")
    return default_path() if url is None else os.fsdecode(url)


def is_missing(url: str | os.PathLike[str] | None) -> bool:
    """Whether a database is a file that is not there; `url` is as `Database` takes it."""
    text = url_of(url)
    if "://" in text or not text.strip() or "\0" in text:
        return False
    try:
        at_home(text).absolute().stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False
