"""Vectors along two axes, the inner of which is shorter than a vector, as the channels of a group are."""

from __future__ import annotations

import pytest
from cpu_run import run_compiled
from draws import candidates, func_of
from expected_space import CPU, OPENCL
from goldens.execute import same_results

from stridesmith.configs.load import target
from stridesmith.space.design.rules import joined
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.workloads import workload

WIDE = target("cpu-avx512")
GROUPED = {"ci": 24, "co": 24, "h": 5, "w": 6, "k": 3, "pad": 1}
QUOTIENT = """
@T.prim_func
def main(x: T.Buffer((7, 24), "float32"), w: T.Buffer((4, 24), "float32"), y: T.Buffer((7, 24), "float32")):
    for p, co, ci in T.grid(7, 24, 4):
        with T.block("conv"):
            vp, vo, vi = T.axis.remap("SSR", [p, co, ci])
            with T.init():
                y[vp, vo] = T.float32(0)
            y[vp, vo] = y[vp, vo] + x[vp, vo // 4 * 4 + vi] * w[vi, vo]
"""


def sketches(**changed: int | str) -> list[Sketch]:
    work = workload("conv2d", **GROUPED | {"layout": "nhwc"} | changed)
    return list(joined(work.func, CPU, {"w": "constant"}))


@pytest.mark.parametrize("groups", [6, 8, 12])
def test_groups_of_few_channels_have_vectors_across_groups(groups: int) -> None:
    """The vector axis has the channels of all groups, and rows may be any other axis."""
    found = sketches(groups=groups)
    assert {s.main.anchor.axes[s.main.structure.vec].extent for s in found} == {24}
    assert len(found) == 2
    assert all(s.name.startswith("joined;") for s in found)


@pytest.mark.parametrize("changed", [{}, {"groups": 3}, {"groups": 6, "layout": "nchw"}, {"groups": 24}])
def test_other_convolutions_have_none(changed: dict[str, int | str]) -> None:
    """One group, groups of whole vectors, channels that are no neighbours, and one channel in each group."""
    assert sketches(**changed) == []


def test_a_device_of_opencl_has_none() -> None:
    """Its kernels would load lane by lane."""
    work = workload("conv2d", **GROUPED, groups=6, layout="nhwc")
    assert list(joined(work.func, OPENCL, {"w": "constant"})) == []


def test_what_would_be_gathered_has_none() -> None:
    """A depthwise convolution with a multiplier reads one channel for several lanes."""
    func = func_of(QUOTIENT.replace("vo // 4 * 4 + vi", "vo // 4 + vi * 6"))
    assert list(joined(func, WIDE, {"w": "constant"})) == []


@pytest.mark.parametrize("changed", [{"groups": 6}, {"groups": 8, "stride": 2}, {"groups": 12, "co": 48, "h": 4}])
def test_candidates_keep_the_results(changed: dict[str, int | str]) -> None:
    """As the interpreter runs them, and as LLVM compiles them."""
    work = workload("conv2d", **GROUPED | {"layout": "nhwc"} | changed)
    for number, sketch in enumerate(joined(work.func, CPU, {"w": "constant"})):
        for choice in candidates(sketch, 3, number):
            func = sketch.schedule(choice).func
            same_results(work.func, func)
            run_compiled(work, func, number)


def test_a_program_may_be_written_in_one_axis() -> None:
    """As a quotient of its channel; the operand is seen with what a vector reaches."""
    func = func_of(QUOTIENT)
    (sketch,) = joined(func, WIDE, {"w": "constant"})
    (operand,) = [o for o in sketch.operands if o.buffer.name == "x"]
    assert operand.stride(sketch.main.structure.vec) == 1
    for choice in candidates(sketch, 4, 0):
        same_results(func, sketch.schedule(choice).func)
