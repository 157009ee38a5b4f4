"""The Python of docs/torch.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import stridesmith as ss  # noqa: E402

PAGE = Path(__file__).resolve().parents[2] / "docs" / "torch.md"
BLOCK = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_blocks_of_the_page_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the page tells users to write works, but for the tuning itself and for an entry point that is not there."""
    monkeypatch.setenv("STRIDESMITH_DB", str(tmp_path / "empty.db"))
    tuned: list[Any] = []
    monkeypatch.setattr(ss.torch, "tune", lambda *given, seconds: tuned.append(given))
    x, model = torch.randn(2, 6), torch.nn.Linear(6, 8).eval()
    names: dict[str, Any] = {"torch": torch, "x": x, "model": model}
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) == 3
    for block in blocks:
        known = "stridesmith" in torch._dynamo.list_backends()
        exec(block if known else block.replace('"stridesmith"', "ss.torch.backend"), names)
    assert tuned[0] == (model, x) and len(tuned) == 2
    assert names["y"].shape == (127, 129)
