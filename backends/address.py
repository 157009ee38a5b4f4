"""Where an array's elements lie.

``array.ctypes.data`` and ``array.__array_interface__`` build Python objects for more than a
microsecond, which a kernel of twenty microseconds notices once for each argument.  The address
is the first field of NumPy's public array structure after the object's header
(``PyArrayObject_fields.data``, part of its stable ABI), so it is read from there, where a probe
at import shows that this is so; elsewhere NumPy is asked.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_HEADER = object.__basicsize__
_read = ctypes.c_size_t.from_address


def _asked(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _from_structure(array: NDArray[Any]) -> int:
    return _read(id(array) + _HEADER).value


def _fits() -> bool:
    """Whether arrays of several kinds have their address where it is expected."""
    base = np.zeros((3, 5), np.float32)
    probes = (base, base[1:], base[:, 2:], base.T, np.zeros(0), np.zeros(()), base.view(np.uint8))
    return all(_from_structure(array) == _asked(array) for array in probes)


address: Callable[[NDArray[Any]], int] = _from_structure if _fits() else _asked
"""The address of an array's first element; `array` is exactly an ndarray, not one of its subclasses."""
