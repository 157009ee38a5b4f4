"""What newcomers read names files, packages and variables that exist, and leaves out none that it promises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURE = ROOT / "docs" / "architecture.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
TECHNIQUES = sorted((ROOT / "space" / "design" / "techniques").glob("[a-z]*.py"))
GUIDES = [ROOT / "README.md", CONTRIBUTING, ARCHITECTURE, *sorted((ROOT / "docs").glob("howto/*.md"))]
FUTURE = {"space/design/techniques/tile_order.py"}
"""Files that a how-to tells to write."""


def files() -> set[str]:
    """Every file and folder of the checkout that git would know, with a slash behind folders."""
    skipped = {"build", "dist", "__pycache__"}
    inside = [p.relative_to(ROOT) for p in ROOT.rglob("*") if not skipped & set(p.parts)]
    return {f"{p.as_posix()}/" if (ROOT / p).is_dir() else p.as_posix() for p in inside if ".venv" not in p.parts}


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_files_that_a_page_names_exist(page: Path) -> None:
    """`lower.py`, `backends/llvm/` or a link: each is the end of the path of something that is there."""
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w./-]+(?:\.(?:py|md|toml)|/))`", text)) - FUTURE
    known = files()
    assert sorted(n for n in named if not any(f"/{f}".endswith(f"/{n}") for f in known)) == []
    links = {link.partition("#")[0] for link in re.findall(r"\]\((?!https?:)([^)#][^)]*)\)", text)}
    assert sorted(link for link in links if not (page.parent / link).exists()) == []


def test_every_room_is_on_the_map() -> None:
    """Each package, and each one of the search."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    packages = [path.parent.name for pattern in ("*", "search/*") for path in ROOT.glob(f"{pattern}/__init__.py")]
    assert len(packages) >= 12
    assert [package for package in packages if not re.search(rf"\b{package}\b", text)] == []


@pytest.mark.parametrize("path", TECHNIQUES, ids=lambda path: path.stem)
def test_every_technique_has_its_word(path: Path) -> None:
    """Whoever adds a technique says in the list of words what it is."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    assert f"`techniques/{path.name}`" in text[text.index("## Words of the project") :]


def test_every_variable_is_documented() -> None:
    """The table has each variable of ours that code or tests read, read where it says, and no other."""
    text = CONTRIBUTING.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(STRIDESMITH_\w+)` \| `([\w./]+)` \|", text, re.MULTILINE))
    read: dict[str, list[Path]] = {}
    for path in [p for p in ROOT.rglob("*.py") if ".venv" not in p.parts and p != Path(__file__).resolve()]:
        for name in re.findall(r"\"(STRIDESMITH_[A-Z_]+)\"", path.read_text(encoding="utf-8")):
            read.setdefault(name, []).append(path.relative_to(ROOT))
    assert rows.keys() == read.keys()
    assert [name for name, home in rows.items() if not any(p.as_posix().startswith(home) for p in read[name])] == []
