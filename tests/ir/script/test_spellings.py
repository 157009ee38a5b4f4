"""Spellings of TVM's script that mean what another one means: each pair parses to one program."""

from __future__ import annotations

import numpy as np
import pytest

import stridesmith as ss
from stridesmith.ir.stmt import PrimFunc


def read(params: str, body: str, **given: int | float | str) -> PrimFunc:
    lines = "\n".join("    " + line for line in body.strip("\n").splitlines())
    func = ss.parse(f"@T.prim_func\ndef f({params}):\n{lines}\n", given=given)
    assert isinstance(func, PrimFunc)
    ss.verify(func)
    for dialect in (None, "tvm"):
        assert ss.parse(func.script(dialect=dialect)) == func
    return func


A16 = 'A: T.Buffer((16,), "int32")'
F16 = 'A: T.Buffer((16,), "float32")'
A44 = 'A: T.Buffer((4, 4), "float32")'

PAIRS = [
    # the type of a result, which its operands take
    (F16, "A[0] = T.if_then_else(A[1] > 0.0, 1.0, 2.0, dtype='float32')",
     "A[0] = T.if_then_else(A[1] > 0.0, 1.0, 2.0)"),
    (A16, "A[0] = T.if_then_else(A[1] > 0, 1, 2, dtype='int32')",
     "A[0] = T.if_then_else(A[1] > 0, T.int32(1), T.int32(2))"),
    (A16, "for i in range(16):\n    A[i] = T.shift_left(1, i, dtype='int32')",
     "for i in range(16):\n    A[i] = T.shift_left(T.int32(1), T.Cast('int32', i))"),
    (F16, "A[0] = T.exp(A[1], dtype='float32')", "A[0] = T.exp(A[1])"),
    # operators on bits, and on conditions
    (A16, "A[0] = A[1] << 2", "A[0] = T.shift_left(A[1], 2)"),
    (A16, "A[0] = A[1] >> 2 & 7 | A[2] ^ 1",
     "A[0] = T.bitwise_or(T.bitwise_and(T.shift_right(A[1], 2), 7), T.bitwise_xor(A[2], 1))"),
    (A16, "A[0] = ~A[1]", "A[0] = T.bitwise_not(A[1])"),
    (A16, "if (A[1] > 0) & (A[2] > 0) | ~(A[3] > 0):\n    A[0] = 1",
     "if A[1] > 0 and A[2] > 0 or not A[3] > 0:\n    A[0] = 1"),
    (F16, "A[0] = T.exp10(A[1])", "A[0] = T.pow(T.float32(10), A[1])"),
    (F16, "if T.isnan(A[1]):\n    A[0] = 1.0", "if A[1] != A[1]:\n    A[0] = 1.0"),
    (F16, "if T.isinf(A[1]):\n    A[0] = 1.0", "if T.abs(A[1]) == T.float32('inf'):\n    A[0] = 1.0"),
    (F16, "if T.isfinite(A[1]):\n    A[0] = 1.0", "if T.abs(A[1]) < T.float32('inf'):\n    A[0] = 1.0"),
    # threads
    (F16, "tx = T.env_thread('threadIdx.x')\nT.launch_thread(tx, 16)\nA[tx] = 0.0",
     "for tx in T.thread_binding(16, thread='threadIdx.x'):\n    A[tx] = 0.0"),
    (F16, "tx = T.env_thread('threadIdx.x')\nwith T.launch_thread(tx, 16):\n    A[tx] = 0.0",
     "for tx in T.thread_binding(16, thread='threadIdx.x'):\n    A[tx] = 0.0"),
    (F16, "for v in T.thread_binding(16, thread='vthread.x'):\n    A[v] = 0.0",
     "for v in T.serial(16, annotations={'vthread': 'vthread.x'}):\n    A[v] = 0.0"),
    # buffers
    (A44, "B = T.Buffer((16,), 'float32', data=A.data)\nB[3] = 0.0",
     "B = T.decl_buffer((16,), 'float32', data=A.data)\nB[3] = 0.0"),
    (A44, "D = T.allocate([20], 'float32')\nB = T.decl_buffer([4, 4], data=D, strides=[5, 1])\nB[1, 2] = 0.0",
     "D = T.allocate([20], 'float32')\nB = T.decl_buffer([4, 5], 'float32', data=D)\nB[1, 2] = 0.0"),
    (A44, "D = T.allocate_const([1, 2.5], 'float32', [2])\nA[0, 0] = D[1]",
     "D = T.allocate([2], 'float32')\nD[0] = 1.0\nD[1] = 2.5\nA[0, 0] = D[1]"),
    ("a: T.handle, b: T.handle",
     "A = T.match_buffer(a, (4,))\nC = T.alloc_buffer((4,))\nB = T.match_buffer(b, (4,))\nC[0] = A[0]\nB[0] = C[0]",
     "A = T.match_buffer(a, (4,))\nB = T.match_buffer(b, (4,))\nC = T.alloc_buffer((4,))\nC[0] = A[0]\nB[0] = C[0]"),
    ("a: T.handle('float32')", "A = T.decl_buffer((4,), 'float32', data=a)\nA[0] = 1.0",
     "b: T.handle('float32') = a\nA = T.decl_buffer((4,), 'float32', data=b)\nA[0] = 1.0"),
    ("a: T.handle('float32'), n: T.int32", "A = T.decl_buffer([n], 'float32', data=a)\nA[0] = 1.0",
     "m = n\nA = T.decl_buffer([m], 'float32', data=a)\nA[0] = 1.0"),
    ("a: T.handle, n: T.int32", "A = T.match_buffer(a, (1, 4))\nA[0, 1] = 1.0",
     "A = T.match_buffer(a, (1, 4), strides=[n, 1])\nA[0, 1] = 1.0"),
    # regions under names of their own
    (A44, "with T.block('b'):\n    i = T.axis.spatial(4, 0)\n    W = T.match_buffer(A[i, 1], [])\n    W[()] = 1.0",
     "with T.block('b'):\n    i = T.axis.spatial(4, 0)\n    A[i, 1] = 1.0"),
    (A44, "for i in range(4):\n    W = T.match_buffer(A[i, 0:3], (3,))\n    for j in range(3):\n        W[j] = 1.0",
     "for i in range(4):\n    for j in range(3):\n        A[i, j] = 1.0"),
    (A44, "for i in T.serial(T.int32(2)):\n    W = T.match_buffer(A[i * 2:i * 2 + 2, 0:4], (2, 4))\n"
     "    for j in T.serial(T.int32(2)):\n        W[j, 3] = 1.0",
     "for i in T.serial(T.int32(2)):\n    for j in T.serial(T.int32(2)):\n        A[i * 2 + j, 3] = 1.0"),
    (A44, "s = T.int32()\no = T.int32()\nW = T.match_buffer(A[1:3, 2:4], (2, 2), strides=[s, 1], elem_offset=o)\n"
     "T.call_packed('f', W.data, W.elem_offset, W.strides[0], A.elem_offset, s, o)",
     "T.call_packed('f', A.data, T.int64(6), T.int64(4), T.int64(0), T.int32(4), T.int32(6))"),
    (A44, "T.call_packed('f', A.data, 5, -5, -2147483648, -2147483649)",
     "T.call_packed('f', A.data, T.int32(5), T.int32(-5), T.int32(-2147483648), T.int64(-2147483649))"),
    ("a: T.handle",
     "s = T.int32()\no = T.int32()\nA = T.match_buffer(a, (4, 4), strides=[s, 1], elem_offset=o, offset_factor=4)\n"
     "A[0, 0] = T.Cast('float32', s + o)",
     "A = T.match_buffer(a, (4, 4))\nA[0, 0] = T.Cast('float32', T.int32(4) + T.int32(0))"),
    (A44, "W = T.match_buffer(A[1:3, 2:4], (2, 2))\nW[0, 1] = W[1, 0]", "A[1 + 0, 2 + 1] = A[1 + 1, 2 + 0]"),
]  # fmt: skip


@pytest.mark.parametrize(("params", "one", "other"), PAIRS)
def test_a_spelling_means_another(params: str, one: str, other: str) -> None:
    """Both texts give one program, whose own text parses to it again in both dialects."""
    assert read(params, one) == read(params, other)


def test_types_and_extents_come_from_outside() -> None:
    """A text is a template: names for types and numbers that it does not define are given with it."""
    text = ("@T.prim_func\ndef f(A: T.Buffer((N,), dtype), x: dtype):\n"
            "    for i in range(N):\n        A[i] = T.cast(i, dtype) + x")  # fmt: skip
    for dtype, extent in (("float32", 4), ("int8", 7)):
        func = ss.parse(text, given={"dtype": dtype, "N": extent})
        assert isinstance(func, PrimFunc)
        array = np.zeros(extent, dtype)
        ss.interpret(func, array, 3)
        assert array.tolist() == [i + 3 for i in range(extent)]
    with pytest.raises(ss.ScriptError, match="unknown dtype `dtype`"):
        ss.parse(text, given={"N": 4})


@pytest.mark.parametrize(
    ("params", "body", "sentence"),
    [
        (F16, "A[0] = T.if_then_else(A[1] > 0.0, True, False, dtype='float32')", "gives a bool, but `dtype` is"),
        (F16, "T.launch_thread('threadIdx.x', 4)", "the launch binds no name"),
        (F16, "tx = T.env_thread('threadIdx.q')", "`thread=` must be one of"),
        (F16, "D = T.allocate_const([1, 2], 'float32', [3])\nA[0] = D[0]", "`D` has 3 elements, but 2 values"),
        (A44, "W = T.match_buffer(A[0, 0:3], (2,))\nW[0] = 1.0",
         "the region `A[0, 0:3]` has the extents (1, 3), and `W` has others"),
        (A44, "W = T.match_buffer(A[0, 0:3], (3,))\nW[0, 0] = 1.0", "has 1 dimensions, but 2 indices are given"),
        (A44, "W = T.match_buffer(A[0, 0:3], (3,))\nA[0, 0] = W", "the region `W` needs indices here"),
        (A44, "D = T.decl_buffer((4, 4), strides=[8, 2])\nD[0, 0] = 1.0", "differ from the dense ones"),
        (A44, "W = T.match_buffer(A[0, 0:3], (3,))\nA[0, 0] = W.strides[1]", "`W.strides` has 1 axes"),
        (A44, "A[0, 0] = T.Cast('float32', A.rank)", "`A.rank` is not an expression of the script"),
        (F16, "A[0] = A[1] & 3", "is not defined for the type float32"),
    ],
)  # fmt: skip
def test_spellings_that_mean_nothing_are_refused(params: str, body: str, sentence: str) -> None:
    """Each refusal says what is wrong."""
    with pytest.raises((ss.ScriptError, ss.VerifyError)) as caught:
        read(params, body)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("name", "reference"),
    [("tan", np.tan), ("asin", np.arcsin), ("acos", np.arccos), ("sinh", np.sinh), ("cosh", np.cosh),
     ("asinh", np.arcsinh), ("atanh", np.arctanh), ("exp2", np.exp2), ("log2", np.log2), ("log10", np.log10),
     ("log1p", np.log1p), ("trunc", np.trunc), ("exp10", lambda x: 10.0**x)],
)  # fmt: skip
def test_functions_are_those_of_numpy(name: str, reference: np.ufunc) -> None:
    """What the interpreter computes in float64 is what NumPy does."""
    func = ss.parse(f"@T.prim_func\ndef f(X: T.Buffer((8,), 'float64'), Y: T.Buffer((8,), 'float64')):\n"
                    f"    for i in range(8):\n        Y[i] = T.{name}(X[i])")  # fmt: skip
    x, y = np.linspace(0.0625, 0.9375, 8), np.zeros(8)
    ss.interpret(func, x, y)
    np.testing.assert_allclose(y, reference(x), rtol=1e-14)


def test_halves_are_rounded_away_from_zero_by_round_alone() -> None:
    """`T.round` takes 0.5 to 1 and -2.5 to -3, where `T.nearbyint` takes the even neighbour."""
    func = ss.parse("@T.prim_func\ndef f(X: T.Buffer((6,)), Y: T.Buffer((2, 6))):\n    for i in range(6):\n"
                    "        Y[0, i] = T.round(X[i])\n        Y[1, i] = T.nearbyint(X[i])")  # fmt: skip
    x, y = np.asarray([0.5, -0.5, 1.5, -2.5, 0.49999997, 8388609.0], "float32"), np.zeros((2, 6), "float32")
    ss.interpret(func, x, y)
    assert y[0].tolist() == [1, -1, 2, -3, 0, 8388609] and y[1].tolist() == [0, 0, 2, -2, 0, 8388609]
