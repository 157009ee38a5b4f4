"""A scheduled workload as a kernel, compared with its reference on small integers."""

from __future__ import annotations

import numpy as np

from stridesmith.backends.host import host_cpu
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.search.calling.kernel import build
from stridesmith.space.workloads import Workload


def run_compiled(work: Workload, func: PrimFunc, seed: int = 0, target: Target | None = None) -> None:
    """Build `func` for the target or the host, run it on integers whose sums are exact, and compare for equality."""
    rng = np.random.default_rng(seed)
    inputs = {b.name: rng.integers(-3, 4, b.shape).astype(b.dtype) for b in work.func.buffers if b.name in work.inputs}
    kernel = build(func, target or host_cpu(), dict.fromkeys(work.inputs, "constant"))
    got = kernel(*(inputs[name] for name in work.inputs))
    (expected,) = work.reference(inputs).values()
    np.testing.assert_array_equal(got, expected)
