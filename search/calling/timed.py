"""How long a kernel takes, for people and programs: a median with its spread, measured as candidates are."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.data import Array
from ...backends.executable import numpy_dtype
from ...backends.host_load import look, too_many
from ...backends.timing import measure
from ...errors import UsageError
from ...figures import latency, number
from ...ir import dtypes
from ...numerals import as_real

if TYPE_CHECKING:
    from ...backends.artifact import Argument
    from ...backends.executable import Bound, Executable


@dataclass(frozen=True)
class Timing:
    """Seconds per call in `samples`, Python excluded; the median and the middle half of them in microseconds.

    `note` says what stood in the way, such as a busy machine; empty on a quiet one.
    """

    samples: tuple[float, ...] = field(repr=False)
    flops: int = 0
    note: str = ""

    @property
    def latency_us(self) -> float:
        """The median."""
        return statistics.median(self.samples) * 1e6

    @property
    def middle_us(self) -> tuple[float, float]:
        """Between which the middle half of the samples lie."""
        if len(self.samples) < 2:
            return self.latency_us, self.latency_us
        low, _, high = statistics.quantiles(self.samples, n=4, method="inclusive")
        return low * 1e6, high * 1e6

    @property
    def gflops(self) -> float:
        """Operations of the program by the median, in GFLOP/s; 0 where it has none of floats."""
        return self.flops / self.latency_us * 1e-3

    def __repr__(self) -> str:
        """The median and its spread, and on a second line what stood in the way."""
        low, high = self.middle_us
        speed = f", {number(self.gflops)} GFLOP/s" if self.flops else ""
        middle = f"half of {len(self.samples)} samples from {latency(low)} to {latency(high)}"
        told = f"<{latency(self.latency_us)}, {middle}{speed}>"
        return "\n".join(filter(None, (told, self.note)))


def bound(executable: Executable, values: Sequence[Array | None], signature: Sequence[Argument]) -> Bound:
    """Memory of its own for a kernel, filled with `values` as they lie there; with random ones for None.

    Outputs and workspaces begin as zeros.
    """
    made, random = executable.bind(), np.random.default_rng(0)
    for index, (argument, value) in enumerate(zip(signature, values, strict=True)):
        if value is not None:
            made.write(index, value)
        elif not argument.is_output:
            made.write(index, _random(argument, random))
    return made


def checked_seconds(seconds: float) -> float:
    """How long to measure.  Raises UsageError for what is no number above 0."""
    number = as_real(seconds)
    if number is None or not 0 < number < math.inf:
        raise UsageError(f"`seconds` is how long to measure, a number above 0, but got {seconds!r}")
    return number


def time_of(made: Bound, seconds: float, flops: int = 0, threads: int = 1) -> Timing:
    """What a bound kernel takes, on so many threads, alone on this host as far as that is ours to say."""
    from ..workers import host_lock

    load = look()
    with host_lock.exclusive():
        samples = tuple(measure(made, made.time(1), seconds))
    return Timing(samples, flops, "\n".join(filter(None, ("" if load is None else load.caveat, too_many(threads)))))


def _random(argument: Argument, random: np.random.Generator) -> Any:
    """Small numbers of an argument's type: indices and counts are 0 or 1, floats within one of 0."""
    shape, dtype = argument.physical_shape or (1,), numpy_dtype(argument.dtype)
    if argument.dtype == "bfloat16":
        return np.full(shape, 0x3F80, dtype)
    if dtypes.is_int(argument.dtype) or argument.dtype == "bool":
        return random.integers(0, 2, shape).astype(dtype)
    return random.uniform(-1, 1, shape).astype(dtype)
