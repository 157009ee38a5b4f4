"""Long reductions of few results: threads share them, in parts that are added up in the end."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from cpu_run import run_compiled
from draws import candidates, func_of
from expected_space import CPU, OPENCL

from stridesmith.cost_model.features import FeatureMap
from stridesmith.ir.expr import const
from stridesmith.ir.node import walk
from stridesmith.ir.stmt import For, PrimFunc
from stridesmith.space.design.program import anchors
from stridesmith.space.design.space import generate
from stridesmith.space.design.techniques.shared_reductions import in_parts, shared_reductions
from stridesmith.space.schedule import Schedule
from stridesmith.space.workloads import workload
from stridesmith.space.workloads.library import from_func

TOTAL = """
@T.prim_func
def main(x: T.Buffer({shape}, "float32"), y: T.Buffer({kept}, "float32")):
    for {vars} in T.grid({extents}):
        with T.block("total"):
            {iters} = T.axis.remap("{kinds}", [{vars}])
            with T.init():
                y[{out}] = {start}
            y[{out}] = {update}
"""


def total(shape: tuple[int, ...], axes: tuple[int, ...], op: str = "+", order: str = "", prefix: str = "v") -> PrimFunc:
    """The sum or maximum of an array along some of its axes, others kept; with its loops in another `order`."""
    names = "abcd"[: len(shape)]
    turned = order or names
    iters = {n: f"{prefix}{n}" for n in names}
    kept = [k for k in range(len(shape)) if k not in axes] or [0]
    read = f"x[{', '.join(iters.values())}]"
    out = ", ".join(iters[names[k]] for k in kept)
    return func_of(TOTAL.format(
        shape=shape, kept=(*(shape[k] for k in kept),), vars=", ".join(turned), out=out,
        extents=", ".join(str(shape[names.index(n)]) for n in turned), iters=", ".join(iters[n] for n in turned),
        kinds="".join("R" if names.index(n) in axes else "S" for n in turned),
        start="T.float32(0)" if op == "+" else 'T.float32("-inf")',
        update=f"y[{out}] + {read}" if op == "+" else f"T.max(y[{out}], {read})",
    ))  # fmt: skip


def cuts(func: PrimFunc, threads: int = 2) -> list[tuple[int, list[tuple[str, int]]]]:
    """For each number of parts that is wanted, the axis that is cut and how long a part is."""
    target = replace(CPU, threads=threads)
    found = anchors(func, {})
    by_name = {a.block: a for a in found}
    return [(count, [(by_name[name].axes[axis].name, size) for name, (axis, size) in blocks.items()])
            for count, blocks in shared_reductions(found, target)]  # fmt: skip


CASES = {
    "a row": ((1, 40_000), (1,), "+"),
    "a prime row": ((1, 40_009), (1,), "max"),
    "channels last": ((40, 60, 20), (0, 1), "+"),
    "a kept axis in the middle": ((24, 5, 300), (0, 2), "max"),
    "as many as parts": ((8, 3, 2000), (0, 2), "+"),
}


@pytest.mark.parametrize("case", CASES)
def test_candidates_in_parts_run(case: str) -> None:
    """Random candidates, as machine code replayed from their traces, give the sum or the maximum."""
    func = total(*CASES[case])
    work = from_func(func)
    sketches = [s for s in generate(func, CPU).sketches if s.name.startswith("parts=")]
    assert {s.name.split(";")[0] for s in sketches} == {"parts=2", "parts=8"}
    for number, sketch in enumerate(sketches[:: max(1, len(sketches) // 3)]):
        for choice in candidates(sketch, 1, number):
            run_compiled(work, sketch.trace(choice).replay(func).func)


def test_parts_are_of_the_outermost_axis_that_falls_into_even_ones() -> None:
    """Threads read what lies together; where nothing is even the last part is shorter, but not much."""
    assert cuts(total((40, 60, 20), (0, 1))) == [(2, [("r0", 20)]), (8, [("r0", 5)])]
    assert cuts(total((1, 40_000), (1,))) == [(2, [("r0", 20_000)]), (8, [("r0", 5_000)])]
    assert cuts(total((1, 40_009), (1,))) == [(2, [("r0", 20_005)]), (8, [("r0", 5_002)])]
    assert cuts(total((3, 5, 4001), (0, 2))) == [(2, [("r1", 2001)]), (8, [("r1", 501)])]
    assert cuts(total((21, 5, 4001), (0, 2))) == [(2, [("r0", 11)]), (8, [("r0", 3)])]


def test_the_longest_axes_are_cut_as_quickly() -> None:
    """Only the divisors near the wanted number of parts are looked for, of 10^15 steps as of a thousand."""
    (anchor,) = anchors(total((1, 40_000), (1,)), {})
    long = tuple(replace(axis, extent=10**15) if axis.kind == "reduce" else axis for axis in anchor.axes)
    found = shared_reductions([replace(anchor, axes=long)], CPU)
    assert [(count, cut[1]) for count, cuts in found for cut in cuts.values()] == [(2, 10**15 // 2), (8, 10**15 // 8)]


def test_enough_results_or_little_work_are_not_cut() -> None:
    """Threads share many results as they are, a short sum is done before they meet, and one thread shares nothing."""
    assert not cuts(total((8, 30_000), (1,))) and cuts(total((7, 30_000), (1,)))
    assert not cuts(total((3000, 128), (0,))) and cuts(total((3000, 127), (0,)))
    assert not cuts(total((1, 30_000), (1,)))
    assert not cuts(total((1, 40_000), (1,)), threads=1)
    assert not shared_reductions(anchors(total((1, 40_000), (1,)), {}), OPENCL)
    assert not any(s.name.startswith("parts") for s in generate(workload("conv2d", h=14, w=14).func, CPU).sketches)


def test_what_a_primitive_refuses_is_left_whole() -> None:
    """Parts that would begin beyond the end have no first element: no schedule, and no error."""
    func = total((1, 40_000), (1,))
    schedule = Schedule(func)
    found = anchors(func, {})
    assert in_parts(schedule, found, {"total": (1, 20_000)}) is not None
    assert in_parts(schedule, found, {"total": (0, 1)}) is None


@pytest.mark.parametrize("case", CASES)
def test_names_and_the_order_of_loops_do_not_matter(case: str) -> None:
    """A program with other names, and its loops in another order, has the same sketches and decisions."""
    shape, axes, op = CASES[case]
    others = (total(shape, axes, op), total(shape, axes, op, order="dcba"[4 - len(shape) :], prefix="z"))
    spaces = [generate(func, CPU) for func in others]
    first, second = ([(s.name, [(d.name, d.labels) for d in s.decisions]) for s in space.sketches] for space in spaces)
    assert first == second


def test_the_cost_model_sees_threads_at_work() -> None:
    """The best candidate in parts is estimated well below the best on one thread; its loop over parts is parallel."""
    space = generate(total((1, 1_000_000), (1,)), CPU)
    features = FeatureMap(space.sketches, CPU)
    rng = np.random.default_rng(0)
    best = {}
    for number, sketch in enumerate(space.sketches):
        rows = sketch.draw(rng, 200)
        told = features.estimate(number, rows)
        points = sum(prod(axis.extent for axis in part.anchor.axes) for part in sketch.parts)
        best[sketch.name.split(";")[0]] = (float(told.min()) + np.log2(points), sketch, rows[int(told.argmin())])
    alone = min(time for name, (time, *_) in best.items() if not name.startswith("parts"))
    time, sketch, row = best["parts=2"]
    assert time < alone - 0.5
    loops = [n for n in walk(sketch.schedule(row).func.body) if isinstance(n, For) and n.kind == "parallel"]
    assert [loop.extent for loop in loops if loop.extent != const(1)] == [const(2)]
