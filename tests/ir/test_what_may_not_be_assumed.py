"""Rewrites and proofs assume nothing that a program does not say: each case computes the same, or is refused."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import stridesmith as ss
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.passes.transform import PASSES
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.verify.rules import VerifyError, verify
from stridesmith.search.calling.kernel import build
from stridesmith.space.concurrency import check_all_marked
from stridesmith.space.schedule import Schedule, ScheduleError

Change = Callable[[PrimFunc], PrimFunc]


def function(text: str) -> PrimFunc:
    func = parse(f"@T.prim_func\n{text}")
    assert isinstance(func, PrimFunc)
    verify(func)
    return func


def by(name: str) -> Change:
    """The pass of that name."""

    def change(func: PrimFunc) -> PrimFunc:
        changed = PASSES[name](func)
        assert isinstance(changed, PrimFunc)
        return changed

    return change


def without_branch(func: PrimFunc) -> PrimFunc:
    sch = Schedule(func)
    sch.remove_branching_through_overcompute("root")
    return sch.func


def same(func: PrimFunc, change: Change, *arrays: np.ndarray | int) -> None:
    """Equal results before and after, bit for bit; a refusal leaves the program as it is."""
    try:
        changed = change(func)
    except ScheduleError:
        return
    verify(changed)
    results = []
    for each in (func, changed):
        given = [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]
        interpret(each, *given)
        results.append([a for a in given if isinstance(a, np.ndarray)])
    for one, other in zip(*results, strict=True):
        assert one.tobytes() == other.tobytes(), changed.script()


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


NAMES = """
def f(A: T.Buffer((4,), "float32"), p0: T.int64):
    for i in range(4):
        A[i] = T.float32(1)
    if p0 > 5:
        A[1] = T.float32(2)
"""
LOOP_NAMES = """
def f(C: T.Buffer((2,), "int64"), Q: T.Buffer((2,), "int64")):
    t = T.alloc_buffer((8,), "int64")
    for p0 in range(2):
        for i in range(8):
            t[i] = T.int64(0)
        t[Q[p0]] = T.int64(5)
        t[5] = T.int64(0)
        C[p0] = t[5]
"""
STALE = """
def f(C: T.Buffer((1,), "int64")):
    t = T.alloc_buffer((1,), "int64")
    t[0] = T.int64(3)
    with T.block("b"):
        v = T.axis.opaque(10, t[0])
        t[0] = T.int64(5)
        t[0] = v
    C[0] = t[0]
"""
STRICT_TIMES_ZERO = """
def f(A: T.Buffer((1,), "float32"), C: T.Buffer((1,), "float32")):
    T.func_attr({"strict_float": True})
    t = T.alloc_buffer((1,), "float32")
    t[0] = A[0] * T.float32(0)
    t[0] = T.float32(0)
    C[0] = t[0]
"""
STRICT = """
def f(A: T.Buffer((1,), "float32"), C: T.Buffer((1,), "float32")):
    T.func_attr({"strict_float": True})
    C[0] = A[0] * T.float32(0)
"""
STRICT_SIGN = """
def f(A: T.Buffer((1,), "float32"), C: T.Buffer((1,), "float32")):
    T.func_attr({"strict_float": True})
    T.assume(A[0] == T.float32(0))
    C[0] = T.float32(1) / A[0]
"""
COMPUTED = """
def f(A: T.Buffer((1,), "float32"), C: T.Buffer((1,), "float32")):
    x: T.float32 = T.exp(A[0])
    C[0] = x * T.float32(0)
"""
NARROWED = """
def f(A: T.Buffer((1,), "float32"), C: T.Buffer((1,), "float16")):
    C[0] = T.Cast("float16", A[0]) * T.float16(0)
"""


@pytest.mark.parametrize(
    ("text", "name", "arrays"),
    [
        (NAMES, "remove_no_op", (np.zeros(4, np.float32), 7)),
        (LOOP_NAMES, "remove_no_op", (np.zeros(2, np.int64), np.array([5, 5]))),
        (STALE, "remove_no_op", (np.zeros(1, np.int64),)),
        (STRICT_TIMES_ZERO, "remove_no_op", (floats(math.inf), floats(7))),
        (STRICT, "simplify", (floats(math.inf), floats(7))),
        (STRICT_SIGN, "simplify", (floats(-0.0), floats(7))),
        (COMPUTED, "simplify", (floats(1000), floats(7))),
        (NARROWED, "simplify", (floats(1e6), np.zeros(1, np.float16))),
    ],
    ids=["parameter p0", "loop p0", "iterator of memory", "stored zero", "strict", "sign", "binding", "cast"],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_pass_keeps_what_is_computed(text: str, name: str, arrays: tuple[np.ndarray | int, ...]) -> None:
    """Whatever variables are called, whatever data are, and however a zero came about."""
    same(function(text), by(name), *arrays)


PADDED = """
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    T.func_attr({"layouts": {"A": ((4,), "lambda i: [i]", "undef")}})
    t = T.alloc_buffer((8,), "float32")
    for i_1 in range(8):
        T.assume(i_1 < 4 or A[i_1] == T.undef("float32"))
"""
TIMES_ZERO = (
    PADDED
    + """
    for i in range(8):
        t[i] = A[i] * T.float32(0)
    for i in range(8):
        B[i] = T.float32(1)
    for j in range(8):
        if j < 4:
            B[j] = B[j] + t[j] * T.float32(3)
"""
)
GUARDED = (
    PADDED
    + """
    for i in range(8):
        t[i] = A[i] + T.float32(1)
    for i in range(8):
        B[i] = T.float32(1)
    for j in range(8):
        if j < 4:
            B[j] = B[j] + (T.if_then_else(j < 4, t[j], T.float32(0)) + T.if_then_else(j >= 4, t[j] * T.float32(0), T.float32(0)))
"""  # noqa: E501
)
FAR = (
    """
def f(A: T.Buffer((2,), "float32"), W: T.Buffer((2,), "float32"), B: T.Buffer((2,), "float32")):
    T.func_attr({"layouts": {"A": ((1,), "lambda i: [i]", "undef"), "W": ((1,), "lambda i: [i]", "0.0")}})
    t = T.alloc_buffer((8,), "float32")
    for i in range(2):
        T.assume(i < 1 or A[i] == T.undef("float32"))
    for i in range(2):
        T.assume(i < 1 or W[i] == T.float32(0))
    for i in range(8):
        t[i] = T.float32(1)
    for i in range(2):
        B[i] = T.float32(1)
    t[0] = A[1] + T.float32(0.5)
    for i in range(9):
"""
    + "".join(f"        t[{k}] = t[{k - 1}]\n" for k in range(7, 0, -1))
    + """    for j in range(2):
        if j < 1:
            B[j] = B[j] + t[7] * W[j]
"""
)
ASSUMED = """
def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        B[i] = T.float32(0)
    for j in range(8):
        if j < 4:
            B[j] = A[j]
    for k in range(4):
        T.assume(B[k + 4] == T.float32(0))
    for l in range(4):
        B[l + 4] = T.float32(5)
"""


@pytest.mark.parametrize("text", [TIMES_ZERO, GUARDED, FAR], ids=["times zero", "guarded", "far"])
def test_undef_stays_undef(text: str) -> None:
    """Through products with 0, behind other conditions, and over any number of stores."""
    func = function(text)
    shapes = [b.shape for b in func.buffers]
    arrays = [np.full(shape, math.nan, np.float32) for shape in shapes]
    for array in arrays[:-1]:
        array[: len(array) // 2] = 2
    if len(arrays) == 3:
        arrays[1][1] = 0
    same(func, without_branch, *arrays)


def test_an_assumption_reads_what_it_speaks_of() -> None:
    """What is computed over there may not make it wrong, although the elements are stored again."""
    same(function(ASSUMED), by("remove_branching_through_overcompute"), np.arange(8, dtype=np.float32),
         np.zeros(8, np.float32))  # fmt: skip


LANES = """
def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), n: T.int64):
    for lane in range(n):
        B[T.Ramp(lane * 4, 1, 4)] = A[T.Ramp(lane * 4, 1, 4)]
"""


def test_a_layout_captures_no_variable() -> None:
    """The lanes of a vector have a name that no loop has."""
    sch = Schedule(function(LANES))
    sch.transform_layout("root", "B", "lambda i: [i]", physical_shape=[20])
    b = np.zeros(20, np.float32)
    interpret(sch.func, np.arange(16, dtype=np.float32), b, 4)
    np.testing.assert_array_equal(b[:16], np.arange(16))


LATE = """
def f(A: T.Buffer((2,), "float32"), C: T.Buffer((5,), "float32")):
    for i, k in T.grid(4, 2):
        x: T.int64 = i + k
        with T.block("b"):
            vx = T.axis.spatial(5, x)
            vk = T.axis.reduce(2, k)
            with T.init():
                C[vx] = T.float32(0)
            C[vx] = C[vx] + A[vk]
"""
SKIPPED = """
def f(A: T.Buffer((4,), "float32"), C: T.Buffer((1,), "float32")):
    for k in range(4):
        x: T.int64 = k
        if x >= 1:
            with T.block("b"):
                vk = T.axis.reduce(4, k)
                with T.init():
                    C[0] = T.float32(0)
                C[0] = C[0] + A[vk]
"""
FINE = LATE.replace("x: T.int64 = i + k", "x: T.int64 = i")


def test_bindings_are_looked_through_for_the_first_point() -> None:
    """Rule 8: a reduction whose place or condition comes from a binding begins with its init, or is refused."""
    for text in (LATE, SKIPPED):
        with pytest.raises(VerifyError, match="rule 8"):
            function(text)
    function(FINE)


MEETING = """
def f(A: T.Buffer((4,), "int64"), B: T.Buffer((8,), "int64")):
    for i in range(4):
        x: T.int64 = A[i]
        A[i] = T.int64(0)
        B[i + x] = i
"""


def test_a_binding_that_changes_separates_no_iterations() -> None:
    """What is bound to memory differs from one iteration to the next."""
    with pytest.raises(ScheduleError, match=r"\(1\) two iterations"):
        Schedule(function(MEETING)).parallel("i")


def test_lanes_that_share_an_element_store_once() -> None:
    """The last lane stays, in a loop as without one."""
    text = """
def f(B: T.Buffer((1,), "float32")):
    B[0] = T.float32(0)
    for i in range(2):
        B[T.Broadcast(T.int64(0), 4)] = B[T.Broadcast(T.int64(0), 4)] + T.Broadcast(T.float32(1), 4)
"""
    b = floats(0)
    interpret(function(text), b)
    assert b[0] == 2


def test_vectors_of_one_value_stay_vectors() -> None:
    """A binding of a vector whose lanes are known is no number."""
    text = """
def f(A: T.Buffer((4,), "int64")):
    x: T.int64x4 = T.Broadcast(T.int64(3), 4)
    A[T.Ramp(0, 1, 4)] = x
"""
    same(function(text), by("simplify"), np.zeros(4, np.int64))


NEAREST = """
def f(B: T.Buffer((4,), "float32")):
    A = T.alloc_buffer((1,), "float32")
    for i in range(4):
        if i < 2:
            A[0] = T.float32(2)
            B[i] = T.float32(2)
        else:
            A[0] = T.float32(1)
            B[i] = A[0]
"""
CHAIN = """
def f(B: T.Buffer((1,), "float32")):
    A = T.alloc_buffer((8,), "float32")
    A[0] = T.float32(1)
    for i in range(7):
        A[i + 1] = T.if_then_else(i >= 3, T.float32(2), A[i])
    B[0] = A[3]
"""
DIVIDED = """
def f(B: T.Buffer((4,), "int64")):
    for i in range(4):
        if i > 0:
            B[i] = 12 // i
    B[0] = T.int64(5)
"""
CHOSEN = DIVIDED.replace("if i > 0:\n            B[i] = 12 // i", "B[i] = T.if_then_else(i > 0, 12 // i, i)")
TWO = """
def f(B: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32"), D: T.Buffer((4,), "float32")):
    for i in range(4):
        B[i] = T.float32(1)
        if i < 4:
            C[i] = T.float32(1)
            D[i] = T.float32(1)
"""


@pytest.mark.parametrize("text", [NEAREST, CHAIN, DIVIDED, CHOSEN, TWO], ids=["else", "choice", "if", "side", "two"])
def test_conditions_go_where_nothing_changes(text: str) -> None:
    """What the other side reads is what it has left there, and nothing is divided by 0."""
    func = function(text)
    same(func, without_branch, *(np.zeros(b.shape, b.dtype) for b in func.buffers))


UNKNOWN_PLACE = """
def f(n: T.int64, P: T.Buffer((1,), "int64"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        B[i] = T.float32(0)
    B[T.min(T.max(P[0], 0), 3)] = T.float32(1)
    if n > 0:
        for j in range(4):
            B[j] = T.float32(0)
"""
VIEWED = """
def f(A: T.Buffer((256,), "float32")):
    V = T.decl_buffer((16, 16), "float32", data=A.data)
    for i in T.serial(T.int8(8)):
        for j in T.serial(T.int8(16)):
            V[i + T.int8(8), j] = T.float32(1)
"""
VALUE = """
def f(A: T.Buffer((1,), "bool"), value: T.bool, B: T.Buffer((1,), "float32")):
    B[0] = T.float32(0)
    if A[0] and not value:
        B[0] = T.float32(1)
"""
UNDEF = """
def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    T.func_attr({"strict_float": True})
    for i in range(4):
        B[i] = T.if_then_else(i < 4, A[i] * T.float32(0), T.undef("float32"))
"""


@pytest.mark.parametrize(
    ("text", "name", "arrays"),
    [
        (UNKNOWN_PLACE, "remove_no_op", (1, np.array([2]), floats(9, 9, 9, 9))),
        (VIEWED, "remove_no_op", (np.zeros(256, np.float32),)),
        (VALUE, "simplify", (np.array([True]), False, floats(9))),
        (UNDEF, "remove_store_undef", (floats(math.nan, math.inf, -1, 0), floats(9, 9, 9, 9))),
    ],
    ids=["unknown place", "narrow indices of a view", "a parameter called value", "strict zeros"],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_passes_change_no_result(text: str, name: str, arrays: tuple[np.ndarray | int, ...]) -> None:
    """Whatever the parameters are called and whatever their types hold."""
    same(function(text), by(name), *arrays)


def test_narrow_indices_are_flattened_in_64_bits() -> None:
    """The eighth row of sixteen begins at an element that int8 does not count."""
    text = """
def f(A: T.Buffer((16, 16), "float32")):
    for i in T.serial(T.int8(16)):
        for j in T.serial(T.int8(16)):
            A[i, j] = T.float32(1)
"""
    changed = PASSES["flatten_buffers"](function(text))
    found = np.zeros((16, 16), np.float32)
    build(changed, ss.Target("cpu", threads=1))(out=found)
    assert found.all()


def test_narrow_sums_that_wrap_around_meet() -> None:
    """Iterations 0 and 16 both write the first element: they may not run at the same time."""
    func = function("""
def f(B: T.Buffer((256,), "float32")):
    for i in T.parallel(T.uint8(32)):
        B[i * T.uint8(16)] = T.Cast("float32", i)
""")
    with pytest.raises(ScheduleError, match="two iterations of loop `i` may touch the same element"):
        check_all_marked(func)
