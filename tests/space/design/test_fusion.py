"""Epilogues are fused: bias and activation run on the register tile, and no sum passes through memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from expected_space import CPU, OPENCL

from stridesmith.backends.lower import lower
from stridesmith.ir.stmt import PrimFunc, blocks
from stridesmith.ir.target import Target
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import Space, generate
from stridesmith.space.tree import find_block, loops_above
from stridesmith.space.workloads import workload

SHAPES: dict[str, dict[str, Any]] = {
    "conv2d_bias_act": {"ci": 5, "h": 8, "w": 9, "co": 10, "k": 3},
    "matmul_bias_act": {"m": 13, "n": 19, "k": 11, "act": "gelu"},
}


def space_of(name: str, target: Target) -> Space:
    work = workload(name, **SHAPES[name])
    return generate(work.func, target, dict.fromkeys(work.constants, "constant"))


def candidates(sketch: Sketch, count: int) -> list[Any]:
    rng = np.random.default_rng(2)
    rows = np.stack([rng.integers(len(d), size=30_000) for d in sketch.decisions], axis=1)
    return list(rows[sketch.mask(rows)][:count])


def outermost(func: PrimFunc, block: str) -> str:
    """The outermost loop of a block's nest."""
    return loops_above(func, find_block(func, block))[0].var.name


@pytest.mark.parametrize("target", [CPU, OPENCL], ids=lambda target: target.kind)
@pytest.mark.parametrize("name", SHAPES)
def test_the_accumulator_never_passes_through_memory(name: str, target: Target) -> None:
    """In every candidate the sum lies in registers, and the epilogue runs in the loops that computed it.

    What is in memory besides the arguments are stages of inputs.
    """
    space = space_of(name, target)
    for sketch in space.sketches:
        anchor = sketch.main.anchor
        assert anchor.epilogue and len(sketch.parts) == 1
        for choice in candidates(sketch, 4):
            func = sketch.schedule(choice).func
            scopes = {b.name: b.scope for block in blocks(func.body) for b in block.allocs}
            assert scopes.pop(anchor.output.buffer.name) == "local"
            assert outermost(func, anchor.epilogue) == outermost(func, anchor.block)
            stages = {o.buffer.name for o in anchor.inputs if o.source == "stage"}
            scopes_of_copies = ("global", "shared", "global_shared", "local")
            copies = {f"{o.buffer.name}_{scope}" for o in anchor.inputs for scope in scopes_of_copies}
            assert set(scopes) <= stages | copies
            assert {b.name for b in lower(func, target).workspaces} <= stages | copies
