"""The page of measurements is what its script makes of the data files."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def module() -> Any:
    """The script that writes the page."""
    spec = importlib.util.spec_from_file_location("measurements", DOCS / "measurements.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_races_after_searches_of_other_seconds_are_tables_of_their_own(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No mean is of searches that had different times."""
    rows = module._rows("metaschedule.jsonl")
    later = [row | {"seconds": 300.0, "ratio": 0.5, "per_round": 64, "population": 512} for row in rows[:2]]
    before = module._metaschedule()
    monkeypatch.setattr(module, "_rows", lambda name: [*later, *rows])
    lines = module._metaschedule()
    assert lines[: len(before)] == before
    added = "\n".join(lines[len(before) :])
    assert "### After 300 s of tuning each" in added and "0 of 2 are faster here" in added
    assert "geometric mean is 0.50, the least 0.50; MetaSchedule's rounds took 64 from 512" in added


def test_the_page_is_current(module: Any) -> None:
    """``python docs/measurements.py`` writes what is stored."""
    assert (DOCS / "measurements.md").read_text(encoding="utf-8") == module.page(), "run python docs/measurements.py"
    assert "| mobilenetv2/dw112/nchw/2 | 45.5 |" in module.page()  # as opencl.jsonl has it
    assert "| resnet50/c2_3x3/nhwc/2 | 439.2 | 511.0 | 1.16 |" in module.page()  # as metaschedule.jsonl has it
