"""Memory of the interpreter: bytes, and for every unit of them what may be done with it.

::

    FORBIDDEN       padding that holds nothing: reading or writing it is an error
    UNINITIALISED   never written: reading it is an error
    UNDEF           some value that the compiler may choose: results that depend on it are undef
    DEFINED         a value

A unit is as long as the shortest element of all the buffers that share the memory,
so that an alias of another type sees exactly which of its bytes hold a value.  An
element is as good as the worst of its units.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd, lcm
from typing import Any, Union

import numpy as np
from numpy.typing import NDArray

from ...errors import ProgramError
from .. import dtypes
from ..expr import Buffer, Var
from ..numbers import from_storage, held_shape, packed, poison, storage_dtype, to_storage, unpacked

FORBIDDEN, UNINITIALISED, UNDEF, DEFINED = range(4)

# Python numbers, NumPy scalars and arrays share the operators, but no type that has them all.
Data = Any
Flags = Union[bool, NDArray[np.bool_], None]


class InterpreterError(ProgramError, RuntimeError):
    """A program did what the language does not allow, or was called with wrong arguments."""


class Storage:
    """The memory of an allocation: `copies` of equal size in a row; a lane uses the one that the variable `owner` says.

    `views` are the buffers that share it, the first of which gives its size.
    """

    def __init__(self, views: Iterable[Buffer], data: NDArray[Any] | None, state: int, copies: int = 1) -> None:
        buffers = tuple(views)
        first = buffers[0]
        self.unit = gcd(*(dtypes.nbytes(dtypes.element(b.dtype)) for b in buffers))
        step = lcm(*(dtypes.nbytes(b.dtype) for b in buffers)) if copies > 1 else 1
        self.nbytes = first.nbytes
        self.stride = -(-first.nbytes // step) * step
        self.raw: NDArray[np.uint8]
        if data is not None:
            self.raw = data.reshape(-1).view(np.uint8)
        else:
            self.raw = np.empty(copies * self.stride, np.uint8)
        self.state: NDArray[np.uint8] = np.full(len(self.raw) // self.unit, state, np.uint8)
        self.guarded = data is not None
        self.owner: Var | None = None
        if data is None and state == UNDEF:
            Memory(first, self).fill(poison(first.dtype))


class Memory:
    """The elements of a storage as one buffer sees them.

    `data` is (elements,), or (elements, lanes) for a vector type, in the type that
    lies in memory; `state` is (elements,), or (elements, lanes, units of a lane)
    where an element has several units.  Of vectors of 4 bits both have bytes, two
    lanes each, as their last axis; a byte is as good as the worse of its lanes.
    """

    def __init__(self, buffer: Buffer, storage: Storage) -> None:
        self.dtype, self.storage = buffer.dtype, storage
        width, size = dtypes.lanes(buffer.dtype), dtypes.nbytes(buffer.dtype)
        self.count = len(storage.raw) // size
        self.stride = storage.stride // size
        self.units = size // storage.unit
        self.lanes: tuple[int, ...] = () if width == 1 else (width,)
        self.is_packed = dtypes.is_packed(buffer.dtype)
        flat = storage.raw[: self.count * size].view(storage_dtype(buffer.dtype))
        self.data: NDArray[Any] = flat.reshape(-1, *held_shape(buffer.dtype))
        units = storage.state[: self.count * self.units]
        self.state: NDArray[np.uint8] = units
        if self.is_packed or self.units > 1:
            self.state = units.reshape(self.count, -1) if self.is_packed else units.reshape(self.count, width, -1)

    @property
    def owner(self) -> Var | None:
        return self.storage.owner

    def read(self, location: Any) -> Data:
        """The values of the elements `location`, a last axis for the lanes of a vector type."""
        held = self.data[location]
        return unpacked(self.dtype, held) if self.is_packed else from_storage(self.dtype, held)

    def states(self, location: Any) -> Any:
        """The state of each lane that `read` gives."""
        state = self.state[location]
        if self.is_packed:
            return np.repeat(state, 2, axis=-1)
        if self.units == 1:
            return state
        worst = state.min(axis=-1)
        return worst if self.data.ndim > 1 else worst[..., 0]

    def write(self, location: Any, data: Data, undef: Flags) -> None:
        """Store values; those that are undef make their lane undef."""
        self.data[location] = self._held(data)
        state: Any = DEFINED if undef is None else np.where(undef, UNDEF, DEFINED)
        self.mark(location, state)

    def mark(self, location: Any, state: Any) -> None:
        """Set the state of each lane of the elements `location`."""
        if self.is_packed and np.ndim(state):
            state = np.minimum(state[..., ::2], state[..., 1::2])
            self.state[location] = state
            return
        if self.units > 1 and np.ndim(state):
            state = state[..., None] if self.data.ndim > 1 else state[..., None, None]
        self.state[location] = state

    def fill(self, value: Data) -> None:
        self.data[...] = self._held(np.full(self.lanes, value) if self.is_packed else value)

    def _held(self, data: Data) -> Any:
        """What lies in memory for values."""
        if self.is_packed:
            return packed(np.broadcast_to(data, np.shape(data) or self.lanes))
        return to_storage(self.dtype, data)

    def places(self, location: Any) -> Any:
        """The units of the elements `location`, a row for each lane where there are several."""
        if self.units == 1:
            return location
        units = np.asarray(location)[..., None] * self.units + np.arange(self.units)
        return units.reshape(1 if np.ndim(location) == 0 else len(units), -1)
