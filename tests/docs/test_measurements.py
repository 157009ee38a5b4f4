"""The page of measurements is what its script makes of the data files."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_is_current() -> None:
    """``python docs/measurements.py`` writes what is stored."""
    spec = importlib.util.spec_from_file_location("measurements", DOCS / "measurements.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / "measurements.md").read_text(encoding="utf-8") == module.page(), "run python docs/measurements.py"
    assert "| mobilenetv2/dw112/nchw/2 | 45.5 |" in module.page()  # as opencl.jsonl has it
    assert "| resnet50/c2_3x3/nhwc/2 | 60 | 439.2 | 511.0 | 1.16 |" in module.page()  # as metaschedule.jsonl has it
