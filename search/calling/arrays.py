"""What a kernel is called with: arrays and numbers of exactly the types that it takes, whose memory is used as is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends.artifact import Argument
from ...backends.data import Array
from ...backends.executable import numpy_dtype
from ...ir import dtypes
from ...ir.numbers import BITS, is_passed_as, to_storage

Named = Sequence[tuple[str, Array]]


def refuse_overlap(outputs: Named, inputs: Named) -> None:
    """Raises ValueError for an array that is written and shares memory with another."""
    for number, (name, array) in enumerate(outputs):
        for other, second in (*inputs, *outputs[:number]):
            if np.may_share_memory(array, second):
                raise ValueError(f"`{name}` is written and shares memory with `{other}`")


def scalar(argument: Argument, value: Any) -> Array:
    """A number in memory of one element.  Raises TypeError and ValueError for what the type does not hold."""
    if np.ndim(value) != 0 or isinstance(value, (str, bytes)) or not isinstance(value, (bool, int, float, np.generic)):
        raise TypeError(f"`{argument.name}` is a scalar of type {argument.dtype}, but got {type(value).__name__}")
    if dtypes.is_int(argument.dtype):
        low, high = dtypes.int_range(argument.dtype)
        try:
            is_whole = value == int(value)
        except (OverflowError, ValueError):  # an infinity, NaN
            is_whole = False
        if not is_whole or not low <= int(value) <= high:
            raise ValueError(f"`{argument.name}` = {value} does not fit the type {argument.dtype}")
    if argument.dtype in BITS:
        return np.asarray(to_storage(argument.dtype, np.float32(value))).reshape(1)
    return np.full(1, value, numpy_dtype(argument.dtype))


def checked(argument: Argument, shape: tuple[int, ...] | None, array: object) -> Array:
    """The argument, a C-contiguous array of exactly this dtype, and shape if given; of other floats their bits."""
    if not isinstance(array, np.ndarray):
        array = _shared(argument, array)
    dtype = numpy_dtype(argument.dtype)
    if is_passed_as(argument.dtype, array.dtype):
        array = array.view(dtype)
    if array.dtype != dtype:
        raise TypeError(f"`{argument.name}` must have dtype {dtype}, but got {array.dtype}")
    if shape is not None and array.shape != shape:
        raise ValueError(f"`{argument.name}` must have shape {shape}, but got {array.shape}")
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise ValueError(f"`{argument.name}` must be C-contiguous and aligned; np.ascontiguousarray makes it so")
    return array


def _shared(argument: Argument, value: object) -> Array:
    """The memory of another library's array on the CPU, without a copy."""
    if not hasattr(value, "__dlpack__"):
        kind = type(value).__name__
        raise TypeError(f"`{argument.name}` must be an array, NumPy's or one with `__dlpack__`, but got {kind}")
    if getattr(value, "is_neg", bool)():  # DLPack says nothing of PyTorch's views such as `z.conj().imag`
        kind = type(value).__name__
        raise TypeError(
            f"`{argument.name}`, a {kind}, is the negative of what its memory holds; resolve_neg() copies it"
        )
    if argument.dtype == "bfloat16" and str(getattr(value, "dtype", "")) == "torch.bfloat16":
        tensor: Any = value  # NumPy has no bfloat16: its bits, in the same memory
        value = tensor.detach().view(sys.modules["torch"].uint16)
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        kind = type(value).__name__
        raise TypeError(f"`{argument.name}`, a {kind}, does not share its memory with NumPy: {error}") from None
