"""Conditions stay that keep undef from deciding, iterators in their ranges, and divisors from being 0."""

from __future__ import annotations

import numpy as np
import pytest

import stridesmith as ss
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.passes.overcompute import overcompute
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.verify.rules import verify

COPY = """
@T.prim_func
def main(A: T.Buffer((14,), "{dtype}"), C: T.Buffer((14,), "float32")):
    for i in range(14):
        with T.block("b"):
            vi = T.axis.spatial(14, i)
{body}
"""
STAGED = """
@T.prim_func
def main(A: T.Buffer((14,), "{dtype}"), C: T.Buffer((14,), "float32")):
    S = T.alloc_buffer((14,), "{dtype}")
    for i in range(14):
        with T.block("stage"):
            vi = T.axis.spatial(14, i)
            S[vi] = A[vi]
    for i in range(14):
        with T.block("b"):
            vi = T.axis.spatial(14, i)
{body}
"""
DECIDING = {
    "Select": ("C[vi] = T.Select({0}[vi] > T.float32(0), {0}[vi], {0}[vi] * T.float32(0.1))",),
    "if_then_else": ("C[vi] = T.if_then_else({0}[vi] > T.float32(0), {0}[vi], {0}[vi] * T.float32(0.1))",),
    "If": ("if {0}[vi] > T.float32(0):", "    C[vi] = {0}[vi]", "else:", "    C[vi] = {0}[vi] * T.float32(0.1)"),
    "half an If": ("C[vi] = T.float32(0)", "if {0}[vi] > T.float32(0):", "    C[vi] = {0}[vi]"),
    "nested": ("C[vi] = T.Select(T.Select({0}[vi] > T.float32(0), vi, 0) > 2, T.float32(1), T.float32(2))",),
    "not": ("C[vi] = T.Select(T.Not({0}[vi] > T.float32(0)), T.float32(1), T.float32(2))",),
    "a let binding": (
        "with T.LetStmt({0}[vi], T.float32) as x:",
        "    if x > T.float32(0):",
        "        C[vi] = x",
        "    else:",
        "        C[vi] = T.float32(0)",
    ),
    "let bindings": (
        "with T.LetStmt({0}[vi], T.float32) as x:",
        "    with T.LetStmt(x + x, T.float32) as y:",
        "        C[vi] = T.Select(y > T.float32(0), x, y)",
    ),
    "max": ("C[vi] = T.Select(T.max({0}[vi], T.float32(0)) > T.float32(1), T.float32(1), T.float32(2))",),
}
DECIDING_INTEGERS = {
    "an index": ("C[vi] = T.Cast('float32', {0}[T.max(T.min({0}[vi], T.int64(13)), T.int64(0))])",),
    "an extent": ("C[vi] = T.float32(0)", "for k in range({0}[vi]):", "    C[vi] = C[vi] + T.float32(1)"),
    "a divisor": ("C[vi] = T.Cast('float32', T.int64(7) // T.max({0}[vi], T.int64(1)))",),
}
UNDECIDED = (
    "C[vi] = T.max({0}[vi], T.float32(0))",
    "C[vi] = T.max({0}[vi], {0}[vi] * T.float32(0.1))",
    "C[vi] = T.Cast('float32', {0}[vi] > T.float32(0))",
    "with T.LetStmt({0}[vi], T.float32) as x:\n                C[vi] = x + T.float32(1)",
    "C[vi] = T.Select(vi < 7, {0}[vi], {0}[vi] * T.float32(0.1))",
)


def padded(text: str, body: tuple[str, ...], dtype: str, source: str, pad: object) -> ss.Schedule:
    """A program whose `source` has two elements of padding at the end, with a loop over all of them."""
    lines = "\n".join("            " + line.format(source) for line in body)
    sch = ss.Schedule(ss.parse(text.format(dtype=dtype, body=lines)))
    for buffer, value in ((source, pad), ("C", "undef")):
        sch.transform_layout("b", buffer, "lambda i: [i // 4, i % 4]", pad_value=value)
    loop = "i" if text is COPY else "i_1"
    sch.split(loop, [None, 4])
    return sch


@pytest.mark.parametrize("text", [COPY, STAGED])
@pytest.mark.parametrize("kind", [*DECIDING, *DECIDING_INTEGERS])
def test_an_element_that_is_undef_decides_nothing(text: str, kind: str) -> None:
    """A condition, index, extent or divisor over undef padding keeps its branch, of parameters and allocations."""
    body = DECIDING.get(kind) or DECIDING_INTEGERS[kind]
    dtype = "float32" if kind in DECIDING else "int64"
    source = "A" if text is COPY else "S"
    sch = padded(text, body, dtype, source, "undef")
    with pytest.raises(ss.ScheduleError, match=rf"the body would (decide|divide) by {source}\[3, 2\], which may be "):
        sch.remove_branching_through_overcompute("b", loops=["i_0", "i_1_0"])


@pytest.mark.parametrize("text", [COPY, STAGED])
@pytest.mark.parametrize("kind", DECIDING)
def test_an_element_that_is_a_number_decides(text: str, kind: str) -> None:
    """Where the padding is a number the branch goes, and the interpreter agrees."""
    source = "A" if text is COPY else "S"
    sch = padded(text, DECIDING[kind], "float32", source, 1.0)
    before = sch.func
    sch.remove_branching_through_overcompute("b", loops=["i_0", "i_1_0"])
    assert sch.func != before
    check_same(before, sch.func)


@pytest.mark.parametrize("body", UNDECIDED)
def test_undef_is_computed_on(body: str) -> None:
    """What only computes on undef padding runs over it: nobody reads the results."""
    sch = padded(COPY, (body,), "float32", "A", "undef")
    before = sch.func
    sch.remove_branching_through_overcompute("b")
    check_same(before, sch.func)


def check_same(before: PrimFunc, after: PrimFunc) -> None:
    """Both are valid and store the same into all that is not padding."""
    results = []
    for func in (before, after):
        verify(func)
        arrays = [np.ones(b.shape, b.dtype) * (k + 1) for k, b in enumerate(func.buffers)]
        interpret(func, *arrays)
        results.append(arrays[-1].reshape(-1)[:14].tolist())
    assert results[0] == results[1]


OFFSET = """
@T.prim_func
def main(A: T.Buffer((14,), "float32"), C: T.Buffer((14,), "float32")):
    for i in range(14):
        C[i] = T.float32(0)
    for i in range(16):
        with T.block("b"):
            vi = T.axis.spatial(14, {binding})
            T.where({where})
            {inner}
"""


def only_refusal(text: str) -> str:
    """What keeps the conditions of the last block over its own loops."""
    before = ss.parse(text)
    assert isinstance(before, PrimFunc)
    verify(before)
    after, found = overcompute(before, before.body, lambda cond: "i_1" in str(cond) and "vi" not in str(cond))
    assert after is before
    return "; ".join(map(str, found))


@pytest.mark.parametrize("inner", [
    "if vi >= 3:\n                C[vi] = A[vi]",
    "if vi >= 3 and vi < 9:\n                C[vi] = A[vi]",
    "if vi >= 3:\n                with T.block('inner'):\n                    C[vi] = A[vi]",
    "for j in range(T.min(vi, 1)):\n                C[vi] = A[vi]",
    "C[vi] = T.if_then_else(vi >= 3, A[vi], C[vi])",
    "with T.block('inner'):\n                vj = T.axis.spatial(14, vi)\n"
    "                T.where(vi >= 3)\n                C[vj] = A[vj]",
])  # fmt: skip
def test_iterators_stay_in_their_ranges_before_an_inner_condition(inner: str) -> None:
    """A block binds its iterators before what is inside of it is asked."""
    text = OFFSET.format(binding="i - 2", where="i >= 2", inner=inner)
    assert "`i_1 >= 2` stays: at i_1=0 iterator `vi` would leave its range [0, 14)" in only_refusal(text)


def test_inner_blocks_bind_before_their_own_body() -> None:
    """The same of a block inside of an `If` that goes, and where a loop of varying extent is around."""
    text = """
@T.prim_func
def main(A: T.Buffer((14,), "float32"), C: T.Buffer((14,), "float32")):
    for i in range(14):
        C[i] = T.float32(0)
    for i in range(16):
        if i >= 2:
            for j in range(1 + i // 16):
                with T.block("b"):
                    vi = T.axis.spatial(14, i - 2 + j)
                    if vi >= 3:
                        C[vi] = A[vi]
"""
    assert "`i_1 >= 2` stays: at i_1=0, j=0 iterator `vi` would leave its range [0, 14)" in only_refusal(text)


@pytest.mark.parametrize("inner", [
    "if 12 // (vi - 3) > 1:\n                if vi >= 9:\n                    C[vi] = A[vi]",
    "for j in range(12 // (vi - 3) - 1):\n                if vi >= 9:\n                    C[vi] = A[vi]",
    "if vi < 9:\n                if 12 // (vi - 3) > 1:\n                    if vi >= 7:\n"
    "                        C[vi] = A[vi]",
])  # fmt: skip
def test_divisors_are_not_0_before_an_inner_condition(inner: str) -> None:
    """An inner condition or extent divides before anything further inside leaves the point out."""
    text = OFFSET.format(binding="i - 2", where="i >= 2 and i != 5", inner=inner)
    assert "`i_1 != 5` stays: at i_1=5 the body would divide by i_1 - 2 - 3, which is 0" in only_refusal(text)


def test_a_divisor_behind_its_condition_is_not_asked_about() -> None:
    """Where an inner condition keeps the divisor from 0, the outer one goes."""
    inner = "if vi != 3:\n                C[vi] = A[vi // (12 // (vi - 3) + 20)] * T.float32(0)"
    before = ss.parse(OFFSET.format(binding="i - 2", where="i >= 2 and i != 5", inner=inner))
    assert isinstance(before, PrimFunc)
    after, _ = overcompute(before, before.body)
    assert "i_1 != 5" not in after.script() and "i_1 >= 2" in after.script()
    check_same(before, after)


def test_iterators_that_stay_in_their_ranges_lose_their_condition() -> None:
    """Where the binding stays inside for all points, an inner condition is enough."""
    text = OFFSET.format(binding="i % 14", where="i >= 5", inner="if vi >= 5:\n                C[vi] = A[vi]")
    before = ss.parse(text)
    assert isinstance(before, PrimFunc)
    after, _ = overcompute(before, before.body)
    assert "T.where" not in after.script()
    check_same(before, after)


HOISTED = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    S = T.alloc_buffer((8,), "float32")
    D = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("s"):
            vi = T.axis.spatial(8, i)
            S[vi] = T.if_then_else(vi < {cut}, A[vi], T.undef("float32"))
    for i in range(8):
        with T.block("d"):
            vi = T.axis.spatial(8, i)
            D[vi] = {value}
    for i in range(8):
        with T.block("c"):
            vi = T.axis.spatial(8, i)
            C[vi] = A[vi]
"""


def hoisted(value: str, cut: int) -> PrimFunc:
    """The program after `hoist_expression`, which the interpreter runs to the same end."""
    before = ss.parse(HOISTED.format(value=value, cut=cut))
    assert isinstance(before, PrimFunc)
    sch = ss.Schedule(before)
    sch.hoist_expression("d")
    verify(sch.func)
    for func in (before, sch.func):
        interpret(func, np.ones(8, np.float32), np.zeros(8, np.float32))
    return sch.func


def test_what_is_only_computed_from_undef_does_not_become_a_condition() -> None:
    """Hoisting leaves a comparison in place that decides nothing yet."""
    computed = "T.Cast('float32', S[0] > T.float32(1)) + A[vi]"
    for cut in (0, 4):
        with pytest.raises(ss.ScheduleError, match=r"\(3\) it decides nothing yet, and reads `S`, which may be undef"):
            hoisted(computed, cut)
    with pytest.raises(ss.ScheduleError, match=r"\(3\) it decides nothing yet, and reads `S`, which may be undef"):
        hoisted("T.if_then_else(vi < 8 or S[7] > T.float32(0), A[vi], A[0])", 4)
    bound = "T.Let(T.Cast('float32', x > T.float32(1)) + A[vi], where={x: S[0]})"
    text = HOISTED.format(value=bound, cut=4).replace("    S = ", "    x = T.var('float32')\n    S = ")
    sch = ss.Schedule(ss.parse(text))
    sch.hoist_expression("d", hoisted_let_bindings=["required_by_condition", "let_expr"])
    assert "if " not in sch.func.script()
    assert "if A[0] > " in hoisted("T.Cast('float32', A[0] > T.float32(1)) + A[vi]", 4).script()
    assert "if S[0] > " in hoisted("T.Select(S[0] > T.float32(1), A[vi], A[0])", 4).script()


def test_undef_at_an_unknown_element_may_be_anywhere() -> None:
    """A store of undef whose index memory decides leaves nothing of the memory defined."""
    text = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), P: T.Buffer((8,), "int64"), C: T.Buffer((8,), "float32")):
    S = T.alloc_buffer((8,), "float32")
    for i in range(8):
        S[i] = A[i]
    for i in range(8):
        S[T.max(T.min(P[i], T.int64(7)), T.int64(0))] = T.undef("float32")
    for i in range(8):
        C[i] = T.float32(0)
    for i in range(8):
        if i < 3:
            C[i] = T.Select(S[i] > T.float32(0), T.float32(0), C[i])
"""
    before = ss.parse(text)
    assert isinstance(before, PrimFunc)
    after, found = overcompute(before, before.body, lambda cond: "<" in str(cond))
    assert after is before and "would decide by S[3], which may be undef" in "; ".join(map(str, found))


def test_conditions_that_contradict_each_other_are_asked_about() -> None:
    """Where a divisor has no value left, since what is known there never holds, nothing is divided by 0."""
    inner = "if 12 // (vi + 1) > 0:\n                if vi >= 6:\n                    C[vi] = A[vi]"
    text = OFFSET.format(binding="i - 2", where="i >= 2", inner=inner)
    before = ss.parse(text.replace("14", "9").replace("16", "11"))
    assert isinstance(before, PrimFunc)
    sch = ss.Schedule(before)
    sch.split("i_1", [None, 2])
    sch.hoist_expression("b")
    assert "if i_1_0 >= 1:" in sch.func.script() and "12 //" not in sch.func.script()
    check_same(before, sch.func)
