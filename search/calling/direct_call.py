"""Calls of a CPU kernel on the caller's arrays, without a microsecond to lose.

A small kernel runs for twenty microseconds, and checking its arguments one by one with full
sentences for what is wrong takes as long.  Here the checks are a few comparisons: whatever
does not pass them, right or wrong, is declined and takes the careful way.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.address import address
from ...backends.executable import numpy_dtype

if TYPE_CHECKING:
    from ...backends.artifact import Argument
    from ...backends.cpu import CpuExecutable
from ...backends.data import Array

_C_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x0001, 0x0100, 0x0400  # bits of `ndarray.flags.num`
_READABLE = _C_CONTIGUOUS | _ALIGNED
_WRITABLE = _READABLE | _WRITEABLE
_ndarray = np.ndarray

Pointers = Any


class DirectCall:
    """The arguments of one kernel by position, what each must be, and where its address goes.

    `inputs` and `outputs` are (number of the parameter, argument) in the order of a call; every
    argument lies in memory as its `physical_shape` says.  `pointers` is the kernel's record.
    """

    def __init__(
        self,
        executable: CpuExecutable,
        pointers: Pointers,
        inputs: Sequence[tuple[int, Argument]],
        outputs: Sequence[tuple[int, Argument]],
    ) -> None:
        self._run = executable.runner(pointers)
        self._pointers = pointers
        arguments = [*inputs, *outputs]
        self._outputs = range(len(inputs), len(arguments))
        self._inputs = len(inputs)
        self._expected = tuple(
            (index, a.physical_shape, numpy_dtype(a.dtype), _READABLE if position < self._inputs else _WRITABLE)
            for position, (index, a) in enumerate(arguments)
        )
        self._sizes = tuple(prod(shape) * dtype.itemsize for _, shape, dtype, _ in self._expected)

    def __call__(self, inputs: tuple[Array, ...], outputs: tuple[Array, ...]) -> bool:
        """Run the kernel, or return False: then nothing has happened to the arrays.

        An output must share no memory with another argument.  The record keeps what was written to it, also where the
        call is declined: every call, direct or careful, writes all of its arguments.
        """
        if len(inputs) != self._inputs or len(inputs) + len(outputs) != len(self._expected):
            return False
        pointers = self._pointers
        starts: list[int] = []
        for array, (index, shape, dtype, flags) in zip(inputs + outputs, self._expected):  # noqa: B905, lengths are equal
            if type(array) is not _ndarray or array.dtype is not dtype or array.shape != shape:
                return False
            if array.flags.num & flags != flags:
                return False
            start = pointers[index] = address(array)
            starts.append(start)
        for position in self._outputs:
            if self._overlaps(starts, position):
                return False
        self._run()
        return True

    def _overlaps(self, starts: list[int], output: int) -> bool:
        """Whether the output shares a byte with an argument before it."""
        start = starts[output]
        end = start + self._sizes[output]
        for other, size in zip(starts[:output], self._sizes):  # noqa: B905, SIM110, a generator takes longer
            if other < end and start < other + size:
                return True
        return False
