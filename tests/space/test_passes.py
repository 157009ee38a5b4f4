"""Passes as primitives: what they do in one block or loop, and each refusal by its sentence."""

from __future__ import annotations

import pytest

from stridesmith.ir.script.parser import parse
from stridesmith.ir.verify.rules import verify
from stridesmith.space.schedule import Schedule, ScheduleError, Trace

TWO_BLOCKS = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.block("first"):
            v = T.axis.spatial(16, i)
            T.where(i < 8 and 2 * i != 3)
            B[v] = A[v]
    for j in range(16):
        with T.block("second"):
            w = T.axis.spatial(16, j)
            T.where(j < 8 and 2 * j != 3)
            C[w] = A[w]
"""
BARE = """
@T.prim_func
def main(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32")):
    with T.block("work"):
        for i, j in T.grid(4, 4):
            if i == 0 and j < 2:
                B[i, j] = 1.0
        for k, l in T.grid(4, 4):
            B[k, l] = {value}
"""


def schedule(text: str) -> Schedule:
    return Schedule(parse(text))


def replayed(sch: Schedule, text: str) -> None:
    """The program verifies, and its trace gives it again."""
    verify(sch.func)
    assert Trace.from_json(sch.trace.to_json()).replay(parse(text)).func == sch.func


def refused(call: object, *words: str) -> str:
    with pytest.raises(ScheduleError) as caught:
        call()  # type: ignore[operator]
    text = str(caught.value)
    assert all(word in text for word in words), text
    return text


def test_simplify_acts_in_one_block() -> None:
    """The other block keeps its condition."""
    sch = schedule(TWO_BLOCKS)
    sch.simplify("second")
    assert sch.func.script().count("!= 3") == 1
    replayed(sch, TWO_BLOCKS)
    refused(lambda: sch.simplify("second"), "simplify(block='second'): (1) nothing in `second`")
    refused(lambda: sch.simplify("third"), "there is no block `third`")


def test_reduce_loop_extents_acts_on_one_nest() -> None:
    """A block stands for the loops around it."""
    sch = schedule(TWO_BLOCKS)
    sch.reduce_loop_extents("first")
    text = sch.func.script()
    assert text.count("range(8)") == 1 and text.count("range(16)") == 1
    replayed(sch, TWO_BLOCKS)
    refused(
        lambda: sch.reduce_loop_extents("first"),
        "no loop of `first` can be reduced",
        "is under no condition",
    )
    sch = schedule(TWO_BLOCKS.replace("j < 8", "j % 15 == 0"))
    refused(lambda: sch.reduce_loop_extents("j"), "(2) the conditions in loop `j` may hold for j=0 and for j=15")


def test_hoisting_acts_in_a_loop_or_block() -> None:
    """By the flags' names, which are JSON values of the trace."""
    text = BARE.format(value="2.0")
    sch = schedule(text)
    words = "`i == 0 and j < 2` stays in loop `j`: (1) it depends on `j`"
    refused(lambda: sch.hoist_expression("i", hoisted_conditionals="if_else_stmt"), "nothing can be hoisted", words)
    sch.hoist_expression("i", hoisted_conditionals=["boolean_expression"], hoisted_let_bindings="none")
    assert "if i == 0:" in sch.func.script()
    replayed(sch, text)
    refused(lambda: sch.hoist_expression("k"), "which has no condition or binding of these kinds in a loop")
    refused(lambda: sch.hoist_expression("i", hoisted_conditionals="all_of_them"), "unknown flag 'all_of_them'")


def test_hoisting_says_what_protects_a_load() -> None:
    """(2) and (3)."""
    sch = schedule(
        """
    @T.prim_func
    def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for j in range(16):
            if A[0] < 1.0:
                if j < 3:
                    if B[5] < 1.0:
                        A[j] = 1.0
    """.replace("\n    ", "\n")
    )
    text = refused(lambda: sch.hoist_expression("j"), "(2) it loads from `A`, which the loop stores to")
    assert "(3) it is evaluated under a condition, which protects it" in text


def test_merging_takes_loops_by_name() -> None:
    """The loops inside follow; the result is the loop that stays."""
    text = BARE.format(value="2.0")
    sch = schedule(text)
    assert sch.merge_adjacent_loops("i", "k") == "i"
    assert sch.get_loops("work") == [] and "for i, j in T.grid(4, 4)" in sch.func.script()
    assert "for k" not in sch.func.script() and "for l" not in sch.func.script()
    replayed(sch, text)


def test_merging_can_leave_the_loops_inside_as_they_are() -> None:
    """With `inner` false one loop has both nests inside; the program verifies and its trace replays."""
    text = BARE.format(value="2.0")
    sch = schedule(text)
    assert sch.merge_adjacent_loops("i", "k", inner=False) == "i"
    assert "for i in range(4)" in sch.func.script() and "for l in range(4)" in sch.func.script()
    replayed(sch, text)


def test_merging_refuses_with_two_iterations() -> None:
    """Each of the numbered conditions."""
    sch = schedule(BARE.format(value="B[3 - k, l] + 1.0").replace("i == 0", "i == 3"))
    words = "(4) the write of `B[i, j]` at i=3 meets the read of `B[3 - k, l]` at k=0 in B[3, 0]; merged, k=0 would"
    refused(lambda: sch.merge_adjacent_loops("i", "k"), words)
    refused(lambda: sch.merge_adjacent_loops("k", "i"), "(1) loop `i` does not follow directly on loop `k`")
    refused(lambda: sch.merge_adjacent_loops("i"), "(1) at least two loops")
    sch.unroll("k")
    refused(lambda: sch.merge_adjacent_loops("i", "k"), "(2) loop `k` is unrolled, not serial")
    sch = schedule(BARE.format(value="2.0"))
    sch.split("k", [None, 2])
    refused(lambda: sch.merge_adjacent_loops("i", "k_0"), "(3) the extents 4 and 2")


def test_no_ops_go_from_one_loop() -> None:
    """What the second nest overwrites; the second nest is seen at the end, and says so."""
    text = BARE.format(value="2.0")
    sch = schedule(text)
    refused(lambda: sch.remove_no_op("k"), "everything in `k` has an effect", "B[3, 3], an element of a parameter")
    sch.remove_no_op("i")
    assert "for i" not in sch.func.script()
    replayed(sch, text)


def test_no_ops_go_from_one_block() -> None:
    """A whole block, with its loops."""
    text = TWO_BLOCKS.replace("C[w] = A[w]", "C[w] = C[w]")
    sch = schedule(text)
    sch.remove_no_op("second")
    assert sch.get_blocks() == ["first"] and "for j" not in sch.func.script()
    replayed(sch, text)
