"""``hoist_expression`` (RFC 0077, "New Transform - Hoist Expression"): what moves by which flag, and what may not."""

from __future__ import annotations

import pytest
from ir.passes.examples import gives, program, stays

from stridesmith.ir.context import start
from stridesmith.ir.passes.hoist import Hoister
from stridesmith.ir.passes.transform import HoistConditional, HoistLetBinding, hoist_expression
from stridesmith.ir.stmt import If, blocks, names
from stridesmith.ir.verify.rules import verify

NAME = "hoist_expression"


def test_a_condition_with_a_binding_that_needs_the_loop_stays() -> None:
    """The RFC's example of a wrong move: `is_in_bounds` is defined inside, from the loop's variable."""
    stays(NAME, """
        for i in T.serial(4):
            is_in_bounds = i < 3
            if is_in_bounds:
                A[i] = 0.0
    """)  # fmt: skip


def test_parts_of_a_condition_move_as_boolean_expressions() -> None:
    """``i == 0`` moves out of the loop over j, ``j < 2`` stays (the RFC's example)."""
    before = """
        for i, j in T.grid(4, 4):
            if i == 0 and j < 2:
                A[i, j] = 0.0
    """
    gives(NAME, before, """
        for i in T.serial(4):
            if i == 0:
                for j in T.serial(4):
                    if j < 2:
                        A[i, j] = 0.0
    """, shape=(4, 4), hoisted_conditionals="boolean_expression")  # fmt: skip
    stays(NAME, before, shape=(4, 4), hoisted_conditionals="if_else_stmt")
    stays(NAME, before, shape=(4, 4), hoisted_conditionals=HoistConditional.NONE)


def test_whole_conditions_of_statements_move() -> None:
    """Both branches get a loop of their own."""
    gives(NAME, """
        for i, j in T.grid(4, 4):
            if i < 2:
                A[i, j] = 0.0
            else:
                A[i, j] = 1.0
    """, """
        for i in range(4):
            if i < 2:
                for j in range(4):
                    A[i, j] = 0.0
            else:
                for k in range(4):
                    A[i, k] = 1.0
    """, shape=(4, 4), hoisted_conditionals=HoistConditional.IF_ELSE_STMT)  # fmt: skip


def test_conditions_of_expressions_move() -> None:
    """``if_then_else`` becomes two loops; its load stays protected."""
    before = """
        for i, j in T.grid(4, 4):
            A[i, j] = T.if_then_else(i < 3, B[i + 1, j], T.float32(0))
    """
    gives(NAME, before, """
        for i in range(4):
            if i < 3:
                for j in range(4):
                    A[i, j] = B[i + 1, j]
            else:
                for k in range(4):
                    A[i, k] = T.float32(0)
    """, shape=(4, 4), hoisted_conditionals="if_else_expr")  # fmt: skip
    stays(NAME, before, shape=(4, 4), hoisted_conditionals="if_else_stmt")


def test_conditions_leave_blocks_in_terms_of_the_loops() -> None:
    """Inside, the condition is over iterators; above, over what they are bound to."""
    gives(NAME, """
        for i, j in T.grid(4, 4):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.where(i < 3)
                if vi == 1:
                    A[vi, vj] = 0.0
    """, """
        for i in range(4):
            if i < 3:
                if i == 1:
                    for j in range(4):
                        with T.block("b"):
                            vi, vj = T.axis.remap("SS", [i, j])
                            A[vi, vj] = 0.0
    """, shape=(4, 4))  # fmt: skip


def test_the_outermost_loop_is_left_that_the_condition_does_not_need() -> None:
    """A condition on a parameter leaves every loop."""
    gives(NAME, """
        @T.prim_func
        def func(A: T.Buffer((4, 4), "int32"), n: T.int32):
            for i, j in T.grid(4, 4):
                if n < 3:
                    A[i, j] = n
    """, """
        @T.prim_func
        def func(A: T.Buffer((4, 4), "int32"), n: T.int32):
            if n < 3:
                for i, j in T.grid(4, 4):
                    A[i, j] = n
    """)  # fmt: skip


def test_conditions_do_not_pass_stores_that_change_them() -> None:
    """What the loop writes, it may change; what it does not write, it may not."""
    stays(NAME, """
        for j in range(16):
            if A[0] < 1.0:
                A[j] = 1.0
    """)  # fmt: skip
    gives(NAME, """
        for j in range(16):
            if B[0] < 1.0:
                A[j] = 1.0
    """, """
        if B[0] < 1.0:
            for j in range(16):
                A[j] = 1.0
    """)  # fmt: skip


def test_loads_do_not_leave_the_conditions_that_protect_them() -> None:
    """``B[i + 1]`` exists only where ``i < 15``, whatever kind of condition says so."""
    stays(NAME, """
        for i, j in T.grid(16, 2):
            if i + j < 15:
                if B[i + 1] < 1.0:
                    A[i] = 1.0
    """)  # fmt: skip
    stays(NAME, """
        for i, j in T.grid(16, 2):
            A[i] = T.if_then_else(i + j < 15, T.if_then_else(B[i + 1] < 1.0, T.float32(1), T.float32(2)), T.float32(3))
    """)  # fmt: skip


def test_a_load_follows_the_condition_that_protects_it() -> None:
    """Once ``i < 15`` is outside, the load is evaluated in every iteration."""
    gives(NAME, """
        for i, j in T.grid(16, 2):
            if i < 15:
                if B[i + 1] < 1.0:
                    A[i] = 1.0
    """, """
        for i in range(16):
            if i < 15:
                if B[i + 1] < 1.0:
                    for j in range(2):
                        A[i] = 1.0
    """)  # fmt: skip


def test_memory_of_the_loop_is_not_known_above() -> None:
    """A buffer that each iteration allocates anew."""
    stays(NAME, """
        for i in range(4):
            with T.block("b"):
                S = T.alloc_buffer((2,), "float32")
                if S[0] < 1.0:
                    A[i] = 1.0
    """.replace("A[i]", "A[0]"))  # fmt: skip


def test_a_loop_without_iterations_evaluates_nothing() -> None:
    """The load might not have been evaluated at all."""
    stays(NAME, """
        for i in range(16):
            for j in range(i):
                if B[i] < 1.0:
                    A[j] = 1.0
    """)  # fmt: skip


BINDINGS = """
    for i, j in T.grid(4, 4):
        x: T.bool = i < 3
        if x:
            A[i, j] = 1.0
"""


def test_bindings_that_a_condition_needs_move_with_it() -> None:
    """By default; without the flag the condition stays as well."""
    gives(NAME, BINDINGS, """
        for i in range(4):
            x: T.bool = i < 3
            if x:
                for j in range(4):
                    A[i, j] = 1.0
    """, shape=(4, 4), hoisted_conditionals="if_else_stmt")  # fmt: skip
    stays(NAME, BINDINGS, shape=(4, 4), hoisted_conditionals="if_else_stmt", hoisted_let_bindings="none")


def test_bindings_move_on_their_own() -> None:
    """Let statements and let expressions, each by its flag."""
    before = """
        for i, j in T.grid(4, 4):
            x: T.float32 = B[i, 0] * 2.0
            A[i, j] = x + T.Let(y * y, where={y: B[i, 1]})
    """
    gives(NAME, before, """
        for i in range(4):
            x: T.float32 = B[i, 0] * 2.0
            for j in range(4):
                A[i, j] = x + T.Let(y * y, where={y: B[i, 1]})
    """, shape=(4, 4), hoisted_let_bindings="let_stmt")  # fmt: skip
    gives(NAME, before, """
        for i in range(4):
            x: T.float32 = B[i, 0] * 2.0
            z: T.float32 = B[i, 1]
            for j in range(4):
                A[i, j] = x + z * z
    """, shape=(4, 4), hoisted_let_bindings=HoistLetBinding.ALL)  # fmt: skip


def test_bindings_do_not_pass_stores_that_change_them() -> None:
    """The value is read again in every iteration."""
    stays(NAME, """
        for j in range(16):
            x: T.float32 = A[0]
            A[j] = x + 1.0
    """, hoisted_let_bindings=HoistLetBinding.ALL)  # fmt: skip


def test_loops_over_threads_keep_their_place() -> None:
    """They give a kernel its shape."""
    stays(NAME, """
        for i in T.thread_binding(16, thread="threadIdx.x"):
            if B[0] < 1.0:
                A[i] = 1.0
    """)  # fmt: skip


def test_a_reduction_is_not_split() -> None:
    """The condition is over a reduction's loop: each half would begin at its own first point."""
    func = program("""
        for ko, ki in T.grid(4, 4):
            with T.block("r"):
                v = T.axis.spatial(1, 0)
                k, l = T.axis.remap("RR", [ko, ki])
                with T.init():
                    B[v] = 0.0
                if k < 2:
                    B[v] = B[v] + A[k * 4 + l]
    """)
    hoister = Hoister(HoistConditional.ALL, HoistLetBinding.ALL, names(func))
    assert hoister.run(func.body, start(func)) == func.body
    assert any("(4) a reduction inside might not begin with its init" in str(kept) for kept in hoister.kept)


def test_a_reduction_is_split_between_spatial_points() -> None:
    """Each half initialises its own points; blocks keep names of their own."""
    func = program("""
        for i, k in T.grid(4, 4):
            with T.block("r"):
                v, w = T.axis.remap("SR", [i, k])
                with T.init():
                    B[v] = 0.0
                if v < 2:
                    B[v] = B[v] + A[w]
    """)
    new = hoist_expression(func)
    verify(new)
    loop = new.body.body
    assert isinstance(loop.body, If) and [b.name for b in blocks(new.body)] == ["root", "r", "r_1"]


def test_unknown_flags_are_refused() -> None:
    """With the names that there are."""
    with pytest.raises(ValueError, match="unknown flag 'if_stmt'; known are none, if_else_stmt"):
        hoist_expression(program("A[0] = 1.0"), hoisted_conditionals=["if_stmt"])
