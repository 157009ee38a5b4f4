"""``merge_adjacent_loops`` (RFC 0077, "Utility - Merge Adjacent Loops") with the corrected condition."""

from __future__ import annotations

import pytest
from ir.passes.examples import gives, program, stays

from stridesmith.ir.passes.merge import merge_adjacent

NAME = "merge_adjacent_loops"


def two(first: str, second: str, extents: tuple[str, str] = ("16", "16")) -> str:
    """Two loops with one statement each."""
    return f"for i in T.serial({extents[0]}):\n    {first}\nfor j in T.serial({extents[1]}):\n    {second}\n"


def test_element_wise_loops_merge() -> None:
    """The RFC's first example."""
    gives(NAME, two("A[i] = 0.0", "A[j] = 1.0"), """
        for i in T.serial(16):
            A[i] = 0.0
            A[i] = 1.0
    """)  # fmt: skip


def test_what_an_earlier_iteration_wrote_may_be_read() -> None:
    """The RFC's second example."""
    gives(NAME, """
        for i in T.serial(16):
            A[i] = 0.0
        for i in T.serial(16):
            if i > 0:
                A[i] = A[i - 1] + 1.0
    """, """
        for i in T.serial(16):
            A[i] = 0.0
            if i > 0:
                A[i] = A[i - 1] + 1.0
    """)  # fmt: skip


REFUSED = {
    "reads what a later iteration writes (the RFC's third example)": (
        "A[i] = 1.0",
        "if 0 < j and j < 15:\n        A[j] = A[j - 1] + A[j] + A[j + 1]",
        "the write of `A[i]` at i=2 meets the read of `A[j + 1]` at j=1 in A[2]; merged, j=1 would come first",
    ),
    "writes what a later iteration reads (the RFC's condition 2 would accept it)": (
        "if i >= 1:\n        B[i] = A[i - 1]",
        "A[j] = 0.0",
        "the read of `A[i - 1]` at i=1 meets the write of `A[j]` at j=0 in A[0]; merged, j=0 would come first",
    ),
    "writes what a later iteration writes": (
        "A[i] = 1.0",
        "A[15 - j] = 2.0",
        "the write of `A[i]`",
    ),
    "an element for all": ("A[0] = B[i]", "B[j] = A[0]", "at i=1 meets"),
    "an index from memory": (
        "A[i] = 1.0",
        "B[j] = A[T.max(T.min(T.Cast('int64', B[j]), 15), 0)]",
        "may meet",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_dependences_keep_loops_apart(case: str) -> None:
    """With the two iterations that meet."""
    first, second, words = REFUSED[case]
    func = program(two(first, second))
    new, refused = merge_adjacent(func, func.body)
    assert new == func
    assert words in str(refused[0]), str(refused[0])
    assert str(refused[0]).startswith("loops `i` and `j` stay apart: (4) ")


def test_other_reasons_to_stay_apart() -> None:
    """Kinds, extents, and what stands between."""
    stays(NAME, two("A[i] = 0.0", "B[j] = 1.0", ("16", "8")))
    stays(NAME, two("A[i] = 0.0", "B[j] = 1.0").replace("serial", "parallel", 1))
    stays(NAME, "for i in range(4):\n    A[i] = 0.0\nB[0] = 1.0\nfor j in range(4):\n    A[j] = 1.0\n")
    func = program(two("A[i] = 0.0", "B[j] = 1.0", ("16", "8")))
    assert "(3) the extents 16 and 8" in str(merge_adjacent(func, func.body)[1][0])


def test_nests_merge_level_by_level_and_more_than_two() -> None:
    """Three nests become one; the inner loops follow."""
    gives(NAME, """
        for i, j in T.grid(4, 4):
            A[i, j] = 0.0
        for k, l in T.grid(4, 4):
            B[k, l] = A[k, l]
        for m, n in T.grid(4, 4):
            A[m, n] = B[m, n] + 1.0
    """, """
        for i, j in T.grid(4, 4):
            A[i, j] = 0.0
            B[i, j] = A[i, j]
            A[i, j] = B[i, j] + 1.0
    """, shape=(4, 4))  # fmt: skip


def test_inner_loops_stay_where_only_outer_ones_may_merge() -> None:
    """The second reads a whole row that the first writes."""
    gives(NAME, """
        for i, j in T.grid(4, 4):
            A[i, j] = 0.0
        for k, l in T.grid(4, 4):
            B[k, l] = A[k, 3 - l]
    """, """
        for i in range(4):
            for j in range(4):
                A[i, j] = 0.0
            for l in range(4):
                B[i, l] = A[i, 3 - l]
    """, shape=(4, 4))  # fmt: skip


def test_dependences_of_one_outer_iteration_count() -> None:
    """Iterations of the loop around stay in order, so the loops inside may merge."""
    gives(NAME, """
        for t in range(4):
            for i in range(16):
                A[i] = B[i] + 1.0
            for j in range(16):
                B[j] = A[j]
    """, """
        for t in range(4):
            for i in range(16):
                A[i] = B[i] + 1.0
                B[i] = A[i]
    """)  # fmt: skip


def test_blocks_merge_like_bare_loops() -> None:
    """Iterators are bound to the loop that stays."""
    gives(NAME, """
        for i in range(16):
            with T.block("a"):
                v = T.axis.spatial(16, i)
                A[v] = 0.0
        for j in range(16):
            with T.block("b"):
                w = T.axis.spatial(16, j)
                B[w] = A[w]
    """, """
        for i in range(16):
            with T.block("a"):
                v = T.axis.spatial(16, i)
                A[v] = 0.0
            with T.block("b"):
                w = T.axis.spatial(16, i)
                B[w] = A[w]
    """)  # fmt: skip


def test_assumptions_keep_their_place_among_the_writers() -> None:
    """What is assumed of ``A[i]`` no longer holds after the other loop wrote it."""
    stays(NAME, two("T.assume(A[15 - i] == 0.0)", "A[j] = 1.0"))
    gives(NAME, two("T.assume(i < 8 or B[i] == 0.0)", "if j < 8:\n        B[j] = 1.0"), """
        for i in range(16):
            T.assume(i < 8 or B[i] == 0.0)
            if i < 8:
                B[i] = 1.0
    """)  # fmt: skip
