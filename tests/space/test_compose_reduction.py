"""compose_reduction: what initialises and what adds up become one block, exactly where nobody sees the difference."""

from __future__ import annotations

import numpy as np
import pytest
from draws import func_of
from expected_space import CPU
from goldens.execute import same_results

from stridesmith.ir.verify.rules import verify
from stridesmith.space.design.space import generate
from stridesmith.space.schedule import Schedule, ScheduleError, Trace

PRODUCT = """
@T.prim_func
def main(a: T.Buffer((6, 9), "float32"), b: T.Buffer((9, 8), "float32"), v: T.Buffer((8,), "float32"),
         c: T.Buffer((6, 8), "float32"), d: T.Buffer((6, 8), "float32")):
    for x, y in T.grid({rows}, 8):
        with T.block("begin"):
            vx, vy = T.axis.remap("SS", [x, y])
            {begin}
{between}
    {loops}:
        with T.block("sum"):
            vi, vj = T.axis.remap("SS", [i, j])
            vk = T.axis.reduce(9, {last})
{where}            {update}
    for i, j in T.grid(6, 8):
        with T.block("copy"):
            vi, vj = T.axis.remap("SS", [i, j])
            d[vi, vj] = c[vi, vj]
"""
PLAIN = {
    "rows": "6",
    "begin": "c[vx, vy] = v[vy]",
    "between": "",
    "last": "k",
    "where": "",
    "loops": "for i, j, k in T.grid(6, 8, 9)",
    "update": "c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]",
}
BETWEEN = """    for x, y in T.grid(6, 8):
        with T.block("between"):
            vx, vy = T.axis.remap("SS", [x, y])
            {0}
"""


def product(**changes: str) -> str:
    return PRODUCT.format(**{**PLAIN, **changes})


@pytest.mark.parametrize(
    "changes",
    [{}, {"begin": "c[vx, vy] = T.float32(3)"}, {"between": BETWEEN.format("d[vx, vy] = v[vy]")},
     {"update": "c[vi, vj] = T.max(a[vi, vk] - b[vk, vj], c[vi, vj])"}],
    ids=["a row", "a number", "something else between", "a maximum"],
)  # fmt: skip
def test_what_is_composed_computes_the_same(changes: dict[str, str]) -> None:
    """And what `decompose_reduction` makes of it is what it was."""
    func = func_of(product(**changes))
    sch = Schedule(func)
    sch.compose_reduction("sum", "begin")
    verify(sch.func)
    same_results(func, sch.func)
    text = sch.func.script()
    assert "begin" not in text and "with T.init():" in text
    assert Trace.from_json(sch.trace.to_json()).replay(func).func == sch.func
    sch.decompose_reduction("sum", sch.get_loops("sum")[0])
    same_results(func, sch.func)


def test_dimensions_of_one_place_need_no_iterator() -> None:
    """As of a batch of one image."""
    func = func_of("""
@T.prim_func
def main(a: T.Buffer((6, 9), "float32"), c: T.Buffer((1, 6), "float32")):
    for x in range(6):
        with T.block("begin"):
            vx = T.axis.spatial(6, x)
            c[0, vx] = T.float32(1)
    for i, k in T.grid(6, 9):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            c[0, vi] = c[0, vi] + a[vi, vk]
""")
    sch = Schedule(func)
    sch.compose_reduction("sum", "begin")
    same_results(func, sch.func)
    with pytest.raises(ScheduleError, match=r"\(1\) block `sum` has an init"):
        sch.compose_reduction("sum", "sum")


REFUSED = {
    "no update": ({"update": "c[vi, vj] = a[vi, vk] * b[vk, vj]"}, r"\(1\)"),
    "another buffer": ({"begin": "d[vx, vy] = v[vy]"}, r"\(2\) block `begin` does more"),
    "fewer rows": ({"rows": "5"}, r"\(3\) blocks `begin` and `sum` may not store at the same elements"),
    "exchanged": ({"rows": "8", "begin": "c[T.min(vx, 5), vy] = v[vy]"}, r"\(3\)"),
    "part of the sum": ({"where": "            T.where(k <= i)\n"}, r"\(4\) a condition leaves out points"),
    "part of the points": ({"where": "            T.where(i < 5)\n"}, r"\(4\) block `sum` does not run at"),
    "read between": ({"between": BETWEEN.format("d[vx, vy] = c[vx, vy]")}, r"\(5\) a nest between the blocks touches"),
    "written between": ({"between": BETWEEN.format("v[vy] = T.float32(1)")}, r"\(5\) what block `begin` reads of `v`"),
    "twice": ({"loops": "for t, i, j, k in T.grid(2, 6, 8, 9)"}, r"\(6\)"),
    "backwards": ({"last": "8 - k"}, r"\(6\)"),
}


@pytest.mark.parametrize(("changes", "match"), REFUSED.values(), ids=REFUSED)
def test_what_would_differ_is_refused(changes: dict[str, str], match: str) -> None:
    """Each condition by a program that breaks it alone."""
    with pytest.raises(ScheduleError, match=match):
        Schedule(func_of(product(**changes))).compose_reduction("sum", "begin")


def test_nests_that_hold_more_are_refused() -> None:
    """A block that shares its loops with another one, and one that comes later."""
    shared = """
@T.prim_func
def main(a: T.Buffer((6, 9), "float32"), c: T.Buffer((6,), "float32")):
    for i in range(6):
        with T.block("begin"):
            vx = T.axis.spatial(6, i)
            c[vx] = T.float32(1)
        for k in range(9):
            with T.block("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                c[vi] = c[vi] + a[vi, vk]
"""
    with pytest.raises(ScheduleError, match=r"\(1\) block `sum` is not alone in its nest"):
        Schedule(func_of(shared)).compose_reduction("sum", "begin")
    later = product().replace('"copy"', '"after"').replace("d[vi, vj] = c[vi, vj]", "c[vi, vj] = v[vj]")
    with pytest.raises(ScheduleError, match=r"\(5\) block `after` does not come before block `sum`"):
        Schedule(func_of(later)).compose_reduction("sum", "after")


def test_sums_that_are_written_in_two_nests_have_the_space_of_a_product() -> None:
    """Also where both share a loop: tiles and vectors of the same structures as with an init."""
    text = """
@T.prim_func
def main(a: T.Buffer((64, 80), "float32"), b: T.Buffer((80, 48), "float32"), c: T.Buffer((64, 48), "float32")):
    for i in range(64):
        for j in range(48):
            with T.block("begin"):
                vi, vj = T.axis.remap("SS", [i, j])
                c[vi, vj] = T.float32(0)
        for j, k in T.grid(48, 80):
            with T.block("sum"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]
"""
    found = generate(func_of(text), CPU)
    assert {"vec=s1,row=s0", "vec=s0,row=s1"} <= {sketch.name for sketch in found.sketches}
    for sketch in found.sketches[:2]:
        for row in sketch.draw(np.random.default_rng(0), 2).tolist():
            same_results(func_of(text), sketch.schedule(row).func)
