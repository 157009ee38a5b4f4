"""What a kernel is called with: arrays and numbers of exactly the types that it takes, whose memory is used as is."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...backends.artifact import Argument
from ...backends.data import Array
from ...backends.executable import numpy_dtype
from ...errors import UsageError, did_you_mean
from ...ir import dtypes
from ...ir.numbers import BITS, is_passed_as, masked, to_storage

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


def checked(name: str, dtype: str, shape: tuple[int, ...] | None, value: object) -> Array:
    """A caller's array, C-contiguous and of exactly this dtype, and shape if given; of other floats their bits."""
    array, held = taken(name, dtype, value), numpy_dtype(dtype)
    if is_passed_as(dtype, array.dtype):
        array = array.view(held)
    if array.dtype != held:
        raise TypeError(f"`{name}` must have dtype {held}, but got {array.dtype}")
    if shape is not None and array.shape != shape:
        raise ValueError(f"`{name}` must have shape {shape}, but got {array.shape}")
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise ValueError(f"`{name}` must be C-contiguous and aligned; np.ascontiguousarray makes it so")
    return array


def taken(name: str, dtype: str, value: object) -> Array:
    """What a caller gives for `name` as an array of NumPy's that has the same memory.  Raises TypeError."""
    if isinstance(value, np.ndarray):
        if told := masked(name, value):
            raise TypeError(told)
        return value
    kind = type(value).__name__
    if not hasattr(value, "__dlpack__"):
        raise TypeError(f"`{name}` must be an array, NumPy's or one with `__dlpack__`, but got {kind}")
    if getattr(value, "is_neg", bool)():  # DLPack says nothing of PyTorch's views such as `z.conj().imag`
        raise TypeError(f"`{name}`, a {kind}, is the negative of what its memory holds; resolve_neg() copies it")
    if dtype == "bfloat16" and str(getattr(value, "dtype", "")) == "torch.bfloat16":
        tensor: Any = value  # NumPy has no bfloat16: its bits, in the same memory
        value = tensor.detach().view(sys.modules["torch"].uint16)
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"`{name}`, a {kind}, does not share its memory with NumPy: {error}") from None


def library_of(values: Iterable[object]) -> Any:
    """The library of the first of these that is another one's array; None where there is none, or it takes no array."""
    for value in values:
        if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray | np.generic):
            space = getattr(value, "__array_namespace__", None)
            library = space() if space is not None else sys.modules.get(type(value).__module__.partition(".")[0])
            return library if hasattr(library, "from_dlpack") else None
    return None


def given_back(library: Any, dtype: str, result: Array) -> Any:
    """A result as an array of `library` in the same memory; NumPy's where that is None, or takes no such numbers."""
    if library is None:
        return result
    try:
        made = library.from_dlpack(result)
    except (BufferError, RuntimeError, TypeError, ValueError):  # texts, for example
        return result
    return made.view(library.bfloat16) if dtype == "bfloat16" and hasattr(library, "bfloat16") else made


def in_order(given: object, names: Sequence[str], what: str) -> list[Any]:
    """Arrays by name, in the order of `names`.  Raises UsageError for names that there are not, or that are missing."""
    if not isinstance(given, Mapping):
        raise UsageError(
            f"the model is called with a dict, so that `out` is one too, as in {{{names[0]!r}: array}}, but got "
            f"{type(given).__name__}"
        )
    for name in given:
        if name not in names:
            hint = did_you_mean(name, names) or f"; there are {', '.join(names)}"
            raise UsageError(f"the model has no {what} {name!r}{hint}")
    if missing := [name for name in names if name not in given]:
        raise UsageError(f"the model lacks the {what} {', '.join(map(repr, missing))}")
    return [given[name] for name in names]


def in_a_row(out: object) -> Sequence[Any]:
    """The outputs of a call by position: several, or one alone.  Raises UsageError for a dict."""
    if isinstance(out, Mapping):
        raise UsageError("`out` is a dict where the inputs are given as one; here it is an array, or a list of them")
    return out if isinstance(out, list | tuple) else (out,)
