"""The notebooks of docs/gallery/ run, from the first cell to the last, and are stored as they ran."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

GALLERY = Path(__file__).resolve().parents[2] / "docs" / "gallery"
NOTEBOOKS = sorted(GALLERY.glob("*.ipynb"))


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    """The cells of a notebook that are ``code`` or ``markdown``."""
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_with_what_it_printed(path: Path) -> None:
    """In order, without an error or a warning, with an output at least."""
    code = cells(path, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs and all(output["output_type"] != "error" and output.get("name") != "stderr" for output in outputs)
    assert "".join(cells(path, "markdown")[0]["source"]).startswith("# ")


@pytest.mark.timeout(240)
@pytest.mark.skipif(importlib.util.find_spec("nbclient") is None, reason="the extra `notebooks` is not installed")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel and a folder of its own; what its cells assert holds."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(GALLERY.parents[2]), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(path, 4)
    nbclient.NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(tmp_path)}}).execute()


def test_pages_of_the_site_name_every_notebook() -> None:
    """The gallery's page has a link to each."""
    page = (GALLERY / "index.md").read_text(encoding="utf-8")
    assert all(f"({path.name})" in page for path in NOTEBOOKS) and len(NOTEBOOKS) >= 4
