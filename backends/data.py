"""Arguments: how a caller's logical array lies in the physical memory of a parameter.

``physical[index_map(i)] = logical[i]``, and every other physical element holds the
pad value.  Packing is one NumPy scatter with indices that are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..ir import dtypes
from ..ir.caches import cached
from ..ir.expr import Buffer, Const
from ..ir.interpreter.memory import DEFINED
from ..ir.interpreter.numbers import boundary_dtype
from ..ir.interpreter.pads import pad_contents
from ..ir.layout.index_map import IndexMap
from ..ir.layout.pad_value import PadValue
from ..ir.passes.layouts import apply_buffer_transforms
from ..ir.stmt import Layout, PrimFunc, written_buffers
from .memory import zeros

Array: TypeAlias = NDArray[Any]
Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Argument:
    """A parameter as the caller sees it (logical) and as the kernel does (physical).

    A buffer of vectors has an axis more, for their lanes.  A scalar has the shape () and
    lies in memory of one element.  `index_map` is empty where both agree.  `pad_value` is the text of a `PadValue`: a
    number, ``"undef"``, a lambda of the physical indices, or empty where the padding may
    not be touched.
    """

    name: str
    logical_shape: Shape
    physical_shape: Shape
    dtype: str
    index_map: str = ""
    pad_value: str = ""
    is_output: bool = False
    is_scalar: bool = False

    @property
    def pads(self) -> bool:
        """Whether the physical memory has elements that no logical index reaches."""
        return prod(self.physical_shape) > prod(self.logical_shape)

    @property
    def is_in_place(self) -> bool:
        """Whether the caller's array is the kernel's as it lies in memory: at most its shape is another."""
        return not self.index_map or _is_reshape(self.index_map, self.logical_shape, self.physical_shape)

    def to_json(self) -> list[Any]:
        return [
            self.name, list(self.logical_shape), self.index_map, self.pad_value,
            list(self.physical_shape), self.dtype, self.is_output, self.is_scalar,
        ]  # fmt: skip

    @staticmethod
    def from_json(data: Sequence[Any]) -> Argument:
        name, logical, index_map, pad_value, physical, dtype, is_output, *scalar = data
        is_scalar = bool(scalar and scalar[0])
        return Argument(name, tuple(logical), tuple(physical), dtype, index_map, pad_value, bool(is_output), is_scalar)


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
    if argument.is_in_place:
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
        return np.full(count, pad_value.single.value, physical.dtype), np.full(count, DEFINED, np.uint8)
    return pad_contents(pad_value, buffer, physical.reshape(-1), mask)


def unpack(argument: Argument, physical: Array) -> Array:
    """The logical array that lies in `physical`."""
    if argument.is_in_place:
        return physical.reshape(argument.logical_shape)
    result: Array = physical.reshape(-1)[positions(argument)]
    return result


def padding(argument: Argument, physical: Array) -> Array:
    """The padding elements of `physical`, as a flat array."""
    result: Array = physical.reshape(-1)[_mask(argument)]
    return result


def _mask(argument: Argument) -> NDArray[np.bool_]:
    """Which physical elements are padding, flat."""
    mask = np.ones(prod(argument.physical_shape), bool)
    mask[positions(argument)] = False
    return mask


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
