"""Random programs over the whole grammar as kernels: what the interpreter says, bit for bit.

Strict kernels round as the program says, so that nothing but the sign of a zero and
the bits of a NaN may differ.  ``STRIDESMITH_TEST_SCALE=25`` runs a thousand programs.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from opencl_programs import device, needs_device
from random_kernels import check
from random_programs import programs
from scale import SCALE, scaled

import stridesmith as ss
from stridesmith.ir.functions import MATH_CALLS, TWO_ARGUMENTS
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.numbers import bfloat16_bits, bfloat16_values
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target

CPU = Target(threads=1, vector_bits=256, registers=16)
QUIET = {
    "deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True,
    "phases": [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
}  # fmt: skip

pytestmark = pytest.mark.timeout(600 * max(1.0, SCALE))  # shrinking a failure takes minutes
refused: Counter[str] = Counter()


@settings(max_examples=scaled(40), **QUIET)
@given(programs(exact=True))
def test_cpu_kernels_compute_what_the_interpreter_does(func: PrimFunc) -> None:
    """LLVM code leaves the interpreter's values in every element that the program defines, and no guard is hit."""
    refused[check(func, CPU)] += 1


@needs_device
@settings(max_examples=scaled(3), **QUIET)
@given(programs(exact=True))
def test_opencl_kernels_compute_what_the_interpreter_does(func: PrimFunc) -> None:
    """OpenCL code does, too."""
    target = device()
    assert target is not None
    refused[check(func, target)] += 1


def test_few_programs_are_refused() -> None:
    """Nine of ten programs of the grammar run on both targets."""
    print(refused)
    assert refused[""] >= 0.9 * sum(refused.values())


# ---------------------------------------------------------------- kernels through the public interface

TARGETS = ["cpu", pytest.param("opencl", marks=needs_device)]


def read(text: str) -> PrimFunc:
    func = ss.parse(f"@T.prim_func\ndef f{text}")
    assert isinstance(func, PrimFunc)
    return func


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_functions_of_every_float_type(target: str, dtype: str) -> None:
    """Each mathematical function is within a few units in the last place of the interpreter's, in every float type."""
    calls = dict.fromkeys(MATH_CALLS, "x") | dict.fromkeys(TWO_ARGUMENTS, "x, x") | {"fma": "x, x, x"}
    values = [f"T.Let(T.{name}({args}), where={{x: X[i]}})" for name, args in calls.items()]
    stores = "\n".join(f"        Y[{n}, i] = {value}" for n, value in enumerate(values))
    func = read(f'''(X: T.Buffer((16,), "{dtype}"), Y: T.Buffer(({len(calls)}, 16), "{dtype}")):
    for i in range(16):
{stores}
''')
    x = np.linspace(0.125, 4.0, 16)
    raw = bfloat16_bits(x.astype(np.float32)) if dtype == "bfloat16" else x.astype(dtype)
    expected = np.zeros((len(calls), 16), raw.dtype)
    interpret(func, raw, expected)
    got = ss.build(func, target)(raw)
    if dtype == "bfloat16":
        got, expected = bfloat16_values(got), bfloat16_values(expected)
    eps = 2.0**-7 if dtype == "bfloat16" else np.finfo(dtype).eps
    np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol=8 * eps, atol=eps)


@pytest.mark.parametrize("target", TARGETS)
def test_sixteen_bit_floats_and_dot_products_of_bytes(target: str) -> None:
    """A float16 product summed in float32, a bfloat16 copy, and int8 products summed in int32, from NumPy arrays."""
    func = read("""(A: T.Buffer((4, 8), "float16"), B: T.Buffer((8,), "bfloat16"), C: T.Buffer((4, 8), "int8"),
  D: T.Buffer((8,), "int8"), Y: T.Buffer((4,)), Z: T.Buffer((8,), "bfloat16"), W: T.Buffer((4,), "int32")):
    for i, k in T.grid(4, 8):
        with T.block("y"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Y[vi] = 0.0
                W[vi] = 0
            Y[vi] += T.Cast("float32", A[vi, vk]) * T.Cast("float32", B[vk])
            W[vi] += T.Cast("int32", C[vi, vk]) * T.Cast("int32", D[vk])
    for j in range(8):
        Z[j] = B[j] + B[j]
""")
    rng = np.random.default_rng(3)
    a, b = rng.integers(-4, 5, (4, 8)).astype(np.float16), rng.integers(-4, 5, 8).astype(np.float32)
    c, d = rng.integers(-128, 128, (4, 8)).astype(np.int8), rng.integers(-128, 128, 8).astype(np.int8)
    y, z, w = ss.build(func, target)(a, bfloat16_bits(b), c, d)
    np.testing.assert_array_equal(y, a.astype(np.float32) @ b)
    np.testing.assert_array_equal(bfloat16_values(z), 2 * b)
    np.testing.assert_array_equal(w, c.astype(np.int32) @ d.astype(np.int32))


@pytest.mark.parametrize("target", TARGETS)
def test_scalars_are_numbers_in_their_range(target: str) -> None:
    """A kernel takes scalars as numbers, in the order of the parameters, and refuses what their type does not hold."""
    func = read("""(X: T.Buffer((8,)), n: T.int8, f: T.bfloat16, flag: T.bool, Y: T.Buffer((8,))):
    for i in range(8):
        if i < T.Cast("int64", n) and flag:
            Y[i] = X[i] * T.Cast("float32", f)
        else:
            Y[i] = 0
""")
    kernel = ss.build(func, target)
    x = np.arange(8, dtype=np.float32)
    assert kernel(x, 3, 1.5, True).tolist() == [0, 1.5, 3, 0, 0, 0, 0, 0]
    assert not kernel(x, np.int8(3), 1.5, False).any()
    for wrong in (128, 1.5, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=f"`n` = {wrong} does not fit the type int8"):
            kernel(x, wrong, 1.5, True)
    with pytest.raises(TypeError, match="`f` is a scalar of type bfloat16, but got list"):
        kernel(x, 3, [1.5], True)


@pytest.mark.parametrize("target", TARGETS)
def test_buffers_of_vectors_have_an_axis_more(target: str) -> None:
    """A buffer of four-vectors is an array with a last axis of four, and a view shows its scalars."""
    func = read("""(A: T.Buffer((3,), "int16x4"), Y: T.Buffer((12,), "int16")):
    v = T.decl_buffer((3,), "int16x4", data=Y.data)
    s = T.decl_buffer((12,), "int16", data=A.data)
    for i in range(3):
        v[i] = A[2 - i]
    Y[0] = s[5]
""")
    a = np.arange(12, dtype=np.int16).reshape(3, 4)
    assert ss.build(func, target)(a).tolist() == [5, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3]


def test_strict_sums_keep_their_order() -> None:
    """A strict kernel adds in the order of the program; the flags of other kernels allow any order."""
    func = read("""(A: T.Buffer((4,)), Y: T.Buffer((1,))):
    Y[0] = ((A[0] + A[1]) + A[2]) + A[3]
""")
    big = np.array([1e8, 1.0, -1e8, 1.0], np.float32)
    assert ss.build(func, "cpu", strict=True)(big).tolist() == [1.0]
    lowered = ss.lower(func, "cpu", strict=True)
    from stridesmith.backends.render.llvm_module import generate

    assert "reassoc" not in generate(lowered, CPU) and "reassoc" in generate(ss.lower(func, "cpu"), CPU)


def test_division_never_traps() -> None:
    """Integer division by -1 wraps around, and lanes that are not chosen may divide by 0."""
    func = read("""(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32"), Y: T.Buffer((8,), "int32")):
    for i in T.vectorized(8):
        Y[i] = T.if_then_else(B[i] != 0, A[i] // B[i] + A[i] % B[i], T.int32(7))
""")
    a = np.array([-(2**31), 5, -5, 7, 7, -7, -7, 1], np.int32)
    b = np.array([-1, 0, 0, 2, -2, 2, -2, 1], np.int32)
    expected = np.zeros(8, np.int32)
    interpret(func, a, b, expected)
    assert expected.tolist() == [-(2**31), 7, 7, 4, -5, -3, 2, 1]
    for target in ("cpu", "opencl") if device() is not None else ("cpu",):
        assert ss.build(func, target)(a, b).tolist() == expected.tolist()


def test_views_of_other_types_are_pointer_casts() -> None:
    """The bits of a float32 are read as int32 and written as two int16, on every target as in the interpreter."""
    func = read("""(A: T.Buffer((4,)), Y: T.Buffer((4,), "int32")):
    bits = T.decl_buffer((4,), "int32", data=A.data)
    halves = T.decl_buffer((8,), "int16", data=Y.data)
    for i in range(4):
        Y[i] = bits[i]
        halves[i * 2] = T.int16(1)
""")
    a = np.array([1.5, -2.0, 0.1, 1e30], np.float32)
    expected = (a.view(np.int32) & ~0xFFFF) | 1
    for target in ("cpu", "opencl") if device() is not None else ("cpu",):
        np.testing.assert_array_equal(ss.build(func, target)(a), expected)
