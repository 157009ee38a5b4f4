"""Kernels on every device that is here compute what the interpreter does, where arithmetic and memory have corners."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import stridesmith as ss
from stridesmith.backends.artifact import Argument
from stridesmith.backends.data import pack, padding
from stridesmith.backends.devices import listing
from stridesmith.backends.errors import CodegenError
from stridesmith.backends.host import host_cpu
from stridesmith.ir.interpreter.interpret import interpret
from stridesmith.ir.layout.layout import Layout
from stridesmith.ir.numbers import bfloat16_bits, bfloat16_values, boundary_dtype
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target
from stridesmith.space.schedule import Schedule

DEVICES = [pytest.param(device.target, id=device.selector) for device in listing()]
on_devices = pytest.mark.parametrize("target", DEVICES)


def read(text: str) -> PrimFunc:
    func = ss.parse(f"@T.prim_func\ndef f{text}")
    assert isinstance(func, PrimFunc)
    return func


def agree(func: PrimFunc, target: Target, *inputs: Any) -> list[np.ndarray[Any, Any]]:
    """The outputs, which are the last parameters and hold 0 before, after a check that they are the interpreter's."""
    kernel = ss.build(func, target, strict=True)
    wanted = [np.zeros(a.physical_shape, boundary_dtype(a.dtype)) for a in kernel.outputs]
    interpret(func, *(np.copy(x) for x in inputs), *wanted)
    got = kernel(*inputs)
    got = list(got) if isinstance(got, tuple) else [got]
    for mine, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(mine, other)
        if mine.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(mine), np.signbit(other) | (np.isnan(other) & np.signbit(mine)))
    return got


# ---------------------------------------------------------------- order and memory


@on_devices
def test_the_extent_of_a_loop_is_read_once(target: Target) -> None:
    """A loop makes as many iterations as its extent says when it begins, whatever its body stores."""
    func = read("""(X: T.Buffer((1,), "int64"), N: T.Buffer((1,), "int64"), C: T.Buffer((16,), "int32")):
    N[0] = X[0]
    for i in T.serial(16):
        C[i] = 0
    for i in T.serial(T.min(N[0], T.int64(16))):
        C[i] = C[i] + 1
        N[0] = N[0] - 1
""")
    n, c = agree(func, target, np.array([8]))
    assert n[0] == 0
    assert list(c) == [1] * 8 + [0] * 8


@on_devices
def test_what_was_true_of_memory_holds_until_it_is_written(target: Target) -> None:
    """A condition on memory that the program writes is asked again after it."""
    func = read("""(X: T.Buffer((1,), "int64"), N: T.Buffer((1,), "int64"), C: T.Buffer((16,), "int32")):
    N[0] = X[0]
    for i in T.serial(T.min(N[0], T.int64(16))):
        N[0] = N[0] - 1
        if i < T.min(N[0], T.int64(16)):
            C[i] = 1
    if N[0] < 5:
        N[0] = N[0] + 10
        if N[0] < 5:
            C[15] = 7
""")
    _, c = agree(func, target, np.array([8]))
    assert list(c) == [1] * 4 + [0] * 12


@on_devices
@pytest.mark.parametrize("lanes", [1, 4])
def test_a_value_is_bound_before_its_memory_changes(target: Target, lanes: int) -> None:
    """What `T.let` binds is what memory held then."""
    func = read(f"""(X: T.Buffer((4,), "int64"), N: T.Buffer((4,), "int64"), C: T.Buffer((4,), "int64")):
    for i in T.{"vectorized" if lanes > 1 else "serial"}(4):
        N[i] = X[i]
        with T.LetStmt(N[i]) as v:
            N[i] = N[i] + 1
            if N[i] == v:
                C[i] = 5
            else:
                C[i] = v
""")
    agree(func, target, np.arange(4))


@on_devices
def test_elements_that_a_program_does_not_write_stay_as_they_are(target: Target) -> None:
    """New outputs hold 0 there whatever an earlier call left, and given ones what they held."""
    some = ss.build(read("""(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(8):
        if A[i] > T.float32(0):
            C[i] = A[i]
"""), target)  # fmt: skip
    ones = np.ones(8, "float32")
    assert list(some(ones)) == [1] * 8
    assert list(some(-ones)) == [0] * 8
    given = np.full(8, 7, "float32")
    assert some(np.array([1, -1] * 4, "float32"), out=given) is given
    assert list(given) == [1, 7] * 4


@on_devices
def test_unrolled_updates_through_a_view_keep_their_order(target: Target) -> None:
    """A view with other elements shares bytes with its memory at other indices, so that loops do not change places."""
    func = read("""(X: T.Buffer((8,), "int16"), Y: T.Buffer((4,), "int16"), A: T.Buffer((8,), "int16")):
    V = T.decl_buffer((16,), "int8", data=A.data)
    for k in T.serial(8):
        A[k] = X[k]
    for i in T.unroll(2):
        for j in T.unroll(4):
            A[i * 4 + j] = T.Cast("int16", V[i * 4 + j]) + Y[j]
""")
    rng = np.random.default_rng(0)
    agree(func, target, rng.integers(-9999, 9999, 8, "int16"), rng.integers(-99, 99, 4, "int16"))


@on_devices
def test_padding_of_bfloat16_is_packed_as_bits(target: Target) -> None:
    """A pad value of minus infinity never is the greatest."""
    sch = Schedule(read("""(A: T.Buffer((14,), "bfloat16"), C: T.Buffer((1,), "bfloat16")):
    with T.block("root"):
        T.reads()
        T.writes()
        C[0] = T.bfloat16(-1000)
        for i in T.serial(14):
            C[0] = T.max(C[0], A[i])
"""))  # fmt: skip
    sch.transform_layout("root", "A", "lambda i: [i // 4, i % 4]", float("-inf"))
    sch.sequential_buffer_access("root", "A")
    sch.remove_branching_through_overcompute("root")
    kernel = ss.build(sch.func, target, {"A": "constant"})
    given = bfloat16_bits(-np.arange(1, 15, dtype="float32"))
    assert bfloat16_values(kernel(given)) == [-1]


def test_padding_of_bfloat16_by_an_expression_is_packed_as_bits() -> None:
    """A pad value that depends on the indices is rounded to bfloat16, as a stored value is."""
    text = "lambda io, ii: T.if_then_else(ii == 2, T.bfloat16(-2.5), T.Cast('bfloat16', io) * T.bfloat16(0.5))"
    argument = Argument("A", Layout.parse((14,), "lambda i: [i // 4, i % 4]", text, (4, 4)), "bfloat16")
    assert list(bfloat16_values(padding(argument, pack(argument, np.zeros(14, "uint16"))))) == [-2.5, 1.5]


# ---------------------------------------------------------------- arithmetic

SPECIAL = np.array([0, -0.0, 1, -1, 5, -5, 0.1, -0.1, 7.5, np.inf, -np.inf, np.nan, 1e-3, 3e4, -3e4, 0.3], "float32")


@pytest.mark.parametrize("kind", ["serial", "vectorized"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_division_of_floats_that_rounds_down(dtype: str, kind: str) -> None:
    """``//`` and ``%`` of floats are NumPy's, infinities, zeros and quotients that round up included."""
    func = read(f"""(A: T.Buffer((256,), "{dtype}"), B: T.Buffer((256,), "{dtype}"),
                    Q: T.Buffer((256,), "{dtype}"), R: T.Buffer((256,), "{dtype}")):
    for o in range(16):
        for i in T.{kind}(16):
            Q[o * 16 + i] = A[o * 16 + i] // B[o * 16 + i]
            R[o * 16 + i] = A[o * 16 + i] % B[o * 16 + i]
""")
    pairs = np.repeat(SPECIAL, 16), np.tile(SPECIAL, 16)
    inputs = [bfloat16_bits(x) if dtype == "bfloat16" else x.astype(dtype) for x in pairs]
    if dtype != "bfloat16":
        with np.errstate(all="ignore"):
            agree(func, host_cpu(), *inputs)
        return
    kernel, wanted = ss.build(func, host_cpu(), strict=True), [np.zeros(256, "uint16") for _ in range(2)]
    with np.errstate(all="ignore"):
        interpret(func, *inputs, *wanted)
    for mine, other in zip(kernel(*inputs), wanted, strict=True):
        np.testing.assert_array_equal(bfloat16_values(mine), bfloat16_values(other))


@on_devices
@pytest.mark.parametrize("kind", ["serial", "vectorized"])
@pytest.mark.parametrize("wanted", ["int8", "uint8", "int16", "int32", "int64"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_become_integers(target: Target, dtype: str, wanted: str, kind: str) -> None:
    """Towards zero, to the nearest end of the type, and NaN to 0."""
    if dtype == "float64" and target.kind == "opencl" and "cl_khr_fp64" not in target.features.split():
        pytest.skip("the device has no float64")
    func = read(f"""(A: T.Buffer((16,), "{dtype}"), C: T.Buffer((16,), "{wanted}")):
    for i in T.{kind}(16):
        C[i] = T.Cast("{wanted}", A[i])
""")
    agree(func, target, np.concatenate([SPECIAL[1:], [-np.nan]]).astype(dtype))


@on_devices
@pytest.mark.parametrize("kind", ["serial", "vectorized"])
def test_sums_and_products_of_bools(target: Target, kind: str) -> None:
    """They are bools: ``or`` and ``and``, a byte of 0 or 1 in memory."""
    func = read(f"""(A: T.Buffer((4,), "bool"), B: T.Buffer((4,), "bool"),
                    S: T.Buffer((4,), "bool"), P: T.Buffer((4,), "bool"), M: T.Buffer((4,), "int32")):
    for i in T.{kind}(4):
        S[i] = A[i] + B[i]
        P[i] = A[i] * B[i]
        M[i] = T.Cast("int32", A[i] + B[i])
""")
    s, p, m = agree(func, target, np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool))
    assert list(s.view(np.uint8)) == [0, 1, 1, 1]
    assert list(p.view(np.uint8)) == [0, 0, 0, 1]
    assert list(m) == [0, 1, 1, 1]


@on_devices
@pytest.mark.parametrize("kind", ["serial", "vectorized"])
@pytest.mark.parametrize("name", ["sigmoid", "exp", "tanh", "erf", "rsqrt"])
def test_functions_of_float16_are_rounded_once(target: Target, name: str, kind: str) -> None:
    """What lies within float16 comes out, whatever would overflow on the way."""
    func = read(f"""(A: T.Buffer((32,), "float16"), C: T.Buffer((32,), "float16")):
    for i in T.{kind}(32):
        C[i] = T.{name}(A[i])
""")
    values = np.linspace(-16, 11, 32) if name != "rsqrt" else np.logspace(-7, 4.8, 32)
    given, wanted = values.astype("float16"), np.zeros(32, "float16")
    interpret(func, given, wanted)
    np.testing.assert_allclose(ss.build(func, target)(given), wanted, rtol=4e-3, atol=1.3e-7)


# ---------------------------------------------------------------- what code generation meets


@on_devices
@pytest.mark.parametrize(
    "body",
    ["for i in T.serial(0):\n        C[i] = A[i]", "for i in range(8):\n        if i > 9:\n            C[i] = A[i]"],
    ids=["no iteration", "never"],
)
def test_a_program_that_stores_nothing(target: Target, body: str) -> None:
    """It is built, and its calls leave everything as it is."""
    func = read(f'(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):\n    {body}\n')
    assert list(ss.build(func, target)(np.ones(8, "float32"), out=np.full(8, 7, "float32"))) == [7] * 8


@pytest.mark.parametrize("lanes", [48, 272])
def test_conditions_on_more_lanes_than_a_register_has_bits(lanes: int) -> None:
    """They are code for the widest of vectors."""
    func = read(f"""(A: T.Buffer((30, {lanes}), "int8"), C: T.Buffer((30, {lanes}), "int8")):
    for o in range(30):
        for i in T.vectorized({lanes}):
            C[o, i] = T.Select(i < o * 7, A[o, i], T.int8(0))
""")
    target = replace(host_cpu(), vector_bits=128)
    agree(func, target, np.arange(30 * lanes).astype("int8").reshape(30, lanes))


@pytest.mark.parametrize("value", ['T.Cast("float32", H[i])', 'T.Cast("float32", T.Cast("float16", X[i]))'])
def test_float16_without_instructions_for_it_is_refused(value: str) -> None:
    """On an x86 without F16C a sentence says that the conversions are missing; float16 that is moved needs none."""
    host = host_cpu()
    if host.isa not in ("sse2", "avx", "avx2", "avx512"):
        pytest.skip("not an x86")
    old = replace(host, isa="sse2", cpu="x86-64", features="+sse2", vector_bits=128)
    func = read(f"""(X: T.Buffer((8,), "float32"), H: T.Buffer((8,), "float16"), C: T.Buffer((8,), "float32")):
    for i in range(8):
        C[i] = X[i] + {value}
""")
    with pytest.raises(CodegenError, match="F16C"):
        ss.build(func, old)
    moved = ss.build(read("""(H: T.Buffer((8,), "float16"), C: T.Buffer((8,), "float16")):
    for i in range(8):
        C[i] = H[i]
"""), old)  # fmt: skip
    given = np.arange(8).astype("float16")
    assert list(moved(given)) == list(given)
