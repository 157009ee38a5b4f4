"""The same program in another float type."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...ir import dtypes
from ...ir.expr import Buffer, Call, Cast, Const, Undef, Var
from ...ir.functions import REINTERPRET, ROUND_TO_INT32, TO_INT_CALLS
from ...ir.node import rebuild
from ...ir.stmt import PrimFunc


def with_floats(func: PrimFunc, dtype: str) -> PrimFunc:
    """`func` with every float buffer, constant and call in `dtype`.

    Integers and bools stay, floats that are only kept (`dtypes.STORAGE`), and those whose bits are looked at.  What was
    converted from one of these types to another one is that value.
    """

    def is_retyped(node: Any) -> bool:
        is_typed = isinstance(node, (Buffer, Var, Const, Undef, Call, Cast))
        return is_typed and dtypes.is_float(node.dtype) and not dtypes.is_storage(node.dtype)

    def retype(node: Any) -> Any:
        made = rebuild(node, retype)
        wanted = dtypes.with_lanes(dtype, dtypes.lanes(node.dtype)) if is_retyped(node) else ""
        if isinstance(node, Call) and node.name == REINTERPRET:
            (before,), (after,) = node.args, made.args
            own = after if after.dtype == before.dtype else Cast(before.dtype, after)
            same = Call(REINTERPRET, (own,), node.dtype)
            return Cast(wanted, same) if wanted else same
        if isinstance(node, Call) and node.name in TO_INT_CALLS:  # which take float32 alone
            (real,) = made.args
            whole = Call("nearbyint", (real,), real.dtype) if node.name == ROUND_TO_INT32 else real
            return made if real.dtype == node.args[0].dtype else Cast(node.dtype, whole)
        if isinstance(made, Cast) and wanted == made.a.dtype:
            return made.a
        return replace(made, dtype=wanted) if wanted else made

    result = retype(func)
    assert isinstance(result, PrimFunc)
    return result
