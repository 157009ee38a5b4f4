"""Every page of docs/ runs: its Python blocks in order, and what they print is what the page says.

A ``python`` block that a ``text`` block follows must print that text.  With the environment
variable STRIDESMITH_UPDATE_PAGES the texts are written instead of compared.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import linecache
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stridesmith
from stridesmith.backends.kernel import BACKENDS
from stridesmith.space.design import apply, layouts
from stridesmith.space.primitive import PRIMITIVES
from stridesmith.space.workloads.library import OPERATORS

DOCS = Path(__file__).resolve().parents[2] / "docs"
FENCE = re.compile(r"^```(?P<kind>\w*)[^\n]*\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """All pages, by name."""
    return sorted(DOCS.rglob("*.md"))


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tables that how-tos add to are afterwards what they were."""
    for module, name in ((apply, "TECHNIQUES"), (layouts, "LAYOUTS")):
        monkeypatch.setattr(module, name, getattr(module, name))
    registries: tuple[dict[str, Any], ...] = (PRIMITIVES, OPERATORS, BACKENDS)
    before = [dict(registry) for registry in registries]
    stridesmith.clear_caches()
    yield
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)
    stridesmith.clear_caches()


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("path", pages(), ids=lambda path: path.relative_to(DOCS).with_suffix("").as_posix())
def test_page_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page run one after the other in one namespace, and print what stands below them."""
    if path.name == "backend.md" and shutil.which("cc") is None and importlib.util.find_spec("ziglang") is None:
        pytest.skip("the page compiles C, and there is neither `cc` nor ziglang")
    monkeypatch.chdir(tmp_path)
    text = path.read_text(encoding="utf-8")
    fences = list(FENCE.finditer(text))
    names: dict[str, Any] = {"__name__": path.stem}
    changes: list[tuple[int, int, str]] = []
    for number, fence in enumerate(fences):
        if fence["kind"] != "python":
            continue
        printed = run(fence["body"], names, f"{path.name}:{text.count(chr(10), 0, fence.start()) + 2}")
        below = fences[number + 1] if number + 1 < len(fences) else None
        if below is None or below["kind"] != "text" or text[fence.end() : below.start()].strip():
            continue
        if os.environ.get("STRIDESMITH_UPDATE_PAGES"):
            changes.append((below.start("body"), below.end("body"), printed.strip("\n") + "\n"))
        else:
            assert printed.strip("\n") == below["body"].strip("\n"), f"{path.name}, below `{fence['body']}`"
    for start, end, new in reversed(changes):
        text = text[:start] + new + text[end:]
    if changes:
        path.write_text(text, encoding="utf-8")


def run(code: str, names: dict[str, Any], where: str) -> str:
    """Run one block; its error names the page and line, and decorators find its source there."""
    linecache.cache[where] = (len(code), None, code.splitlines(keepends=True), where)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, where, "exec", dont_inherit=True), names)
    return out.getvalue()


def test_there_are_pages() -> None:
    """The pages are where the tests look for them."""
    assert pages()


def test_a_backend_is_short() -> None:
    """All of the backend that its page adds is at most 300 lines of code."""
    blocks = [m["body"] for m in FENCE.finditer((DOCS / "howto" / "backend.md").read_text(encoding="utf-8"))
              if m["kind"] == "python"]  # fmt: skip
    last = next(number for number, block in enumerate(blocks) if block.startswith("BACKENDS["))
    assert 100 < sum(block.count("\n") for block in blocks[: last + 1]) <= 300
