"""Kernels for AArch64 compute what they should, run by an emulator where there is one."""

from __future__ import annotations

from pathlib import Path

import emulated
import numpy as np
import pytest

from stridesmith.backends.data import arguments_of
from stridesmith.backends.lower import lower
from stridesmith.backends.samples import make_samples
from stridesmith.backends.verification import verify
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import workload

needs_emulator = pytest.mark.skipif(not emulated.is_here(), reason=f"no {emulated.EMULATOR} or ziglang")


@needs_emulator
@pytest.mark.timeout(600)
@pytest.mark.parametrize("features", [(), ("dotprod",), ("dotprod", "i8mm", "fullfp16", "bf16")], ids=" ".join)
@pytest.mark.parametrize("name", ["matmul", "matmul int8", "conv2d"])
def test_a_candidate_computes_the_same(name: str, features: tuple[str, ...], tmp_path: Path) -> None:
    """A random candidate, with poison in all that it may not rely on, on processors with more and fewer features."""
    kind, shape = emulated.operators()[name]
    work, machine = workload(kind, **shape), emulated.target(*features)
    space = generate(work.func, machine, dict.fromkeys(work.constants, "constant"))
    rng = np.random.default_rng(len(features))
    sketch = space.sketches[int(rng.integers(len(space.sketches)))]
    func = sketch.schedule(sketch.draw(rng, 1)[0]).func
    bound = emulated.Emulated(lower(func, machine), machine, tmp_path)
    assert verify(bound, arguments_of(func), make_samples(work.func, work.reference, 0)).complete
