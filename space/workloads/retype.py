"""The same program in another float type."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...ir import dtypes
from ...ir.expr import Buffer, Call, Cast, Const, Undef, Var
from ...ir.node import transform
from ...ir.stmt import PrimFunc


def with_floats(func: PrimFunc, dtype: str) -> PrimFunc:
    """`func` with every float buffer, constant and call in `dtype`; integers and bools stay."""

    def retype(node: Any) -> Any:
        if isinstance(node, (Buffer, Var, Const, Undef, Call, Cast)) and dtypes.is_float(node.dtype):
            return replace(node, dtype=dtypes.with_lanes(dtype, dtypes.lanes(node.dtype)))
        return node

    result = transform(func, retype)
    assert isinstance(result, PrimFunc)
    return result
