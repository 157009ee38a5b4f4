"""Operators that take elements from places that other tensors name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..models.network import Array
from .call import Call, Convert, Result, Unsupported


def _embedding(call: Call) -> Result:
    return call.last("Gather", [call.tensor("weight"), call.tensor("indices")], axis=0)


def _index_select(call: Call) -> Result:
    axis = call.axis("dim", len(call.shape("self")))
    places = call.tensor("index")
    flat = call.reshaped(places, (call.type(places).size,))
    return call.last("Gather", [call.tensor("self"), flat], axis=axis)


def _gather(call: Call) -> Result:
    axis = call.axis("dim", len(call.shape("self")))
    return call.last("GatherElements", [call.tensor("self"), call.tensor("index")], axis=axis)


def _index(call: Call) -> Result:
    """``x[:, i, j]``: places of some dimensions, by tensors that are broadcast."""
    tensor, shape, given = call.tensor("self"), call.shape("self"), call["indices"]
    taken = {at: call.called(value) for at, value in enumerate(given) if value is not None}
    if any(call.type(name).dtype not in ("int64", "int32") for name in taken.values()):
        raise Unsupported(f"{call.node.target} with bools has a shape that is not known before it runs")
    if len(taken) == 1:
        ((axis, places),) = taken.items()
        return call.last("Gather", [tensor, places], axis=axis)
    known = [table for name in taken.values() if (table := call.constant_of(name)) is not None]
    lines = _lines(known) if len(known) == len(taken) else None
    if lines is not None and [*taken] == [*range(min(taken), max(taken) + 1)]:
        now = list(shape)
        for axis, line in zip(taken, lines, strict=True):
            now[axis] = len(line)
            tensor = call.part("Gather", [tensor, call.constant(line)], now, axis=axis)
        return call.last("Reshape", [tensor])
    return _index_anywhere(call, tensor, taken)


def _lines(tables: Sequence[Array]) -> list[Array] | None:
    """The places along each dimension, where each table varies along a dimension of its own, in their order."""
    rank = max(table.ndim for table in tables)
    wide = [table.reshape((1,) * (rank - table.ndim) + table.shape) for table in tables]
    along = [[at for at, extent in enumerate(table.shape) if extent > 1] for table in wide]
    varying = [at for axes in along for at in axes]
    if any(len(axes) > 1 for axes in along) or varying != sorted(set(varying)):
        return None
    return [np.ascontiguousarray(table.reshape(-1)) for table in wide]


def _index_anywhere(call: Call, tensor: str, taken: Mapping[int, str]) -> Result:
    """Places as rows of a table, one for each element of the tensors that are broadcast.

    Their dimensions stand where those were that they are of, or in front if these do not follow each other.
    """
    shape, axes = call.type(tensor).shape, list(taken)
    rest = [at for at in range(len(shape)) if at not in taken]
    wide = tuple(np.broadcast_shapes(*(call.type(name).shape for name in taken.values())))
    columns = [
        call.reshaped(call.part("Expand", [call.cast(name, "int64")], wide), (*wide, 1)) for name in taken.values()
    ]
    places = call.part("Concat", columns, (*wide, len(axes)), axis=len(wide))
    turned = call.part("Transpose", [tensor], [shape[at] for at in (*axes, *rest)], perm=[*axes, *rest])
    found = (*wide, *(shape[at] for at in rest))
    rows = call.part("GatherND", [turned, places], found)
    before = axes[0] if axes == [*range(axes[0], axes[-1] + 1)] else 0
    order = [*range(len(wide), len(wide) + before), *range(len(wide)), *range(len(wide) + before, len(found))]
    return call.last("Transpose", [rows], perm=order)


CONVERT: Mapping[str, Convert] = {
    "embedding": _embedding,
    "index_select": _index_select,
    "gather": _gather,
    "index.Tensor": _index,
    "_unsafe_index.Tensor": _index,
}
