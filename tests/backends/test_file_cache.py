"""Texts come back whole or not at all, by their key alone, and the folder stays small."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stridesmith.backends import file_cache
from stridesmith.backends.file_cache import FileCache


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileCache:
    """One of at most 1000 bytes, in a folder of its own."""
    import platformdirs

    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name, *author: str(tmp_path / name))
    monkeypatch.setattr(file_cache, "CHECK_EVERY", 1)
    return FileCache("things", 1000)


def test_what_is_kept_comes_back(cache: FileCache) -> None:
    """By its key, to another process as well; nothing by another one."""
    cache.write("key", "one\ntwo")
    assert FileCache("things", 1000).read("key") == "one\ntwo"
    assert cache.read("key ") is None


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "bytes"])
def test_damage_is_noticed(cache: FileCache, damage: str) -> None:
    """What a killed process or a disk has left is no text, and writing heals it."""
    cache.write("key", "a text of some length")
    (path,) = cache.folder.iterdir()
    data = path.read_bytes()
    changed = {"cut": data[:-1], "changed": data.replace(b"some", b"more"), "empty": b"", "bytes": b"\xff" + data}
    path.write_bytes(changed[damage])
    assert cache.read("key") is None
    cache.write("key", "a text of some length")
    assert cache.read("key") == "a text of some length"


def test_a_folder_that_cannot_be_is_no_error(cache: FileCache) -> None:
    """Then nothing is kept."""
    cache.folder.parent.mkdir(parents=True)
    cache.folder.write_text("a file where the folder should be")
    cache.write("key", "text")
    assert cache.read("key") is None


def test_those_used_least_recently_go(cache: FileCache) -> None:
    """Beyond the limit the oldest files are removed, and one that was read stays."""
    for number in range(5):
        cache.write(f"text {number}", "x" * 100)
    for position, path in enumerate(sorted(cache.folder.iterdir(), key=lambda file: file.name)):
        os.utime(path, (position, position))
    assert cache.read("text 0")
    cache.write("large", "x" * 300)
    assert sum(path.stat().st_size for path in cache.folder.iterdir()) <= 750
    assert cache.read("text 0") and cache.read("large")
