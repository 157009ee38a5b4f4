"""The interpreter against NumPy, the state of every element, and each refusal by its sentence."""

from __future__ import annotations

import time

import numpy as np
import pytest
from numpy.typing import NDArray

from stridesmith.ir.expr import Buffer
from stridesmith.ir.interpreter.interpret import InterpreterError, interpret
from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc

RNG = np.random.default_rng(7)


def read(text: str) -> PrimFunc:
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return func


def normal(*shape: int) -> NDArray[np.float32]:
    return RNG.standard_normal(shape).astype(np.float32)


def run(text: str, *inputs: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """The outputs of a function whose inputs come first."""
    func = read(text)
    outputs = [np.empty(b.shape, b.dtype) for b in func.buffers[len(inputs) :]]
    interpret(func, *inputs, *outputs)
    return outputs


MATMULS = {
    "spatial loops outside": ("i, j, k in T.grid(12, 10, 9)", "i", "j", "k", "True"),
    "reduction outside": ("k, i, j in T.grid(9, 12, 10)", "i", "j", "k", "True"),
    "ragged tiles": ("io, ko, jo, ki, ji in T.grid(12, 3, 4, 4, 3)", "io", "jo * 3 + ji", "ko * 4 + ki",
                     "jo * 3 + ji < 10 and ko * 4 + ki < 9"),
}  # fmt: skip


@pytest.mark.parametrize("loops", MATMULS)
def test_matmul_under_any_loop_order(loops: str) -> None:
    """A block gives the product however its loops are ordered, tiled and guarded."""
    nest, i, j, k, cond = MATMULS[loops]
    a, b = normal(12, 9), normal(9, 10)
    (c,) = run(
        f"""
@T.prim_func
def matmul(A: T.Buffer((12, 9)), B: T.Buffer((9, 10)), C: T.Buffer((12, 10))):
    for {nest}:
        with T.block("C"):
            vi = T.axis.spatial(12, {i})
            vj = T.axis.spatial(10, {j})
            vk = T.axis.reduce(9, {k})
            T.where({cond})
            with T.init():
                C[vi, vj] = 0.0
            C[vi, vj] += A[vi, vk] * B[vk, vj]
""",
        a,
        b,
    )
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


CONV = """
@T.prim_func
def conv(X: T.Buffer((1, {ci}, {h}, {h})), W: T.Buffer(({co}, {ci}, 3, 3)), Y: T.Buffer((1, {co}, {h}, {h}))):
    P = T.alloc_buffer((1, {ci}, {h} + 2, {h} + 2))
    for n, c, h, w in T.grid(1, {ci}, {h} + 2, {h} + 2):
        with T.block("pad"):
            vn, vc, vh, vw = T.axis.remap("SSSS", [n, c, h, w])
            inside = 1 <= vh and vh < {h} + 1 and 1 <= vw and vw < {h} + 1
            P[vn, vc, vh, vw] = T.if_then_else(inside, X[vn, vc, vh - 1, vw - 1], T.float32(0))
    for n, f, h, w, c, i, j in T.grid(1, {co}, {h}, {h}, {ci}, 3, 3):
        with T.block("conv"):
            vn, vf, vh, vw, vc, vi, vj = T.axis.remap("SSSSRRR", [n, f, h, w, c, i, j])
            with T.init():
                Y[vn, vf, vh, vw] = T.float32(0)
            Y[vn, vf, vh, vw] += P[vn, vc, vh + vi, vw + vj] * W[vf, vc, vi, vj]
"""


def convolve(x: NDArray[np.float32], w: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    height, width = x.shape[2:]
    shifted = [wide[:, :, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return np.einsum("fcs,snchw->nfhw", w.reshape(*w.shape[:2], 9), np.array(shifted))


def test_conv2d_with_padding() -> None:
    """A convolution reads zeros around its input through a lazy conditional."""
    x, w = normal(1, 3, 7, 7), normal(4, 3, 3, 3)
    (y,) = run(CONV.format(ci=3, co=4, h=7), x, w)
    np.testing.assert_allclose(y, convolve(x, w), rtol=1e-4, atol=1e-4)


def test_a_million_statements_take_seconds() -> None:
    """A convolution of more than a million statements is interpreted within ten seconds of processor time."""
    x, w = normal(1, 16, 28, 28), normal(16, 16, 3, 3)
    start = time.process_time()
    (y,) = run(CONV.format(ci=16, co=16, h=28), x, w)
    assert time.process_time() - start < 10
    np.testing.assert_allclose(y, convolve(x, w), rtol=1e-4, atol=1e-3)


def test_max_pool_propagates_nan() -> None:
    """A window that contains NaN has the maximum NaN, any other one its largest element."""
    x = normal(2, 9, 9)
    x[1, 4, 4] = np.nan
    (y,) = run(
        """
@T.prim_func
def pool(X: T.Buffer((2, 9, 9)), Y: T.Buffer((2, 4, 4))):
    for c, h, w, i, j in T.grid(2, 4, 4, 3, 3):
        with T.block("Y"):
            vc, vh, vw, vi, vj = T.axis.remap("SSSRR", [c, h, w, i, j])
            with T.init():
                Y[vc, vh, vw] = T.float32("-inf")
            Y[vc, vh, vw] = T.max(Y[vc, vh, vw], X[vc, vh * 2 + vi, vw * 2 + vj])
""",
        x,
    )
    expected = np.array([[[x[c, 2 * h : 2 * h + 3, 2 * w : 2 * w + 3].max() for w in range(4)] for h in range(4)]
                         for c in range(2)])  # fmt: skip
    assert np.isnan(y).sum() == 4
    np.testing.assert_array_equal(y, expected)


def test_float_sum_has_the_order_of_the_loops() -> None:
    """A sum in float32 is rounded after each addition, in program order, not as NumPy adds."""
    x = (normal(3, 5000) * 1000).astype(np.float32)
    (y,) = run(
        """
@T.prim_func
def row_sum(X: T.Buffer((3, 5000)), Y: T.Buffer((3,))):
    for i, j in T.grid(3, 5000):
        with T.block("Y"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                Y[vi] = 0.0
            Y[vi] = Y[vi] + X[vi, vj]
""",
        x,
    )
    np.testing.assert_array_equal(y, np.cumsum(x, axis=1, dtype=np.float32)[:, -1])


def test_recurrences_run_in_order() -> None:
    """A value that the previous iteration wrote is the one that is read."""
    x = normal(50)
    (y,) = run(
        """
@T.prim_func
def scan(X: T.Buffer((50,)), Y: T.Buffer((50,))):
    Y[0] = X[0]
    for i in range(1, 50):
        Y[i] = X[i] - Y[i - 1] * T.float32(0.5)
""",
        x,
    )
    expected = [x[0]]
    for value in x[1:]:
        expected.append(value - expected[-1] * np.float32(0.5))
    np.testing.assert_array_equal(y, np.array(expected))


def test_init_runs_once_for_each_instance_of_the_block_around() -> None:
    """A block inside another starts its reduction anew whenever the outer one runs."""
    (y,) = run("""
@T.prim_func
def nested(Y: T.Buffer((4, 3))):
    for i in range(4):
        with T.block("outer"):
            vi = T.axis.spatial(4, i)
            total = T.alloc_buffer((3,), scope="local")
            for k, j in T.grid(5, 3):
                with T.block("inner"):
                    vk, vj = T.axis.remap("RS", [k, j])
                    with T.init():
                        total[vj] = T.Cast("float32", vi)
                    total[vj] += 1
            for j in range(3):
                Y[vi, j] = total[j]
""")
    np.testing.assert_array_equal(y, np.arange(4)[:, None] + np.full((4, 3), 5))


def test_vectors_and_aliases() -> None:
    """Ramps read and write several elements, and a declared alias shares memory under another shape."""
    x = normal(4, 8)
    (y,) = run(
        """
@T.prim_func
def vectors(X: T.Buffer((4, 8)), Y: T.Buffer((32,))):
    for i in T.parallel(4):
        tile = T.allocate([8], "float32", scope="local")
        tile[T.Ramp(7, -1, 8)] = T.fma(X[i, T.Ramp(0, 1, 8)], T.Broadcast(T.float32(2), 8), X[i, T.Ramp(0, 1, 8)])
        wide = T.decl_buffer((4, 8), "float32", data=Y.data)
        for j in range(8):
            wide[i, j] = tile[j]
""",
        x,
    )
    np.testing.assert_allclose(y.reshape(4, 8), (3 * x)[:, ::-1], rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("T.exp(x)", np.exp), ("T.log(T.abs(x))", lambda x: np.log(np.abs(x))), ("T.floor(x)", np.floor),
        ("T.rsqrt(T.abs(x))", lambda x: abs(x) ** -0.5), ("T.tanh(x)", np.tanh),
        ("T.sqrt(T.abs(x))", lambda x: abs(x) ** 0.5),
        ("T.sigmoid(x)", lambda x: 1 / (1 + np.exp(-x))), ("T.ceil(x)", np.ceil), ("T.pow(x, 2)", lambda x: x * x),
        ("T.Select(x < 0, -x, x)", np.abs), ("T.min(x, 0)", lambda x: np.minimum(x, 0)),
        ("T.Cast('float32', T.Cast('int32', x * 3))", lambda x: np.trunc(x * 3)), ("x / 3", lambda x: x / 3),
    ],
)  # fmt: skip
def test_math(text: str, function: object) -> None:
    """Every function of the script is NumPy's."""
    data = normal(64)
    (y,) = run(
        f"""
@T.prim_func
def f(X: T.Buffer((64,)), Y: T.Buffer((64,))):
    for i in range(64):
        x = X[i]
        Y[i] = {text}
""",
        data,
    )
    np.testing.assert_allclose(y, function(data.astype(np.float64)), rtol=2e-5, atol=1e-6)  # type: ignore[operator]


@pytest.mark.parametrize("extent", [1, 9])
def test_powers_of_minus_infinity(extent: int) -> None:
    """A power of 0.5 is no square root: IEEE 754 has inf for -inf, whether the exponent is one number or many."""
    (y,) = run(
        f"""
@T.prim_func
def f(X: T.Buffer(({extent},)), Y: T.Buffer(({extent},))):
    for i in range({extent}):
        Y[i] = T.pow(X[i], 0.5)
""",
        np.full(extent, -np.inf, np.float32),
    )
    assert (y == np.inf).all()


def test_erf_and_integer_arithmetic() -> None:
    """Division and modulo floor, types wrap, and erf is the error function."""
    func = read("""
@T.prim_func
def f(A: T.Buffer((9,), "int32"), Q: T.Buffer((9,), "int32"), R: T.Buffer((9,), "int8"), E: T.Buffer((9,))):
    for i in range(9):
        Q[i] = A[i] // -3
        R[i] = T.Cast("int8", A[i]) * 100
        E[i] = T.erf(T.Cast("float32", A[i]) * T.float32(0.25))
""")
    a = np.arange(-4, 5, dtype=np.int32)
    q, r, e = np.zeros(9, np.int32), np.zeros(9, np.int8), np.zeros(9, np.float32)
    interpret(func, a, q, r, e)
    np.testing.assert_array_equal(q, a // -3)
    np.testing.assert_array_equal(r, (a.astype(np.int8) * np.int8(100)))
    np.testing.assert_allclose(e[[4, 8]], [0, 0.8427008], atol=1e-6)


def test_bfloat16_rounds_to_even() -> None:
    """A bfloat16 keeps 8 bits of a float32's fraction, rounded to the nearest."""
    func = read("""
@T.prim_func
def f(X: T.Buffer((3,)), Y: T.Buffer((3,), "bfloat16")):
    for i in range(3):
        Y[i] = T.Cast("bfloat16", X[i])
""")
    y = np.zeros(3, np.uint16)
    interpret(func, np.array([1 + 2**-9, 1 + 3 * 2**-8, np.nan], np.float32), y)
    np.testing.assert_array_equal(y, [0x3F80, 0x3F82, 0x7FC0])


# ---------------------------------------------------------------- misuse

HEAD = "@T.prim_func\ndef f(A: T.Buffer((4,)), B: T.Buffer((4,)), n: T.int64):\n"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("B[i + 1] = A[i]", "`B[i + 1]` writes index 4 of dimension 0, which has extent 4, at i=3"),
        ("B[i] = A[i - 1]", "`A[i - 1]` reads index -1 of dimension 0, which has extent 4, at i=0"),
        ("B[i] = A[i + 1] if i > 2 else 0", "`A[i + 1]` reads index 4 of dimension 0, which has extent 4, at i=3"),
        ("B[i] = B[3 - i]", "`B[3 - i]` is read, but was never written, at i=0"),
        ("B[3 - i] = T.if_then_else(i > 2, B[0], 0)", "`B[0]` is read, but was never written, at i=3"),
        ("B[i] += 1", "`B[i]` is read, but was never written, at i=0"),
        ("B[i] = T.Cast('float32', i // (n - i))", "`i // (n - i)` divides by zero, at i=2"),
        ("T.assume(A[i] < 3)", "the assumption `A[i] < T.float32(3.0)` does not hold, at i=3"),
        ("if T.undef() < A[i]:\n            B[i] = 1", "depends on an undef value"),
        ("B[i] = T.undef()\n        B[T.Cast('int64', B[i])] = 0",
         "the index `T.Cast(\"int64\", B[i])` depends on an undef value"),
        ("with T.block('b'):\n            v = T.axis.spatial(3, i)\n            B[v] = 0",
         "block `b`: iterator `v` = `i` leaves its range [0, 3), at i=3, v=3"),
        ("B[i] = T.call_extern('float32', 'magic', A[i])", "`magic` is no function that can be run here"),
    ],
)  # fmt: skip
def test_misuse_is_refused_with_its_point(body: str, sentence: str) -> None:
    """Whatever the language forbids raises, and says where and in which iteration."""
    func = read(HEAD + "    for i in range(4):\n        " + body)
    with pytest.raises(InterpreterError) as caught:
        interpret(func, np.arange(4, dtype=np.float32), np.zeros(4, np.float32), 2)
    assert sentence in str(caught.value)


def test_assumptions_about_undef_memory_hold() -> None:
    """``A[i] == undef`` says nothing, ``or`` in an assumption is lazy, and a local is gone after its block."""
    func = read(
        HEAD
        + """
    for i in range(4):
        T.assume(A[i] == T.undef())
        T.assume(i < 4 or A[i] == T.float32(7))
        B[i] = A[i]
"""
    )
    b = np.zeros(4, np.float32)
    interpret(func, np.arange(4, dtype=np.float32), b, 0)
    np.testing.assert_array_equal(b, np.arange(4))


PADDED = Layout.parse((3,), "lambda i: [i // 2, i % 2]", "", (2, 2))


@pytest.mark.parametrize(
    ("pad", "value", "sentence"),
    [("", "A[i, j]", "`A[i, j]` is read, but is padding that holds nothing, at i=1, j=1"), ("undef", "A[i, j]", ""),
     ("undef", "1.0 if A[i, j] > 0 else 2.0", "depends on an undef value, at i=1, j=1"), ("0.0", "A[i, j]", "")],
)  # fmt: skip
def test_padding_of_a_parameter(pad: str, value: str, sentence: str) -> None:
    """Padding without a value may not be touched; undef padding may be read, but nothing may depend on it."""
    func = read(f'''
@T.prim_func
def f(A: T.Buffer((2, 2)), B: T.Buffer((2, 2))):
    T.func_attr({{"layouts": {{"A": ((3,), "lambda i: [i // 2, i % 2]", "{pad}")}}}})
    for i, j in T.grid(2, 2):
        B[i, j] = {value}
''')
    arrays = np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)
    if not sentence:
        interpret(func, *arrays)
        assert arrays[1].ravel()[:3].tolist() == [1, 1, 1]
        return
    with pytest.raises(InterpreterError) as caught:
        interpret(func, *arrays)
    assert sentence in str(caught.value)


def test_writing_forbidden_padding_is_refused() -> None:
    """An output's padding without a value must stay untouched."""
    text = """
@T.prim_func
def f(A: T.Buffer((2, 2))):
    T.func_attr({"layouts": {"A": ((3,), "lambda i: [i // 2, i % 2]", "")}})
    for i, j in T.grid(2, 2):
        A[i, j] = 1
"""
    with pytest.raises(InterpreterError, match="is written, but is padding that holds nothing, at i=1, j=1"):
        interpret(read(text), np.zeros((2, 2), np.float32))


def test_arguments_are_checked() -> None:
    """Arguments of the wrong number, kind, shape or dtype, read-only outputs and overlaps are refused by name."""
    func = read(HEAD + "    for i in range(4):\n        B[i] = A[i]")
    good = np.zeros(4, np.float32)
    locked = np.zeros(4, np.float32)
    locked.flags.writeable = False
    cases = [
        ((good,), "`f` takes 3 arguments, but got 1"),
        ((good, [0], 1), "`B` must be a NumPy array, but got list"),
        ((np.zeros(5, np.float32), good, 1), r"`A` has shape \(4,\), but the array has \(5,\)"),
        ((np.zeros(4), good, 1), "`A` has dtype float32, but the array has float64"),
        ((good, locked, 1), "`B` is an output, but the array is read-only"),
        ((good, good, 1), "the arrays `A` and `B` overlap"),
        ((good, good.copy(), 2**70), "does not fit the type int64"),
        ((good, good.copy(), good), "`n` is a scalar of type int64, but got ndarray"),
    ]
    for arguments, sentence in cases:
        with pytest.raises(InterpreterError, match=sentence):
            interpret(func, *arguments)


def test_outputs_need_not_be_contiguous() -> None:
    """A strided output is written in place."""
    wide = np.zeros((4, 2), np.float32)
    interpret(read(HEAD + "    for i in range(4):\n        B[i] = A[i]"), np.arange(4, dtype=np.float32), wide[:, 1], 0)
    np.testing.assert_array_equal(wide, [[0, 0], [0, 1], [0, 2], [0, 3]])


def test_caller_may_vouch_for_outputs() -> None:
    """With ``strict_state=False`` an output holds what the caller put there, and allocations are undef."""
    func = read(HEAD + "    for i in range(4):\n        B[i] += 1")
    b = np.arange(4, dtype=np.float32)
    interpret(func, b.copy(), b, 0, strict_state=False)
    np.testing.assert_array_equal(b, [1, 2, 3, 4])


def test_allocation_inside_a_loop_is_new_each_time() -> None:
    """What one iteration left in its allocation cannot be read by the next, lanes at once or not."""
    func = read(
        HEAD
        + """
    for i in range(4):
        L = T.allocate([2], "float32")
        if i < 1:
            L[0] = A[i]
        B[i] = L[0]
"""
    )
    with pytest.raises(InterpreterError, match=r"`L\[0\]` is read, but was never written, at i=1"):
        interpret(func, np.zeros(4, np.float32), np.zeros(4, np.float32), 0)


def test_declared_alias_must_fit_its_memory() -> None:
    """An alias is no longer than the memory that it names."""
    func = read(HEAD + '    C = T.decl_buffer((5,), "float32", data=B.data)\n    C[4] = 1')
    with pytest.raises(InterpreterError, match="`C` of 20 bytes views `B`, which has 16"):
        interpret(func, np.zeros(4, np.float32), np.zeros(4, np.float32), 0)


def test_layout_value_types() -> None:
    """The layout that the padding tests use is what the script says."""
    func = read(
        '@T.prim_func\ndef f(A: T.Buffer((2, 2))):\n    T.func_attr({"layouts": {"A": ((3,), '
        '"lambda i: [i // 2, i % 2]", "")}})\n    T.evaluate(0)'
    )
    assert func.layouts == (("A", PADDED),) and func.params == (Buffer("A", (2, 2)),)
