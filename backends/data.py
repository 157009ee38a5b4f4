"""Packing: how a caller's logical array comes into the physical memory of a parameter, and back.

``physical[index_map(i)] = logical[i]``, and every other physical element holds the
pad value.  Packing is one NumPy scatter with indices that are computed once.
"""

from __future__ import annotations

from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..ir import dtypes
from ..ir.caches import cached
from ..ir.expr import Buffer, Const
from ..ir.interpreter.memory import DEFINED
from ..ir.interpreter.pads import pad_contents
from ..ir.layout.index_map import IndexMap
from ..ir.layout.pad_value import PadValue
from ..ir.numbers import boundary_dtype, to_storage
from ..ir.passes.layouts import apply_buffer_transforms
from ..ir.stmt import Layout, PrimFunc, written_buffers
from .artifact import Argument, Shape
from .memory import zeros

Array: TypeAlias = NDArray[Any]


def arguments_of(func: PrimFunc) -> tuple[Argument, ...]:
    """The parameters of `func` with their layouts, those that it asks for included.

    Raises ValueError for a layout of vectors, and for one that cannot be given.
    """
    func = apply_buffer_transforms(func)
    layouts = {layout.param: layout for layout in func.layouts}
    written = {buffer.memory for buffer in written_buffers(func.body)}
    return tuple(
        _buffer_argument(param, layouts.get(param.name), param.name in written)
        if isinstance(param, Buffer)
        else Argument(param.name, (), (), param.dtype, is_scalar=True)
        for param in func.params
    )


def _buffer_argument(buffer: Buffer, layout: Layout | None, is_output: bool) -> Argument:
    element, lanes = dtypes.split_dtype(buffer.dtype)
    shape = buffer.shape if lanes == 1 else (*buffer.shape, lanes)
    if layout is None:
        return Argument(buffer.name, shape, shape, element, is_output=is_output)
    if lanes > 1:
        raise ValueError(f"`{buffer.name}` holds {buffer.dtype} and has a layout; declare its scalars instead")
    logical, text, pad = layout.logical_shape, layout.index_map, layout.pad_value
    return Argument(buffer.name, logical, shape, element, text, pad, is_output)


def pack(argument: Argument, logical: Array, fill: Array | None = None) -> Array:
    """The physical array of `logical`; padding is the pad value, or else what `fill` (physical) holds there."""
    dtype = boundary_dtype(argument.dtype)
    if is_in_place(argument):
        return np.ascontiguousarray(logical, dtype).reshape(argument.physical_shape)
    count = prod(argument.physical_shape)
    physical = zeros(count * dtype.itemsize).view(dtype) if count else np.zeros(0, dtype)
    if argument.pads and fill is not None:
        physical[...] = fill.reshape(-1)
    physical[positions(argument)] = logical
    if argument.pads and argument.pad_value not in ("", "undef"):
        values, states = pad_values(argument, physical)
        held = states == DEFINED
        physical[np.flatnonzero(_mask(argument))[held]] = values[held]
    return physical.reshape(argument.physical_shape)


def pad_values(argument: Argument, physical: Array) -> tuple[Array, NDArray[np.uint8]]:
    """What each padding element is to hold, in order, and its state: FORBIDDEN, UNDEF, or DEFINED by the value."""
    buffer = Buffer(argument.name, argument.physical_shape, argument.dtype)
    pad_value = PadValue.parse(argument.pad_value, buffer)
    mask = _mask(argument)
    if isinstance(pad_value.single, Const):
        count = int(mask.sum())
        value = to_storage(argument.dtype, pad_value.single.value)
        return np.full(count, value, physical.dtype), np.full(count, DEFINED, np.uint8)
    return pad_contents(pad_value, buffer, physical.reshape(-1), mask)


def unpack(argument: Argument, physical: Array) -> Array:
    """The logical array that lies in `physical`."""
    if is_in_place(argument):
        return physical.reshape(argument.logical_shape)
    return np.asarray(physical.reshape(-1)[positions(argument)])


def padding(argument: Argument, physical: Array) -> Array:
    """The padding elements of `physical`, as a flat array."""
    result: Array = physical.reshape(-1)[_mask(argument)]
    return result


def _mask(argument: Argument) -> NDArray[np.bool_]:
    """A mask of the physical elements that are padding, flat."""
    mask = np.ones(prod(argument.physical_shape), bool)
    mask[positions(argument)] = False
    return mask


def is_in_place(argument: Argument) -> bool:
    """Whether the caller's array is the kernel's as it lies in memory: at most its shape is another."""
    return not argument.index_map or _is_reshape(argument.index_map, argument.logical_shape, argument.physical_shape)


def same_memory(a: Argument, b: Argument) -> bool:
    """Whether two kernels mean the same memory by a tensor."""
    if is_in_place(a) or is_in_place(b):
        return is_in_place(a) and is_in_place(b)
    if (a.index_map, a.physical_shape) == (b.index_map, b.physical_shape):
        return True
    alike = a.logical_shape == b.logical_shape and prod(a.physical_shape) == prod(b.physical_shape)
    return alike and np.array_equal(positions(a), positions(b))  # one map is written otherwise than the other


def positions(argument: Argument) -> NDArray[np.int64]:
    """Flat physical positions, in the logical shape."""
    return _positions(argument.index_map, argument.logical_shape, argument.physical_shape)


@cached(1024)
def _is_reshape(index_map: str, logical: Shape, physical: Shape) -> bool:
    return IndexMap.parse(index_map).keeps_memory_order(logical, physical)


@cached(64)
def _positions(index_map: str, logical: Shape, physical: Shape) -> NDArray[np.int64]:
    grid = np.ogrid[tuple(slice(0, extent) for extent in logical)]
    point = IndexMap.parse(index_map).map_point(tuple(grid)) if index_map else tuple(grid)
    flat: Any = np.int64(0)
    for index, extent in zip(point, physical, strict=True):
        flat = flat * extent + index
    return np.ascontiguousarray(np.broadcast_to(flat, logical), np.int64)
