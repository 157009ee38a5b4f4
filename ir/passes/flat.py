"""Flat buffers: one dimension for each group of axes between separators, row-major inside a group.

::

    B[i, j]  ->  B[i * shape[1] + j]          vector indices add up to one ramp where each of them is one

Of a flat buffer every group is one axis: N dimensions have N - 1 separators, one before each
but the first.  Parameters keep their logical shape, accesses go through views of them::

    A_flattened = T.decl_buffer((256,), "float32", data=A.data)

Sources: RFC 0039 ("FlattenBuffer/StorageFlatten"; it numbers a separator by the axis before it,
here it is the axis after it), RFC 0070 ("Replace preflattened_buffer_map").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from math import prod
from typing import Any

from .. import dtypes
from ..arith.simplify import simplify
from ..expr import Binary, Broadcast, Buffer, Expr, Extent, Load, Ramp, as_expr, as_index, as_int, binary
from ..extents import as_extent, dims
from ..node import rebuild, walk
from ..stmt import Block, Declare, PrimFunc, Stmt, Store, fresh, names, transform_statements
from .empty import uses_memory
from .relayout import buffers


def flatten_buffers(func: PrimFunc) -> PrimFunc:
    """Every access through a buffer of ``len(axis_separators) + 1`` dimensions, with as many separators as fit.

    Parameters stay as they are declared; accesses of one go through a view of it called
    ``<name>_flattened``; views that nothing uses go.  A flat program stays as it is otherwise.
    """
    flat: dict[Buffer, Buffer] = {}
    declared: list[Buffer] = []
    used = {n.buffer for n in walk(func.body) if isinstance(n, (Load, Store))}
    taken = names(func)
    for buffer in buffers(func):
        if is_flat(buffer):
            continue
        flat[buffer] = flat_buffer(buffer)
        if buffer in func.params and buffer in used:
            name = fresh(f"{buffer.name}_flattened", taken)
            taken.add(name)
            flat[buffer] = replace(flat[buffer], name=name, data=buffer.name)
            declared.append(flat[buffer])
    body = _flattened(func.body, flat)
    assert isinstance(body, Block)
    inner: Stmt = transform_statements(
        body.body, lambda s: s.body if isinstance(s, Declare) and not uses_memory(s.body, s.buffer) else s
    )
    for view in reversed(declared):
        inner = Declare(view, inner)
    return func.with_body(replace(body, body=inner))


def _flattened(node: Any, flat: dict[Buffer, Buffer]) -> Any:
    if isinstance(node, Buffer):
        return flat.get(node, node)
    if isinstance(node, (Load, Store)) and node.buffer in flat:
        indices = [_flattened(i, flat) for i in node.indices]
        merged = tuple(simplify(i) for i in flat_indices(node.buffer, indices))
        buffer = flat[node.buffer]
        return Load(buffer, merged) if isinstance(node, Load) else Store(buffer, merged, _flattened(node.value, flat))
    return rebuild(node, lambda child: _flattened(child, flat))


def is_flat(buffer: Buffer) -> bool:
    """Whether each group of axes is one axis."""
    return buffer.rank == len(buffer.axis_separators) + 1


def flat_buffer(buffer: Buffer, separated: bool = True) -> Buffer:
    """The buffer with one dimension for each group of axes, or a single one unless `separated`."""
    extents = tuple(product(buffer.extents[a:b]) for a, b in groups(buffer, separated))
    return replace(buffer, extents=extents, axis_separators=tuple(range(1, len(extents))))


def product(extents: Sequence[Extent]) -> Extent:
    """The number of elements of a group of axes."""
    if all(isinstance(e, int) for e in extents):
        return prod(as_int(e) for e in extents)
    return as_extent(reduce(lambda total, e: binary("*", total, e), dims(extents)))


def flat_indices(buffer: Buffer, indices: Sequence[Expr], separated: bool = True) -> tuple[Expr, ...]:
    """The indices of the flat buffer for an access of `buffer`."""
    if len(indices) > 1:
        indices = [as_index(i) for i in indices]
    lanes = max((dtypes.lanes(i.dtype) for i in indices), default=1)
    return tuple(_row_major(indices[a:b], buffer.extents[a:b], lanes) for a, b in groups(buffer, separated))


def groups(buffer: Buffer, separated: bool = True) -> list[tuple[int, int]]:
    """The ranges of axes that become one."""
    return list(pairwise([0, *(buffer.axis_separators if separated else ()), buffer.rank]))


def _row_major(indices: Sequence[Expr], extents: Sequence[Extent], lanes: int) -> Expr:
    """``sum(index * stride)``; a ramp if every vector among the indices is one."""
    base, stride = as_expr(0), as_expr(0)
    for index, extent in zip(indices, extents, strict=True):
        start, step = _as_ramp(index)
        if start is None:
            return _vector_sum(indices, extents, lanes)
        base = binary("+", binary("*", base, extent), start)
        stride = binary("+", binary("*", stride, extent), step)
    vector = any(dtypes.lanes(i.dtype) > 1 for i in indices)
    return Ramp(base, stride, lanes) if vector else base


def _as_ramp(index: Expr) -> tuple[Expr | None, Expr]:
    if isinstance(index, Ramp):
        return index.base, index.stride
    if isinstance(index, Broadcast):
        return index.value, as_expr(0)
    return (index if dtypes.lanes(index.dtype) == 1 else None), as_expr(0)


def _vector_sum(indices: Sequence[Expr], extents: Sequence[Extent], lanes: int) -> Expr:
    total: Expr | None = None
    for index, extent in zip(indices, extents, strict=True):
        wide = index if dtypes.lanes(index.dtype) > 1 else Broadcast(index, lanes)
        scaled = None if total is None else Binary("*", total, Broadcast(as_expr(extent), lanes))
        total = wide if scaled is None else Binary("+", scaled, wide)
    assert total is not None
    return total
