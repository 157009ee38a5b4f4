"""Epilogues are fused: bias and activation run on the register tile, and no sum passes through memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from expected_space import CPU, OPENCL

from stridesmith.backends.lower import lower
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.script.parser import parse
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


TWO_SUMS = """
@T.prim_func
def gated(x: T.Buffer((13, 11), "float32"), w: T.Buffer((11, 19), "float32"), v: T.Buffer((SECOND), "float32"),
          y: T.Buffer((13, 19), "float32")):
    up = T.alloc_buffer((13, 19), "float32")
    gate = T.alloc_buffer((GATE), "float32")
    for i, j, k in T.grid(13, 19, 11):
        with T.block("up"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                up[vi, vj] = 0.0
            up[vi, vj] = up[vi, vj] + x[vi, vk] * w[vk, vj]
    for LOOPS:
        with T.block("gate"):
            AXES
            with T.init():
                gate[vi, vj] = 0.0
            gate[vi, vj] = gate[vi, vj] + x[vi, vk] * v[vk, vj]
    for i, j in T.grid(13, 19):
        with T.block("together"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = up[vi, vj] * gate[READ]
"""
FORMS = {
    "as wide": {"SECOND": "11, 19", "GATE": "13, 19", "READ": "vi, vj", "LOOPS": "i, j, k in T.grid(13, 19, 11)",
                "AXES": 'vi, vj, vk = T.axis.remap("SSR", [i, j, k])'},
    "one of a row": {"SECOND": "11, 1", "GATE": "13, 1", "READ": "vi, 0", "LOOPS": "i, j, k in T.grid(13, 1, 11)",
                     "AXES": 'vi, vj, vk = T.axis.remap("SSR", [i, j, k])'},
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_what_takes_two_sums_goes_with_the_last(form: str) -> None:
    """It cannot run in the loops of the first, before the second is there: no candidate is refused for asking so."""
    text = TWO_SUMS
    for name, value in FORMS[form].items():
        text = text.replace(name, value)
    program = parse(text)
    rng = np.random.default_rng(0)
    x, w, v = (rng.random(b.shape, "float32") for b in program.buffers[:3])
    space = generate(program, CPU)
    assert any(len(sketch.parts) > 1 for sketch in space.sketches)
    for sketch in space.sketches:
        moved = {part.anchor.block: part.anchor.epilogue for part in sketch.parts}
        assert not moved.get("up")
        first, *_ = [sketch.schedule(choice).func for choice in candidates(sketch, 3)]  # no primitive refuses
        y = np.zeros((13, 19), "float32")
        interpret(first, x, w, v, y)
        np.testing.assert_allclose(y, (x @ w) * (x @ v), rtol=1e-5)
