"""Edges along the vector axis whose lanes are masked: one more boundary, right on every target that has masks."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cpu_run import run_compiled
from opencl_programs import device

from stridesmith.backends.devices import discover
from stridesmith.backends.lower import lower
from stridesmith.backends.render.llvm_module import generate as llvm_text
from stridesmith.backends.render.opencl.program import generate as opencl_text
from stridesmith.ir.target import Target
from stridesmith.space.design.candidates import Candidates
from stridesmith.space.design.decision import INLINE, MASK, Decision
from stridesmith.space.design.restrict import restricted
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import generate
from stridesmith.space.workloads import Workload, workload

WORKS = {
    "matmul": workload("matmul", m=7, n=43, k=11),
    "conv2d": workload("conv2d", ci=3, co=21, h=9, w=9, k=3),
    "depthwise": workload("depthwise_conv2d", c=19, h=8, w=9, layout="nhwc"),
    "max_pool2d": workload("max_pool2d", c=3, h=9, w=21, k=3, stride=1, pad=1),
}


def has_mask(decision: Decision) -> bool:
    return decision.kind == "boundary" and MASK in decision.values


def masked(work: Workload, target: Target) -> list[tuple[Sketch, np.ndarray]]:
    """Candidates of each sketch whose edge along the vectors is masked."""
    space = generate(work.func, target, dict.fromkeys(work.constants, "constant"))
    only = restricted(space, lambda decision, value: not has_mask(decision) or value == MASK)
    found = []
    for sketch in only.sketches:
        rows = sketch.draw(np.random.default_rng(4), 40)
        vec = sketch.main.structure.vec
        keep = [np.ravel(Candidates(sketch.main, row[None], target).boundary[vec])[0] == MASK for row in rows]
        found.append((sketch, rows[np.array(keep, bool)]))
    return found


@pytest.mark.parametrize("kind", ["cpu", "opencl"])
@pytest.mark.parametrize("name", WORKS)
def test_masked_candidates_compute_what_they_should(name: str, kind: str) -> None:
    """Kernels with masked loads or stores give the reference's results."""
    target = discover("cpu") if kind == "cpu" else device()
    if target is None or not target.has_masks("float32"):
        pytest.skip("no device with masks")
    work, texts, ran = WORKS[name], [], 0
    for sketch, rows in masked(work, target):
        for row in rows[:2]:
            func = sketch.schedule([int(c) for c in row]).func
            run_compiled(work, func, target=target)
            lowered = lower(func, target)
            texts.append(llvm_text(lowered, target) if kind == "cpu" else opencl_text(lowered, target).text)
            ran += 1
    assert ran
    assert any(re.search(r"llvm\.masked\.|_masked_|held(_\d+)?\.s\d", text) for text in texts)


def test_masks_are_offered_where_the_target_has_them() -> None:
    """Along the vector axis alone, and not on a target that is not known to have masks."""
    work = WORKS["matmul"]
    plain, wide = (Target(kind="cpu", vector_bits=256, registers=16, isa=isa) for isa in ("", "avx2"))
    assert not any(has_mask(d) for sketch in generate(work.func, plain).sketches for d in sketch.decisions)
    for sketch in generate(work.func, wide).sketches:
        (part,) = sketch.parts
        offered = {axis for axis, number in part.of("boundary").items() if has_mask(part.decisions[number])}
        assert offered == (set() if part.structure.factored else {part.structure.vec})


def test_a_mask_needs_an_edge_that_cuts_a_vector() -> None:
    """Where vectors divide the extent, a masked edge is a peeled one, and excluded as such."""
    target = Target(kind="cpu", vector_bits=256, registers=16, isa="avx2")
    for sketch in generate(workload("matmul", m=7, n=40, k=11).func, target).sketches:
        part = sketch.main
        if part.anchor.axes[part.structure.vec].extent != 40 or part.structure.factored:
            continue
        rows = sketch.draw(np.random.default_rng(0), 200)
        found = Candidates(part, rows, target)
        how, lane = found.boundary[part.structure.vec], found.lane
        assert not (np.broadcast_to(how == MASK, len(rows)) & (40 % lane == 0)).any()


def test_lanes_of_a_border_that_is_computed_in_place_are_masked() -> None:
    """Rows of one vector meet the border with most taps: none runs lane by lane where masks have registers."""
    work = workload("depthwise_conv2d", c=5, h=6, w=16, kh=5, kw=5, pad=2)
    wide, narrow = (Target(kind="cpu", vector_bits=bits, registers=32, isa=isa)
                    for bits, isa in ((512, "avx512"), (256, "avx2")))  # fmt: skip
    here = discover("cpu")
    for target, has_masks in ((wide, True), (narrow, False)):
        space = generate(work.func, target, dict.fromkeys(work.constants, "constant"))
        inline = restricted(space, lambda decision, value: decision.kind != "place" or value == INLINE)
        sketch = next(s for s in inline.sketches if s.main.anchor.axes[s.main.structure.vec].extent == 16)
        rows = sketch.draw(np.random.default_rng(0), 60)
        found = Candidates(sketch.main, rows, target)
        whole = np.broadcast_to(
            (found.lane == target.vector_bits // 32) & (found.boundary[sketch.main.structure.vec] != MASK), len(rows)
        )
        assert whole.any()
        for row in rows[whole][:3]:
            func = sketch.schedule([int(c) for c in row]).func
            assert ("llvm.masked.load" in llvm_text(lower(func, target), target)) == has_masks
            if target.isa == here.isa:
                run_compiled(work, func, target=here)
