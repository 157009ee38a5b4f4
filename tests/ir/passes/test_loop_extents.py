"""``reduce_loop_extents`` (RFC 0077, "New Transform - Reduce Loop Extents")."""

from __future__ import annotations

from ir.passes.examples import gives, stays

from stridesmith.ir.passes.transform import hoist_expression, reduce_loop_extents

NAME = "reduce_loop_extents"


def test_the_example_after_hoisting() -> None:
    """One iteration is substituted, the other loop shorter (the RFC's example, both passes)."""
    from goldens.equal import same_program
    from ir.passes.examples import program

    func = program("""
        for i, j in T.grid(4, 4):
            if i == 0 and j < 2:
                A[i, j] = 0.0
    """, (4, 4))  # fmt: skip
    after = program("""
        for j in T.serial(2):
            A[0, j] = 0.0
    """, (4, 4))  # fmt: skip
    same_program(reduce_loop_extents(hoist_expression(func)), after)
    same_program(reduce_loop_extents(func), after)


def test_lower_bounds_shift_the_variable() -> None:
    """Loops start at 0; the kinds serial, parallel and unrolled are reduced."""
    for kind in ("range", "T.parallel", "T.unroll"):
        gives(NAME, f"""
            for i in {kind}(16):
                if 3 <= i and i < 9:
                    A[i] = B[i - 3]
        """, f"""
            for i in {kind}(6):
                A[i + 3] = B[i]
        """)  # fmt: skip


def test_bounds_come_from_sets() -> None:
    """Divisions, remainders and disjunctions; what is left of the condition stays."""
    gives(NAME, """
        for i in range(16):
            if i // 4 == 2 or i // 4 == 1:
                A[i] = 0.0
    """, """
        for i in range(8):
            A[i + 4] = 0.0
    """)  # fmt: skip
    gives(NAME, """
        for i in range(16):
            if i % 4 == 1 and i > 2:
                A[i] = 0.0
    """, """
        for i in range(9):
            if (i + 5) % 4 == 1:
                A[i + 5] = 0.0
    """)  # fmt: skip


def test_the_condition_may_stand_below_inner_loops_and_in_several_statements() -> None:
    """What the loop is needed for is the hull of all that is done in it."""
    gives(NAME, """
        for i in range(16):
            for j in range(2):
                if i < 3:
                    A[i] = 0.0
            if i == 5:
                B[i] = 0.0
    """, """
        for i in range(6):
            for j in range(2):
                if i < 3:
                    A[i] = 0.0
            if i == 5:
                B[i] = 0.0
    """)  # fmt: skip


def test_bounds_hold_for_all_values_of_outer_loops() -> None:
    """For io = 1 the inner loop is needed up to 3, for io = 0 up to 7."""
    stays(NAME, """
        for io, ii in T.grid(2, 8):
            if io * 8 + ii < 12:
                A[io * 8 + ii] = 0.0
    """)  # fmt: skip


def test_predicates_of_blocks_count() -> None:
    """The block's iterators keep their extents."""
    gives(NAME, """
        for i in range(16):
            with T.block("b"):
                v = T.axis.spatial(16, i)
                T.where(i >= 8)
                A[v] = 0.0
    """, """
        for i in range(8):
            with T.block("b"):
                v = T.axis.spatial(16, i + 8)
                A[v] = 0.0
    """)  # fmt: skip


def test_a_loop_that_does_nothing_goes() -> None:
    """The condition holds for no value."""
    gives(NAME, """
        for i in range(16):
            if i > 20:
                A[i] = 0.0
        B[0] = 1.0
    """, "B[0] = 1.0")  # fmt: skip


def test_what_is_under_no_condition_is_needed() -> None:
    """An else-branch, a statement beside, a condition on memory, vectors and threads."""
    for body in (
        "for i in range(16):\n    if i < 4:\n        A[i] = 0.0\n    else:\n        B[i] = 0.0",
        "for i in range(16):\n    if i < 4:\n        A[i] = 0.0\n    B[i] = 0.0",
        "for i in range(16):\n    if B[i] < 4.0:\n        A[i] = 0.0",
        "for i in T.vectorized(16):\n    if i < 4:\n        A[i] = 0.0",
        "for i in T.thread_binding(16, thread='threadIdx.x'):\n    if i < 4:\n        A[i] = 0.0",
    ):
        stays(NAME, body)
