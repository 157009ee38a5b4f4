"""Operators of ONNX as programs, a file for each family; `BUILDERS` has them all, by domain and type."""

from __future__ import annotations

from collections.abc import Mapping

from . import convolutions, movement, normalisations, pointwise, pooling, products, reductions
from .site import Builder

BUILDERS: Mapping[tuple[str, str], Builder] = {
    op: builder
    for family in (convolutions, products, pooling, pointwise, reductions, normalisations, movement)
    for op, builder in family.BUILDERS.items()
}

__all__ = ["BUILDERS"]
