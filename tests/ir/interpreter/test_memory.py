"""Views of one memory by other shapes and types, vectors, and the numbers of every type."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from stridesmith.ir import dtypes
from stridesmith.ir.interpreter.interpret import InterpreterError, interpret
from stridesmith.ir.numbers import (
    bfloat16_bits,
    bfloat16_values,
    boundary_dtype,
    convert,
    from_storage,
    numpy_dtype,
    to_storage,
)
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc


def run(text: str, *arrays: Any) -> None:
    func = parse(f"@T.prim_func\ndef f{text}")
    assert isinstance(func, PrimFunc)
    interpret(func, *arrays)


# RFC 0039, "What convention should be used for buffer indexing?", option 1: declaration of A, a declaration inside
# the function, what is read, and which elements of the 64 that A holds that is.
CONVENTION = {
    "scalar load from scalar buffer": ("(64,), 'float32'", "", "A[5]", [5]),
    "vector load from vector buffer": ("(16,), 'float32x4'", "", "A[2]", [8, 9, 10, 11]),
    "shorter vector load from vector buffer": (
        "(16,), 'float32x4'", "V = T.decl_buffer([32], 'float32x2', data=A.data)", "V[3]", [6, 7]),
    "vector load from scalar buffer by ramp": ("(64,), 'float32'", "", "A[T.Ramp(3, 2, 4)]", [3, 5, 7, 9]),
    "vector load from scalar buffer by view": (
        "(64,), 'float32'", "V = T.decl_buffer([16], 'float32x4', data=A.data)", "V[3]", [12, 13, 14, 15]),
    "scalar load from vector buffer": (
        "(16,), 'float32x4'", "S = T.decl_buffer([64], 'float32', data=A.data)", "S[7]", [7]),
    "ramp over vector buffer": ("(32,), 'float32x2'", "", "A[T.Ramp(1, 3, 2)]", [2, 3, 8, 9]),
}  # fmt: skip


@pytest.mark.parametrize("case", CONVENTION)
def test_loaded_lanes_are_those_of_the_buffer_times_those_of_the_index(case: str) -> None:
    """Every case of RFC 0039's convention reads its elements, and writes them back to the same place."""
    declared, view, load, elements = CONVENTION[case]
    lanes = len(elements)
    a = np.arange(64, dtype=np.float32)
    a = a.reshape(-1, dtypes.lanes(declared.split("'")[1])) if "x" in declared else a
    kind = "float32" if lanes == 1 else f"float32x{lanes}"
    y = np.zeros((1, lanes) if lanes > 1 else 1, np.float32)
    run(f'(A: T.Buffer({declared}), Y: T.Buffer((1,), "{kind}")):\n    {view or "pass"}\n    Y[0] = {load}', a, y)
    assert y.ravel().tolist() == elements
    target = np.zeros_like(a)
    text = f'(A: T.Buffer({declared}), Y: T.Buffer((1,), "{kind}")):\n    {view or "pass"}\n    {load} = Y[0]'
    run(text, target, y)
    assert np.flatnonzero(target).tolist() == elements and target.ravel()[elements].tolist() == elements


def test_a_view_of_another_type_reads_the_bytes() -> None:
    """The bits of a float32 as int32, its halves as int16, two of them as a float64, each as it lies in memory."""
    x = np.array([1.5, -2.25, 3e8, 0.1], np.float32)
    bits, halves, pairs = np.zeros(4, np.int32), np.zeros(8, np.int16), np.zeros(2, np.float64)
    run(
        """(X: T.Buffer((4,)), B: T.Buffer((4,), "int32"), H: T.Buffer((8,), "int16"), P: T.Buffer((2,), "float64")):
    b = T.decl_buffer((2, 2), "int32", data=X.data)
    h = T.decl_buffer((8,), "int16", data=X.data)
    p = T.decl_buffer((2,), "float64", data=X.data)
    for i in range(8):
        H[i] = h[i]
        if i < 4:
            B[i] = b[i // 2, i % 2]
        if i < 2:
            P[i] = p[i]
""",
        x,
        bits,
        halves,
        pairs,
    )
    np.testing.assert_array_equal(bits, x.view(np.int32))
    np.testing.assert_array_equal(halves, x.view(np.int16))
    np.testing.assert_array_equal(pairs, x.view(np.float64))


STATE = """(Y: T.Buffer((4,))):
    for i in range({copies}):
        M = T.allocate((2,), "int32")
        h = T.decl_buffer((4,), "int16", data=M.data)
        h[0] = T.int16(7)
        h[{second}] = {value}
        Y[i] = T.Cast("float32", M[0])
"""


@pytest.mark.parametrize("copies", [1, 4])
def test_the_state_is_kept_for_the_shortest_view(copies: int) -> None:
    """An element is read once all of its parts are written, and is undef if one of them is."""
    y = np.zeros(4, np.float32)
    run(STATE.format(copies=copies, second=1, value="T.int16(1)"), y)
    assert y[0] == 65536 + 7
    with pytest.raises(InterpreterError, match=r"`M\[0\]` is read, but was never written"):
        run(STATE.format(copies=copies, second=2, value="T.int16(1)"), y)
    text = STATE.format(copies=copies, second=1, value="T.undef()").replace("Y[i] =", "Y[T.Cast('int64', M[0])] =")
    with pytest.raises(InterpreterError, match="depends on an undef value"):
        run(text, y)


def test_statements_on_different_views_run_in_order() -> None:
    """A loop that shifts bytes through two views of one memory reads what the iteration before wrote."""
    y = np.zeros(8, np.int32)
    run(
        """(Y: T.Buffer((8,), "int32")):
    h = T.decl_buffer((16,), "int16", data=Y.data)
    h[0] = T.int16(1)
    h[1] = T.int16(0)
    for i in range(7):
        h[i * 2 + 2] = T.Cast("int16", Y[i] + 1)
        h[i * 2 + 3] = T.int16(0)
""",
        y,
    )
    assert y.tolist() == list(range(1, 9))


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_integers_wrap_around(dtype: str) -> None:
    """Sums, differences and products keep the low bits, also where one value stands for all lanes."""
    low, high = dtypes.int_range(dtype)
    y = np.zeros(3, dtype)
    run(
        f'''(Y: T.Buffer((3,), "{dtype}")):
    x: T.{dtype} = T.{dtype}({high})
    Y[0] = x + T.{dtype}(1)
    Y[1] = T.{dtype}({low}) - T.{dtype}(1)
    Y[2] = x * T.{dtype}(3)
''',
        y,
    )
    wrapped = (high * 3 - low) % 2 ** dtypes.bits(dtype) + low
    assert y.tolist() == [low, high, wrapped]


FLOATS = np.array([0.5, -0.5, 127.9, -128.9, 300, -300, 3e9, -3e9, 1e19, -1e19, np.inf, -np.inf, np.nan, 2.0**31])


@pytest.mark.parametrize("target", ["int8", "int16", "int32", "int64", "uint8"])
@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
def test_floats_become_integers_by_truncation_and_saturate(source: str, target: str) -> None:
    """Fractions go towards zero, what does not fit becomes the nearest integer, NaN becomes 0."""
    low, high = dtypes.int_range(target)
    with np.errstate(all="ignore"):
        values = FLOATS.astype(source)
    expected = [0 if np.isnan(v) else low if v < low else high if v > high else int(v) for v in values.tolist()]
    assert convert(source, target, values).tolist() == expected


def test_bfloat16_is_the_upper_half_of_a_float32_rounded_to_even() -> None:
    """Every bfloat16 survives a round trip; of a float64 the nearest one is taken, without rounding twice."""
    every = np.arange(65536, dtype=np.uint16)
    finite = every[~np.isnan(bfloat16_values(every))]
    np.testing.assert_array_equal(bfloat16_bits(bfloat16_values(finite)), finite)
    between = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8 - 2.0**-40, 1 + 2.0**-8, 1 + 3 * 2.0**-8])
    assert convert("float64", "bfloat16", between).tolist() == [1 + 2.0**-7, 1.0, 1.0, 1 + 2.0**-6]


@pytest.mark.parametrize("dtype", dtypes.SCALAR_TYPES)
def test_every_type_is_loaded_computed_and_stored(dtype: str) -> None:
    """Scalars and vectors of each type are copied, chosen and, where they are computed with, added."""
    x = np.array([1, 0, 1, 1, 0, 0, 1, 0])
    raw = np.asarray(to_storage(dtype, x.astype(numpy_dtype(dtype)))).astype(boundary_dtype(dtype))
    y = np.zeros_like(raw)
    wide = 'T.Cast("int16", X[i])'
    change = "X[i]" if dtype == "bool" else "X[i] + X[i]"
    if dtypes.is_storage(dtype):
        change = f'T.Cast("{dtype}", {wide} + {wide})'
    run(
        f'''(X: T.Buffer((8,), "{dtype}"), Y: T.Buffer((8,), "{dtype}")):
    v = T.decl_buffer((2,), "{dtype}x4", data=Y.data)
    for i in range(4):
        Y[i] = T.Select(i < 2, {change}, X[i])
    {"v[1]" if dtypes.bits(dtype) >= 8 else "Y[T.Ramp(4, 1, 4)]"} = X[T.Ramp(4, 1, 4)]
''',
        raw,
        y,
    )
    doubled = x * np.array([2, 2, 1, 1, 1, 1, 1, 1])
    shown = from_storage(dtype, y)
    np.testing.assert_array_equal(shown, doubled.astype(shown.dtype))


def test_let_expressions_and_attributes() -> None:
    """A let expression gives its value a name in a part of an expression; an attribute changes nothing."""
    y = np.zeros(4, np.float32)
    run(
        """(Y: T.Buffer((4,))):
    with T.attr(0, "pragma", "fast"):
        for i in range(4):
            Y[i] = T.Let(k * k + T.float32(1), where={k: T.Cast("float32", i)})
""",
        y,
    )
    assert y.tolist() == [1, 2, 5, 10]


def test_a_choice_between_undef_and_defined_lanes() -> None:
    """Of vectors that are undef in some lanes, a selection is undef only where the chosen lanes are."""
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    text = """(X: T.Buffer((8,)), Y: T.Buffer((8,))):
    L = T.allocate([8], "float32")
    for i in range(8):
        L[i] = T.Select(i < 4, X[i], T.undef())
    for j in range(2):
        Y[T.Ramp(j * 4, 1, 4)] = T.Select(T.Ramp(j * 4, 1, 4) < T.Broadcast(4, 4), L[T.Ramp(j * 4, 1, 4)],
                                          X[T.Ramp(j * 4, 1, 4)])
    for k in range(8):
        T.assume(Y[k] == X[k])
"""
    run(text, x, y)
    assert y.tolist() == x.tolist()
    with pytest.raises(InterpreterError, match="depends on an undef value"):
        run(text.replace("< T.Broadcast(4, 4)", "< T.Broadcast(5, 4)"), x, y)


def test_an_init_runs_wherever_all_reduce_iterators_are_0() -> None:
    """A reduction inside a loop that its block does not use starts anew in every iteration."""
    y = np.zeros(2, np.float32)
    run(
        """(Y: T.Buffer((2,))):
    for i, j, k in T.grid(3, 2, 4):
        with T.block("sum"):
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                Y[vj] = T.float32(10)
            Y[vj] += 1
""",
        y,
    )
    assert y.tolist() == [14, 14]


def test_a_million_statements_through_views_take_seconds() -> None:
    """A product through flat views and views of vectors is interpreted within ten seconds of processor time."""
    a, b = (np.random.default_rng(1).integers(-4, 5, (96, 96)).astype(np.float32) for _ in range(2))
    c = np.zeros((96, 96), np.float32)
    start = time.process_time()
    run(
        """(A: T.Buffer((96, 96)), B: T.Buffer((96, 96)), C: T.Buffer((96, 96))):
    a = T.decl_buffer((9216,), data=A.data)
    b = T.decl_buffer((2304,), "float32x4", data=B.data)
    c = T.decl_buffer((2304,), "float32x4", data=C.data)
    for i, j in T.grid(96, 24):
        c[i * 24 + j] = T.Broadcast(T.float32(0), 4)
        for k in range(96):
            c[i * 24 + j] = c[i * 24 + j] + T.Broadcast(a[i * 96 + k], 4) * b[k * 24 + j]
    for i1, j1, k1 in T.grid(96, 96, 96):
        C[i1, j1] += a[i1 * 96 + k1] * B[k1, j1]
""",
        a,
        b,
        c,
    )
    assert time.process_time() - start < 10
    np.testing.assert_array_equal(c, 2 * (a @ b))


@pytest.mark.parametrize(("cond", "known"), [("T.undef() or X[i]", [1]), ("X[i] and T.undef()", [0])])
def test_one_operand_may_decide_a_condition(cond: str, known: list[int]) -> None:
    """``True or undef`` is True and ``False and undef`` is False; what else an undef condition gives is undef."""
    x, y = np.array([False, True]), np.zeros(2, np.bool_)
    text = f"""(X: T.Buffer((2,), "bool"), Y: T.Buffer((2,), "bool")):
    for i in range(2):
        Y[i] = {cond}
    Y[0] = Y[CHOICE]
    if Y[0]:
        Y[1] = False
"""
    for number in range(2):
        if number in known:
            run(text.replace("CHOICE", str(number)), x, y)
            assert y[0] == bool(number)
        else:
            with pytest.raises(InterpreterError, match="depends on an undef value"):
                run(text.replace("CHOICE", str(number)), x, y)
