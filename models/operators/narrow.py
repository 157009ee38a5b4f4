"""Floats of 8 bits as ONNX makes them of others."""

from __future__ import annotations

from ...ir.dtypes import LARGEST
from ...space.workloads.text import literal

FLOATS8 = ("float8_e4m3fn", "float8_e5m2")


def saturated(value: str, kind: str, dtype: str = "float32") -> str:
    """A float of type `dtype` between the ends of the type `kind`, as script text; NaN stays."""
    end = LARGEST[kind]
    return f"T.max(T.min({value}, {literal(end, dtype)}), {literal(-end, dtype)})"
