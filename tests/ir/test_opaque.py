"""Calls of what is not known, `while`, assertions: read, printed, verified, run, scheduled around, refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stridesmith as ss
from stridesmith.backends.lower import LoweringError, check_calls
from stridesmith.ir.dataflow.instances import instances
from stridesmith.ir.expr import const
from stridesmith.ir.interpreter.interpret import InterpreterError
from stridesmith.ir.passes.renaming import canonical
from stridesmith.ir.stmt import Opaque, While, walk_stmts

Arrays = Sequence[NDArray[Any]]
HEAD = '@T.prim_func\ndef f(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16,), "float32")):\n'


def program(body: str) -> ss.PrimFunc:
    """A function of a body, which prints and reads back in both dialects."""
    func = ss.parse(HEAD + "".join(f"    {line}\n" for line in body.strip("\n").splitlines()))
    assert isinstance(func, ss.PrimFunc)
    ss.verify(func)
    assert ss.parse(func.script()) == func
    assert ss.parse(func.script("tvm")) == func
    return func


CALLS = {
    "T.call_packed('my.add', A.data, B.data, 3)": "my.add",
    "T.call_packed('my.add', A, B)": "my.add",
    "T.call_extern('int32', 'f', A.access_ptr('r'), B.access_ptr('w', offset=3))": "f",
    "T.call_extern('f', B.data, dtype='int32')": "f",
    "T.evaluate(T.call_intrin('int32', 'tir.something', 1))": "call_intrin",
    "T.tvm_fill_fragment(A.data, 16, 16, 16, 0, T.float32(0))": "tvm_fill_fragment",
    "T.tvm_load_matrix_sync(A.data, 16, 16, 16, 0, T.tvm_access_ptr(T.type_annotation(dtype='float32'), B.data, 0, 16,"
    " 1), 16, 'row_major')": "tvm_load_matrix_sync",
    "T.ptx_wait_group(0)": "ptx_wait_group",
    "T.strange(T.address_of(A[3, 4]))": "strange",
    "B[3] = T.call_extern('float32', 'sinz', T.float32(1))": "sinz",
    "x: T.int32 = T.call_extern('int32', 'count', B.data)\nB[x] = T.float32(0)": "count",
}  # fmt: skip


@pytest.mark.parametrize("text", CALLS)
def test_calls_are_read_and_printed_and_refused_by_name(text: str) -> None:
    func = program(text)
    (call,) = [s for s in walk_stmts(func.body) if isinstance(s, Opaque)]
    assert call.callee == CALLS[text]
    with pytest.raises(InterpreterError, match=f"`{call.callee}` is no function that can be run here"):
        ss.interpret(func, np.zeros((16, 16), "float32"), np.zeros(16, "float32"))
    with pytest.raises(LoweringError, match=f"`f` calls `{call.callee}`, which no target has"):
        check_calls(func)


def test_calls_inside_of_expressions_are_bound_before_the_statement() -> None:
    """In the order in which they stand, and run by the interpreter."""
    inside = """
for i in range(16):
    B[i] = A[i, 0] + T.call_extern("float32", "twice", A.access_ptr("r"), i) * T.call_extern("float32", "one")
if T.call_extern("int32", "count", A.access_ptr("r")) > 3:
    B[0] += T.call_extern("float32", "one")
"""
    apart = """
for i in range(16):
    value: T.float32 = T.call_extern("float32", "twice", A.access_ptr("r"), i)
    value_1: T.float32 = T.call_extern("float32", "one")
    B[i] = A[i, 0] + value * value_1
with T.LetStmt(T.call_extern("int32", "count", A.access_ptr("r")), T.int32) as value_2:
    if value_2 > 3:
        with T.LetStmt(T.call_extern("float32", "one"), T.float32) as value_3:
            B[0] = B[0] + value_3
"""
    func = program(inside)
    assert canonical(func) == canonical(program(apart))

    def twice(reads: Arrays, writes: Arrays) -> None:
        writes[0][...] = 2 * reads[0][0, 0]

    def one(_: Arrays, writes: Arrays) -> None:
        writes[-1][...] = 1

    def count(_: Arrays, writes: Arrays) -> None:
        writes[-1][...] = 4

    a, b = np.full((16, 16), 3, "float32"), np.zeros(16, "float32")
    ss.interpret(func, a, b, calls={"twice": twice, "one": one, "count": count})
    assert b.tolist() == [10, *[9] * 15]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("B[0] = T.call_extern('float32', 'g', B.data) + B[1]", "`g` may write what this statement reads; bind its"),
        (
            "B[0] = T.if_then_else(A[0, 0] < 1.0, T.call_extern('float32', 'g'), 0.0)",
            "called on one side of a condition",
        ),
        ("B[0] = T.Let(x + T.call_extern('float32', 'g'), where={x: 1.0})", "in the scope of a name; bind its value"),
        ("B[0] = T.call_packed('g', A.data) + 1.0", "what `g` gives needs a type"),
    ],
)
def test_calls_that_no_order_is_told_of_are_refused(body: str, sentence: str) -> None:
    with pytest.raises(ss.ScriptError, match=sentence):
        program(body)


def touched(func: ss.PrimFunc) -> dict[str, str]:
    """How each memory is touched, by its name."""
    found: dict[str, set[str]] = {}
    for statement in instances(func).statements:
        for access in statement.accesses:
            found.setdefault(access.buffer.name, set()).add("w" if access.is_write else "r")
    return {name: "".join(sorted(ways)) for name, ways in found.items()}


def test_pointers_say_what_is_touched() -> None:
    """All of a buffer, to read and to write, where its pointer does not say more."""
    assert touched(program("T.call_packed('f', A.data)")) == {"A": "rw"}
    assert touched(program("T.call_packed('f', A.access_ptr('r'), B.access_ptr('w'))")) == {"A": "r", "B": "w"}
    pointer = "T.tvm_access_ptr(T.type_annotation('float32'), B.data, 0, 4, 2)"
    assert touched(program(f"T.call_packed('f', {pointer})")) == {"B": "w"}


@pytest.mark.parametrize(
    ("number", "dtype"), [(5, "int32"), (-5, "int32"), (-(2**31), "int32"), (-(2**31) - 1, "int64")]
)
def test_plain_numbers_have_one_type_on_both_sides_of_zero(number: int, dtype: str) -> None:
    func = program(f"T.call_packed('f', {number})")
    (call,) = (s for s in walk_stmts(func.body) if isinstance(s, Opaque))
    assert call.args[1:] == (const(number, dtype),)


BLOCK = """
for i in range(4):
    with T.block("b"):
        vi = T.axis.spatial(4, i)
        T.reads(A[vi * 4:vi * 4 + 4, 0:16])
        T.writes(B[vi * 4:vi * 4 + 4])
        T.call_packed("rows", A.data, B.data)
"""


def rows(reads: Arrays, writes: Arrays) -> None:
    writes[0][...] = reads[0].sum(axis=1)


def test_a_block_declares_what_its_call_touches() -> None:
    """The interpreter gives a function the regions; a loop over disjoint ones runs in parallel."""
    func = program(BLOCK)
    a, b = np.arange(256, dtype="float32").reshape(16, 16), np.zeros(16, "float32")
    ss.interpret(func, a, b, calls={"rows": rows})
    np.testing.assert_array_equal(b, a.sum(axis=1))
    sch = ss.Schedule(func)
    outer, inner = sch.split("i", factors=[None, 2])
    sch.reorder(inner, outer)
    sch.parallel(outer)
    other = np.zeros(16, "float32")
    ss.interpret(sch.func, a, other, calls={"rows": rows})
    np.testing.assert_array_equal(b, other)


def test_regions_are_printed_wherever_a_call_stands() -> None:
    """Of several calls in a block, below conditions and outside of blocks, each with its own regions."""
    program("T.opaque(T.call_packed('f', A.data), reads=[A[0:2, 0:4]], writes=[])")
    calls = "        T.opaque(T.call_packed('f', A.data, B.data), reads=[A[{0}, 0:4]], writes=[B[{0}:{0} + 2]])\n"
    program("with T.block('b'):\n    if B[0] < 1.0:\n" + calls.format(3) + calls.format(5))


def test_regions_that_meet_are_no_parallel_loop() -> None:
    func = program(BLOCK.replace("vi * 4:vi * 4 + 4]", "vi * 3:vi * 3 + 4]").replace("A[vi * 4:vi * 4 + 4", "A[0:4"))
    with pytest.raises(ss.ScheduleError, match="two iterations of loop `i` may touch the same element of `B`"):
        ss.Schedule(func).parallel("i")


def test_what_a_call_takes_part_in_is_not_rewritten() -> None:
    block = "    with T.block('c'):\n        vj = T.axis.spatial(16, j)\n        B[vj] = B[vj] * 2.0"
    func = program(f"{BLOCK}\nfor j in range(16):\n{block}")
    with pytest.raises(ss.ScheduleError, match="`rows` is called, which stands in `b`"):
        ss.Schedule(func).compute_inline("b")
    with pytest.raises(ss.ScheduleError, match="`rows` is called, which touches what `c` writes"):
        ss.Schedule(func).cache_write("c", "B", "local")
    with pytest.raises(ss.ScheduleError, match="`rows` is called, which touches what `c` writes"):
        ss.Schedule(func).transform_layout("c", "B", lambda i: [i // 4, i % 4])


def test_stores_around_calls_stay_as_they_count() -> None:
    """What a call may read is needed; what it may write is not known afterwards; what it does not touch is."""
    gone = program("B[0] = 1.0\nT.call_packed('f', A.data)\nB[0] = 2.0")
    assert ss.transform.remove_no_op(gone) == program("T.call_packed('f', A.data)\nB[0] = 2.0")
    read = program("B[0] = 1.0\nT.call_packed('f', B.access_ptr('r'))\nB[0] = 2.0")
    assert ss.transform.remove_no_op(read) == read
    written = program("B[0] = 1.0\nT.call_packed('f', B.access_ptr('w'))\nB[0] = 1.0")
    assert ss.transform.remove_no_op(written) == program("T.call_packed('f', B.access_ptr('w'))\nB[0] = 1.0")
    known = "B[0] = 1.0\nT.call_packed('f', {})\nif B[0] < 2.0:\n    A[0, 0] = 1.0"
    assert ss.transform.simplify(program(known.format("B.data"))) == program(known.format("B.data"))


def test_a_result_that_nobody_reads_is_not_kept() -> None:
    """The call stays, for what else it does."""
    func = program("for i in range(4):\n    x: T.int32 = T.call_extern('int32', 'f', B.data)\n    T.evaluate(0)")
    assert ss.transform.remove_no_op(func) == program("for i in range(4):\n    T.call_extern('int32', 'f', B.data)")
    used = program("x: T.float32 = T.call_extern('float32', 'f', A.data)\nB[0] = x")
    assert ss.transform.remove_no_op(used) == used
    over = program("for i in range(4):\n    B[i] = T.call_extern('float32', 'f', A.data)\n    B[i] = 1.0")
    called = program("for i in range(4):\n    T.call_extern('float32', 'f', A.data)\n    B[i] = 1.0")
    assert ss.transform.remove_no_op(over) == called
    kept = program("for i in range(4):\n    B[i] = T.call_extern('float32', 'f', B.data)\n    B[3] = 1.0")
    assert ss.transform.remove_no_op(kept) == kept


def test_while_and_assertions_run_and_are_refused_by_lower() -> None:
    loop = "while B[0] < 10.0:\n    B[0] = B[0] * T.float32(2)\n    A[0, 0] = B[0]"
    func = program(f"assert B[0] > 0.0, 'positive'\n{loop}")
    assert any(isinstance(s, While) for s in walk_stmts(func.body))
    a, b = np.zeros((16, 16), "float32"), np.full(16, 3, "float32")
    ss.interpret(func, a, b, strict_state=False)
    assert b[0] == a[0, 0] == 12
    with pytest.raises(LoweringError, match="`f` has a statement `assert`, which no target runs"):
        check_calls(func)
    with pytest.raises(InterpreterError, match=r"`B\[0\] > T.float32\(0.0\)` does not hold: positive"):
        ss.interpret(func, a, np.zeros(16, "float32"), strict_state=False)


def test_a_store_in_a_while_is_needed_where_a_later_turn_reads_it() -> None:
    text = "B[0] = 0.0\nB[1] = 0.0\nwhile B[0] < 3.0:\n    B[0] = B[0] + B[1]\n    B[1] = 1.0"
    assert ss.transform.remove_no_op(program(text)) == program(text)
    assert ss.transform.simplify(program(text)) == program(text)


def test_functions_of_a_module_call_each_other() -> None:
    module = ss.parse("""
@T.ir_module
class M:
    @T.prim_func
    def main(A: T.Buffer((16,), "float32")):
        M.part(A.data)
    @T.prim_func
    def part(A: T.Buffer((16,), "float32")):
        A[0] = 1.0
""")
    assert isinstance(module, ss.Module)
    ss.verify(module)
    assert ss.parse(module.script()) == module
    assert "Module.part(A.data)" in module.script()
