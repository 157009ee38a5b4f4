"""Sums most of whose terms a congruence makes zero: strided transposed convolutions, without the zeros."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_run import run_compiled
from draws import candidates, func_of
from expected_space import CPU, OPENCL
from goldens.execute import same_results

from stridesmith.ir.target import Target
from stridesmith.ir.verify.bounds import check_in_bounds
from stridesmith.ir.verify.rules import verify
from stridesmith.space.design.space import generate
from stridesmith.space.design.techniques.phases import PHASES
from stridesmith.space.schedule import Schedule
from stridesmith.space.tree import find_block
from stridesmith.space.workloads import workload

GATHERED = """
@T.prim_func
def main(x: T.Buffer((3, 6), "float32"), w: T.Buffer((3, 5, 4), "float32"), y: T.Buffer((5, 12), "float32")):
    for co, o, c, k in T.grid(5, 12, 3, 4):
        with T.block("conv"):
            vo, vi, vc, vk = T.axis.remap("SSRR", [co, o, c, k])
            with T.init():
                y[vo, vi] = T.float32(0)
            y[vo, vi] = y[vo, vi] + T.if_then_else(
                (vi + 1 - vk) % 2 == 0 and 0 <= vi + 1 - vk and vi + 1 - vk < 12,
                x[vc, (vi + 1 - vk) // 2], T.float32(0)) * w[vc, vo, vk]
"""
SHAPES = [
    {"k": 2, "stride": 2, "pad": 0},
    {"k": 4, "stride": 2, "pad": 1},
    {"k": 3, "stride": 2, "pad": 1, "output_pad": 1},
    {"k": 5, "stride": 3, "pad": 1},
    {"k": 4, "stride": 4, "pad": 0, "layout": "nhwc"},
    {"k": 8, "stride": 4, "pad": 2, "layout": "nhwc"},
    {"k": 3, "stride": 4, "pad": 0, "output_pad": 1},
    {"k": 3, "stride": 2, "pad": 1},
    {"k": 5, "stride": 2, "pad": 2, "layout": "nhwc"},
    {"k": 4, "stride": 3, "pad": 0},
    {"kh": 4, "kw": 3, "stride_h": 2, "stride_w": 1, "pad": 1, "layout": "nhwc"},
]


def small(params: dict[str, int | str]) -> dict[str, int | str]:
    return {"ci": 3, "co": 4, "h": 4, "w": 5, **params}


@pytest.mark.parametrize("params", SHAPES, ids=lambda p: "-".join(f"{k}{v}" for k, v in p.items()))
def test_only_products_with_elements_are_left(params: dict[str, int | str]) -> None:
    """Each phase sums over ceil(k / stride) taps, with the same results."""
    work = workload("conv2d_transpose", **small(params))
    schedule = PHASES.prepares(Schedule(work.func), frozenset())
    block = find_block(schedule.func, "conv")

    def extent(name: str, axis: str) -> int:
        return int(params.get(name, params.get(f"{name}{axis}", params.get(f"{name}_{axis}", 0))))

    taps = [-(-extent("k", a) // extent("stride", a)) for a in "hw"]
    assert sorted(i.extent for i in block.reduce) == sorted([3, *taps])
    verify(schedule.func)
    check_in_bounds(schedule.func)
    same_results(work.func, schedule.func)


def test_the_condition_is_found_where_it_stands() -> None:
    """A gather with its condition in the sum is restricted like one that reads a stage of zeros."""
    func = func_of(GATHERED)
    schedule = PHASES.prepares(Schedule(func), frozenset())
    assert [i.extent for i in find_block(schedule.func, "conv").reduce] == [3, 2]
    assert "%" not in schedule.func.script().split("layouts")[-1]
    same_results(func, schedule.func)


def test_a_sum_without_congruence_is_left_alone() -> None:
    """Nothing is inlined in vain."""
    for func in (workload("conv2d", h=8, w=8).func, workload("conv2d_transpose", stride=1, h=5, w=5).func):
        assert not PHASES.prepares(Schedule(func), frozenset()).trace.instructions


@pytest.mark.parametrize("target", [CPU, OPENCL], ids=lambda target: target.kind)
def test_random_candidates_keep_the_results(target: Target) -> None:
    """Candidates of every sketch stay in bounds and compute what the program computes."""
    func = func_of(GATHERED)
    for number, sketch in enumerate(generate(func, target, {"w": "constant"}).sketches):
        for choice in candidates(sketch, 1, number):
            scheduled = sketch.schedule(choice).func
            check_in_bounds(scheduled)
            same_results(func, scheduled)


@pytest.mark.parametrize("params", SHAPES, ids=lambda p: "-".join(f"{k}{v}" for k, v in p.items()))
def test_transposed_convolutions_run(params: dict[str, int | str]) -> None:
    """Random candidates, as machine code replayed from their traces, give the reference's results."""
    work = workload("conv2d_transpose", **small(params))
    space = generate(work.func, CPU, {"w": "constant"})
    rng = np.random.default_rng(3)
    for number in rng.permutation(len(space.sketches))[:4]:
        sketch = space.sketches[number]
        for choice in candidates(sketch, 1, int(number)):
            run_compiled(work, sketch.trace(choice).replay(work.func).func)


def test_names_do_not_matter() -> None:
    """A program with other names, and its loops in another order, has the same sketches and decisions."""
    other = GATHERED.replace("co, o, c, k in T.grid(5, 12, 3, 4)", "k, c, o, co in T.grid(4, 3, 12, 5)")
    for old, new in (("vo", "za"), ("vi", "zb"), ("vc", "zc"), ("vk", "zd"), ('"conv"', '"z"')):
        other = other.replace(old, new)
    spaces = [generate(func_of(text), CPU, {"w": "constant"}) for text in (GATHERED, other)]
    first, second = ([(s.name, [(d.name, d.labels) for d in s.decisions]) for s in space.sketches] for space in spaces)
    assert first == second


CROPPED = """
@T.prim_func
def main(x: T.Buffer((3, 24), "float32"), w: T.Buffer((3, 5, 10), "float32"), y: T.Buffer((5, {left}), "float32")):
    acc = T.alloc_buffer((5, 125), "float32")
    for co, o, c, k in T.grid(5, 125, 3, 10):
        with T.block("conv"):
            vo, vi, vc, vk = T.axis.remap("SSRR", [co, o, c, k])
            with T.init():
                acc[vo, vi] = T.float32(0)
            acc[vo, vi] = acc[vo, vi] + T.if_then_else(
                (vi - vk) % 5 == 0 and 0 <= vi - vk and vi - vk < 120,
                x[vc, (vi - vk) // 5], T.float32(0)) * w[vc, vo, vk]
    for co, o in T.grid(5, {left}):
        with T.block("rectified"):
            vo, vi = T.axis.remap("SS", [co, o])
            y[vo, vi] = T.max(acc[vo, vi], T.float32(0))
"""


@pytest.mark.parametrize("left", [125, 120, 60])
def test_a_reader_of_the_first_elements_is_cut_as_the_sum_is(left: int) -> None:
    """An epilogue that leaves out the last elements has the sketches of one that takes all, and its results."""
    func = func_of(CROPPED.replace("{left}", str(left)))
    whole, space = (generate(f, CPU, {"w": "constant"}) for f in (func_of(CROPPED.replace("{left}", "125")), func))
    assert [s.name for s in space.sketches] == [s.name for s in whole.sketches] != ["plain"]
    for number, sketch in enumerate(space.sketches):
        for choice in candidates(sketch, 1, number):
            scheduled = sketch.schedule(choice).func
            check_in_bounds(scheduled)
            same_results(func, scheduled)
