"""``remove_no_op`` (RFC 0077, "Enhancement - Remove No Op"): the four kinds, and what somebody sees."""

from __future__ import annotations

import textwrap

import pytest
from ir.passes.examples import gives, program, stays

from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.passes.no_op import without_no_ops
from stridesmith.ir.passes.transform import remove_no_op
from stridesmith.ir.stmt import PrimFunc

NAME = "remove_no_op"


# ---------------------------------------------------------------- the four kinds


def test_what_is_overwritten_before_it_is_read_goes() -> None:
    """Statement by statement."""
    gives(NAME, "for i in range(16):\n    A[i] = 0.0\n    A[i] = 1.0", "for i in range(16):\n    A[i] = 1.0")
    stays(NAME, "for i in range(16):\n    A[i] = 0.0\n    A[i] = A[i] + 1.0")
    stays(NAME, "for i in range(16):\n    A[i] = 0.0\n    B[i] = A[i]\n    A[i] = 1.0")


def test_conditions_count() -> None:
    """A write under a condition is superseded by one under a weaker one, not by one under a stronger one."""
    gives(NAME, """
        for i in range(16):
            if i < 4:
                A[i] = 0.0
        for j in range(8):
            A[j] = 1.0
    """, """
        for j in range(8):
            A[j] = 1.0
    """)  # fmt: skip
    stays(NAME, """
        for i in range(16):
            A[i] = 0.0
        for j in range(16):
            if j // 4 == 1 or j % 2 == 0:
                A[j] = 1.0
    """)  # fmt: skip
    stays(NAME, """
        for i in range(16):
            A[i] = 0.0
        for j in range(16):
            if B[j] < 1.0:
                A[j] = 1.0
    """)  # fmt: skip


def test_a_block_that_a_later_one_supersedes_goes_as_a_whole() -> None:
    """A reduction with its init, though its update reads what it wrote itself."""
    gives(NAME, """
        for i, k in T.grid(16, 4):
            with T.block("sum"):
                v, w = T.axis.remap("SR", [i, k])
                with T.init():
                    A[v] = 0.0
                A[v] = A[v] + B[w]
        for j in range(16):
            with T.block("later"):
                v = T.axis.spatial(16, j)
                A[v] = B[v]
    """, """
        for j in range(16):
            with T.block("later"):
                v = T.axis.spatial(16, j)
                A[v] = B[v]
    """)  # fmt: skip


def test_a_value_written_back_goes() -> None:
    """And whatever comes to that by finite data: an addition of zero."""
    gives(NAME, "for i in range(16):\n    A[i] = 1.0\n    A[i] = A[i]", "for i in range(16):\n    A[i] = 1.0")
    gives(NAME, """
        for i in range(16):
            A[i] = 1.0
            for k in range(4):
                A[i] = A[i] + B[k] * 0.0
    """, """
        for i in range(16):
            A[i] = 1.0
    """)  # fmt: skip
    stays(NAME, """
        @T.prim_func
        def func(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            T.func_attr({"strict_float": True})
            for i in range(16):
                A[i] = 1.0
                for k in range(4):
                    A[i] = A[i] + B[k] * 0.0
    """)  # fmt: skip


def test_what_is_known_to_be_there_goes() -> None:
    """From an assumption (the RFC's example), or from an earlier store."""
    gives(NAME, """
        @T.prim_func
        def sum(A: T.Buffer((16,), "float32"), B: T.Buffer((1,), "float32")):
            T.assume(B[0] == 0.0)
            B[0] = 0.0
            for i in T.serial(16):
                B[0] = B[0] + A[i]
    """, """
        @T.prim_func
        def sum(A: T.Buffer((16,), "float32"), B: T.Buffer((1,), "float32")):
            T.assume(B[0] == 0.0)
            for i in T.serial(16):
                B[0] = B[0] + A[i]
    """)  # fmt: skip
    gives(NAME, """
        for i in range(16):
            A[i] = 2.0
        for j in range(4):
            A[j + 3] = 2.0
    """, """
        for i in range(16):
            A[i] = 2.0
    """)  # fmt: skip


def test_an_assumption_ends_with_a_write() -> None:
    """The store in the loop finds what the iteration before left."""
    stays(NAME, """
        @T.prim_func
        def func(A: T.Buffer((16,), "float32"), B: T.Buffer((1,), "float32")):
            T.assume(B[0] == 0.0)
            for i in T.serial(16):
                B[0] = 0.0
                A[i] = B[0]
                B[0] = 1.0
    """)  # fmt: skip


# ---------------------------------------------------------------- what is empty


def test_what_is_empty_goes() -> None:
    """Loops, conditions, evaluations, trivial assumptions, bindings and allocations that nothing uses."""
    gives(NAME, """
        S = T.alloc_buffer((16,), "float32")
        T.assume(T.bool(True))
        for i in range(16):
            x: T.float32 = B[i]
            T.evaluate(x + 1.0)
            if B[i] < 1.0:
                S[i] = x
        A[0] = 1.0
    """, "A[0] = 1.0")  # fmt: skip


def test_a_function_without_effect_keeps_its_root() -> None:
    """Nothing is left in it."""
    func = program("S = T.alloc_buffer((16,), 'float32')\nfor i in range(16):\n    S[i] = B[i]")
    new = remove_no_op(func)
    assert new.script().rstrip().endswith("pass") and not new.body.allocs


def test_chains_of_dead_buffers_go() -> None:
    """Each is read only by the next, and the last by nobody."""
    gives(NAME, """
        S = T.alloc_buffer((16,), "float32")
        R = T.alloc_buffer((16,), "float32")
        for i in range(16):
            S[i] = B[i]
        for j in range(16):
            R[j] = S[j]
        for k in range(16):
            A[k] = B[k]
    """, """
        for k in range(16):
            A[k] = B[k]
    """)  # fmt: skip


# ---------------------------------------------------------------- what somebody sees


def padded(pad_value: str) -> PrimFunc:
    """An output of 14 elements laid out as 4 x 4, whose padding is written in a loop of its own."""
    func = program("""
        for i in range(14):
            A[i // 4, i % 4] = 1.0
        for io, ii in T.grid(4, 4):
            if 4 * io + ii >= 14:
                A[io, ii] = 0.0
    """, (4, 4))  # fmt: skip
    layout = Layout.parse((14,), "lambda i: [i // 4, i % 4]", pad_value, (4, 4))
    return PrimFunc(func.name, func.params, func.body, (("A", layout),), func.attrs)


def test_promised_padding_is_seen_at_the_end() -> None:
    """With pad_value 0 the writer of the padding stays; with undef nobody asks."""
    assert remove_no_op(padded("0.0")) == padded("0.0")
    assert "for io" not in remove_no_op(padded("undef")).script()


def test_what_a_let_expression_evaluates_is_read() -> None:
    """Its value is evaluated even where the body uses it under a condition, or not at all."""
    for value in ("T.Let(T.float32(1), where={y: S[j]})", "T.Let(T.if_then_else(j < 0, y, 0.0), where={y: S[j]})"):
        stays(NAME, f"""
            S = T.alloc_buffer((16,), "float32")
            for i in range(16):
                S[i] = B[i]
            for j in range(16):
                A[j] = {value}
        """)  # fmt: skip


def test_an_implicit_writer_of_padding_that_somebody_reads_stays() -> None:
    """The zeros beyond the copied part are read by the block that follows."""
    stays(NAME, """
        S = T.alloc_buffer((16,), "float32")
        for k in range(16):
            S[k] = 0.0
        for i in range(8):
            S[i] = B[i]
        for j in range(8):
            A[j] = S[j] + S[j + 8]
    """)  # fmt: skip


SCALAR = """
@T.prim_func
def func(A: T.Buffer((4,), "float32"), n: T.int32, B: T.Buffer((4,), "int32")):
    S = T.alloc_buffer((4,), "int32")
"""


@pytest.mark.parametrize(
    "body",
    [
        "B[0] = n",
        "for i in range(4):\n    S[i] = 1\nS[T.Cast('int64', A[0]) % 4] = n\nfor j in range(4):\n    B[j] = S[j]",
    ],
)
def test_the_end_sees_outputs_whatever_the_scalar_parameters_are(body: str) -> None:
    """Each value of a scalar parameter is a run of its own, with memory of its own."""
    head = SCALAR if "S[" in body else SCALAR.replace('    S = T.alloc_buffer((4,), "int32")\n', "")
    stays(NAME, head + textwrap.indent(body, "    "))


def test_vectors_of_vectors_write_as_many_elements_as_the_index_has_lanes() -> None:
    """Eight lanes are stored to four elements of two lanes each; the other four are seen at the end."""
    stays(NAME, """
        @T.prim_func
        def func(A: T.Buffer((8,), "float32x2")):
            for i in range(8):
                A[i] = T.Broadcast(T.float32(1), 2)
            A[T.Ramp(0, 1, 4)] = T.Broadcast(T.float32(0), 8)
    """)  # fmt: skip
    gives(NAME, """
        @T.prim_func
        def func(A: T.Buffer((4,), "float32x2"), B: T.Buffer((8,), "float32")):
            for i in range(4):
                A[i] = T.Broadcast(T.float32(1), 2)
            A[T.Ramp(0, 1, 4)] = B[T.Ramp(0, 1, 8)]
    """, """
        @T.prim_func
        def func(A: T.Buffer((4,), "float32x2"), B: T.Buffer((8,), "float32")):
            A[T.Ramp(0, 1, 4)] = B[T.Ramp(0, 1, 8)]
    """)  # fmt: skip


def test_conditions_on_scalar_parameters_are_decided() -> None:
    """Where n > 3, the second store follows in any case."""
    body = """
    for i in range(4):
        if n > 3:
            B[i] = 1
        if n > 2:
            B[i] = 3
    """
    text = SCALAR.replace('    S = T.alloc_buffer((4,), "int32")\n', "")
    gives(NAME, text + body, text + """
    for i in range(4):
        if n > 2:
            B[i] = 3
    """)  # fmt: skip


def test_a_write_that_an_assumption_speaks_of_stays() -> None:
    """Without it the assumption would be false."""
    stays(NAME, """
        for i in range(16):
            A[i] = 1.0
        T.assume(A[0] == 1.0)
        for j in range(16):
            A[j] = 2.0
    """)  # fmt: skip


def test_undef_stores_stay() -> None:
    """They say that anything may stand there; what they overwrite may go, what overwrites them may not."""
    gives(NAME, """
        for i in range(16):
            A[i] = 1.0
        for j in range(16):
            A[j] = T.undef()
    """, """
        for j in range(16):
            A[j] = T.undef()
    """)  # fmt: skip
    stays(NAME, """
        S = T.alloc_buffer((16,), "float32")
        for i in range(16):
            S[i] = T.undef()
        for j in range(16):
            S[j] = 5.0
        for k in range(16):
            A[k] = S[k]
    """)  # fmt: skip


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("A[0] = 1.0", "an element of a parameter"),
        ("A[0] = T.undef()", "it stores `undef`"),
        ("A[0] = 1.0\nB[0] = A[0] + 1.0\nA[0] = 2.0", "which block"),
    ],
)
def test_what_stays_says_why(body: str, words: str) -> None:
    """For each store."""
    func = program(body)
    assert any(words in str(needed) for needed in without_no_ops(func, func.body)[1])
