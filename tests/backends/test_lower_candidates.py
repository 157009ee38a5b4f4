"""Random schedules of small, awkward shapes through every pass of lowering."""

from __future__ import annotations

import numpy as np
import pytest

from stridesmith.backends.lower import lowering_steps
from stridesmith.backends.passes.flatten import flat_buffer
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.stmt import Block, PrimFunc, Stmt
from stridesmith.ir.target import Target
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import workload

TARGET = Target(kind="cpu", vector_bits=256, registers=16, threads=2)

SHAPES = {
    "conv2d": {"ci": 3, "h": 5, "w": 7, "co": 10, "k": 3},
    "matmul": {"m": 13, "n": 19, "k": 11},
    "max_pool2d": {"c": 3, "h": 9, "w": 11, "k": 3, "stride": 2, "pad": 1},
    "softmax": {"rows": 5, "cols": 37},
}


def choices(sketch: Sketch, rng: np.random.Generator, count: int) -> list[tuple[int, ...]]:
    """Some feasible candidates of a sketch."""
    found: list[tuple[int, ...]] = []
    while len(found) < count:
        drawn = np.stack([rng.integers(0, len(d), 1024) for d in sketch.decisions], axis=1)
        found += [tuple(int(v) for v in row) for row in drawn[sketch.mask(drawn)][:count]]
    return found[:count]


def run(func: PrimFunc, body: Stmt, arrays: list[np.ndarray], flat: bool) -> list[np.ndarray]:
    params = tuple(flat_buffer(p, False) for p in func.buffers) if flat else func.params
    root = body if isinstance(body, Block) and body.name == "root" else Block("root", (), body)
    copies = [a.reshape(-1).copy() if flat else a.copy() for a in arrays]
    interpret(PrimFunc(func.name, params, root), *copies)
    return [c.reshape(a.shape) for c, a in zip(copies, arrays, strict=True)]


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_random_candidates_keep_their_meaning_in_every_pass(name):
    """What a random schedule computes before the first pass, it computes after each."""
    work = workload(name, **SHAPES[name])
    rng = np.random.default_rng(17)
    for sketch in generate(work.func, TARGET).sketches[:4]:
        for choice in choices(sketch, rng, 1):
            func = sketch.trace(choice).replay(work.func).func
            arrays = [rng.integers(-3, 4, b.shape).astype(b.dtype) for b in func.buffers]
            expected = run(func, func.body, arrays, False)
            reads_undef = "undef" in func.script()
            flat = False
            for step, body in lowering_steps(func, TARGET):
                flat = flat or step == "flatten_buffers"
                if reads_undef and step == "remove_store_undef":
                    break  # from here on the interpreter takes undef elements for forgotten ones
                got = run(func, body, arrays, flat)
                for have, want in zip(got, expected, strict=True):
                    np.testing.assert_allclose(have, want, rtol=1e-6, err_msg=f"{sketch.name} after {step}")
