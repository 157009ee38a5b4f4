"""Layouts of buffers: changed at once, or later from an attribute.

`change_layout` is the one definition; schedules call it at once, and
`apply_buffer_transforms` calls it for what the function's attribute lists::

    T.func_attr({"layout_transform_map": {"x": ["lambda i, j: [j, i]"]}})

Source: RFC 0039 ("Impacted tir Transformations").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ..arith.simplify import simplify_index
from ..expr import FALSE, TRUE, Buffer, Const, Expr, Undef, binary
from ..layout.index_map import IndexMap
from ..layout.layout import Layout
from ..layout.pad_value import PadValue, Piece, encode
from ..stmt import Annotations, PrimFunc, stores
from .padding import Padding, check_pad_value, with_assumption, with_epilogue
from .relayout import Change, LayoutError, buffers, make_change, rewrite_accesses, rewrite_expr, views

LAYOUT_MAP = "layout_transform_map"


def change_layout(func: PrimFunc, change: Change) -> PrimFunc:
    """`func` with the buffer laid out anew, and its padding written or assumed.

    A parameter's layout is recorded, composed with the one that it has.  Raises LayoutError
    with the number of the condition (see `relayout`).
    """
    written = is_written(func, change.old)
    func = move_buffer(func, change)
    if not change.pads or change.pad_value.is_none:
        return func
    if written:
        return with_epilogue(func, Padding.of(change))
    return with_assumption(func, Padding.of(change)) if change.new in func.params else func


def move_buffer(func: PrimFunc, change: Change) -> PrimFunc:
    """`func` with every access of the buffer moved; what holds its padding is left to the caller."""
    is_parameter = change.old in func.params
    if change.pads:
        check_pad_value(Padding.of(change), _padded_before(func, change))
    func = rewrite_accesses(func, change)
    return _with_layout(func, change) if is_parameter else func


def _padded_before(func: PrimFunc, change: Change) -> Expr:
    """The condition, over the physical axes, of being no element of the caller's logical array."""
    layout = func.layout_of(change.old.name)
    if layout is None:
        return FALSE
    whole = change.index_map.compose(layout.index_map)
    return whole.non_surjective_inverse(layout.logical_shape, change.new.shape)[1].at(change.inverse.variables)


def owner(func: PrimFunc, buffer: Buffer) -> Buffer:
    """The buffer that owns the memory which `buffer` views."""
    return views(func, buffer)[0]


def is_written(func: PrimFunc, buffer: Buffer) -> bool:
    """Whether the function stores to the buffer or to a view of it."""
    return any(s.buffer.memory == buffer.memory for s in stores(func.body))


def _with_layout(func: PrimFunc, change: Change) -> PrimFunc:
    name, earlier = change.old.name, func.layout_of(change.old.name)
    if earlier is None:
        return replace(func, layouts=(*func.layouts, (name, change.layout)))
    whole, pad = change.index_map.compose(earlier.index_map), _composed_pad(change, earlier)
    layout = Layout(earlier.logical_shape, whole, change.new.shape, pad.encoded)
    return replace(func, layouts=tuple((n, layout if n == name else other) for n, other in func.layouts))


def _composed_pad(change: Change, earlier: Layout) -> PadValue:
    """The meaning of all padding: what a map pads means what came with that map (RFC 0077).

    ``p -> pad(p) if p is padding of the change, else earlier(f^-1(p))``.
    """
    before = earlier.pad(change.old)
    if prod(change.old.shape) == prod(earlier.logical_shape) or before == change.pad_value:
        return change.pad_value
    axes = change.pad_value.variables
    logical = change.inverse.map_indices(axes)
    moved: list[Piece] = [
        (simplify_index(rewrite_expr(cond, change)), None if value is None else rewrite_expr(value, change))
        for cond, value in before.at(logical)
    ]
    own: list[Piece] = []
    if change.pads:
        padding = change.padding(axes)
        own = [(binary("and", padding, cond), value) for cond, value in change.pad_value.at(axes)]
    values = {value for _, value in (*own, *moved)}
    if len(values) == 1 and all(value is None or isinstance(value, (Const, Undef)) for value in values):
        return PadValue(axes, ((TRUE, values.pop()),))
    return PadValue(axes, (*own, *moved[:-1], (TRUE, moved[-1][1])))


# ---------------------------------------------------------------- the deferred path


def with_layout_transform(
    func: PrimFunc, buffer: str, index_map: Any, pad_value: Any = None, physical_shape: Sequence[int] | None = None
) -> PrimFunc:
    """The function with one more layout transformation in its attribute, for `apply_buffer_transforms`.

    Arguments are those of the primitive `transform_layout`.  Raises LayoutError for a
    buffer that there is not.
    """
    listed = dict(dict(func.attrs).get(LAYOUT_MAP, ()))
    entries = _entries(listed.get(buffer, ()))
    rank = len(IndexMap.parse(_entry(entries[-1])[0]).indices) if entries else len(_named(func, buffer).shape)
    text = IndexMap.make(index_map, rank).text
    shape = None if physical_shape is None else tuple(physical_shape)
    entry: Any = text if pad_value is None and shape is None else (text, encode(pad_value), shape)
    listed[buffer] = (*entries, entry)
    rest = tuple((k, v) for k, v in func.attrs if k != LAYOUT_MAP)
    return replace(func, attrs=(*rest, (LAYOUT_MAP, tuple(listed.items()))))


def apply_buffer_transforms(func: PrimFunc) -> PrimFunc:
    """Apply, in order, the maps that the attribute ``layout_transform_map`` lists, and remove the attribute.

    Its value gives each buffer a list of index maps as text, or of ``(map, pad value)`` or
    ``(map, pad value, physical shape)``.  The program is that of the schedule's
    `transform_layout`.  Raises LayoutError where it refuses.
    """
    listed: Annotations = dict(func.attrs).get(LAYOUT_MAP, ())
    func = replace(func, attrs=tuple((k, v) for k, v in func.attrs if k != LAYOUT_MAP))
    for name, entries in listed:
        for entry in _entries(entries):
            index_map, pad_value, shape = _entry(entry)
            func = change_layout(func, make_change(_named(func, name), index_map, pad_value, shape))
    return func


def _entries(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _entry(value: Any) -> tuple[str, Any, Sequence[int] | None]:
    parts = (value,) if isinstance(value, str) else tuple(value)
    if not 1 <= len(parts) <= 3 or not isinstance(parts[0], str):
        raise LayoutError(f"(1) an entry of `{LAYOUT_MAP}` is a map, or (map, pad value, physical shape): {value!r}")
    index_map, pad_value, shape = (*parts, None, None)[:3]
    return index_map, pad_value, shape


def _named(func: PrimFunc, name: str) -> Buffer:
    known = {b.name: b for b in buffers(func)}
    if name not in known:
        raise LayoutError(f"(1) there is no buffer `{name}`; there are {', '.join(known)}")
    return owner(func, known[name])
