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


@pytest.mark.parametrize(("count", "shapes"), [(1, "1 shape"), (2, "2 shapes"), (20, "20 shapes")])
def test_races_after_searches_of_other_seconds_are_tables_of_their_own(
    module: Any, monkeypatch: pytest.MonkeyPatch, count: int, shapes: str
) -> None:
    """No mean is of searches that had different times."""
    rows = [row for row in module._rows("metaschedule.jsonl") if row["seconds"] == 60]
    changed: dict[str, Any] = {"seconds": 300.0, "ratio": 0.5, "per_round": 64, "population": 512, "checked": None}
    later = [row | changed for row in rows[:count]]
    monkeypatch.setattr(module, "_rows", lambda name: rows)
    before = module._metaschedule()
    monkeypatch.setattr(module, "_rows", lambda name: [*later, *rows])
    lines = module._metaschedule()
    assert lines[: len(before)] == before
    added = "\n".join(lines[len(before) :])
    assert f"### After 300 s of tuning each: {shapes}\n" in added and f"0 of {count} are faster here" in added
    assert "geometric mean is 0.50, the least 0.50; MetaSchedule's rounds took 64 from 512." in added
    assert added.count("\n| ") == count + 2 and added.count("| not looked at |") == count
    assert "the fastest on" not in added


def test_what_failed_in_a_race_is_in_its_table_and_in_no_mean(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that ended without a kernel, wrong candidates, a comparison that did not run; the later row of two."""
    (row,) = module._rows("metaschedule.jsonl")[:1]
    ours: dict[str, Any] = {
        "latency_us": None,
        "trials": None,
        "seconds": None,
        "process_seconds": 300.0,
        "message": "x",
        "failed": {},
    }
    none = {"ratio": None, "rounds": {}, "metaschedule": {"error": "killed"}, "checked": {"error": "killed"}}
    wrong = {"checked": 8, "wrong": 2, "broken": ["timed out"]}
    rows = [
        row | {"key": "a", "ratio": 9.0},
        row | {"key": "a", "checked": wrong},
        row | {"key": "b", "ours": ours} | none,
    ]
    monkeypatch.setattr(module, "_rows", lambda name: rows)
    text = "\n".join(module._metaschedule())
    assert "### After 60 s of tuning each: 2 shapes" in text and "1 of 1 are faster here" in text and "9.00" not in text
    assert "Of the 8 candidates that it found to be the fastest on 1 of the shapes" in text
    assert "2 were wrong and 1 did not run" in text and "| 3 of 8 |" in text
    assert "No mean has what one of both has no kernel for: b." in text
    assert "| b | avx512 | none | none | none | 0, 0, 0 | 0, 0, 0 | not looked at |" in text
    monkeypatch.setattr(module, "_rows", lambda name: rows[2:])
    assert "None was raced; MetaSchedule's rounds took 32 from 128." in "\n".join(module._metaschedule())


def test_rows_of_two_machines_have_their_instructions_and_means_of_their_own(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ratio is of one machine; a reader sees which, and how each machine's rows came out."""
    rows = [row for row in module._rows("metaschedule.jsonl") if row["seconds"] == 60][:4]
    others = [
        row | {"key": f"{row['key']}/other", "cpu": "<Target cpu: A, avx2, 2 threads>", "ratio": 0.5} for row in rows
    ]
    monkeypatch.setattr(module, "_rows", lambda name: rows)
    assert "machines" not in "\n".join(module._metaschedule())
    monkeypatch.setattr(module, "_rows", lambda name: [*rows, *others])
    text = "\n".join(module._metaschedule())
    assert "The rows are of 2 machines; with avx2: 0 of 4 are faster here, the geometric mean is 0.50" in text
    assert "with avx512: 4 of 4 are faster here" in text and text.count("| avx2 |") == 4
    assert "(A, avx2, 2 threads; AMD EPYC, avx512, 2 threads)" in text


def test_the_page_is_current(module: Any) -> None:
    """``python docs/measurements.py`` writes what is stored."""
    assert (DOCS / "measurements.md").read_text(encoding="utf-8") == module.page(), "run python docs/measurements.py"
    assert "| mobilenetv2/dw112/nchw/2 | 45.5 |" in module.page()  # as opencl.jsonl has it
    assert "| resnet50/c2_3x3/nhwc/2 | avx512 | 439.2 | 511.0 | 1.16 |" in module.page()  # as metaschedule.jsonl has it
