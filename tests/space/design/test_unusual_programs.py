"""Programs as users write them that no workload is like: each has a space whose candidates are possible and right."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from draws import func_of
from expected_space import CPU, OPENCL
from goldens.execute import same_results

from stridesmith.ir.expr import Const
from stridesmith.ir.node import walk
from stridesmith.ir.stmt import For, PrimFunc
from stridesmith.ir.target import Target
from stridesmith.space.design.program import MOST_LOADS, anchors, inline_chains
from stridesmith.space.design.space import Space, generate
from stridesmith.space.errors import ScheduleError
from stridesmith.space.schedule import Schedule

AGAIN = """
@T.prim_func
def main(x: T.Buffer((60,), "float32")):
    t = T.alloc_buffer((60,), "float32")
    for i in range(60):
        with T.block("a"):
            v = T.axis.spatial(60, i)
            t[v] = x[v] * T.float32(2)
    for i in range(60):
        with T.block("b"):
            v = T.axis.spatial(60, i)
            x[v] = t[v] + T.float32(1)
"""
READ_AGAIN = AGAIN.replace("x[v] = t[v] + T.float32(1)", "y[v] = t[v] - x[v]").replace(
    'def main(x: T.Buffer((60,), "float32")', 'def main(x: T.Buffer((60,), "float32"), y: T.Buffer((60,), "float32")'
)
IN_PLACE = AGAIN.replace(
    'def main(x: T.Buffer((60,), "float32")', 'def main(w: T.Buffer((60,), "float32"), x: T.Buffer((60,), "float32")'
).replace(
    "    for i in range(60):",
    """    for i in range(60):
        with T.block("begin"):
            v = T.axis.spatial(60, i)
            x[v] = w[v]
    for i in range(60):""",
    1,
)
REFLECTED = """
@T.prim_func
def main(x: T.Buffer((40, 8), "float32"), y: T.Buffer((40, 8), "float32")):
    for i, j in T.grid(40, 8):
        with T.block("r"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = x[vi, T.abs(vj - 1)]
"""
CAUSAL = """
@T.prim_func
def main(q: T.Buffer((20, 8), "float32"), k: T.Buffer((20, 8), "float32"), s: T.Buffer((20, 20), "float32")):
    for i, j in T.grid(20, 20):
        with T.block("fill"):
            vi, vj = T.axis.remap("SS", [i, j])
            s[vi, vj] = T.float32(-9)
    for i, j, d in T.grid(20, 20, 8):
        with T.block("s"):
            vi, vj, vd = T.axis.remap("SSR", [i, j, d])
            T.where(j <= i)
            with T.init():
                s[vi, vj] = T.float32(0)
            s[vi, vj] = s[vi, vj] + q[vi, vd] * k[vj, vd]
"""
TRIANGLE = """
@T.prim_func
def main(a: T.Buffer((20, 20), "float32"), y: T.Buffer((20,), "float32")):
    for i in range(20):
        for j in range(i + 1):
            with T.block("s"):
                vi = T.axis.spatial(20, i)
                vj = T.axis.reduce(20, j)
                with T.init():
                    y[vi] = T.float32(0)
                y[vi] = y[vi] + a[vi, vj]
"""
SECOND_HALF = """
@T.prim_func
def main(x: T.Buffer((24, 64), "float32"), z: T.Buffer((24, 64), "float32"), y: T.Buffer((24, 128), "float32")):
    for i, j in T.grid(24, 64):
        with T.block("first"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = z[vi, vj]
    for i, j in T.grid(24, 64):
        with T.block("second"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj + 64] = x[vi, vj]
"""
ONE_IMAGE = """
@T.prim_func
def main(x: T.Buffer((1, 8, 20), "float32"), w: T.Buffer((12, 8), "float32"), y: T.Buffer((1, 12, 20), "float32")):
    for n, o, h, k in T.grid(1, 12, 20, 8):
        with T.block("p"):
            vn = T.axis.spatial(1, 0)
            vo, vh, vk = T.axis.remap("SSR", [o, h, k])
            with T.init():
                y[vn, vo, vh] = T.float32(0)
            y[vn, vo, vh] = y[vn, vo, vh] + w[vo, vk] * x[vn, vk, vh]
"""
TWICE = """
@T.prim_func
def main(x: T.Buffer((20, 20), "float32"), y: T.Buffer((20, 20), "float32")):
    for i in range(20):
        with T.block("diagonal"):
            vi = T.axis.spatial(20, i)
            vj = T.axis.spatial(20, i)
            y[vi, vj] = x[vi, vj]
"""
INSIDE = """
@T.prim_func
def main(x: T.Buffer((20, 24), "float32"), y: T.Buffer((20, 24), "float32")):
    for i in range(20):
        with T.block("row"):
            vi = T.axis.spatial(20, i)
            t = T.alloc_buffer((24,), "float32")
            for j in range(24):
                with T.block("a"):
                    vj = T.axis.spatial(24, j)
                    t[vj] = x[vi, vj] + T.float32(1)
            for k in range(24):
                with T.block("b"):
                    vk = T.axis.spatial(24, k)
                    y[vi, vk] = t[vk] * T.float32(2)
"""
LARGEST = """
@T.prim_func
def main(x: T.Buffer((20, 37), "int8"), y: T.Buffer((20,), "int8")):
    for i, k in T.grid(20, 37):
        with T.block("m"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                y[vi] = T.int8(-128)
            y[vi] = T.max(y[vi], x[vi, vk])
"""
ROWS = """
@T.prim_func
def main(x: T.Buffer((20, 40), "float32"), y: T.Buffer((20, 40), "float32")):
    m = T.alloc_buffer((20,), "float32")
    s = T.alloc_buffer((20,), "float32")
    for i in range(20):
        for j in range(40):
            with T.block("m"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    m[vi] = T.float32("-inf")
                m[vi] = T.max(m[vi], x[vi, vj])
        for j in range(40):
            with T.block("s"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    s[vi] = T.float32(0)
                s[vi] = s[vi] + (m[vi] - x[vi, vj])
        for j in range(40):
            with T.block("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = (m[vi] - x[vi, vj]) * s[vi]
"""
SCORES = """
@T.prim_func
def main(q: T.Buffer((20, 8), "float32"), k: T.Buffer((20, 8), "float32"), s: T.Buffer((20, 20), "float32")):
    for i, j in T.grid(20, 20):
        with T.block("fill"):
            vi, vj = T.axis.remap("SS", [i, j])
            s[vi, vj] = T.float32(-9)
    for i in range(20):
        for j in range(i + 1):
            for d in range(8):
                with T.block("s"):
                    vi = T.axis.spatial(20, i)
                    vj = T.axis.spatial(20, j)
                    vd = T.axis.reduce(8, d)
                    with T.init():
                        s[vi, vj] = T.float32(0)
                    s[vi, vj] = s[vi, vj] + q[vi, vd] * k[vj, vd]
"""
STEPS = """
@T.prim_func
def main(w: T.Buffer((64,), "float32"), x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    for i in range(64):
        with T.block("begin"):
            vi = T.axis.spatial(64, i)
            x[vi] = w[vi]
    for t in range(5):
        for i in range(62):
            with T.block("y"):
                vi = T.axis.spatial(62, i)
                y[vi + 1] = x[vi] + x[vi + 1] + x[vi + 2]
        for i in range(62):
            with T.block("x"):
                vi = T.axis.spatial(62, i)
                x[vi + 1] = y[vi + 1] * T.float32(0.25)
"""
PROGRAMS = {
    "in place": IN_PLACE, "read again": READ_AGAIN, "reflected": REFLECTED, "causal": CAUSAL, "a triangle": TRIANGLE,
    "second half": SECOND_HALF, "one image": ONE_IMAGE, "a diagonal": TWICE, "blocks inside": INSIDE,
    "largest": LARGEST, "rows": ROWS, "steps": STEPS, "scores": SCORES,
}  # fmt: skip


@pytest.mark.parametrize("target", [CPU, OPENCL], ids=lambda target: target.kind)
@pytest.mark.parametrize("name", PROGRAMS)
def test_most_candidates_are_possible_and_all_of_these_are_right(name: str, target: Target) -> None:
    """Whatever the space has, a search in it does not run into the wall."""
    func = func_of(PROGRAMS[name])
    space = generate(func, target)
    tried = accepted = 0
    for sketch in space.sketches[:6]:
        for row in sketch.draw(np.random.default_rng(3), 4).tolist() if sketch.decisions else [[]]:
            tried += 1
            try:
                scheduled = sketch.schedule(row).func
            except ScheduleError:
                continue
            accepted += 1
            if accepted % 3 == 1:
                same_results(func, scheduled)
    assert accepted and accepted >= 0.7 * tried, f"{accepted} of {tried}"


def widest(space: Space) -> set[str]:
    """The axes that structures have vectors along, by the names of sketches."""
    return {sketch.name.partition("vec=")[2].partition(",")[0].partition(";")[0] for sketch in space.sketches}


def test_a_part_of_a_result_has_vectors_along_what_is_contiguous() -> None:
    """As the second of two tensors that are put one behind the other."""
    only = SECOND_HALF[: SECOND_HALF.index("    for i, j")] + SECOND_HALF[SECOND_HALF.rindex("    for i, j") :]
    assert "s1" in widest(generate(func_of(only), CPU))


@pytest.mark.parametrize("name", ["scores", "a triangle"])
def test_rows_of_a_triangle_are_shared_by_threads(name: str) -> None:
    """They are those of a box with a condition, which has tiles and vectors; what lowering runs is the triangle."""
    kinds: set[str] = set()
    for sketch in generate(func_of(PROGRAMS[name]), CPU).sketches:
        for row in sketch.draw(np.random.default_rng(1), 8).tolist():
            found = [n for n in walk(sketch.schedule(row).func.body) if isinstance(n, For)]
            assert all(isinstance(n.extent, Const) for n in found) or sketch.name == "plain"
            kinds |= {n.kind for n in found}
    assert kinds >= {"parallel", "vectorized"}


def test_stages_that_share_a_loop_over_rows_have_tiles_of_their_own() -> None:
    """What is written row by row is like what is written stage by stage; steps in time stay a nest."""
    whole = ROWS.replace("    for i in range(20):\n", "").replace("\n            ", "\n        ")
    whole = whole.replace("        for j in range(40):", "    for i, j in T.grid(20, 40):")
    apart, together = (generate(func_of(text), CPU) for text in (whole, ROWS))
    assert [sketch.name for sketch in together.sketches] == [sketch.name for sketch in apart.sketches]
    assert {"s0", "s1"} & widest(together) and together.version != apart.version
    assert widest(generate(func_of(STEPS), CPU)) == {""}


def test_an_iterator_that_was_simplified_hides_no_product() -> None:
    """Batch 1 is often written as the number 0, and the loop over it is left."""
    (found,) = anchors(func_of(ONE_IMAGE), {})
    assert [axis.extent for axis in found.axes] == [12, 20, 8] and len(found.factors) == 2


def stencils(count: int) -> PrimFunc:
    """So many sums of three neighbours, one after the other."""
    names = [f"u{n}" for n in range(count + 1)]
    text = "@T.prim_func\ndef main(" + ", ".join(f'{n}: T.Buffer((64,), "float32")' for n in (names[0], names[-1]))
    text += "):\n" + "".join(f'    {n} = T.alloc_buffer((64,), "float32")\n' for n in names[1:-1])
    for number, (a, b) in enumerate(pairwise(names)):
        text += f"    for i in range(60):\n        with T.block('b{number}'):\n            v = T.axis.spatial(60, i)\n"
        text += f"            {b}[v] = {a}[v] + {a}[v + 1] + {a}[v + 2]\n"
    return func_of(text)


def test_chains_of_stencils_stay_small() -> None:
    """Each one that is inlined triples what the next reads."""
    schedule = Schedule(stencils(12))
    inline_chains(schedule)
    loads = [len(list(walk(n))) for n in walk(schedule.func) if isinstance(n, For)]
    assert max(loads) < 10 * MOST_LOADS
