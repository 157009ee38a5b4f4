"""Where each element of a buffer lies: transform_layout, set_axis_separator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...ir.passes.layouts import change_layout, move_buffer
from ...ir.passes.relayout import LayoutError, make_change, views
from ...ir.stmt import PrimFunc, replace_buffer
from ..errors import ScheduleError
from ..primitive import Result, index_rank, primitive
from ..tree import producers
from .buffers import buffer_of
from .rewrite_writer import rewrite_writer
from .sequential import sequential_loops


@primitive
def transform_layout(
    func: PrimFunc,
    block: str,
    buffer: Any,
    index_map: Any,
    pad_value: Any = None,
    *,
    physical_shape: Sequence[int] | None = None,
    multiples: Sequence[int] | None = None,
    rewrite_loops: bool = False,
) -> Result:
    """``A[i]`` -> ``A'[f(i)]`` for every access, with ``A'`` of shape ``f.map_shape(A.shape)`` or `physical_shape`.

    With `multiples` each extent is the least multiple of a number that holds this shape.
    `buffer` is a name, or ``("read", k)`` / ``("write", k)`` of `block`, which is ``"root"``
    for a function of bare loops.  Physical elements without a preimage are padding.
    `pad_value` None forbids touching them, ``"undef"`` lets them hold anything; a number, or
    a function of the transformed indices that may read the buffer itself, is stored there
    after the last writer, or assumed of an input.  Loops stay as they are; with
    `rewrite_loops` the only writer iterates over the physical indices instead, padding
    included, and its loops are returned; bare loops that write the buffer become sequential
    as by `sequential_buffer_access`.  Maps of a parameter compose.

    Conditions: (1) the map takes one index for each dimension; (2) it is injective; (3)
    `physical_shape` holds its image, and there are as many `multiples`; (4) `pad_value` has the
    element type and reads nothing but logical elements of the buffer, written before it is stored;
    (5) views of the buffer have its type, rank and extents; (6) the padding can be written after the
    last writer and before every reader; (7) vector accesses stay vectors; (8) `rewrite_loops` of
    blocks with iterators needs a single writer without a reduction, one store at its iterators, alone
    in a nest of loops that reaches every element, with no point that needs another.
    Sources: RFC 0039 and RFC 0077 (`pad_value`).
    """
    old = buffer_of(func, block, buffer)
    try:
        change = make_change(old, index_map, pad_value, physical_shape, multiples)
        writers = producers(func, old) if rewrite_loops else ()
        if writers and all(b.iters for b in writers):
            return rewrite_writer(move_buffer(func, change), change)
        func = change_layout(func, change)
        return sequential_loops(func, [b.name for b in writers], old.name) if writers else (func, None)
    except LayoutError as error:
        raise ScheduleError("{error}", error=str(error)) from None


@primitive
def set_axis_separator(func: PrimFunc, block: str, buffer: Any, axis_separators: Sequence[int]) -> Result:
    """Group the axes of a buffer: each position in `axis_separators` begins a group, which is flattened to one axis.

    `buffer` as in `transform_layout`; its views take the same separators.  Conditions: (1)
    positions ascend strictly, between 0 and the rank; (2) views have the buffer's rank.
    Source: RFC 0039.
    """
    old = buffer_of(func, block, buffer)
    cuts = tuple(int(a) for a in axis_separators)
    if any(a >= b for a, b in zip((0, *cuts), (*cuts, old.rank), strict=True)):
        raise ScheduleError(
            "(1) axis separators ascend strictly between 0 and {rank}, the rank of `{buffer}`, but got {cuts}",
            rank=old.rank, buffer=old.name, cuts=list(cuts),
        )  # fmt: skip
    for view in views(func, old):
        if view.rank != old.rank:
            raise ScheduleError("(2) its view `{view}` has the rank {rank}", view=view.name, rank=view.rank)
        func = replace_buffer(func, view, replace(view, axis_separators=cuts))
    return func, None


@index_rank("transform_layout")
def _rank(func: PrimFunc, block: str, buffer: Any, **_rest: Any) -> int:
    return buffer_of(func, block, buffer).rank
