"""OpenCL kernels compute what NumPy computes, stay inside their memory, and travel as data."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from opencl_programs import GUARD, bound, device, fresh, lowered, matmul_tile, needs_device, run

from stridesmith.ir.expr import (
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Not,
    Ramp,
    Select,
    Var,
    binary,
    const,
    if_then_else,
    maximum,
    minimum,
)
from stridesmith.ir.stmt import Allocate, For, If, Let, Seq, Stmt, Store, loops, seq

pytestmark = needs_device

I, J = Var("i"), Var("j")  # noqa: E741
RNG = np.random.default_rng(0)


def mapped(exprs: list[Expr], inputs: dict[Buffer, np.ndarray], size: int, lanes: int = 1) -> list[np.ndarray]:
    """Each expression of `i` stored to a buffer of its own; with lanes, `i` runs over vectors."""
    outputs = [Buffer(f"out{k}", (size,), e.dtype.split("x")[0]) for k, e in enumerate(exprs)]
    at = I if lanes == 1 else Ramp(I * lanes, const(1), lanes)
    body = loops([(I, size // lanes)], seq([Store(o, (at,), e) for o, e in zip(outputs, exprs, strict=True)]))
    result = run(body, inputs, *outputs)
    return [result] if len(outputs) == 1 else result


SPECIAL = np.array([0.0, -0.0, 1.5, -2.5, np.nan, np.inf, -np.inf, 3e38], np.float32)


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 5, 8, 16, 24])
def test_float_arithmetic_and_extrema(lanes: int) -> None:
    """+ - * / min max agree with NumPy for every vector length; min and max propagate NaN from either side."""
    target = device()
    if target is not None and 32 * lanes > target.max_vector_bits:
        pytest.skip("the driver computes wrong results with vectors of this length")
    a, b = Buffer("a", (960,)), Buffer("b", (960,))
    x, y = RNG.standard_normal((2, 960)).astype(np.float32)
    x[:64], y[:64] = np.repeat(SPECIAL, 8), np.tile(SPECIAL, 8)
    at = (I,) if lanes == 1 else (Ramp(I * lanes, const(1), lanes),)
    left, right = Load(a, at), Load(b, at)
    zero = const(0.0) if lanes == 1 else Broadcast(const(0.0), lanes)
    exprs = [binary(op, left, right) for op in ("+", "-", "*", "/", "min", "max")]
    exprs += [maximum(left, zero), minimum(zero, left), left * right + left]
    got = mapped(exprs, {a: x, b: y}, 960, lanes)
    with np.errstate(all="ignore"):
        want = [x + y, x - y, x * y, x / y, np.minimum(x, y), np.maximum(x, y), np.maximum(x, 0), np.minimum(x, 0)]
        for g, w in zip(got, want, strict=False):
            np.testing.assert_allclose(g, w, rtol=1e-6)
        np.testing.assert_allclose(got[-1], x * y + x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("dtype", "lanes"), [("float32", 16), ("float64", 2), ("float64", 4), ("float64", 8)])
def test_extrema_of_whole_registers(dtype: str, lanes: int) -> None:
    """NaN where either operand is, infinities, and the greater and the lesser of all others."""
    target = device()
    if target is not None and 8 * np.dtype(dtype).itemsize * lanes > target.max_vector_bits:
        pytest.skip("the driver computes wrong results with vectors of this length")
    count = 8 * SPECIAL.size**2
    a, b = Buffer("a", (count,), dtype), Buffer("b", (count,), dtype)
    x, y = np.repeat(SPECIAL, count // SPECIAL.size).astype(dtype), np.resize(SPECIAL, count).astype(dtype)
    at = (Ramp(I * lanes, const(1), lanes),)
    exprs = [binary(op, Load(a, at), Load(b, at)) for op in ("min", "max")]
    for got, want in zip(mapped(exprs, {a: x, b: y}, count, lanes), (np.minimum(x, y), np.maximum(x, y)), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_integers_wrap_and_divide_with_floor(dtype: str) -> None:
    """Integers wrap around; // and % round towards minus infinity for every sign."""
    a, b = Buffer("a", (240,), dtype), Buffer("b", (240,), dtype)
    info = np.iinfo(dtype)
    x = RNG.integers(max(info.min, -(2**31)), min(info.max, 2**31 - 1), 240, dtype, endpoint=True)
    y = RNG.integers(max(-9, info.min), 9, 240, dtype, endpoint=True)
    y[y == 0] = 3
    left, right = a[I], b[I]
    ops = ["+", "-", "*", "//", "%", "min", "max"]
    got = mapped([binary(op, left, right) for op in ops], {a: x, b: y}, 240)
    want = [x + y, x - y, x * y, x // y, x % y, np.minimum(x, y), np.maximum(x, y)]
    for op, g, w in zip(ops, got, want, strict=True):
        np.testing.assert_array_equal(g, w.astype(dtype), err_msg=f"{dtype} {op}")


def test_integer_vectors() -> None:
    """int32 vectors add, multiply and compare, whole and in pieces."""
    a = Buffer("a", (120,), "int32")
    x = RNG.integers(-1000, 1000, 120, np.int32)
    for lanes in (4, 12):
        value = Load(a, (Ramp(I * lanes, const(1), lanes),))
        seven = Broadcast(const(7, "int32"), lanes)
        zero = Broadcast(const(0, "int32"), lanes)
        exprs = [value * seven + value, maximum(value, zero), binary("//", value, seven), binary("%", value, seven)]
        got = mapped(exprs, {a: x}, 120, lanes)
        for g, w in zip(got, [x * 8, np.maximum(x, 0), x // 7, x % 7], strict=True):
            np.testing.assert_array_equal(g, w)


def test_index_arithmetic_of_negative_values() -> None:
    """// and % of index expressions that may be negative are corrected, others need no correction."""
    shifted = I - 13
    exprs = [shifted // 4, shifted % 4, I // 4, I % 4, minimum(shifted, 2) * 3, maximum(shifted, -2)]
    got = mapped(exprs, {}, 40)
    i = np.arange(40)
    want = [(i - 13) // 4, (i - 13) % 4, i // 4, i % 4, np.minimum(i - 13, 2) * 3, np.maximum(i - 13, -2)]
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)


def test_conditions() -> None:
    """Comparisons, and, or, not, select and the lazy conditional; also lane by lane."""
    a = Buffer("a", (14,))
    x = RNG.standard_normal(14).astype(np.float32)
    inside = binary("and", I >= 1, I < 15)
    exprs: list[Expr] = [
        if_then_else(inside, a[I - 1], -1.0),
        Select(binary("or", Not(inside), I.equal(7)), const(1.0), const(2.0)),
        Cast("float32", binary(">", I, 7)),
    ]
    got = mapped(exprs, {a: x}, 16)
    i = np.arange(16)
    padded = np.concatenate([[-1], x, [-1]]).astype(np.float32)
    want = [padded, np.where((i < 1) | (i >= 15) | (i == 7), 1.0, 2.0), (i > 7).astype(np.float32)]
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)
    lanes = Ramp(I * 8, const(1), 8)
    low, high = Broadcast(const(1), 8), Broadcast(const(15), 8)
    mask = Binary("and", Binary(">=", lanes, low), Binary("<", lanes, high))
    shifted = Load(a, (Ramp(I * 8 - 1, const(1), 8),))
    value = Call("if_then_else", (mask, shifted, Broadcast(const(-1.0), 8)), "float32x8")
    np.testing.assert_array_equal(mapped([value], {a: x}, 16, 8)[0], padded)


def test_a_float_mask_selects_by_lane() -> None:
    """A vector comparison chooses each lane on its own, NaN comparing false."""
    a = Buffer("a", (16,))
    x = np.tile(SPECIAL, 2)
    value = Load(a, (Ramp(I * 8, const(1), 8),))
    zero = Broadcast(const(0.0), 8)
    got = mapped([Select(Binary(">", value, zero), value, zero)], {a: x}, 16, 8)[0]
    np.testing.assert_array_equal(got, np.where(x > 0, x, 0))


@pytest.mark.parametrize("dtype", ["float32", "int8", "float16", "float64"])
@pytest.mark.parametrize(("stride", "lanes"), [(2, 8), (3, 8), (-1, 8), (-2, 4), (2, 6), (5, 4), (0, 8)])
def test_lanes_with_a_stride(dtype: str, stride: int, lanes: int) -> None:
    """Picked out of vectors or read one by one; the memory ends with the last lane, between guards."""
    count = 4
    first = max(0, -stride * (count * lanes - 1))
    a = Buffer("a", (abs(stride) * (count * lanes - 1) + 1,), dtype)
    x = RNG.integers(-100, 100, a.shape).astype(dtype)
    value = Load(a, (Ramp(I * (lanes * stride) + first, const(stride), lanes),))
    got = mapped([value], {a: x}, count * lanes, lanes)[0]
    np.testing.assert_array_equal(got, x[first + stride * np.arange(count * lanes)])


REFERENCE = {
    "exp": np.exp, "log": lambda x: np.log(np.abs(x)), "sqrt": lambda x: np.sqrt(np.abs(x)),
    "rsqrt": lambda x: 1 / np.sqrt(np.abs(x)), "tanh": np.tanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf), "abs": np.abs, "floor": np.floor, "ceil": np.ceil,
    "sin": np.sin, "cos": np.cos, "atan": np.arctan,
}  # fmt: skip


@pytest.mark.parametrize(("dtype", "lanes"), [("float32", 1), ("float32", 8), ("float32", 6), ("float64", 4)])
def test_math_functions(dtype: str, lanes: int) -> None:
    """Each function agrees with float64 NumPy to a few units in the last place."""
    a = Buffer("a", (240,), dtype)
    x = (RNG.standard_normal(240) * 5).astype(dtype)
    at = I if lanes == 1 else Ramp(I * lanes, const(1), lanes)
    kind = dtype if lanes == 1 else f"{dtype}x{lanes}"
    value = Load(a, (at,))
    positive = Call("abs", (value,), kind)
    exprs = [Call(n, (positive if n in ("log", "sqrt", "rsqrt") else value,), kind) for n in REFERENCE]
    exprs += [Call("pow", (positive, value), kind), Call("fma", (value, value, positive), kind)]
    got = mapped(exprs, {a: x}, 240, lanes)
    wide = x.astype(np.float64)
    want = [fn(wide) for fn in REFERENCE.values()] + [np.abs(wide) ** wide, wide * wide + np.abs(wide)]
    tolerance = 5e-6 if dtype == "float32" else 1e-13
    for name, g, w in zip([*REFERENCE, "pow", "fma"], got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=tolerance, atol=1e-7 if dtype == "float32" else 1e-15, err_msg=name)


@pytest.mark.parametrize("lanes", [1, 8])
def test_exponentials_of_all_sizes(lanes: int) -> None:
    """Within two units in the last place from the least normal number to the largest; 0, infinity and NaN beyond."""
    ends = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, 88.8, -88.0, -104.0, -1e30, 1e30], np.float32)
    x = np.concatenate([np.linspace(-87.3, 88.7, 4096 - len(ends), dtype=np.float32), ends])
    a = Buffer("a", x.shape, "float32")
    at = I if lanes == 1 else Ramp(I * lanes, const(1), lanes)
    value = Call("exp", (Load(a, (at,)),), "float32" if lanes == 1 else f"float32x{lanes}")
    (got,) = mapped([value], {a: x}, len(x), lanes)
    inside, (*normal, low, least, last, high) = got[: -len(ends)], got[-len(ends) :]
    exact = np.exp(x[: -len(ends)].astype(np.float64))
    assert (np.abs(inside - exact) <= 2 * np.spacing(exact.astype(np.float32))).all()
    np.testing.assert_array_equal(normal, [np.nan, np.inf, 0.0, 1.0, 1.0, 1.0, np.inf])
    assert 0 <= low < 1e-37 and least == last == 0 and high == np.inf


def test_casts() -> None:
    """Casts between element types truncate towards zero and keep conditions 0 or 1."""
    a = Buffer("a", (64,))
    x = (RNG.standard_normal(64) * 50).astype(np.float32)
    scalar: list[Expr] = [Cast("int32", a[I]), Cast("float64", a[I]), Cast("int8", Cast("int32", a[I]))]
    got = mapped(scalar, {a: x}, 64)
    for g, w in zip(got, [x.astype(np.int32), x.astype(np.float64), x.astype(np.int32).astype(np.int8)], strict=True):
        np.testing.assert_array_equal(g, w)
    vector = Cast("int32x8", Load(a, (Ramp(I * 8, const(1), 8),)))
    np.testing.assert_array_equal(mapped([vector], {a: x}, 64, 8)[0], x.astype(np.int32))
    flags = Buffer("flags", (64,), "bool")
    out = Buffer("out", (64,), "bool")
    body = loops([(I, 64)], seq([Store(flags, (I,), a[I] > 0.0), Store(out, (I,), Not(flags[I]))]))
    above, below = run(body, {a: x}, flags, out)
    np.testing.assert_array_equal(above, x > 0)
    np.testing.assert_array_equal(below, ~(x > 0))


def test_constants_of_all_kinds() -> None:
    """Literals keep their value: infinities, NaN, denormals, the smallest integers, uneven decimals."""
    values: list[Const] = [const(v) for v in (0.1, -0.0, math.inf, -math.inf, math.nan, 1e-45, 16777217.0, -3.0, 1e30)]
    values += [const(v, "float64") for v in (0.1, -math.inf, 1e300)]
    values += [const(-(2**31), "int32"), const(-(2**63)), const(2**63 - 1), const(-128, "int8"), const(255, "uint8")]
    for value, got in zip(values, mapped(list(values), {}, 2), strict=True):
        want = np.full(2, value.value, got.dtype)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def test_strided_and_reversed_vectors() -> None:
    """Loads and stores with strides other than one, and a store that reads what it overwrites."""
    a, out, rev = Buffer("a", (64,)), Buffer("out", (64,)), Buffer("rev", (64,))
    x = RNG.standard_normal(64).astype(np.float32)
    body = seq(
        [
            Store(out, (Ramp(const(0), const(2), 32),), Load(a, (Ramp(const(32), const(1), 32),))),
            Store(out, (Ramp(const(1), const(2), 32),), Load(a, (Ramp(const(0), const(1), 32),))),
            Store(rev, (Ramp(const(0), const(1), 64),), Load(a, (Ramp(const(63), const(-1), 64),))),
            Store(rev, (Ramp(const(1), const(1), 40),), Load(rev, (Ramp(const(0), const(1), 40),))),
        ]
    )
    # as one kernel, because its statements depend on each other
    got, reversed_ = run(loops([(I, 1)], body), {a: x}, out, rev)
    np.testing.assert_array_equal(got[0::2], x[32:])
    np.testing.assert_array_equal(got[1::2], x[:32])
    want = x[::-1].copy()
    want[1:41] = want[:40].copy()
    np.testing.assert_array_equal(reversed_, want)


@pytest.mark.parametrize(("rows", "columns", "lanes"), [(6, 16, 8), (4, 24, 4), (3, 16, 16), (5, 10, 10), (2, 6, 3)])
def test_register_tiles(rows: int, columns: int, lanes: int) -> None:
    """A tiled matrix product with its accumulators in private memory."""
    depth, tiles = 33, (4, 3)
    body, (a, b, c) = matmul_tile(rows, columns, depth, lanes, tiles)
    x = RNG.integers(-4, 5, (rows * tiles[0], depth)).astype(np.float32)
    y = RNG.integers(-4, 5, (depth, columns * tiles[1])).astype(np.float32)
    packed = y.reshape(depth, tiles[1], columns).transpose(1, 0, 2)
    got = run(body, {a: x, b: packed}, c)
    np.testing.assert_array_equal(got.reshape(x.shape[0], y.shape[1]), x @ y)


def test_work_items_meet_in_local_memory() -> None:
    """Rows are reversed through shared memory, round after round, with barriers where they are needed."""
    a, out = Buffer("a", (240,)), Buffer("out", (240,))
    shared = Buffer("tile", (8,), scope="shared")
    group, item, r = Var("group"), Var("item"), Var("r")
    base = group * 24 + r * 8
    rounds = loops(
        [(r, 3)],
        seq([Store(shared, (item,), a[base + item]), Store(out, (base + item,), shared[const(7) - item])]),
    )
    body = bound(group, 10, "blockIdx.x", Allocate(shared, bound(item, 8, "threadIdx.x", rounds)))
    x = RNG.standard_normal(240).astype(np.float32)
    np.testing.assert_array_equal(run(body, {a: x}, out).reshape(30, 8), x.reshape(30, 8)[:, ::-1])


def test_thread_loops_of_different_extents() -> None:
    """A copy by 12 items and a sum by 4 in the same group: the shorter loop is guarded."""
    a, out = Buffer("a", (60,)), Buffer("out", (20,))
    shared = Buffer("tile", (12,), scope="shared")
    group, one, two = Var("group"), Var("one"), Var("two")
    copy = bound(one, 12, "threadIdx.x", Store(shared, (one,), a[group * 12 + one]))
    total = shared[two * 3] + shared[two * 3 + 1] + shared[two * 3 + 2]
    add = bound(two, 4, "threadIdx.x", Store(out, (group * 4 + two,), total))
    body = bound(group, 5, "blockIdx.x", Allocate(shared, seq([copy, add])))
    x = RNG.integers(0, 9, 60).astype(np.float32)
    np.testing.assert_array_equal(run(body, {a: x}, out), x.reshape(20, 3).sum(1))


def test_statements_at_the_top_are_kernels_in_order() -> None:
    """A producer, a consumer through a workspace, and axes in all three dimensions."""
    a, mid, out = Buffer("a", (24,)), Buffer("mid", (24,)), Buffer("out", (24,))
    x, y, z = Var("x"), Var("y"), Var("z")
    at = x * 12 + y * 4 + z
    double = bound(y, 3, "threadIdx.y", bound(z, 4, "blockIdx.z", Store(mid, (at,), a[at] * 2.0)))
    produce = bound(x, 2, "blockIdx.x", double)
    consume = bound(x, 24, "blockIdx.x", Store(out, (x,), mid[const(23) - x] + 1.0))
    values = RNG.standard_normal(24).astype(np.float32)
    got = run(Seq((produce, consume)), {a: values}, out, workspaces=(mid,))
    np.testing.assert_array_equal(got, values[::-1] * 2 + 1)


def test_let_if_and_loops_of_varying_extent() -> None:
    """Let bindings, branches with else, and extents that depend on outer loops."""
    out = Buffer("out", (40,), "int64")
    v = Var("v")
    inner = For(J, minimum(const(4), const(38) - I * 4), Store(out, (I * 4 + J,), v * 10 + J))
    rest = If(I.equal(9), Store(out, (I * 4 + 3,), const(-7)), Store(out, (I * 4 + 3,), v))
    body = loops([(I, 10)], Let(v, I * I, seq([inner, rest])))
    expected = np.ones(40, np.int64)
    for i in range(10):
        for j in range(min(4, 38 - 4 * i)):
            expected[4 * i + j] = i * i * 10 + j
        expected[4 * i + 3] = -7 if i == 9 else i * i
    np.testing.assert_array_equal(run(body, {}, out), expected)


def test_buffers_of_two_physical_axes() -> None:
    """A buffer that stays two-dimensional is row-major memory, for scalars and vectors."""
    a, out = Buffer("a", (6, 16), axis_separators=(1,)), Buffer("out", (16, 6), axis_separators=(1,))
    x = RNG.standard_normal((6, 16)).astype(np.float32)
    lanes = Ramp(const(0), const(1), 16)
    body = loops([(I, 6)], Store(out, (lanes, Broadcast(I, 16)), Load(a, (I, lanes))))
    np.testing.assert_array_equal(run(body, {a: x}, out), x.T)


def test_awkward_names() -> None:
    """Names that C or OpenCL keep for themselves, and names that are no identifiers, still work."""
    a, out = Buffer("float", (8,)), Buffer("kernel", (8,))
    var, odd = Var("get_global_id"), Buffer("half.2", (1,), scope="local")
    body = loops([(var, 8)], Allocate(odd, seq([Store(odd, (const(0),), a[var]), Store(out, (var,), odd[0] + 1.0)])))
    x = RNG.standard_normal(8).astype(np.float32)
    np.testing.assert_array_equal(run(body, {a: x}, out), x + 1)


def doubling() -> tuple[Stmt, Buffer, Buffer]:
    a, out = Buffer("a", (64,)), Buffer("out", (64,))
    return bound(I, 64, "blockIdx.x", Store(out, (I,), a[I] * 2.0)), a, out


def test_artifacts_are_json_and_load_without_their_binary() -> None:
    """An artifact survives JSON; with a damaged or missing binary the source is built instead."""
    from stridesmith.backends.kernel import compile_lowered, load_artifact

    body, a, out = doubling()
    target = device()
    assert target is not None
    artifact = json.loads(json.dumps(compile_lowered(lowered(body, a, out), target)))
    x = RNG.standard_normal(64).astype(np.float32)
    for damage in (None, "AAAA", "not base64!", ""):
        if damage is not None:
            artifact["launches"][0]["binary"] = damage
        kernel = load_artifact(artifact).bind()
        kernel.write(0, x)
        kernel.write(1, fresh(out))
        kernel.run()
        np.testing.assert_array_equal(kernel.read(1), x * 2)


@pytest.mark.parametrize("alone", [False, True], ids=["all threads", "one thread"])
def test_the_compiled_form_travels(tmp_path, alone) -> None:
    """A process with an empty cache of its own takes over what the builder compiled: no compiler runs again."""
    from stridesmith.backends.opencl import runtime as opencl
    from stridesmith.ir.target import POCL

    target = device()
    assert target is not None
    if target.platform != POCL:
        pytest.skip("the driver is not PoCL")
    body, (a, b, c) = matmul_tile(6, 16, 32, 8, (4, 3))
    program = lowered(body, a, b, c)
    if alone:
        loop, *rest = doubling()
        program = lowered(replace(loop, annotations=(("threads", 1),)), *rest)  # type: ignore[type-var]
    artifact = opencl.compile_opencl(program, target)
    code = (
        "import json, sys, pathlib\n"
        "from stridesmith.backends.opencl.runtime import OpenCLExecutable\n"
        "bound = OpenCLExecutable(json.load(sys.stdin)).bind()\n"
        "cache = pathlib.Path(sys.argv[1])\n"
        "before = {p: p.stat().st_mtime_ns for p in cache.rglob('*.*')}\n"
        "bound.run()\n"
        "after = {p: p.stat().st_mtime_ns for p in cache.rglob('*.*')}\n"
        "kernels = [p for p in after if p.suffix == '.so']\n"
        "print(len(kernels), before == after)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    environment = {**os.environ, "POCL_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        command, input=json.dumps(artifact), env=environment, capture_output=True, text=True, timeout=100
    )
    kernels, unchanged = done.stdout.split() or ("0", done.stderr)
    assert int(kernels) >= 1 and unchanged == "True"


def test_a_write_outside_is_seen_in_the_guard_zone() -> None:
    """A kernel that writes one element beyond its buffer, or before it, changes a guard zone."""
    from stridesmith.backends.opencl import runtime as opencl

    out = Buffer("out", (64,))
    target = device()
    assert target is not None
    for start, intact in ((0, True), (1, False), (-1, False)):
        body = loops([(I, 64)], Store(out, (I + start,), const(1.0)))
        kernel = opencl.OpenCLExecutable(opencl.compile_opencl(lowered(body, out), target)).bind(guard_bytes=GUARD)
        kernel.poison_guards(b"\x7b")
        kernel.run()
        assert kernel.guards_intact() is intact


def test_binding_and_timing() -> None:
    """Two bindings have memory of their own; timing runs the kernel; sizes are checked."""
    from stridesmith.backends.opencl import runtime as opencl

    body, a, out = doubling()
    target = device()
    assert target is not None
    executable = opencl.OpenCLExecutable(opencl.compile_opencl(lowered(body, a, out), target))
    one, two = executable.bind(), executable.bind(guard_bytes=100)
    assert one.names == ("a", "out")
    one.write(0, np.full(64, 3, np.float32))
    two.write(0, np.full(64, 5, np.float32))
    assert 0 < one.time(3) < 5 and two.time(1) > 0
    assert set(one.read(1)) == {6.0} and set(two.read(1)) == {10.0}
    with pytest.raises(ValueError, match="256 bytes"):
        one.write(0, np.zeros(63, np.float32))


def test_the_compiler_is_never_told_to_be_fast_and_loose() -> None:
    """No option relaxes NaN, infinity or order."""
    from stridesmith.backends.opencl import runtime as opencl

    assert not {o for o in opencl.OPTIONS if "fast" in o or "finite" in o or "unsafe" in o or "mad" in o}


def test_calls_are_timed_by_the_clock_of_the_device() -> None:
    """The mean of what a call's events took, where the target says so; the host's where that clock cannot be right."""
    from stridesmith.backends.opencl import runtime as opencl

    here = device()
    assert here is not None
    apart = replace(here, is_cpu_device=False, clock="device", features="cl_khr_fp64")
    x, y = Buffer("x", (1 << 16,)), Buffer("y", (1 << 16,))
    add = Store(y, (I * 256 + J,), x[I * 256 + J] + const(1.0))
    body = bound(I, 256, "blockIdx.x", bound(J, 256, "threadIdx.x", add))
    made = opencl.OpenCLExecutable(opencl.compile_opencl(lowered(body, x, y), apart)).bind()
    made.run()
    assert made.time(20) > 0
    enqueue, told = made._enqueue, 3

    def events() -> list[_Event]:
        return [_Event(event, told) for event in enqueue()]

    made._enqueue = events
    assert made.time(5) == pytest.approx(3e-9), "by the device's clock"
    told = 10**12
    assert 0 < made.time(5) < 1000, "a clock that runs ahead"
    told = 0
    assert made.time(5) > 0, "a clock that stands still"
    told, made._has_clock = 3, False
    assert made.time(5) > 3e-9 * 1.5, "the host's, which has the launch too"


class _Event:
    """An event of a device whose clock says that it took so many nanoseconds."""

    def __init__(self, event: object, nanoseconds: int) -> None:
        self.event = event
        self.profile = SimpleNamespace(start=7, end=7 + nanoseconds)

    @property
    def command_execution_status(self) -> int:
        return int(self.event.command_execution_status)  # type: ignore[attr-defined]
