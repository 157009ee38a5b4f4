"""Loops that run a block again at a point, conditions on memory, and views keep what a program computes, or refuse."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scheduled import same, schedule

from stridesmith.backends.devices import discover
from stridesmith.search.calling.kernel import build
from stridesmith.space.schedule import Schedule, ScheduleError

REPEATED = """
@T.prim_func
def main(A: T.Buffer((3, 4), "float32"), B: T.Buffer((3,), "float32")):
    for r, i, k in T.grid(2, 3, 4):
        with T.block("s"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
"""
HALVED = REPEATED.replace("for r, i, k in T.grid(2, 3, 4):", "for i, k in T.grid(6, 4):").replace(
    'vi, vk = T.axis.remap("SR", [i, k])', "vi = T.axis.spatial(3, i // 2)\n            vk = T.axis.reduce(4, k)"
)
UPDATE = """
@T.prim_func
def main(A: T.Buffer((6,), "float32"), C: T.Buffer((6,), "float32")):
    B = T.alloc_buffer((6,), "float32")
    for i in range(6):
        with T.block("start"):
            vi = T.axis.spatial(6, i)
            C[vi] = A[vi]
    for i in range(6):
        with T.block("make"):
            vi = T.axis.spatial(6, i)
            B[vi] = A[vi] * T.float32(2)
    for r, i in T.grid(3, 6):
        with T.block("add"):
            vi = T.axis.spatial(6, i)
            C[vi] = C[vi] + B[vi]
"""
LATE = """
@T.prim_func
def main(A: T.Buffer((4, 3), "float32"), C: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((4,), "float32")
    for i, k, r in T.grid(4, 3, 2):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
    for i in range(4):
        with T.block("use"):
            vi = T.axis.spatial(4, i)
            C[vi] = B[vi] * T.float32(3)
"""
WATCHING = """
@T.prim_func
def main(A: T.Buffer((2, 2), "int32"), S: T.Buffer((2, 2), "int32")):
    for i, j in T.grid(2, 2):
        with T.block("clear"):
            vi, vj = T.axis.remap("SS", [i, j])
            S[vi, vj] = 0
    for i, j in T.grid(2, 2):
        if S[j, i] == 0:
            with T.block("mark"):
                vi, vj = T.axis.remap("SS", [i, j])
                S[vi, vj] = 1
"""
TWO_READS = """
@T.prim_func
def main(A: T.Buffer((9,), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((9,), "float32")
    x = T.var("float32")
    for i in range(9):
        with T.block("square"):
            vi = T.axis.spatial(9, i)
            B[vi] = T.Let(x * x, where={x: A[vi] + T.float32(1)})
    for i in range(8):
        with T.block("add"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi] + B[vi + 1] + B[vi]
"""
VIEWED = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    B = T.alloc_buffer((16,), "float32")
    for i in range(16):
        with T.block("p"):
            v = T.axis.spatial(16, i)
            B[v] = A[v]
    V = T.decl_buffer((16,), "float32", data=B.data)
    for i in range(16):
        with T.block("c"):
            w = T.axis.spatial(16, i)
            C[w] = B[w] + V[15 - w]
"""

HALVES = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((16,), "float32")):
    B = T.alloc_buffer((16,), "float32")
    for i in range(8):
        with T.block("both"):
            V = T.decl_buffer((16,), "float32", data=B.data)
            with T.block("p"):
                B[i] = A[i]
                V[i + 8] = A[i]
    for i in range(16):
        with T.block("c"):
            w = T.axis.spatial(16, i)
            C[w] = B[w]
"""


@pytest.mark.parametrize("text", [REPEATED, HALVED], ids=["unused", "divided"])
def test_a_point_that_runs_again_begins_anew(text: str) -> None:
    """Orders in which updates of one round come between those of another are refused, others are not."""
    inner = schedule(text)
    with pytest.raises(ScheduleError, match=r"\(3\)"):
        inner.reorder("k", "r" if text is REPEATED else "i")
    same(inner, text)
    with pytest.raises(ScheduleError, match=r"\(3\) block `s` may run at one point twice"):
        inner.decompose_reduction("s", "r" if text is REPEATED else "i")
    kept = schedule(text)
    kept.decompose_reduction("s", "k")
    same(kept, text)


def test_rounds_stay_apart_in_another_order() -> None:
    """Where each round is whole, the loop over rounds may stand outside or inside of the rows."""
    sch = schedule(REPEATED)
    sch.reorder("i", "r")
    same(sch, REPEATED)


def test_a_tiled_reduction_reaches_each_point_once() -> None:
    """Ragged tiles, a fused loop and an order of all of them are no repetition."""
    text = REPEATED.replace("for r, i, k in T.grid(2, 3, 4):", "for i, k in T.grid(3, 4):")
    sch = schedule(text)
    i, k = sch.get_loops("s")
    i0, i1 = sch.split(i, [None, 2])
    k0, k1 = sch.split(k, [None, 3])
    sch.reorder(k0, i1, i0, k1)
    fused = sch.fuse(i1, i0)
    sch.reorder(fused, k0)
    sch.decompose_reduction("s", k0)
    same(sch, text)


def test_an_update_that_runs_several_times_stays() -> None:
    """Condition (8) of reverse_compute_at: what is added three times is not added once."""
    with pytest.raises(ScheduleError, match=r"\(8\) block `add` may run at one point twice"):
        schedule(UPDATE).reverse_compute_at("add", "i_1")
    once = UPDATE.replace("for r, i in T.grid(3, 6):", "for i in range(6):")
    sch = schedule(once)
    sch.reverse_compute_at("add", "i_1")
    same(sch, once)


def test_an_update_follows_what_is_written_once() -> None:
    """Condition (3) of reverse_compute_at: where an element is made in two iterations, it would be added twice."""
    make = '    for {}:\n        with T.block("make")'
    text = UPDATE.replace("for r, i in T.grid(3, 6):", "for i in range(6):")
    text = text.replace(make.format("i in range(6)"), make.format("q, i in T.grid(2, 6)"))
    with pytest.raises(ScheduleError, match=r"\(3\) `B` is not final in one iteration of `i_1`"):
        schedule(text).reverse_compute_at("add", "i_1")


def test_a_reduction_that_adds_points_twice_stays() -> None:
    """Condition (7) of compute_at: after its init a producer adds two points where the moved one would add one."""
    with pytest.raises(ScheduleError, match=r"\(7\) block `sum` may run at one point twice"):
        schedule(LATE).compute_at("sum", "i_1")
    early = LATE.replace("for i, k, r in T.grid(4, 3, 2):", "for i, r, k in T.grid(4, 2, 3):")
    sch = schedule(early)
    sch.compute_at("sum", "i_1")
    same(sch, early)


@pytest.mark.parametrize(
    "change",
    [lambda sch: sch.reorder("j_1", "i_1"), lambda sch: sch.transform_loops(["i_1", "j_1"], lambda i, j: [j, i])],
    ids=["reorder", "transform_loops"],
)
def test_a_condition_on_memory_keeps_its_order(change: Callable[[Schedule], object]) -> None:
    """Whether a block runs depends on what others have stored, spatial or not."""
    sch = schedule(WATCHING)
    with pytest.raises(ScheduleError):
        change(sch)
    same(sch, WATCHING)


def test_an_inlined_let_has_a_name_for_each_element() -> None:
    """A variable stands for one value in a function, and the kernel computes both elements."""
    sch = schedule(TWO_READS)
    sch.compute_inline("square")
    same(sch, TWO_READS)
    assert sch.func.script().count("where={") == 3 and "x_1" in sch.func.script()
    kernel = build(sch.func, discover("cpu", 1))
    a = np.linspace(-2, 2, 9, dtype=np.float32)
    squares = (a + 1) ** 2
    np.testing.assert_allclose(kernel(a), 2 * squares[:-1] + squares[1:], rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "number"),
    [
        (lambda sch: sch.compute_at("p", "i_1"), 6),
        (lambda sch: sch.cache_read("c", "B", "global"), 1),
        (lambda sch: sch.cache_read("c", "V", "global"), 1),
        (lambda sch: sch.cache_write("p", 0, "global"), 1),
        (lambda sch: sch.reindex_cache_read("c", 0, "global", lambda w: [w]), 1),
        (lambda sch: sch.reindex_cache_write("p", 0, "global", lambda v: [v]), 1),
    ],
)  # fmt: skip
def test_memory_with_two_names_stays_where_it_is(change: Callable[[Schedule], object], number: int) -> None:
    """Stages and caches are placed by accesses of one buffer; a view has others."""
    with pytest.raises(ScheduleError, match=rf"\({number}\)"):
        change(schedule(VIEWED))


def test_a_stage_does_not_follow_what_is_written_by_two_names() -> None:
    """Condition (7) of reverse_compute_at: what one iteration makes is not what it stores by one of them."""
    with pytest.raises(ScheduleError, match=r"\(7\) `V` is a view of the memory of `B`"):
        schedule(HALVES).reverse_compute_at("c", "i")


def test_parts_of_a_reduction_that_repeats_are_refused() -> None:
    """Condition (5) of rfactor: the parts would have each point once."""
    late = REPEATED.replace("for r, i, k in T.grid(2, 3, 4):", "for i, k, r in T.grid(3, 4, 2):")
    with pytest.raises(ScheduleError, match=r"\(5\) block `s` may run at one point twice"):
        schedule(late).rfactor("k", 0)
    sch = schedule(REPEATED)
    sch.rfactor("k", 0)
    same(sch, REPEATED)


def test_an_update_is_inlined_where_both_run_once() -> None:
    """Condition (6) of reverse_compute_inline, for the block and for what it is inlined into."""
    once = UPDATE.replace("for r, i in T.grid(3, 6):", "for i in range(6):")
    sch = schedule(once)
    sch.reverse_compute_inline("add")
    same(sch, once)
    make = '    for {}:\n        with T.block("make")'
    twice = once.replace(make.format("i in range(6)"), make.format("q, i in T.grid(2, 6)"))
    for text, block in ((UPDATE, "add"), (twice, "make")):
        with pytest.raises(ScheduleError, match=rf"\(6\) block `{block}` may run at one point twice"):
            schedule(text).reverse_compute_inline("add")


def test_a_stage_whose_buffer_has_single_rows_is_inlined() -> None:
    """Its store has 0 for their indices, and the iterators that are never anything else are 0."""
    text = """
@T.prim_func
def main(A: T.Buffer((1, 6), "float32"), C: T.Buffer((6,), "float32")):
    B = T.alloc_buffer((1, 6), "float32")
    for q, i in T.grid(1, 6):
        with T.block("p"):
            vq, vi = T.axis.remap("SS", [q, i])
            B[0, vi] = A[vq, vi] + T.float32(1)
    for i in range(6):
        with T.block("c"):
            w = T.axis.spatial(6, i)
            C[w] = B[0, w] * T.float32(2)
"""
    sch = schedule(text)
    sch.compute_inline("p")
    same(sch, text)


def test_a_reduction_that_begins_behind_its_loops_keeps_their_order() -> None:
    """With an offset the first point is not at the loops' zeros, and another order would begin with another point."""
    text = REPEATED.replace("for r, i, k in T.grid(2, 3, 4):", "for i, k in T.grid(3, 4):")
    sch = schedule(text)
    outer, inner = sch.transform_loops(["k"], lambda k: [(k + 1) // 3, (k + 1) % 3])
    with pytest.raises(ScheduleError, match=r"\(3\)"):
        sch.reorder(inner, outer)
    same(sch, text)
