"""Arrays on which a model can run, and seconds of its runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.cores import settler
from ...backends.data import Array
from ...ir.deadline import is_over

if TYPE_CHECKING:
    from ...ir.target import Target

MOST_SAMPLES = 10_000
PLACES = ("int32", "int64")
"""The types of integers that say where something is in a tensor."""


def random_arrays(wanted: Iterable[tuple[tuple[int, ...], np.dtype[Any]]], seed: int = 0) -> tuple[Array, ...]:
    """An array of each shape and type: normal numbers, and integers from 0 to 3.

    Those of types that count places are 0, which is a place in every dimension.
    """
    rng = np.random.default_rng(seed)

    def drawn(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        if str(dtype) in PLACES:
            return np.zeros(shape, dtype)
        found = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 4, shape)
        return np.asarray(found).astype(dtype)

    return tuple(drawn(shape, dtype) for shape, dtype in wanted)


def seconds_of(run: Callable[[], object], target: Target, seconds: float) -> list[float]:
    """Seconds of runs on a target, for about so long, after a few to warm up.

    Each begins when every thread has a core of its own (`backends.cores`).  After a deadline (`ir.deadline`) one
    is enough, and none warms up.
    """
    for _ in range(3):
        if not is_over():
            run()
    samples: list[float] = []
    settle = settler(target)
    end = time.perf_counter() + seconds
    while len(samples) < 3 or (time.perf_counter() < end and len(samples) < MOST_SAMPLES):
        if samples and is_over():
            break
        settle()
        began = time.perf_counter()
        run()
        samples.append(time.perf_counter() - began)
    return samples
