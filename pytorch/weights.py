"""Whether weights are what they were when kernels were made of them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .conversion import array_of

SAMPLED = 64
"""Elements that are looked at, of all weights together; of each at least one."""


class Weights:
    """The weights among the values of a graph's inputs, and what tells that they have not changed.

    Another tensor is seen by its address, and what PyTorch writes by the tensor's version.  PyTorch does not count what
    is written through `.data` or `.numpy()`, so that the bytes of some elements are compared too.
    """

    def __init__(self, values: Sequence[Tensor | None]) -> None:
        found = {at: value for at, value in enumerate(values) if value is not None}
        self._at = list(found)
        self._marks = self._marked(values)
        read = [value for value in found.values() if value.numel() and array_of(value) is not None]
        addresses = [address for value in read for address in _sample(value, max(1, SAMPLED // len(read)))]
        first, last = min(addresses, default=0), max(addresses, default=-1)
        # All are read in one go, which takes half a microsecond for fifty weights: as elements of an array that reaches
        # from the first to the last.  What lies between the weights is not touched, and may not be there.
        reach = (ctypes.c_uint8 * (last - first + 1)).from_address(first)
        self._memory: NDArray[np.uint8] = np.ctypeslib.as_array(reach)
        self._places = np.array(addresses, np.intp) - first
        self._bytes = self._sampled()

    def unchanged(self, given: Sequence[Any]) -> bool:
        """Whether the inputs of a call have the same weights."""
        return self._marked(given) == self._marks and self._sampled() == self._bytes

    def _marked(self, given: Sequence[Any]) -> list[int]:
        marks: list[int] = [given[at].data_ptr() for at in self._at]
        marks += [given[at]._version for at in self._at]
        return marks

    def _sampled(self) -> bytes:
        """The sampled bytes; only to be read while tensors are there that have the addresses of the weights."""
        return self._memory[self._places].tobytes()


def _sample(value: Tensor, count: int) -> list[int]:
    """The addresses of the bytes of elements that are spread over a tensor."""
    places = (2 * np.arange(count) + 1) * value.numel() // (2 * count)
    offsets = np.zeros_like(places)
    for extent, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        places, index = np.divmod(places, extent)
        offsets += index * stride
    size = value.element_size()
    found: list[int] = (value.data_ptr() + offsets[:, None] * size + np.arange(size)).ravel().tolist()
    return found
