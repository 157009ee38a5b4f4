"""Memory of the interpreter: data, and for every element what may be done with it.

::

    UNINITIALISED   never written: reading it is an error
    FORBIDDEN       padding that holds nothing: reading or writing it is an error
    UNDEF           some value that the compiler may choose: results that depend on it are undef
    DEFINED         a value
"""

from __future__ import annotations

from typing import Any, Union

import numpy as np
from numpy.typing import NDArray

from .. import dtypes
from ..expr import Buffer, Var

UNINITIALISED, FORBIDDEN, UNDEF, DEFINED = range(4)

# Python numbers, NumPy scalars and arrays share the operators, but no type that has them all.
Data = Any
Flags = Union[bool, NDArray[np.bool_], None]


class InterpreterError(RuntimeError):
    """A program did what the language does not allow, or was called with wrong arguments."""


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy type of one lane; a bfloat16 is kept as the float32 of the same value."""
    base = dtypes.element(dtype)
    return np.dtype("float32" if base == "bfloat16" else base)


def round_to(dtype: str, data: Data) -> Data:
    """`data` rounded to a type that NumPy does not have."""
    if dtypes.element(dtype) != "bfloat16":
        return data
    bits = np.atleast_1d(np.asarray(data, np.float32)).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    result = np.where(np.isnan(bits.view(np.float32)), np.float32(np.nan), rounded.view(np.float32))
    return result.reshape(np.shape(data)) if np.ndim(data) else np.float32(result[0])


def poison(dtype: str) -> Data:
    """What an undef value reads as: NaN, or an integer that stands out."""
    kind = numpy_dtype(dtype)
    if kind.kind == "f":
        return kind.type(np.nan)
    return kind.type(True) if kind.kind == "b" else kind.type(0x5B)


class Memory:
    """One allocation: `data` and `state` are flat, with a second axis for the lanes of a vector type.

    An allocation inside of loops is `copies` equal ones, and the variable `owner`
    says which of them a lane has.
    """

    def __init__(
        self, buffer: Buffer, data: NDArray[Any] | None = None, state: int = UNINITIALISED, copies: int = 1
    ) -> None:
        width = dtypes.lanes(buffer.dtype)
        count = copies * buffer.size
        flat = np.empty(count * width, numpy_dtype(buffer.dtype)) if data is None else data.reshape(-1)
        if data is None and state == UNDEF:
            flat.fill(poison(buffer.dtype))
        self.data: NDArray[Any] = flat.reshape(-1, width) if width > 1 else flat
        self.state: NDArray[np.uint8] = np.full(count, state, np.uint8)
        self.guarded = data is not None
        self.stride = buffer.size
        self.owner: Var | None = None

    @property
    def size(self) -> int:
        return len(self.state)
