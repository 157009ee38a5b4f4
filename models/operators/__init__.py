"""Operators as programs, a file for each family; `BUILDERS` has them all, by ONNX's domain and name.

Whatever a model was written in becomes a `graph.Graph` of ONNX's operators, which `crop` and `simplify` rewrite; a
builder makes programs of each node.  Nothing here needs the package `onnx`.
"""

from __future__ import annotations

from collections.abc import Mapping

from . import (
    bytewise,
    convolutions,
    determinants,
    few_bits,
    indexing,
    integers,
    movement,
    normalisations,
    pointwise,
    pooling,
    products,
    quantization,
    recurrent,
    recurrent_bytes,
    reductions,
    resizing,
    sampling,
    scattering,
    selection,
    signal,
    suppression,
    trees,
)
from .site import Builder

FAMILIES = (
    convolutions, products, pooling, pointwise, reductions, normalisations, movement, indexing, resizing, quantization,
    integers, bytewise, few_bits, recurrent, recurrent_bytes, selection, scattering, sampling, signal, determinants,
    suppression, trees,
)  # fmt: skip

BUILDERS: Mapping[tuple[str, str], Builder] = {
    op: builder for family in FAMILIES for op, builder in family.BUILDERS.items()
}

CARRYING = frozenset({
    *(("", op) for op in ("Cast", "CastLike", "QuantizeLinear", "DequantizeLinear")),
    *(op for op in (*movement.BUILDERS, *indexing.BUILDERS) if op[1] not in ("Pad", "OneHot", "Trilu")),
})  # fmt: skip
"""Operators that know numbers of which programs have only the bits, or move whatever they are given."""

__all__ = ["BUILDERS", "CARRYING"]
