"""Operators of ONNX as programs, a file for each family; `BUILDERS` has them all, by domain and type."""

from __future__ import annotations

from collections.abc import Mapping

from . import (
    convolutions,
    indexing,
    movement,
    normalisations,
    pointwise,
    pooling,
    products,
    quantization,
    reductions,
    resizing,
)
from .site import Builder

FAMILIES = (
    convolutions, products, pooling, pointwise, reductions, normalisations, movement, indexing, resizing, quantization,
)  # fmt: skip

BUILDERS: Mapping[tuple[str, str], Builder] = {
    op: builder for family in FAMILIES for op, builder in family.BUILDERS.items()
}

__all__ = ["BUILDERS"]
