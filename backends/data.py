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
from ..ir.expr import Buffer, Const
from ..ir.interpreter.memory import DEFINED
from ..ir.interpreter.pads import pad_contents
from ..ir.layout.layout import Layout
from ..ir.numbers import boundary_dtype, held_shape, to_storage
from ..ir.passes.layouts import apply_buffer_transforms
from ..ir.stmt import PrimFunc, written_buffers
from .artifact import Argument
from .memory import zeros

Array: TypeAlias = NDArray[Any]


def arguments_of(func: PrimFunc) -> tuple[Argument, ...]:
    """The parameters of `func` with their layouts, those that it asks for included.

    Raises ValueError for a layout of vectors, and for one that cannot be given.
    """
    func = apply_buffer_transforms(func)
    written = {buffer.memory for buffer in written_buffers(func.body)}
    return tuple(
        _buffer_argument(param, func.layout_of(param.name), param.name in written)
        if isinstance(param, Buffer)
        else Argument(param.name, Layout.plain(()), param.dtype, is_scalar=True)
        for param in func.params
    )


def _buffer_argument(buffer: Buffer, layout: Layout | None, is_output: bool) -> Argument:
    element, lanes = dtypes.split_dtype(buffer.dtype)
    if dtypes.is_packed(buffer.dtype):
        element = "uint8"
    shape = (*buffer.shape, *held_shape(buffer.dtype))
    if layout is None:
        return Argument(buffer.name, Layout.plain(shape), element, is_output)
    if lanes > 1:
        raise ValueError(f"`{buffer.name}` holds {buffer.dtype} and has a layout; declare its scalars instead")
    return Argument(buffer.name, layout, element, is_output)


def pack(argument: Argument, logical: Array, fill: Array | None = None) -> Array:
    """The physical array of `logical`; padding is the pad value, or else what `fill` (physical) holds there."""
    dtype = boundary_dtype(argument.dtype)
    if argument.layout.is_in_place:
        return np.ascontiguousarray(logical, dtype).reshape(argument.physical_shape)
    count = prod(argument.physical_shape)
    physical = zeros(count * dtype.itemsize).view(dtype) if count else np.zeros(0, dtype)
    if argument.pads and fill is not None:
        physical[...] = fill.reshape(-1)
    physical[argument.layout.positions] = logical
    if argument.pads and argument.layout.promises:
        values, states = pad_values(argument, physical)
        held = states == DEFINED
        physical[np.flatnonzero(_mask(argument))[held]] = values[held]
    return physical.reshape(argument.physical_shape)


def pad_values(argument: Argument, physical: Array) -> tuple[Array, NDArray[np.uint8]]:
    """What each padding element is to hold, in order, and its state: FORBIDDEN, UNDEF, or DEFINED by the value."""
    buffer = Buffer(argument.name, argument.physical_shape, argument.dtype)
    pad_value = argument.layout.pad(buffer)
    mask = _mask(argument)
    if isinstance(pad_value.single, Const):
        count = int(mask.sum())
        value = to_storage(argument.dtype, pad_value.single.value)
        return np.full(count, value, physical.dtype), np.full(count, DEFINED, np.uint8)
    return pad_contents(pad_value, buffer, physical.reshape(-1), mask)


def unpack(argument: Argument, physical: Array) -> Array:
    """The logical array that lies in `physical`."""
    if argument.layout.is_in_place:
        return physical.reshape(argument.logical_shape)
    return np.asarray(physical.reshape(-1)[argument.layout.positions])


def padding(argument: Argument, physical: Array) -> Array:
    """The padding elements of `physical`, as a flat array."""
    result: Array = physical.reshape(-1)[_mask(argument)]
    return result


def _mask(argument: Argument) -> NDArray[np.bool_]:
    """A mask of the physical elements that are padding, flat."""
    mask = np.ones(prod(argument.physical_shape), bool)
    mask[argument.layout.positions] = False
    return mask
