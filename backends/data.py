"""Arguments: how a caller's logical array lies in the physical memory of a parameter.

``physical[index_map(i)] = logical[i]``, and every other physical element holds the
pad value.  Packing is one NumPy scatter with indices that are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..ir.affine.index_map import IndexMap
from ..ir.stmt import PrimFunc, written_buffers

Array: TypeAlias = NDArray[Any]
Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Argument:
    """A buffer parameter as the caller sees it (logical) and as the kernel does (physical).

    `index_map` is empty where both agree.  `pad_value` is the text of a number,
    ``"undef"``, or empty where the padding may not be touched.
    """

    name: str
    logical_shape: Shape
    physical_shape: Shape
    dtype: str
    index_map: str = ""
    pad_value: str = ""
    is_output: bool = False

    @property
    def pads(self) -> bool:
        """Whether the physical memory has elements that no logical index reaches."""
        return prod(self.physical_shape) > prod(self.logical_shape)

    @property
    def pad_number(self) -> float | int | None:
        """What the padding holds: None for `undef` and where it may not be touched."""
        if self.pad_value in ("", "undef"):
            return None
        return float(self.pad_value) if "float" in self.dtype else int(float(self.pad_value))

    def to_json(self) -> list[Any]:
        return [
            self.name, list(self.logical_shape), self.index_map, self.pad_value,
            list(self.physical_shape), self.dtype, self.is_output,
        ]  # fmt: skip

    @staticmethod
    def from_json(data: Sequence[Any]) -> Argument:
        name, logical, index_map, pad_value, physical, dtype, is_output = data
        return Argument(name, tuple(logical), tuple(physical), dtype, index_map, pad_value, bool(is_output))


def arguments_of(func: PrimFunc) -> tuple[Argument, ...]:
    """The buffer parameters of `func` with their layouts, in order."""
    layouts = {layout.param: layout for layout in func.layouts}
    written = set(written_buffers(func.body))
    result = []
    for buffer in func.buffers:
        layout = layouts.get(buffer.name)
        logical = buffer.shape if layout is None else layout.logical_shape
        index_map, pad_value = ("", "") if layout is None else (layout.index_map, layout.pad_value)
        result.append(
            Argument(buffer.name, logical, buffer.shape, buffer.dtype, index_map, pad_value, buffer in written)
        )
    return tuple(result)


def pack(argument: Argument, logical: Array, fill: Array | None = None) -> Array:
    """The physical array of `logical`; padding is the pad value, or else what `fill` (physical) holds there."""
    dtype = np.dtype(argument.dtype)
    if not argument.index_map:
        return np.ascontiguousarray(logical, dtype).reshape(argument.physical_shape)
    physical = np.empty(prod(argument.physical_shape), dtype)
    if argument.pads:
        number = argument.pad_number
        if number is not None:
            physical[...] = number
        elif fill is not None:
            physical[...] = fill.reshape(-1)
        else:
            physical[...] = 0
    physical[positions(argument)] = logical
    return physical.reshape(argument.physical_shape)


def unpack(argument: Argument, physical: Array) -> Array:
    """The logical array that lies in `physical`."""
    if not argument.index_map:
        return physical.reshape(argument.logical_shape)
    result: Array = physical.reshape(-1)[positions(argument)]
    return result


def padding(argument: Argument, physical: Array) -> Array:
    """The padding elements of `physical`, as a flat array."""
    mask = np.ones(prod(argument.physical_shape), bool)
    mask[positions(argument)] = False
    result: Array = physical.reshape(-1)[mask]
    return result


def positions(argument: Argument) -> NDArray[np.int64]:
    """Flat physical positions, in the logical shape."""
    return _positions(argument.index_map, argument.logical_shape, argument.physical_shape)


@lru_cache(maxsize=64)
def _positions(index_map: str, logical: Shape, physical: Shape) -> NDArray[np.int64]:
    grid = np.ogrid[tuple(slice(0, extent) for extent in logical)]
    point = IndexMap.parse(index_map).map_point(tuple(grid)) if index_map else tuple(grid)
    flat: Any = np.int64(0)
    for index, extent in zip(point, physical, strict=True):
        flat = flat * extent + index
    return np.ascontiguousarray(np.broadcast_to(flat, logical), np.int64)
