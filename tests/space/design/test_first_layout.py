"""The layout that brings together what a group reads: where it is offered, its map, and kernels with it."""

from __future__ import annotations

import numpy as np
from cpu_run import run_compiled

from stridesmith.ir.target import Target
from stridesmith.space.design.layouts import First
from stridesmith.space.design.restrict import restricted
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import workload

CPU = Target(kind="cpu", vector_bits=256, registers=16, threads=2)
GROUPED = workload("conv2d", ci=12, co=24, h=6, w=7, k=3, groups=3, layout="nhwc")


def test_groups_are_moved_first() -> None:
    """``[n, h, w, g, c]`` becomes ``[g, n, h, w, c]``, of the input whose groups lie inside of its rows."""
    space = generate(GROUPED.func, CPU, dict.fromkeys(GROUPED.constants, "constant"))
    found = {
        (operand.name, layout.layout(operand, [1] * 9, operand.shape).index_map.text)
        for sketch in space.sketches
        for number, decision in sketch.main.of("layout").items()
        for layout in sketch.main.decisions[decision].values
        for operand in [sketch.main.anchor.operands[number]]
        if isinstance(layout, First)
    }
    assert any("[d3, d0, d1, d2, d4]" in text for _, text in found)


def test_a_batch_that_lies_first_stays() -> None:
    """A batched product has its batch outside already: the layout would be the identity."""
    work = workload("batch_matmul", b=3, m=9, n=10, k=11)
    decisions = [d for sketch in generate(work.func, CPU).sketches for d in sketch.decisions if d.kind == "layout"]
    assert decisions and not any(isinstance(value, First) for d in decisions for value in d.values)


def test_kernels_with_it_are_right() -> None:
    """Candidates that read a group's part of the input from a copy of it, against the reference."""
    space = generate(GROUPED.func, CPU, dict.fromkeys(GROUPED.constants, "constant"))
    offered = {d.name for s in space.sketches for d in s.decisions if any(isinstance(v, First) for v in d.values)}
    only = restricted(space, lambda decision, value: decision.name not in offered or isinstance(value, First))
    ran = 0
    for sketch in [s for s in only.sketches if any(d.name in offered for d in s.decisions)][:4]:
        for row in sketch.draw(np.random.default_rng(3), 2):
            run_compiled(GROUPED, sketch.schedule([int(c) for c in row]).func)
            ran += 1
    assert ran >= 4
