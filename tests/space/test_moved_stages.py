"""Stages that are moved or inlined keep what a program computes, in concurrent loops and in scopes too, or refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scheduled import same, schedule

from stridesmith.ir.verify.rules import verify
from stridesmith.space.schedule import Schedule, ScheduleError

ADDED = """
@T.prim_func
def main(X: T.Buffer((4,), "int32"), S: T.Buffer((1,), "int32")):
    A = T.alloc_buffer((4,), "int32")
    for z in range(1):
        with T.block("zero"):
            S[z] = 0
    for i in range(4):
        with T.block("p"):
            vi = T.axis.spatial(4, i)
            A[vi] = X[vi]
    for i in range(4):
        with T.block("c"):
            vj = T.axis.reduce(4, i)
            S[0] = S[0] + A[vj]
"""
WINDOW = """
@T.prim_func
def main(X: T.Buffer((10,), "int32"), B: T.Buffer((8,), "int32")):
    A = T.alloc_buffer((10,), "int32")
    for i in range(10):
        with T.block("p"):
            vi = T.axis.spatial(10, i)
            A[vi] = X[vi] * 3
    for i in range(8):
        with T.block("c"):
            vj = T.axis.spatial(8, i)
            B[vj] = A[vj] + A[vj + 1] + A[vj + 2]
"""
HALVED = """
@T.prim_func
def main(X: T.Buffer((8,), "int32"), B: T.Buffer((4,), "int32")):
    A = T.alloc_buffer((4,), "int32")
    for i in range(4):
        with T.block("start"):
            vi = T.axis.spatial(4, i)
            B[vi] = vi
    for i in range(8):
        with T.block("p"):
            vi = T.axis.spatial(8, i)
            A[vi // 2] = X[vi]
    for i in range(4):
        with T.block("c"):
            vj = T.axis.spatial(4, i)
            B[vj] = B[vj] + A[vj]
"""
ORDERED = """
@T.prim_func
def main(X: T.Buffer((4,), "int32"), S: T.Buffer((1,), "int32")):
    A = T.alloc_buffer((4,), "int32")
    for z in range(1):
        with T.block("zero"):
            S[z] = 0
    for i in range(4):
        with T.block("p"):
            vi = T.axis.spatial(4, i)
            A[3 - vi] = X[vi]
    for i in range(4):
        with T.block("c"):
            vj = T.axis.opaque(4, i)
            S[0] = S[0] * 2 + A[vj]
"""
LAST = """
@T.prim_func
def main(X: T.Buffer((4, 3), "int32"), B: T.Buffer((4,), "int32")):
    A = T.alloc_buffer((4,), "int32")
    for i, o in T.grid(4, 3):
        with T.block("p"):
            vi = T.axis.spatial(4, i)
            vo = T.axis.opaque(3, o)
            A[vi] = X[vi, vo]
    for i in range(4):
        with T.block("c"):
            vj = T.axis.spatial(4, i)
            B[vj] = A[vj]
"""
INSIDE = """
@T.prim_func
def main(X: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    for t in range(3):
        with T.block("o"):
            A = T.alloc_buffer((4,), "int32")
            for i in range(4):
                with T.block("p"):
                    vi = T.axis.spatial(4, i)
                    A[vi] = X[vi]
            for i in range(4):
                with T.block("c"):
                    vj = T.axis.spatial(4, i)
                    B[vj] = A[vj]
"""
UNWRITTEN = """
@T.prim_func
def main(B: T.Buffer((4,), "int32")):
    A = T.alloc_buffer((4,), "int32")
    for t in range(1):
        with T.block("o"):
            L = T.alloc_buffer((4,), "int32")
            for i in range(4):
                with T.block("p"):
                    vi = T.axis.spatial(4, i)
                    A[vi] = L[vi] * 2
    for i in range(4):
        with T.block("c"):
            vj = T.axis.spatial(4, i)
            B[vj] = A[vj]
"""
LATER = """
@T.prim_func
def main(X: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    A = T.alloc_buffer((4,), "int32")
    for i in range(4):
        with T.block("p"):
            vi = T.axis.spatial(4, i)
            A[vi] = X[vi] * 2
    for t in range(1):
        with T.block("o"):
            L = T.alloc_buffer((4,), "int32")
            for i in range(4):
                with T.block("c"):
                    vj = T.axis.spatial(4, i)
                    L[vj] = A[vj]
            for i in range(4):
                with T.block("d"):
                    vj = T.axis.spatial(4, i)
                    B[vj] = vj
"""
VECTORS = """
@T.prim_func
def main(X: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    A = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("p"):
            vi = T.axis.spatial(8, i)
            A[vi] = X[vi] + T.float32(1)
    for j in range(2):
        with T.block("c"):
            vj = T.axis.spatial(2, j)
            B[T.ramp(vj * 4, 1, 4)] = A[T.ramp(vj * 4, 1, 4)]
"""
NAMED = """
@T.prim_func
def main(X: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    A = T.alloc_buffer((8,), "int32")
    for i in range(8):
        with T.block("p"):
            p_ax0 = T.axis.spatial(8, i)
            A[p_ax0] = X[p_ax0] + 1
    for i in range(8):
        with T.block("c"):
            vj = T.axis.spatial(8, i)
            B[vj] = A[vj]
"""


def test_a_sum_does_not_follow_into_a_parallel_loop() -> None:
    """Condition (9) of reverse_compute_at: the iterations of a concurrent loop would add to one element."""
    sch = schedule(ADDED)
    sch.parallel("i")
    with pytest.raises(ScheduleError, match=r"\(9\) `i` runs concurrently, but .* element of `S`"):
        sch.reverse_compute_at("c", "i")
    same(sch, ADDED)


def test_lanes_do_not_share_a_window() -> None:
    """Condition (8) of compute_at: lanes of vectors would store the same elements; threads have copies of their own."""
    sch = schedule(WINDOW)
    sch.vectorize("i_1")
    with pytest.raises(ScheduleError, match=r"\(8\) `i_1` runs concurrently, but .* element of `A`"):
        sch.compute_at("p", "i_1")
    same(sch, WINDOW)
    for kind in ("parallel", "bind"):
        private = schedule(WINDOW)
        private.parallel("i_1") if kind == "parallel" else private.bind("i_1", "blockIdx.x")
        private.compute_at("p", "i_1")
        same(private, WINDOW)


def test_loops_of_enclosing_blocks_are_concurrent_too() -> None:
    """A parallel loop around the block that holds both stages counts, and one with buffers of its own stays."""
    text = INSIDE.replace("B: T.Buffer((4,)", "B: T.Buffer((3, 4)").replace("B[vj]", "B[vt, vj]")
    text = text.replace("vj = T.axis.spatial(4, i)", 'vt, vj = T.axis.remap("SS", [t, i])')
    sch = schedule(text)
    sch.parallel("t")
    sch.compute_at("p", "i_1")
    same(sch, text)


def test_an_update_follows_a_writer_that_stores_each_element_once() -> None:
    """Condition (6) of reverse_compute_inline: where points store one element, an update of it happens twice."""
    with pytest.raises(ScheduleError, match=r"\(6\) block `p` may store an element of `A` twice"):
        schedule(HALVED).reverse_compute_inline("c")
    once = HALVED.replace("A[vi // 2] = X[vi]", "A[3 - vi] = X[vi]").replace("(8, i)", "(4, i)").replace("(8)", "(4)")
    sch = schedule(once)
    sch.reverse_compute_inline("c")
    same(sch, once)
    plain = HALVED.replace("B[vj] + A[vj]", "A[vj] * 2")
    sch = schedule(plain)
    sch.reverse_compute_inline("c")
    same(sch, plain)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        (ORDERED, lambda sch: sch.reverse_compute_at("c", "i")),
        (LAST, lambda sch: sch.compute_inline("p")),
        (LAST, lambda sch: sch.compute_at("p", "i_1")),
    ],
)
def test_points_that_have_an_order_stay(text: str, change: Callable[[Schedule], object]) -> None:
    """Condition (1): a block with an opaque iterator is neither moved nor inlined."""
    sch = schedule(text)
    with pytest.raises(ScheduleError, match=r"\(1\) block `[pc]` has the opaque iterator `v[oj]`"):
        change(sch)
    same(sch, text)


@pytest.mark.parametrize(
    ("text", "change", "match"),
    [
        (INSIDE, lambda sch: sch.reverse_compute_at("c", "t"), r"\(10\) block `c` uses a buffer of block `o`"),
        (LATER, lambda sch: sch.reverse_compute_at("c", "i"), r"\(10\) block `c` uses a buffer of block `o`"),
        (LATER, lambda sch: sch.reverse_compute_inline("c"), r"\(7\) block `c` uses a buffer of block `o`"),
        (UNWRITTEN, lambda sch: sch.compute_at("p", "i_1"), r"\(9\) block `p` uses a buffer of block `o`"),
        (UNWRITTEN, lambda sch: sch.compute_inline("p"), r"\(5\) block `p` uses a buffer of block `o`"),
    ],
)
def test_a_stage_stays_where_its_buffers_are(text: str, change: Callable[[Schedule], object], match: str) -> None:
    """What a block allocates is known inside of it only."""
    sch = schedule(text)
    with pytest.raises(ScheduleError, match=match):
        change(sch)
    verify(sch.func)


def test_stages_move_within_the_block_that_allocates() -> None:
    """A stage follows or is inlined where both are in the block that allocates what they use."""
    for change in (
        lambda sch: sch.compute_inline("p"),
        lambda sch: sch.reverse_compute_inline("c"),
        lambda sch: sch.reverse_compute_at("c", "i"),
    ):
        sch = schedule(INSIDE)
        change(sch)
        same(sch, INSIDE)


def test_a_scalar_is_not_inlined_into_a_vector() -> None:
    """Condition (2): what one element is made of does not stand for several at once, on either side."""
    with pytest.raises(ScheduleError, match=r"\(2\) several elements of `A` are accessed at once"):
        schedule(VECTORS).compute_inline("p")


def test_loops_of_a_moved_block_have_names_of_their_own() -> None:
    """The names that a block binds are taken."""
    sch = schedule(NAMED)
    sch.compute_at("p", "i_1")
    same(sch, NAMED)


PARTLY = """
@T.prim_func
def main(X: T.Buffer((4,), "int32"), C: T.Buffer((8,), "int32")):
    B = T.alloc_buffer((8,), "int32")
    for i in range(4):
        with T.block("p"):
            v = T.axis.spatial(8, i)
            B[v] = X[v]
    for j in range(8):
        with T.block("c"):
            w = T.axis.spatial(8, j)
            C[w] = T.if_then_else(w < 4, B[w], T.int32(3))
"""
IN_TURNS = """
@T.prim_func
def main(C: T.Buffer((4,), "int32")):
    S = T.alloc_buffer((4,), "int32")
    B = T.alloc_buffer((4,), "int32")
    for z in range(4):
        S[z] = 0
    for z in range(4):
        C[z] = 7
    for t in range(2):
        for i in range(4):
            with T.block("p"):
                v = T.axis.spatial(4, i)
                B[v] = S[v]
        for j in range(2):
            with T.block("c"):
                w = T.axis.spatial(4, t * 2 + j)
                C[w] = B[w]
        for u in range(4):
            with T.block("q"):
                x = T.axis.spatial(4, u)
                S[x] = S[x] + 1
"""


def test_points_at_which_a_stage_reads_nothing_are_not_lost() -> None:
    """Where nothing is stored it does other things, be they in an expression or in a branch."""
    branch = PARTLY.replace(
        "C[w] = T.if_then_else(w < 4, B[w], T.int32(3))",
        "if w < 4:\n                C[w] = B[w]\n            else:\n                C[w] = 3",
    )
    asked = PARTLY.replace("def main(", "def main(n: T.int64, ").replace("for i in range(4):", "for i in range(n):")
    asked = asked.replace("T.axis.spatial(8, i)", "T.axis.spatial(8, i)\n            T.where(i < 4)")
    for text in (PARTLY, branch, asked):
        with pytest.raises(ScheduleError, match=r"\(1\) block `c` reads `B` under a condition, and may run where"):
            schedule(text).reverse_compute_at("c", "i")
    whole = PARTLY.replace("for i in range(4)", "for i in range(8)").replace("X: T.Buffer((4,)", "X: T.Buffer((8,)")
    sch = schedule(whole)
    sch.reverse_compute_at("c", "i")
    same(sch, whole)


@pytest.mark.parametrize(
    ("binding", "extent"), [("t * 2 + j", 2), ("j", 4)], ids=["other points in each turn", "the first turn alone"]
)
def test_what_ran_in_one_turn_of_a_loop_around_both_does_not_run_in_others(binding: str, extent: int) -> None:
    """What an earlier turn has stored may be something else by then."""
    text = IN_TURNS.replace("t * 2 + j", binding).replace("for j in range(2)", f"for j in range({extent})")
    if extent == 4:
        text = text.replace("T.axis.spatial(4, j)\n", "T.axis.spatial(4, j)\n                T.where(t < 1)\n")
    sch = schedule(text)
    sch.reverse_compute_at("c", "i")
    same(sch, text)


def test_an_element_that_the_init_reads_elsewhere_keeps_a_stage_where_it_is() -> None:
    """It may be of an iteration that comes later."""
    text = """
@T.prim_func
def main(X: T.Buffer((4, 3), "int32"), C: T.Buffer((4,), "int32")):
    B = T.alloc_buffer((4, 3), "int32")
    for i, k in T.grid(4, 3):
        with T.block("p"):
            v, vk = T.axis.remap("SS", [i, k])
            B[v, vk] = X[v, vk]
    for j, k in T.grid(4, 3):
        with T.block("c"):
            w, wk = T.axis.remap("SR", [j, k])
            with T.init():
                C[w] = B[3 - w, 0]
            C[w] = C[w] + B[w, wk]
"""
    with pytest.raises(ScheduleError, match=r"\(1\) block `c` must read `B` once"):
        schedule(text).reverse_compute_at("c", "i")


def test_which_points_run_is_said_within_the_block_that_holds_the_loop() -> None:
    """Loops outside of it are not known there."""
    text = """
@T.prim_func
def main(X: T.Buffer((16,), "int32"), C: T.Buffer((16,), "int32")):
    B = T.alloc_buffer((16,), "int32")
    for i in range(16):
        with T.block("p"):
            v = T.axis.spatial(16, i)
            B[v] = X[v]
    for j in range(16):
        with T.block("c"):
            w = T.axis.spatial(16, j)
            C[w] = B[w]
"""
    sch = schedule(text)
    _, inner = sch.split("i", [4, 4])
    sch.blockize(inner)
    with pytest.raises(ScheduleError, match=r"\((10|11)\) "):
        sch.reverse_compute_at("c", inner)


@pytest.mark.parametrize("around", ["for t in range(n):\n        ", "if n > 5:\n        "])
def test_what_runs_for_some_numbers_alone_does_not_count_as_run(around: str) -> None:
    """A scalar parameter may be 0: then nothing is stored, and there is nothing to copy back or to compute on."""
    cached = f"""
@T.prim_func
def main(n: T.int64, A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
    {around}for i in range(4):
            with T.block("w"):
                v = T.axis.spatial(4, i)
                C[v] = A[v]
"""
    with pytest.raises(ScheduleError, match=r"\(4\) block `w` does not write all of `C`"):
        schedule(cached).cache_write("w", 0, "global")
    if "if" in around:
        return
    inlined = f"""
@T.prim_func
def main(n: T.int64, A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
    B = T.alloc_buffer((4,), "int32")
    for i in range(4):
        with T.block("p"):
            v = T.axis.spatial(4, i)
            B[v] = A[v]
    {around}for i in range(4):
            with T.block("c"):
                w = T.axis.spatial(4, i)
                C[w] = B[w] * 2
"""
    with pytest.raises(ScheduleError, match=r"\(5\) at .* block `p` stores an element of `B` that block `c` does not"):
        schedule(inlined).reverse_compute_inline("c")


def test_an_init_that_leaves_something_out_does_not_begin_anew() -> None:
    """Where it does not run in each round, or not for all that the block adds to, an update comes once more."""
    halves = """
@T.prim_func
def main(A: T.Buffer((4,), "int32"), C: T.Buffer((2,), "int32")):
    B = T.alloc_buffer((2,), "int32")
    for i, k in T.grid(4, 4):
        with T.block("s"):
            v = T.axis.spatial(2, i // 2)
            vk = T.axis.reduce(4, k)
            T.where(i % 2 == 0 or k > 0)
            with T.init():
                B[v] = 0
            B[v] = B[v] + A[vk]
    for j in range(2):
        with T.block("c"):
            w = T.axis.spatial(2, j)
            C[w] = B[w]
"""
    with pytest.raises(ScheduleError, match=r"\(7\) block `s` may run at one point twice"):
        schedule(halves).compute_at("s", "j")
    counted = """
@T.prim_func
def main(A: T.Buffer((3, 4), "int32"), C: T.Buffer((3,), "int32"), D: T.Buffer((3, 4), "int32")):
    B = T.alloc_buffer((3, 4), "int32")
    for i, k in T.grid(3, 4):
        with T.block("zero"):
            v, vk = T.axis.remap("SS", [i, k])
            D[v, vk] = 0
    for pi, pk in T.grid(3, 4):
        with T.block("p"):
            v, vk = T.axis.remap("SS", [pi, pk])
            B[v, vk] = A[v, vk]
    for r, i, k in T.grid(2, 3, 4):
        with T.block("s"):
            v, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[v] = 0
            C[v] = C[v] + B[v, vk]
            D[v, vk] = D[v, vk] + 1
"""
    with pytest.raises(ScheduleError, match=r"\(8\) block `s` may run at one point twice"):
        schedule(counted).reverse_compute_at("s", "pk")
