"""Indices with quotients, remainders and mixed radices: programs that are linear in the digits of their axes."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_run import run_compiled
from draws import candidates, func_of
from expected_space import CPU, OPENCL
from goldens.execute import same_results

from stridesmith.backends.data import arguments_of
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.ir.verify.bounds import check_in_bounds
from stridesmith.ir.verify.rules import verify
from stridesmith.search.candidates.search_space import SearchSpace
from stridesmith.space.design.sketch import Sketch
from stridesmith.space.design.space import Space, generate
from stridesmith.space.design.techniques.digits import DIGITS
from stridesmith.space.schedule import Schedule, Trace
from stridesmith.space.workloads import workload

GROUPED = """
@T.prim_func
def main(x: T.Buffer((2, 6, 11), "float32"), w: T.Buffer((12, 2, 3), "float32"), b: T.Buffer((12,), "float32"),
         y: T.Buffer((2, 12, 9), "float32")):
    acc = T.alloc_buffer((2, 12, 9), "float32")
    for n, co, i, c, k in T.grid(2, 12, 9, 2, 3):
        with T.block("conv"):
            vn, vo, vi, vc, vk = T.axis.remap("SSSRR", [n, co, i, c, k])
            with T.init():
                acc[vn, vo, vi] = T.float32(0)
            acc[vn, vo, vi] = acc[vn, vo, vi] + x[vn, vo // 4 * 2 + vc, vi + vk] * w[vo, vc, vk]
    for n, co, i in T.grid(2, 12, 9):
        with T.block("bias"):
            vn, vo, vi = T.axis.remap("SSS", [n, co, i])
            y[vn, vo, vi] = acc[vn, vo, vi] + b[vo]
"""
ROWS = """
@T.prim_func
def main(x: T.Buffer((42, 8), "float32"), w: T.Buffer((8, 20), "float32"), y: T.Buffer((42, 20), "float32")):
    for b, i, j, k in T.grid(6, 7, 20, 8):
        with T.block("product"):
            vb, vi, vj, vk = T.axis.remap("SSSR", [b, i, j, k])
            with T.init():
                y[vb * 7 + vi, vj] = T.float32(0)
            y[vb * 7 + vi, vj] = y[vb * 7 + vi, vj] + x[vb * 7 + vi, vk] * w[vk, vj]
"""
HEADS = """
@T.prim_func
def main(q: T.Buffer((5, 24), "float32"), k: T.Buffer((9, 24), "float32"), s: T.Buffer((3, 5, 9), "float32")):
    for h, i, j, d in T.grid(3, 5, 9, 8):
        with T.block("scores"):
            vh, vi, vj, vd = T.axis.remap("SSSR", [h, i, j, d])
            with T.init():
                s[vh, vi, vj] = T.float32(0)
            s[vh, vi, vj] = s[vh, vi, vj] + q[vi, vh * 8 + vd] * k[vj, vh * 8 + vd]
"""
SHUFFLE = """
@T.prim_func
def main(x: T.Buffer((2, 12, 5, 7), "float32"), y: T.Buffer((2, 3, 10, 14), "float32")):
    for n, c, h, w in T.grid(2, 3, 10, 14):
        with T.block("shuffle"):
            vn, vc, vh, vw = T.axis.remap("SSSS", [n, c, h, w])
            y[vn, vc, vh, vw] = x[vn, vc * 4 + vh % 2 * 2 + vw % 2, vh // 2, vw // 2]
"""


def normal(func: PrimFunc) -> Schedule:
    return DIGITS.prepares(Schedule(func), frozenset())


def test_a_grouped_convolution_is_linear_in_groups_and_channels() -> None:
    """``co`` becomes (group, channel), in the sum, its epilogue and the bias; each buffer has a dimension for each."""
    schedule = normal(func_of(GROUPED))
    func = schedule.func
    shapes = {b.name: b.shape for b in func.buffers}
    assert shapes == {"x": (2, 3, 2, 11), "w": (3, 4, 2, 3), "b": (3, 4), "y": (2, 3, 4, 9)}
    text = func.script()
    assert "//" not in text.split("layouts", 1)[1].split("\n", 1)[1] and "%" not in text.split("\n", 4)[4]
    verify(func)
    same_results(func_of(GROUPED), func)


def test_memory_stays_as_it_is() -> None:
    """Every argument lies in memory as the caller gives it: the layouts that are recorded are reshapes."""
    for argument in arguments_of(normal(func_of(GROUPED)).func):
        assert argument.index_map and argument.layout.is_in_place


def test_the_trace_replays() -> None:
    """The prelude is instructions like any others."""
    func = func_of(GROUPED)
    schedule = normal(func)
    again = Trace.from_json(schedule.trace.to_json()).replay(func)
    assert again.func.script() == schedule.func.script()


def test_iterators_that_only_occur_together_are_fused() -> None:
    """``y[b*7 + i, j]`` is the product of a matrix of 42 rows."""
    schedule = normal(func_of(ROWS))
    assert [b.shape for b in schedule.func.buffers] == [(42, 8), (8, 20), (42, 20)]
    assert schedule.get_loops("product") and len(schedule.get_loops("product")) == 3
    same_results(func_of(ROWS), schedule.func)
    plain = func_of(ROWS.replace("vb * 7 + vi", "vb").replace("T.grid(6, 7, 20, 8)", "T.grid(42, 20, 8)").replace(
        "b, i, j, k in", "b, j, k in").replace("vb, vi, vj, vk", "vb, vj, vk").replace('"SSSR"', '"SSR"').replace(
        "[b, i, j, k]", "[b, j, k]"))  # fmt: skip
    assert [s.name for s in generate(plain, CPU).sketches] == [s.name for s in generate(func_of(ROWS), CPU).sketches]


def test_a_linear_program_is_left_alone() -> None:
    """Where every axis has a dimension of its own, digits that are only read change nothing."""
    assert not normal(func_of(HEADS)).trace.instructions
    assert not normal(workload("conv2d", stride=2, k=2, pad=0, h=8, w=8).func).trace.instructions


NOT_CUT = {
    "a quotient that does not divide": SHUFFLE.replace("(2, 3, 10, 14)", "(2, 3, 9, 14)"),
    "two cuts that do not nest": """
@T.prim_func
def main(x: T.Buffer((4, 6), "float32"), y: T.Buffer((12,), "float32")):
    for i in T.grid(12):
        with T.block("b"):
            vi = T.axis.spatial(12, i)
            y[vi] = x[vi // 3, vi // 2]
""",
}


@pytest.mark.parametrize("name", NOT_CUT)
def test_what_has_no_digits_keeps_its_meaning(name: str) -> None:
    """Cuts that do not divide one another are left out, and the rest is still right."""
    func = func_of(NOT_CUT[name])
    schedule = normal(func)
    verify(schedule.func)
    same_results(func, schedule.func)


def test_a_pixel_shuffle_is_a_transposition() -> None:
    """The rows, columns and channels of a shuffle are digits, and no quotient is left."""
    func = func_of(SHUFFLE)
    schedule = normal(func)
    assert {b.name: b.shape for b in schedule.func.buffers} == {"x": (2, 3, 2, 2, 5, 7), "y": (2, 3, 5, 2, 7, 2)}
    same_results(func, schedule.func)


PROGRAMS = {"grouped": GROUPED, "rows": ROWS, "shuffle": SHUFFLE}


def sketches(space: Space) -> list[Sketch]:
    return [s for s in space.sketches if s.decisions]


@pytest.mark.parametrize("target", [CPU, OPENCL], ids=lambda target: target.kind)
@pytest.mark.parametrize("name", PROGRAMS)
def test_random_candidates_keep_the_results(name: str, target: Target) -> None:
    """Candidates of every sketch stay in bounds and compute what the program computes."""
    func = func_of(PROGRAMS[name])
    for number, sketch in enumerate(sketches(generate(func, target, {"w": "constant"}))):
        for choice in candidates(sketch, 1, number):
            scheduled = sketch.schedule(choice).func
            check_in_bounds(scheduled)
            same_results(func, scheduled)


LIBRARY = [
    {"ci": 8, "co": 12, "groups": 4, "h": 9, "w": 10},
    {"ci": 8, "co": 12, "groups": 4, "h": 9, "w": 10, "layout": "nhwc"},
    {"ci": 6, "co": 12, "groups": 6, "h": 11, "w": 7, "stride": 2},
    {"ci": 6, "co": 18, "groups": 6, "h": 8, "w": 7, "dilation": 2, "layout": "nhwc"},
    {"ci": 32, "co": 32, "groups": 2, "h": 6, "w": 6, "k": 1, "pad": 0, "n": 2},
]


@pytest.mark.parametrize("params", LIBRARY, ids=lambda p: "-".join(f"{k}{v}" for k, v in p.items()))
def test_grouped_convolutions_run(params: dict[str, int | str]) -> None:
    """Random candidates of grouped convolutions, as machine code, give the reference's results on plain arrays."""
    work = workload("conv2d", **params)
    space = generate(work.func, CPU, {"w": "constant"})
    assert space.size > 1e6
    rng = np.random.default_rng(3)
    for number in rng.permutation(len(space.sketches))[:3]:
        sketch = space.sketches[number]
        for choice in candidates(sketch, 1, int(number)):
            run_compiled(work, sketch.trace(choice).replay(work.func).func)


def test_most_draws_are_built() -> None:
    """What the mask lets through is accepted by every primitive in nearly all cases."""
    work = workload("conv2d", ci=8, co=24, groups=2, h=10, w=10)
    space = generate(work.func, CPU, {"w": "constant"})
    searched = SearchSpace(space)
    rng, refused = np.random.default_rng(5), 0
    for number in range(len(space.sketches)):
        for row in searched.draw(rng, number, 3):
            try:
                space.sketches[number].schedule([int(c) for c in row])
            except Exception:
                refused += 1
    assert refused <= 1


def test_names_and_the_order_of_loops_do_not_matter() -> None:
    """A grouped program with other names and permuted loops has the same sketches and decisions."""
    other = GROUPED.replace("n, co, i, c, k in T.grid(2, 12, 9, 2, 3)", "k, i, c, co, n in T.grid(3, 9, 2, 12, 2)")
    for old, new in (("vn", "za"), ("vo", "zb"), ("vc", "zd"), ("vk", "ze"), ('"conv"', '"z"'), ("acc", "t")):
        other = other.replace(old, new)
    spaces = [generate(func_of(text), CPU, {"w": "constant"}) for text in (GROUPED, other)]
    first, second = ([(s.name, [(d.name, d.labels) for d in s.decisions]) for s in space.sketches] for space in spaces)
    assert first == second


def test_vectors_run_along_long_digits() -> None:
    """Two groups of channels fill no vector where other axes do."""
    work = workload("conv2d", ci=32, co=64, groups=2, h=20, w=20)
    vectors = {s.main.structure.vec for s in generate(work.func, CPU, {"w": "constant"}).sketches}
    axes = generate(work.func, CPU, {"w": "constant"}).sketches[0].main.anchor.axes
    assert [axes[v].extent for v in sorted(vectors)] == [32, 20, 20]
