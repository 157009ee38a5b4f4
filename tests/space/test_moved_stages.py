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
    text = text.replace("vj = T.axis.spatial(4, i)", "vt, vj = T.axis.remap(\"SS\", [t, i])")
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
