"""Compiled programs compute what the interpreter does where memory says which element is meant, or a name returns."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from stridesmith import configs
from stridesmith.backends.llvm import python_call
from stridesmith.backends.lower import lower
from stridesmith.backends.passes.prefetch import _runs
from stridesmith.ir.expr import Buffer, Load, Var
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.script.parser import parse
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.verify.rules import verify
from stridesmith.search.calling.kernel import build

MOVING = """
def f(X: T.Buffer((8, 4), "float32"), Y: T.Buffer((8, 4), "float32")):
    for t in range(8):
        with T.block("b"):
            vt = T.axis.spatial(8, t)
            pos = T.alloc_buffer((1,), "int64")
            tmp = T.alloc_buffer((4,), "float32")
            for k in range(4):
                pos[0] = k
                tmp[T.min(T.max(pos[0], 0), 3)] = X[vt, k]
            for q in range(4):
                pos[0] = q
                Y[vt, q] = tmp[T.min(T.max(pos[0], 0), 3)]
"""
AGAIN = """
def f(A: T.Buffer((1,), "int64"), B: T.Buffer((4,), "int64")):
    for i in range(4):
        A[0] = i
        B[i] = T.int64(7)
        if T.Let(x < i + 3, where={x: A[0]}):
            A[0] = T.int64(100)
            B[i] = T.Let(T.if_then_else(x < i + 3, T.int64(1), T.int64(0)), where={x: A[0]})
"""
SQUARE = """
def f(S: T.Buffer((64,), "int64"), D: T.Buffer((16,), "int64")):
    D[0] = T.int64(0)
    for k in T.unroll(4):
        D[T.Ramp(4 * k, 1, 4)] = S[T.Ramp(T.min(T.max(D[0], 0), 40) + k, 4, 4)]
"""


def function(text: str) -> PrimFunc:
    func = parse(f"@T.prim_func\n{text}")
    assert isinstance(func, PrimFunc)
    verify(func)
    return func


@pytest.mark.parametrize("text", [MOVING, AGAIN, SQUARE], ids=["private memory", "a name bound again", "a square"])
def test_what_memory_says_is_looked_up_when_it_is_needed(text: str) -> None:
    """An index that is read twice may be two elements, and a binding of another time another value."""
    func = function(text)
    rng = np.random.default_rng(1)
    arrays = [rng.integers(1, 9, b.shape).astype(b.dtype) for b in func.buffers]
    kernel = build(func)
    names = [argument.name for argument in kernel.inputs]
    given = [a.copy() for a, b in zip(arrays, func.buffers, strict=True) if b.name in names]
    results = [a.copy() for a, b in zip(arrays, func.buffers, strict=True) if b.name not in names]
    kernel(*given, out=results if len(results) > 1 else results[0])
    interpret(func, *arrays)
    wanted = [a for a, b in zip(arrays, func.buffers, strict=True) if b.name not in names]
    for got, right in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(got, right)


def test_nothing_is_fetched_ahead_whose_place_is_loaded() -> None:
    """The place of a later row may lie behind the end of what says where rows are."""
    x, k, rows = Var("x"), Var("k"), Buffer("rows", (8,), "int64")
    assert _runs([x * 64 + k], frozenset({x, k}), {}) is not None
    assert _runs([Load(rows, (x,)) * 64 + k], frozenset({x, k}), {}) is None


def test_a_condition_that_is_read_beside_a_mask_becomes_a_branch() -> None:
    """It would be read also where no lane asks for it, before the begin of its memory."""
    func = function("""
def f(A: T.Buffer((64, 64), "float32"), B: T.Buffer((64,), "float32"), C: T.Buffer((64, 64), "float32")):
    for i in range(64):
        for j in range(4):
            for v in T.vectorized(16, annotations={"mask": True}):
                if j * 16 + v <= i:
                    if B[i - j * 16] > T.float32(0):
                        C[i, j * 16 + v] = A[i, j * 16 + v]
""")
    assert lower(func, configs.target("cpu-avx2"))


TWO = """
def f(x: T.Buffer((4,), "float32"), a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
    for i in range(4):
        a[i] = x[i] + T.float32(1)
        b[i] = x[i] + T.float32(2)
"""


def test_a_call_of_native_code_keeps_what_it_needs() -> None:
    """The kernel that it was taken from may be gone."""
    direct = build(function(TWO)).direct
    if direct is None:
        pytest.skip("there are no such calls with this interpreter")
    gc.collect()
    x, a, b = np.arange(4, dtype=np.float32), np.zeros(4, np.float32), np.zeros(4, np.float32)
    others = [build(function(TWO.replace("f(x", f"f{number}(x"))) for number in range(3)]
    assert direct(x, a, b) and others
    np.testing.assert_array_equal((a, b), (x + 1, x + 2))


def test_inputs_and_outputs_are_counted_apart() -> None:
    """An output among the inputs is refused, also where there are as many arrays as there should be."""
    kernel, x = build(function(TWO)), np.zeros(4, np.float32)
    a, b = np.zeros(4, np.float32), np.zeros(4, np.float32)
    with pytest.raises(TypeError, match="takes 1 inputs"):
        kernel(x, a, out=(b,))
    with pytest.raises(TypeError, match="takes 1 inputs"):
        kernel(out=(x, a, b))
    assert len(kernel(x, out=(a, b))) == 2


def test_a_child_of_a_process_waits_for_no_call_of_its_parents_threads() -> None:
    """What ran there does not run here."""
    direct = build(function(TWO)).direct
    if direct is None:
        pytest.skip("there are no such calls with this interpreter")
    direct.__self__[python_call.BUSY] = 1  # type: ignore[attr-defined]
    python_call._nothing_runs()
    with python_call.held(direct):
        pass
