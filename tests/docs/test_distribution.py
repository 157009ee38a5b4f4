"""What an index gets: links that work away from the repository, archives that are equal when built twice."""

from __future__ import annotations

import io
import runpy
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / ".ci" / "distribute.py"


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    """The functions of the script; a wheel has no tests, and an sdist has both."""
    return runpy.run_path(str(SCRIPT))


def archive(mtime: int, owner: str, *names: str) -> bytes:
    """A compressed archive with these files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as files:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uname = len(name), mtime, owner
            files.addfile(member, io.BytesIO(name.encode()))
    return packed.getvalue()


def test_links_of_the_readme_lead_into_the_repository(made: dict[str, Any]) -> None:
    """Links of its own become absolute, those elsewhere and to a heading stay; no relative one is left."""
    page = "[a](docs/a.md#b) ![p](docs/p.png) [c](https://x.org) [d](#e)"
    assert made["with_absolute_links"](page, "https://h/o/s", "v1") == (
        "[a](https://h/o/s/blob/v1/docs/a.md#b) ![p](https://h/o/s/raw/v1/docs/p.png) [c](https://x.org) [d](#e)"
    )
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert made["LINK"].search(readme)
    assert not made["LINK"].search(made["with_absolute_links"](readme, "https://h/o/s", "v1"))


def test_addresses_are_a_table_of_the_project(made: dict[str, Any]) -> None:
    """It parses, and stands where the script puts it."""
    assert tomllib.loads(made["urls"]("https://h/o/s", "v1"))["project"]["urls"]["Issues"] == "https://h/o/s/issues"
    assert (ROOT / "pyproject.toml").read_text(encoding="utf-8").count("[project.scripts]") == 1


def test_archives_of_equal_files_are_equal(made: dict[str, Any]) -> None:
    """Whenever, by whomever and in which order they were packed; with other files they differ."""
    first, second = archive(1, "ann", "s/a", "s/b"), archive(2, "bob", "s/b", "s/a")
    assert first != second
    assert made["reproducible"](first, 7) == made["reproducible"](second, 7)
    assert made["reproducible"](archive(1, "ann", "s/a"), 7) != made["reproducible"](first, 7)
    with tarfile.open(fileobj=io.BytesIO(made["reproducible"](first, 7))) as files:
        assert [(m.name, m.mtime, m.uname) for m in files] == [("s/a", 7, ""), ("s/b", 7, "")]
