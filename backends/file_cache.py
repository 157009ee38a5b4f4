"""Texts that took long to make, kept in the user's cache from process to process.

A file's name is a digest of the key, all that the text was made from; its first line is a digest of the rest, so that
what a disk or a killed process has damaged is no text, and is made again.  The files used least recently go when the
folder has grown beyond its limit.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

LEFT_SHARE = 0.75  # of the most bytes, after some had to go
CHECK_EVERY = 32  # files that a process writes, until it looks how large the folder is


class FileCache:
    """Texts by key in the folder `name` of the user's cache, or of that path, of `most_bytes` together."""

    def __init__(self, name: str, most_bytes: int) -> None:
        self.name, self.most_bytes = name, most_bytes
        self._written = 0

    @property
    def folder(self) -> Path:
        """Where the files are."""
        import platformdirs

        return Path(platformdirs.user_cache_dir("stridesmith")) / self.name

    def read(self, key: str) -> str | None:
        """The text of a key, if it was kept and is whole."""
        path = self._path(key)
        try:
            digest, _, text = path.read_bytes().decode().partition("\n")
        except (OSError, UnicodeDecodeError):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return text if digest == _digest(text) else None

    def write(self, key: str, text: str) -> None:
        """Keep a text; where nothing can be written, it is not kept."""
        path = self._path(key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            put(path, f"{_digest(text)}\n{text}".encode())
            if self._written % CHECK_EVERY == 0:
                self._shrink()
            self._written += 1

    def _path(self, key: str) -> Path:
        return self.folder / _digest(key)

    def _shrink(self) -> None:
        """Remove the files that nobody has used for longest, if all together are too many."""
        found = sorted(((e.stat(), e.path) for e in os.scandir(self.folder)), key=lambda item: item[0].st_mtime)
        size = sum(stat.st_size for stat, _ in found)
        if size <= self.most_bytes:
            return
        for stat, path in found:
            if size <= LEFT_SHARE * self.most_bytes:
                return
            with contextlib.suppress(OSError):
                os.unlink(path)
            size -= stat.st_size


def put(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write a file at once: whoever reads it meanwhile has the old one, or none, and never a part.  Raises OSError.

    A device or a pipe is written to, and stays what it is.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(content)
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    try:
        partial.write_bytes(content)
        if mode is not None:
            partial.chmod(mode)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
