"""Stages move past bare loops and opaque blocks only where everything that they meet allows it."""

from __future__ import annotations

import pytest
from scheduled import same, schedule

from stridesmith.space.schedule import Schedule, ScheduleError

BARE_READER = """
@T.prim_func
def main(x: T.Buffer((10,), "float32"), y: T.Buffer((8,), "float32")):
    t = T.alloc_buffer((10,), "float32")
    for i in range(10):
        with T.block("make"):
            vi = T.axis.spatial(10, i)
            t[vi] = x[vi] * T.float32(2)
    for j in range(4):
        for k in range(2):
            y[j * 2 + k] = t[j * 2 + k] + t[j * 2 + k + 2]
"""

BARE_WRITER = """
@T.prim_func
def main(x: T.Buffer((10,), "float32"), y: T.Buffer((10,), "float32")):
    t = T.alloc_buffer((10,), "float32")
    for i in range(4):
        for j in range(3):
            if i * 3 + j < 10:
                t[i * 3 + j] = {start}
                for k in range(2):
                    t[i * 3 + j] = t[i * 3 + j] + x[i * 3 + j]
    for v in range(10):
        with T.block("use"):
            vi = T.axis.spatial(10, v)
            y[vi] = t[vi] + T.float32(1)
"""


def test_a_stage_moves_to_bare_loops_that_read_it() -> None:
    """The part that one iteration reads, halo included."""
    sch = schedule(BARE_READER)
    sch.compute_at("make", "j")
    same(sch, BARE_READER)
    assert "range(4):\n        for make_ax0 in range(4)" in sch.func.script()
    inlined = schedule(BARE_READER)
    inlined.compute_inline("make")
    same(inlined, BARE_READER)


def test_a_bare_reader_outside_of_the_loop_counts() -> None:
    """Condition (3) of compute_at sees statements that are in no block."""
    text = BARE_READER + "    y[0] = t[9]\n"
    with pytest.raises(ScheduleError, match=r"\(3\) reader .* is not below loop `j`"):
        schedule(text).compute_at("make", "j")


def test_a_stage_follows_a_bare_reduction() -> None:
    """An iteration's part of the consumer covers what the iteration stores, and nothing else."""
    text = BARE_WRITER.format(start="T.float32(0)")
    for loop in ("i", "j"):
        sch = schedule(text)
        sch.reverse_compute_at("use", loop)
        same(sch, text)


def test_a_stage_does_not_follow_a_part_of_a_reduction() -> None:
    """Condition (3) of reverse_compute_at: a loop that adds to one element in each iteration leaves it unfinished."""
    text = BARE_WRITER.format(start="T.float32(0)")
    with pytest.raises(ScheduleError, match=r"\(3\) `t` is not final in one iteration of `k`|\(2\) writer"):
        schedule(text).reverse_compute_at("use", "k")
    early = text.replace("for i in range(4):", "for r, i in T.grid(2, 4):")
    with pytest.raises(ScheduleError, match=r"\(3\) `t` is not final in one iteration of `i`: two iterations"):
        schedule(early).reverse_compute_at("use", "i")
    with pytest.raises(ScheduleError, match=r"element, as at r=0, i=0.*; choose a loop outside of those that store"):
        schedule(early).reverse_compute_at("use", "i")


def test_a_part_leaves_out_what_another_iteration_stores() -> None:
    """Tiles of 4 in rows of 3: the box of one iteration is wider than what it stores."""
    text = """
@T.prim_func
def main(x: T.Buffer((7,), "float32"), y: T.Buffer((7,), "float32")):
    t = T.alloc_buffer((7,), "float32")
    for i, j, k in T.grid(3, 1, 4):
        with T.block("make"):
            vi = T.axis.spatial(7, i * 3 + k)
            T.where(i * 3 + k < 7 and k < 3)
            t[vi] = x[vi]
    for v in range(7):
        with T.block("use"):
            vi = T.axis.spatial(7, v)
            y[vi] = t[vi]
"""
    sch = schedule(text)
    sch.reverse_compute_at("use", "j")
    same(sch, text)


def test_a_condition_around_a_block_keeps_it() -> None:
    """A block that runs only sometimes is not moved out of its condition."""
    text = BARE_READER.replace("    for i in range(10):\n", "    for i in range(10):\n        if i < 10:\n")
    head, tail = text.split("        if i < 10:\n")
    block, rest = tail.split("    for j", 1)
    text = head + "        if i < 10:\n" + "".join(f"    {line}\n" for line in block.splitlines()) + "    for j" + rest
    for move in (lambda s: s.compute_at("make", "j"), lambda s: s.compute_inline("make")):
        with pytest.raises(ScheduleError, match="stands inside of `If`"):
            move(schedule(text))


PARTS = """
@T.prim_func
def main(a: T.Buffer((10, 24), "float32"), c: T.Buffer((10,), "float32")):
    for i, k in T.grid(10, 24):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                c[vi] = T.float32(1)
            c[vi] = c[vi] + a[vi, vk]
"""


def in_parts() -> tuple[Schedule, str]:
    """A sum in three parts, each of which is made at once for four rows."""
    sch = schedule(PARTS)
    i, k = sch.get_loops("sum")
    outer, inner = sch.split(i, [None, 4])
    panel, step = sch.split(k, [None, 8])
    parts = sch.rfactor(panel, 0)
    sch.reorder(panel, outer, step, inner)
    return sch, parts


def test_a_reduction_follows_its_parts() -> None:
    """Each panel is added where it was made, in the order of the panels; its init may stand before all of them."""
    sch, _ = in_parts()
    sch.reverse_compute_at("sum", "i_0")
    assert sch.get_loops("sum")[:2] == ["k_0", "i_0"]
    same(sch, PARTS)
    sch.decompose_reduction("sum", "k_0")
    same(sch, PARTS)


def test_a_reduction_follows_only_what_is_made_once() -> None:
    """Conditions (3): rows that are made anew in a second iteration would be added twice."""
    twice = """
@T.prim_func
def main(x: T.Buffer((8,), "float32"), y: T.Buffer((1,), "float32")):
    t = T.alloc_buffer((8,), "float32")
    for i, j in T.grid(3, 4):
        with T.block("make"):
            vi = T.axis.spatial(8, i * 2 + j)
            t[vi] = x[vi]
    for k in range(8):
        with T.block("sum"):
            vk = T.axis.reduce(8, k)
            with T.init():
                y[0] = T.float32(0)
            y[0] = y[0] + t[vk]
"""
    with pytest.raises(ScheduleError, match=r"\(3\)"):
        schedule(twice).reverse_compute_at("sum", "i")


def test_a_reduction_starts_at_its_first_point() -> None:
    """Condition (6): a loop along result and reduction may come to a later point of the reduction first."""
    skewed = """
@T.prim_func
def main(x: T.Buffer((4, 7), "float32"), y: T.Buffer((4,), "float32")):
    t = T.alloc_buffer((4, 7), "float32")
    for i, j in T.grid(4, 7):
        with T.block("make"):
            vi = T.axis.spatial(4, i)
            vj = T.axis.spatial(7, (j + i) % 7)
            t[vi, vj] = x[vi, vj]
    for i, j in T.grid(4, 7):
        with T.block("sum"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                y[vi] = T.float32(0)
            y[vi] = y[vi] + t[vi, vj]
"""
    with pytest.raises(ScheduleError, match=r"\(6\)"):
        schedule(skewed).reverse_compute_at("sum", "j")


def test_a_block_whose_condition_reads_memory_stays() -> None:
    """In tiles of four, the last of ten rows would be looked at beyond their end."""
    text = """
@T.prim_func
def main(x: T.Buffer((10,), "float32"), y: T.Buffer((10,), "float32")):
    t = T.alloc_buffer((10,), "float32")
    for i in range(10):
        with T.block("make"):
            vi = T.axis.spatial(10, i)
            t[vi] = x[vi] * T.float32(2)
    for i in range(10):
        with T.block("clear"):
            vi = T.axis.spatial(10, i)
            y[vi] = T.float32(0)
    for i in range(10):
        with T.block("use"):
            vi = T.axis.spatial(10, i)
            T.where(T.float32(0) < x[i])
            y[vi] = t[vi]
"""
    sch = schedule(text)
    outer, _ = sch.split("i", [None, 4])
    with pytest.raises(ScheduleError, match=r"\(1\) block `use` runs where .*, which reads memory"):
        sch.reverse_compute_at("use", outer)
    same(sch, text)


def test_a_stage_that_runs_where_it_reads_nothing_stays_whole() -> None:
    """What is stored in an iteration is not all of what a stage does that reads it under a condition."""
    text = """
@T.prim_func
def main(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
    t = T.alloc_buffer((4,), "float32")
    for i in range(4):
        with T.block("make"):
            vi = T.axis.spatial(4, i)
            T.where(i < 3)
            t[vi] = x[vi]
    for i in range(4):
        with T.block("use"):
            vi = T.axis.spatial(4, i)
            y[vi] = T.if_then_else(vi < 3, t[vi], T.float32(3))
"""
    with pytest.raises(ScheduleError, match=r"\(1\) block `use` reads `t` under a condition"):
        schedule(text).reverse_compute_at("use", "i")
    whole = text.replace("            T.where(i < 3)\n", "")
    sch = schedule(whole)
    sch.reverse_compute_at("use", "i")
    same(sch, whole)


UNREAD = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    S = T.alloc_buffer((8,), "float32")
    U = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("s"):
            vi = T.axis.spatial(8, i)
            S[vi] = A[vi] * T.float32(2)
    for j in range(8):
        with T.block("u"):
            vj = T.axis.spatial(8, j)
            U[vj] = {value}
    for k in range(8):
        with T.block("c"):
            vk = T.axis.spatial(8, k)
            C[vk] = S[vk]
"""


@pytest.mark.parametrize("value", ["S[vj]", "A[vj]", "T.float32(1)", "U[vj] + S[vj]"])
@pytest.mark.parametrize("loop", ["i", "k"])
def test_what_nobody_reads_is_needed_nowhere(value: str, loop: str) -> None:
    """Condition (3) of compute_at: without a reader no iteration needs a part, and no order is known."""
    with pytest.raises(ScheduleError, match=r"\(3\) nothing reads `U`, so that no part of it is needed anywhere"):
        schedule(UNREAD.format(value=value)).compute_at("u", loop)


BEFORE = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    W = T.alloc_buffer((8,), "float32")
    X = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("w"):
            vi = T.axis.spatial(8, i)
            W[vi] = A[vi]
    for t in range(3):
        for i in range(8):
            with T.block("c"):
                vi = T.axis.spatial(8, i)
                T.where(t > 0)
                C[vi] = X[vi]
        for j in range(8):
            with T.block("x"):
                vj = T.axis.spatial(8, j)
                X[vj] = W[vj]
        for i in range(8):
            with T.block("again"):
                vi = T.axis.spatial(8, i)
                W[vi] = W[vi] + T.float32(1)
"""


@pytest.mark.parametrize("loop", ["t", "j"])
def test_a_reader_of_the_iteration_before_does_not_follow(loop: str) -> None:
    """Condition (2) of reverse_compute_at: what the block reads was stored in an earlier iteration around both."""
    with pytest.raises(ScheduleError, match=r"\(2\) writer `x` comes after block `c`, which reads what an earlier"):
        schedule(BEFORE).reverse_compute_at("c", loop)


def test_a_stage_does_not_leave_what_is_assumed_of_it() -> None:
    """Condition (3) of compute_at: an assumption reads what it speaks of."""
    text = (
        UNREAD.format(value="S[vj] * T.float32(0)")
        + """
    for m in range(8):
        with T.block("known"):
            vm = T.axis.spatial(8, m)
            T.assume(U[vm] == T.float32(0))
    for n in range(8):
        with T.block("d"):
            vn = T.axis.spatial(8, n)
            C[vn] = C[vn] + U[vn]
"""
    )
    with pytest.raises(ScheduleError, match=r"\(3\) reader `known` is not below loop `n`"):
        schedule(text).compute_at("u", "n")


WITH_UNDEF = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    S = T.alloc_buffer((8,), "float32")
    D = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("s"):
            vi = T.axis.spatial(8, i)
            S[vi] = T.if_then_else(vi < 5, A[vi], T.undef("float32"))
    for i in range(8):
        with T.block("d"):
            vi = T.axis.spatial(8, i)
            D[vi] = {value}
    for i in range(8):
        with T.block("c"):
            vi = T.axis.spatial(8, i)
            C[vi] = T.if_then_else(vi < 5, D[vi], A[vi])
"""


def test_undef_is_not_written_into_what_decides() -> None:
    """Condition (6) of compute_inline and (8) of reverse_compute_inline: undef stands in no comparison."""
    compared = WITH_UNDEF.format(value='T.Cast("float32", S[vi] > T.float32(1))')
    with pytest.raises(ScheduleError, match=r"\(6\) the block stores undef, and one side of .* is undef"):
        schedule(compared).compute_inline("s")
    with pytest.raises(ScheduleError, match=r"\(8\) the block stores undef, and one side of .* is undef"):
        schedule(compared).reverse_compute_inline("d")
    for change in (lambda sch: sch.compute_inline("s"), lambda sch: sch.reverse_compute_inline("d")):
        text = WITH_UNDEF.format(value="S[vi] + T.float32(1)")
        sch = schedule(text)
        change(sch)
        same(sch, text)


STORED_AGAIN = """
@T.prim_func
def main(a: T.Buffer((2,), "float32"), c: T.Buffer((2,), "float32")):
    w = T.alloc_buffer((2,), "float32")
    x = T.alloc_buffer((2,), "float32")
    for h in range(2):
        with T.block("begin"):
            vh = T.axis.spatial(2, h)
            w[vh] = a[vh]
    for o in range(1):
        for t in range(4):
            for i in range(2):
                with T.block("make"):
                    vi = T.axis.spatial(2, i)
                    x[vi] = w[vi]
            for k in range(2):
                with T.block("count"):
                    vk = T.axis.spatial(2, k)
                    w[vk] = w[vk] + T.float32(1)
            for j in range(2):
                with T.block("use"):
                    vj = T.axis.spatial(2, j)
                    T.where(SEEN)
                    c[vj] = x[vj] * T.float32(2)
"""


@pytest.mark.parametrize("seen", ["t < 3", "t * 2 + j < 7", "t == 1"])
def test_a_consumer_stays_where_what_it_reads_is_stored_again(seen: str) -> None:
    """Condition (12) of reverse_compute_at: a consumer that ran before the last store would see another value."""
    with pytest.raises(ScheduleError, match=r"\(12\) `make` stores an element of `x` after `use` has read it"):
        schedule(STORED_AGAIN.replace("SEEN", seen)).reverse_compute_at("use", "o")


@pytest.mark.parametrize("seen", ["t < 4", "t >= 2", "t * 2 + j >= 4"])
def test_a_consumer_that_sees_the_last_store_moves(seen: str) -> None:
    """Condition (12) of reverse_compute_at holds where it runs in the last iteration, whatever it did before."""
    text = STORED_AGAIN.replace("SEEN", seen)
    sch = schedule(text)
    sch.reverse_compute_at("use", "o")
    same(sch, text)


PADDED_READER = """
@T.prim_func
def main(a: T.Buffer((5,), "float32"), p: T.Buffer((7,), "float32")):
    b = T.alloc_buffer((5,), "float32")
    for i in range(5):
        with T.block("make"):
            vi = T.axis.spatial(5, i)
            b[vi] = a[vi] * T.float32(2)
    for j in range(7):
        with T.block("pad"):
            vj = T.axis.spatial(7, j)
            p[vj] = T.if_then_else(vj >= 1 and vj < 6, b[vj - 1], T.float32(0))
"""


def test_a_consumer_that_reads_under_a_condition_is_not_inlined_into_fewer_points() -> None:
    """Condition (5) of reverse_compute_inline: where the writer stores nothing, the consumer would not run."""
    sch = schedule(PADDED_READER)
    sch.reindex_cache_read("pad", 0, "global", lambda j: [j])
    with pytest.raises(ScheduleError, match=r"\(5\) block `pad` reads `b_global` under a condition, and may run where"):
        sch.reverse_compute_inline("pad")


PRIVATE = """
@T.prim_func
def main(a: T.Buffer((5,), "float32"), c: T.Buffer((5,), "float32")):
    t = T.alloc_buffer((5,), "float32")
    for i in range(5):
        for r in T.parallel(2):
            with T.block("make"):
                vi = T.axis.spatial(5, i)
                t[vi] = a[vi]
    for j in range(5):
        with T.block("use"):
            vj = T.axis.spatial(5, j)
            c[vj] = a[vj]
"""


def test_what_concurrent_iterations_write_for_themselves_is_not_copied_back() -> None:
    """Condition (7) of cache_write, (11) of reindex_cache_write: nobody reads `t`, which each iteration may own."""
    with pytest.raises(ScheduleError, match=r"\(7\) `r` runs concurrently, but"):
        schedule(PRIVATE).cache_write("make", 0, "local")
    with pytest.raises(ScheduleError, match=r"\(11\) `r` runs concurrently, but"):
        schedule(PRIVATE).reindex_cache_write("make", 0, "global", lambda i: [i])
    bare = PRIVATE.replace('            with T.block("make"):\n                vi = T.axis.spatial(5, i)\n', "")
    bare = bare.replace("    t[vi] = a[vi]", "t[i] = a[i]")
    with pytest.raises(ScheduleError, match=r"\(7\) `r` runs concurrently, but"):
        schedule(bare).cache_write("root", "t", "global")


def test_an_assumption_moves_as_a_consumer_does() -> None:
    """Condition (12) of reverse_compute_at counts what an assumption reads."""
    text = STORED_AGAIN.replace("c[vj] = x[vj] * T.float32(2)", "T.assume(x[vj] == x[vj])").replace("SEEN", "t < 4")
    text += """    for z in range(2):
        with T.block("end"):
            vz = T.axis.spatial(2, z)
            c[vz] = x[vz]
"""
    sch = schedule(text)
    sch.reverse_compute_at("use", "o")
    same(sch, text)


PRIVATE_STAGE = """
@T.prim_func
def main(a: T.Buffer((13,), "float32"), c: T.Buffer((6,), "float32")):
    p = T.alloc_buffer((13,), "float32")
    for i in T.parallel(6):
        for k in range(3):
            with T.block("stage"):
                vk = T.axis.spatial(13, i * 2 + k)
                p[vk] = a[vk] * T.float32(2)
        with T.block("use"):
            vi = T.axis.spatial(6, i)
            c[vi] = p[vi * 2] + p[vi * 2 + 1]
"""


def test_what_concurrent_iterations_write_for_themselves_is_not_separated_from_its_readers() -> None:
    """Condition (3) of distribute: after the first loop each iteration's own copy would be gone."""
    with pytest.raises(ScheduleError, match=r"\(3\) `i` runs concurrently, but .* may touch the same element of `p`"):
        schedule(PRIVATE_STAGE).distribute("i", 1)
    serial = PRIVATE_STAGE.replace("T.parallel(6)", "range(6)")
    sch = schedule(serial)
    sch.distribute("i", 1)
    same(sch, serial)


DIVIDED = """
@T.prim_func
def main(a: T.Buffer((7,), "float32"), c: T.Buffer((7,), "float32")):
    for i in range(7):
        if i > 3:
            with T.block("use"):
                vi = T.axis.spatial(7, i)
                c[vi] = a[12 // (vi - 3) % 7]
        else:
            c[i] = T.float32(0)
"""


def test_a_stage_needs_no_index_that_a_condition_protects() -> None:
    """What one iteration reads is computed outside of the reader's conditions: there a divisor may be 0."""
    sch = schedule(DIVIDED)
    sch.cache_read("use", 0, "global")
    sch.compute_at("a_global", "i")
    same(sch, DIVIDED)


TURNED = """
@T.prim_func
def main(a: T.Buffer((3, 4), "float32"), c: T.Buffer((4,), "float32")):
    p = T.alloc_buffer((3, 4), "float32")
    for o in range(3):
        for u, i in T.grid(2, 4):
            with T.block("part"):
                vq = T.axis.spatial(3, u * 3 + o - FIRST)
                vi = T.axis.spatial(4, i)
                T.where(u * 3 + o >= FIRST and u * 3 + o < FIRST + 3)
                p[vq, vi] = a[vq, vi] * T.float32(2)
    for j, q in T.grid(4, 3):
        with T.block("sum"):
            vj, vr = T.axis.remap("SR", [j, q])
            with T.init():
                c[vj] = T.float32(0)
            c[vj] = c[vj] + p[vr, vj]
"""


def test_a_reduction_does_not_follow_parts_that_come_in_another_order() -> None:
    """Condition (6) of reverse_compute_at: the first point of the reduction, with the init, would not be the first."""
    with pytest.raises(ScheduleError, match=r"\(6\) the init of block `sum` would come too late"):
        schedule(TURNED.replace("FIRST", "1")).reverse_compute_at("sum", "o")
    straight = TURNED.replace("FIRST", "0")
    sch = schedule(straight)
    sch.reverse_compute_at("sum", "o")
    same(sch, straight)
