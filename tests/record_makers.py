"""Records and databases for tests."""

from __future__ import annotations

from typing import Any

from stridesmith.ir.target import Target
from stridesmith.search.records.record import Record

TARGET = Target(kind="cpu", name="Test CPU", vendor="Test", isa="avx2", threads=2)
SCRIPT = "def main(): pass"


def make_record(latency_us: float | None = 20.0, **fields: Any) -> Record:
    """A verified record of `SCRIPT` on `TARGET`; None for the latency makes a wrong one."""
    defaults: dict[str, Any] = {
        "script": SCRIPT,
        "workload": "matmul",
        "params": {"m": 3, "layout": "nchw"},
        "dtype": "float32",
        "interface": {"a": "fixed", "b": "constant", "c": "fixed"},
        "target": TARGET.to_json(),
        "trace": [["split", {"loop": "i", "factors": [4, None]}]],
        "sketch": "s0",
        "choice": [1, 0, 2],
        "space_version": 1,
        "status": "ok" if latency_us is not None else "wrong",
        "samples": [] if latency_us is None else [latency_us * 1e-6] * 3,
        "latency_us": latency_us,
        "max_abs_error": None if latency_us is None else 1e-7,
        "verified": latency_us is not None,
        "trial": 4,
        "versions": {"stridesmith": "0.1.0"},
    }
    return Record(**(defaults | fields))
