"""``simplify`` for conditionals (RFC 0077, "Enhancement - Simplify"): what merges, what is decided, what stays."""

from __future__ import annotations

import pytest
from ir.passes.examples import gives, program, stays

from stridesmith.ir.passes.transform import simplify
from stridesmith.ir.verify.rules import verify


def test_equal_conditions_merge() -> None:
    """``i < 8`` and ``i // 8 == 0`` are one condition (the RFC's example)."""
    gives("simplify", """
        for i in T.serial(16):
            if i < 8:
                A[i] = 0.0
            else:
                A[i] = 1.0
            if i // 8 == 0:
                B[i] = 2.0
            else:
                B[i] = 3.0
    """, """
        for i in T.serial(16):
            if i < 8:
                A[i] = 0.0
                B[i] = 2.0
            else:
                A[i] = 1.0
                B[i] = 3.0
    """)  # fmt: skip


def test_complementary_conditions_merge_crosswise() -> None:
    """``4*i + j < 14`` is the opposite of ``i == 3 and j >= 2`` (the RFC's example, with two indices)."""
    gives("simplify", """
        for i, j in T.grid(4, 4):
            if 4 * i + j < 14:
                A[i, j] = 0.0
            else:
                A[i, j] = 1.0
            if i == 3 and j >= 2:
                B[i, j] = 2.0
            else:
                B[i, j] = 3.0
    """, """
        for i, j in T.grid(4, 4):
            if 4 * i + j < 14:
                A[i, j] = 0.0
                B[i, j] = 3.0
            else:
                A[i, j] = 1.0
                B[i, j] = 2.0
    """, shape=(4, 4))  # fmt: skip


def test_an_opposite_condition_becomes_the_else_branch() -> None:
    """Neither conditional has an else-branch before."""
    gives("simplify", """
        for i in range(16):
            if i < 8:
                A[i] = 0.0
            if i >= 8:
                A[i] = 1.0
    """, """
        for i in range(16):
            if i < 8:
                A[i] = 0.0
            else:
                A[i] = 1.0
    """)  # fmt: skip


def test_data_dependent_conditions_stay() -> None:
    """The first body changes what the second condition loads (the RFC's example)."""
    stays("simplify", """
        for i in T.serial(16):
            if A[i] < 0.0:
                A[i] = A[i] + 1.0
            if A[i] < 0.0:
                A[i] = 0.0
    """)  # fmt: skip


def test_conditions_on_memory_merge_where_nothing_is_stored_to_it() -> None:
    """Both bodies write another buffer; a comparison of floats is taken as it is, NaN or not."""
    gives("simplify", """
        for i in range(16):
            if A[i] < 0.0:
                B[i] = 1.0
            if not (A[i] < 0.0):
                B[i] = 2.0
    """, """
        for i in range(16):
            if A[i] < 0.0:
                B[i] = 1.0
            else:
                B[i] = 2.0
    """)  # fmt: skip
    stays("simplify", """
        for i in range(16):
            if A[i] < 0.0:
                B[i] = 1.0
            if A[i] >= 0.0:
                B[i] = 2.0
    """)  # fmt: skip


def test_overlapping_conditions_stay() -> None:
    """Neither equal nor opposite."""
    stays("simplify", """
        for i in range(16):
            if i < 8:
                A[i] = 0.0
            if i < 9:
                B[i] = 0.0
    """)  # fmt: skip


def test_what_stands_between_keeps_conditionals_apart() -> None:
    """Only neighbours merge."""
    stays("simplify", """
        for i in range(16):
            if i < 8:
                A[i] = 0.0
            B[i] = 1.0
            if i < 8:
                A[i] = 1.0
    """)  # fmt: skip


def test_equal_branches_need_no_condition() -> None:
    """Equal up to the names of loops, and to what the condition says."""
    gives("simplify", """
        for i in range(4):
            if A[i] < 0.0:
                for j in range(4):
                    B[4 * i + j] = 1.0
            else:
                for k in range(4):
                    B[4 * i + k] = 1.0
    """, """
        for i, j in T.grid(4, 4):
            B[4 * i + j] = 1.0
    """)  # fmt: skip
    gives("simplify", """
        for i in range(16):
            if i == 3:
                A[3] = 1.0
            else:
                A[i] = 1.0
    """, """
        for i in range(16):
            A[i] = 1.0
    """)  # fmt: skip


def test_conditions_are_decided_exactly() -> None:
    """Intervals do not see that two multiples of three differ by one never."""
    gives("simplify", """
        for i, j in T.grid(4, 4):
            if 3 * i != 3 * j + 1:
                A[4 * i + j] = 0.0
    """, """
        for i, j in T.grid(4, 4):
            A[4 * i + j] = 0.0
    """)  # fmt: skip


def test_a_conjunct_goes_that_the_others_imply() -> None:
    """``i >= 4`` says nothing beside ``i // 4 == 2``."""
    gives("simplify", """
        for i in range(16):
            if i // 4 == 2 and i >= 4:
                A[i] = 0.0
    """, """
        for i in range(16):
            if i // 4 == 2:
                A[i] = 0.0
    """)  # fmt: skip


def test_predicates_of_blocks_are_decided() -> None:
    """A predicate that always holds goes, and a block whose predicate never holds."""
    gives("simplify", """
        for i in range(16):
            with T.block("a"):
                v = T.axis.spatial(16, i)
                T.where(i < 16 and 2 * i != 5)
                A[v] = 0.0
            with T.block("b"):
                w = T.axis.spatial(16, i)
                T.where(2 * i == 5)
                B[w] = 0.0
    """, """
        for i in range(16):
            with T.block("a"):
                v = T.axis.spatial(16, i)
                A[v] = 0.0
    """)  # fmt: skip


def test_a_reduction_keeps_a_condition_that_its_init_needs() -> None:
    """The merged program still begins each reduction with its init."""
    func = program("""
        for i in range(4):
            for k in range(4):
                if i < 2:
                    A[i] = 1.0
                if 2 * i < 3:
                    with T.block("r"):
                        v, w = T.axis.remap("SR", [i, k])
                        with T.init():
                            B[v] = 0.0
                        B[v] = B[v] + 1.0
    """)
    new = simplify(func)
    verify(new)
    assert new.script().count("if ") == 1


# ---------------------------------------------------------------- assumptions


def test_assumptions_about_scalars_are_used() -> None:
    """``n // 8`` is 0 for an assumed n in [0, 8) (the RFC's example)."""
    gives("simplify", """
        @T.prim_func
        def func(A: T.Buffer((16,), "int32"), n: T.int32):
            T.assume(n >= 0 and n < 8)
            for i in T.serial(16):
                A[i] = n // 8
    """, """
        @T.prim_func
        def func(A: T.Buffer((16,), "int32"), n: T.int32):
            T.assume(n >= 0 and n < 8)
            for i in T.serial(16):
                A[i] = 0
    """)  # fmt: skip


def test_an_assumption_holds_from_where_it_stands() -> None:
    """What comes before knows nothing of it, nor what comes after a conditional that holds it."""
    stays("simplify", """
        @T.prim_func
        def func(A: T.Buffer((16,), "int32"), n: T.int32, m: T.int32):
            for i in T.serial(16):
                A[i] = n // 8
            if m < 3:
                T.assume(n >= 0 and n < 8)
            for j in T.serial(16):
                A[j] = n // 8
            T.assume(n >= 0 and n < 8)
    """)  # fmt: skip


def test_assumptions_about_elements_end_with_the_next_write() -> None:
    """The first load of ``B[0]`` is 0; those in the loop follow a store (the RFC's example)."""
    gives("simplify", """
        @T.prim_func
        def func(A: T.Buffer((16,), "int32"), B: T.Buffer((1,), "int32")):
            T.assume(B[0] == 0)
            if A[0] == B[0]:
                for i in T.serial(16):
                    B[0] = B[0] + A[i]
    """, """
        @T.prim_func
        def func(A: T.Buffer((16,), "int32"), B: T.Buffer((1,), "int32")):
            T.assume(B[0] == 0)
            if A[0] == 0:
                for i in T.serial(16):
                    B[0] = B[0] + A[i]
    """)  # fmt: skip


def test_assumptions_about_padding_are_used_where_only_padding_is_read() -> None:
    """Every element that the loop reads is assumed to be 0; the assumption itself stays as it was written."""
    gives("simplify", """
        for i, j in T.grid(4, 4):
            T.assume(4 * i + j < 14 or A[i, j] == 0.0)
        for j in range(2):
            B[0, j + 2] = A[3, j + 2]
    """, """
        for i, j in T.grid(4, 4):
            T.assume(4 * i + j < 14 or A[i, j] == 0.0)
        for j in range(2):
            B[0, j + 2] = 0.0
    """, shape=(4, 4))  # fmt: skip
    stays("simplify", """
        for i, j in T.grid(4, 4):
            T.assume(4 * i + j < 14 or A[i, j] == 0.0)
        for j in range(4):
            B[0, j] = A[3, j]
    """, shape=(4, 4))  # fmt: skip


@pytest.mark.parametrize("condition", ["B[0] == T.undef()", "i < 8 or A[i] == T.undef()"])
def test_undef_atoms_are_never_touched(condition: str) -> None:
    """``buf[i] == undef`` says that the element may be read, and nothing about its value."""
    stays("simplify", f"""
        for i in range(16):
            T.assume({condition})
        for j in range(16):
            if A[j] == B[j]:
                B[j] = A[j]
    """)  # fmt: skip
