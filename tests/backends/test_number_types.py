"""Numbers of every type: what conversions, bits and quotients give, in the interpreter and in kernels of a target."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from opencl_programs import device, needs_device
from random_kernels import compiled
from random_runs import assert_refines, interpreted

import stridesmith as ss
from stridesmith.errors import ProgramError
from stridesmith.ir import dtypes
from stridesmith.ir.expr import Call, Const, Expr
from stridesmith.ir.functions import BIT_CALLS, SHIFT_CALLS, TRUNCATED_CALLS
from stridesmith.ir.interpreter.interpret import InterpreterError, interpret
from stridesmith.ir.numbers import boundary_dtype, convert, from_storage, numpy_dtype, to_storage
from stridesmith.ir.stmt import PrimFunc
from stridesmith.ir.target import Target

CPU = Target(threads=1, vector_bits=256, registers=16)
INTEGERS = tuple(t for t in dtypes.SCALAR_TYPES if dtypes.is_int(t) and not dtypes.is_storage(t))
COUNT = 32
TARGETS = ["cpu", pytest.param("opencl", marks=needs_device)]


def read(text: str) -> PrimFunc:
    func = ss.parse(f"@T.prim_func\ndef f{text}")
    assert isinstance(func, PrimFunc)
    assert ss.parse(func.script()) == func
    return func


def numbers(dtype: str) -> NDArray[Any]:
    """Numbers of a type, its ends and what lies beside them among these, as an array that is passed."""
    if dtypes.is_float(dtype):
        end = dtypes.LARGEST[dtype]
        some = [0.0, -0.0, 1.0, -1.5, 2.5, 3.5, 7.5, -8.5, 15.6, 255.4, -129.0, 448.0, 463.0, 465.0, 61439.0, 61441.0,
                2.0**-9, 3 * 2.0**-10, 2.0**-16, 3 * 2.0**-17, 1e-30, 2.0**31, 2.0**32, 2.0**63, -(2.0**63), 1.9e19,
                end, -end, np.inf, -np.inf, np.nan, 0.1]  # fmt: skip
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(to_storage(dtype, np.array(some).astype(numpy_dtype(dtype))))
    if dtype == "bool":
        return np.arange(COUNT) % 3 == 0
    low, high = dtypes.int_range(dtype)
    some = [low, low + 1, high, high - 1, low // 2, high // 2, high // 2 + 1, 0, 1, 2, 3, 7, 8, 9, 15, 16, 100, 127]
    some += [128, 200, 255, 448, 464, 465, 32767, 65535, 257 * 2**16 + 1, 2**31, 257 * 2**24 + 1, -1, -7, -128]
    return np.fromiter((dtypes.wrap(int(n), dtype) for n in some), boundary_dtype(dtype))


def agree(func: PrimFunc, arrays: list[Any], target: str) -> Any:
    """What the interpreter gives, which a kernel gives, too."""
    expected = interpreted(func, arrays)
    aim = CPU if target == "cpu" else device()
    assert aim is not None
    assert_refines(compiled(func, aim, arrays), expected)
    return expected


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lanes", [1, 8])
def test_every_type_becomes_every_other(target: str, lanes: int) -> None:
    """Conversions of kernels are those of the interpreter, of scalars and of vectors, ends and NaN included."""
    for chosen in (dtypes.SCALAR_TYPES[::2], dtypes.SCALAR_TYPES[1::2]):
        kinds = ", ".join(f'X{n}: T.Buffer(({COUNT},), "{t}")' for n, t in enumerate(dtypes.SCALAR_TYPES))
        outs = ", ".join(f'Y{n}: T.Buffer(({len(dtypes.SCALAR_TYPES)}, {COUNT}), "{t}")' for n, t in enumerate(chosen))
        at = "i" if lanes == 1 else f"T.Ramp(i * {lanes}, 1, {lanes})"
        stores = "\n".join(
            f'        Y{n}[{k}, {at}] = T.Cast("{dtypes.with_lanes(to, lanes)}", X{k}[{at}])'
            for n, to in enumerate(chosen) for k in range(len(dtypes.SCALAR_TYPES))
        )  # fmt: skip
        func = read(f"({kinds}, {outs}):\n    for i in range({COUNT // lanes}):\n{stores}\n")
        arrays = [numbers(t) for t in dtypes.SCALAR_TYPES]
        empty = [np.zeros((len(arrays), COUNT), boundary_dtype(t)) for t in chosen]
        agree(func, [*arrays, *empty], target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lanes", [1, 8])
def test_integers_have_bits_and_quotients(target: str, lanes: int) -> None:
    """Shifts by any number, bits, and both kinds of quotients and rests, of every pair of numbers of each type."""
    ops = (*BIT_CALLS, *SHIFT_CALLS, *TRUNCATED_CALLS, "floordiv", "floormod", "max")
    at = "i" if lanes == 1 else f"T.Ramp(i * {lanes}, 1, {lanes})"
    parts, bodies, arrays = [], [], []
    for n, kind in enumerate(INTEGERS):
        a = numbers(kind)
        b = np.roll(a, 5)
        parts.append(f'A{n}: T.Buffer((32,), "{kind}"), B{n}: T.Buffer((32,), "{kind}")')
        for name in ops:
            one = f"T.{kind}(1)" if lanes == 1 else f"T.Broadcast(T.{kind}(1), {lanes})"
            divisor = f"T.Select(B{n}[{at}] == {one} - {one}, {one}, B{n}[{at}])"
            second = divisor if "div" in name or "mod" in name else f"B{n}[{at}]"
            bodies.append(f"        Y{n}[{ops.index(name)}, {at}] = T.{name}(A{n}[{at}], {second})")
        arrays += [a, b]
    outs = ", ".join(f'Y{n}: T.Buffer(({len(ops)}, 32), "{kind}")' for n, kind in enumerate(INTEGERS))
    text = "\n".join(bodies)
    func = read(f"({', '.join(parts)}, {outs}):\n    for i in range({32 // lanes}):\n{text}\n")
    empty = [np.zeros((len(ops), 32), kind) for kind in INTEGERS]
    found = agree(func, [*arrays, *empty], target)
    for n, kind in enumerate(INTEGERS):
        table = found[f"Y{n}"][0].reshape(len(ops), 32)
        for x, y, column in zip(arrays[2 * n], arrays[2 * n + 1], table.T, strict=True):
            got = {name: int(value) for name, value in zip(ops, column, strict=True)}
            assert got == {name: dtypes.wrap(_defined(name, int(x), int(y), kind), kind) for name in ops}, (kind, x, y)


def _defined(name: str, a: int, b: int, kind: str) -> int:
    """What a function of integers is, in those of Python."""
    width = dtypes.bits(kind)
    if name in SHIFT_CALLS:
        return a << min(b % 2**width, 64) if name == "shift_left" else a >> min(b % 2**width, 64)
    if name in BIT_CALLS:
        return {"bitwise_and": a & b, "bitwise_or": a | b, "bitwise_xor": a ^ b}[name]
    if name == "max":
        return max(a, b)
    b = b or 1
    truncated = int(Fraction(a, b))
    return {"truncdiv": truncated, "truncmod": a - truncated * b, "floordiv": a // b, "floormod": a % b}[name]


def _without_nan(dtype: str) -> NDArray[Any]:
    """Numbers of a type but NaN, whose bits may be others after a copy."""
    held = numbers(dtype)
    values = from_storage(dtype, held)
    return np.where(values == values, held, held[:1]).astype(held.dtype)


@pytest.mark.parametrize("target", TARGETS)
def test_bits_are_taken_for_another_type(target: str) -> None:
    """`T.reinterpret` gives the number with the same bits, of any two types of one width but bool."""
    kinds = [t for t in dtypes.SCALAR_TYPES if t != "bool"]
    pairs = [(n, a, b) for n, a in enumerate(kinds) for b in kinds if dtypes.bits(a) == dtypes.bits(b)]
    given = ", ".join(f'X{n}: T.Buffer((32,), "{t}")' for n, t in enumerate(kinds))
    outs = ", ".join(f'Y{k}: T.Buffer((32,), "{b}")' for k, (_, _, b) in enumerate(pairs))
    text = "\n".join(f'        Y{k}[i] = T.reinterpret("{b}", X{n}[i])' for k, (n, _, b) in enumerate(pairs))
    func = read(f"({given}, {outs}):\n    for i in T.vectorized(32):\n{text}\n")
    arrays = [_without_nan(t) for t in kinds]
    found = agree(func, [*arrays, *(np.zeros(32, boundary_dtype(b)) for _, _, b in pairs)], target)
    for k, (n, a, b) in enumerate(pairs):
        if dtypes.bits(a) >= 8:
            same = from_storage(b, arrays[n].view(boundary_dtype(b)))
            np.testing.assert_array_equal(found[f"Y{k}"][0], same, err_msg=f"{a} as {b}")


@pytest.mark.parametrize("target", TARGETS)
def test_two_integers_of_four_bits_lie_in_a_byte(target: str) -> None:
    """The lower half of a byte is the first lane; elements of several bytes are read and written by ramps, too."""
    func = read("""(X: T.Buffer((16,), "int4x2"), V: T.Buffer((4,), "uint4x8"), Y: T.Buffer((32,), "int16"),
                   W: T.Buffer((4, 8), "int16"), Z: T.Buffer((16,), "int4x2"), U: T.Buffer((4,), "uint4x8")):
    for i in range(16):
        Y[T.Ramp(i * 2, 1, 2)] = T.Cast("int16x2", X[i])
        Z[i] = T.Shuffle([X[i]], [1, 0])
    for i in range(4):
        W[i, T.Ramp(0, 1, 8)] = T.Cast("int16x8", V[3 - i])
        U[i] = T.Cast("uint4x8", X[T.Ramp(i * 4, 1, 4)])
""")
    rng = np.random.default_rng(3)
    x, v = rng.integers(0, 256, (16, 1)).astype(np.uint8), rng.integers(0, 256, (4, 4)).astype(np.uint8)
    empty = [np.zeros(32, np.int16), np.zeros((4, 8), np.int16), np.zeros_like(x), np.zeros_like(v)]
    found = agree(func, [x, v, *empty], target)
    halves = np.stack([x & 15, x >> 4], -1).reshape(-1).astype(int)
    np.testing.assert_array_equal(found["Y"][0], np.where(halves > 7, halves - 16, halves))
    np.testing.assert_array_equal(found["U"][0], halves)
    np.testing.assert_array_equal(found["W"][0].reshape(4, 8), np.stack([v & 15, v >> 4], -1).reshape(4, 8)[::-1])


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_floats_of_eight_bits_are_the_nearest(dtype: str) -> None:
    """A float64 becomes the nearest number, of two the even one; all bytes come back."""
    every = np.arange(256, dtype=np.uint8)
    values = from_storage(dtype, every)
    finite = np.sort(np.unique(values[np.isfinite(values)])).astype(np.float64)
    np.testing.assert_array_equal(to_storage(dtype, values)[~np.isnan(values)], every[~np.isnan(values)])
    rng = np.random.default_rng(0)
    middle = (finite[1:] + finite[:-1]) / 2
    near = np.concatenate([middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf), rng.normal(0, 30, 99)])
    for x, got in zip(near, convert("float64", dtype, near), strict=True):
        apart = np.abs(finite - x)  # exact beside x
        best = finite[apart == apart.min()]
        even = [v for v in best if int(to_storage(dtype, np.float32(v))) & 1 == 0]
        assert float(got) == (best[0] if len(best) == 1 else even[0]), (x, got, best)
    most = dtypes.LARGEST[dtype]
    gone = convert("float64", dtype, np.array([most * 1.2, -most * 1.2, np.inf, np.nan]))
    assert np.isnan(gone[3])
    assert np.isnan(gone[:3]).all() if dtype == "float8_e4m3fn" else np.isinf(gone[:3]).all()


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "int4", "uint4"])
def test_arrays_of_ml_dtypes_are_taken(dtype: str) -> None:
    """The interpreter and kernels take arrays of the type that ml_dtypes gives to NumPy, where it is installed."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    func = read(f'(X: T.Buffer((8,), "{dtype}"), Y: T.Buffer((8,), "float32")):\n'
                f'    for i in range(8):\n        Y[i] = T.Cast("float32", X[i])\n')  # fmt: skip
    x = np.array([0, 1, 2, 3, 7, 5, 6, 1 if dtype == "uint4" else -1]).astype(getattr(ml_dtypes, dtype))
    y = np.zeros(8, np.float32)
    interpret(func, x, y)
    np.testing.assert_array_equal(y, x.astype(np.float32))
    np.testing.assert_array_equal(ss.build(func, CPU)(x), y)


REFUSED = {
    "X[0] + X[0]": "which only holds numbers; cast them",
    "T.bitwise_and(X[0], X[0])": "is not defined for the type int4",
    'T.reinterpret("int8", X[0])': "which has other bits than int8",
    'T.Cast("int4", T.reinterpret("bool", T.int8(1)))': "has no bits that mean something",
}


@pytest.mark.parametrize("value", REFUSED)
def test_what_types_cannot_do_is_said(value: str) -> None:
    """Types that hold numbers are not computed with; bits are those of a type of the same width."""
    with pytest.raises(ProgramError, match=REFUSED[value]):
        ss.verify(read(f'(X: T.Buffer((4,), "int4"), Y: T.Buffer((4,), "int4")):\n    Y[0] = {value}\n'))


def test_elements_of_an_odd_number_of_halves_are_refused() -> None:
    """Integers of four bits are two to a byte, so that an element of a buffer has an even number."""
    with pytest.raises(ProgramError, match="two to a byte: their number is even"):
        ss.verify(read('(X: T.Buffer((4,), "int4x3"), Y: T.Buffer((4,), "int4x3")):\n    Y[0] = X[0]\n'))


def test_a_rest_of_nothing_is_an_error() -> None:
    """`T.truncdiv` and `T.truncmod` by 0 are errors of the program, as `//` and `%` are."""
    for name in TRUNCATED_CALLS:
        func = read(f'(X: T.Buffer((2,), "int32"), Y: T.Buffer((2,), "int32")):\n    Y[0] = T.{name}(X[0], X[1])\n')
        with pytest.raises(InterpreterError, match="divides by zero"):
            interpret(func, np.array([3, 0], np.int32), np.zeros(2, np.int32))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_multiply_add_is_rounded_once(dtype: str) -> None:
    """Products in the middle of two numbers, where what is added decides, however small; in kernels, too."""
    digits = np.finfo(dtype).nmant + 1
    x, y = 2.0 ** (digits // 2) + 1, 2.0 ** (digits - digits // 2) + 1
    a = np.array([x, x, x, 3, -3, 1e30, 0.0, np.inf], dtype)
    b = np.array([y, y, -y, 5, 5, 1e30, -1.0, 0.0], dtype)
    c = np.array([2.0**-40, -(2.0**-40), 2.0**-40, -15, 15, -1e30, 0.0, 1.0], dtype)
    func = read(f"""({", ".join(f'{n}: T.Buffer((8,), "{dtype}")' for n in "ABCD")}):
    for i in range(8):
        D[i] = T.fma(A[i], B[i], C[i])
""")
    found = agree(func, [a, b, c, np.zeros(8, dtype)], "cpu")["D"][0]
    parts = [[Fraction(float(v)) for v in array[:5]] for array in (a, b, c)]
    kind = np.dtype(dtype).type
    for p, q, r, got in zip(*parts, found[:5], strict=True):
        near = [got, np.nextafter(got, kind(-np.inf)), np.nextafter(got, kind(np.inf))]
        apart = [abs(Fraction(float(n)) - (p * q + r)) for n in near]
        assert apart[0] < min(apart[1:]), (p, q, r, got)
    assert np.isinf(found[5]) == (dtype == "float32") and found[6] == 0 and np.isnan(found[7])


def test_shifts_and_masks_of_indices_are_affine() -> None:
    """Accesses at shifted, masked and truncated indices are proven in bounds, and are simplified to quotients."""
    func = read("""(X: T.Buffer((64,), "float32"), Y: T.Buffer((32, 8), "float32")):
    for i, j in T.grid(32, 8):
        Y[T.truncdiv(i * 4 + j % 4, 4), j] = X[T.shift_left(T.shift_right(i, 1), 2) + T.bitwise_and(j, 3)]
""")
    from stridesmith.ir.verify.bounds import check_in_bounds

    check_in_bounds(func)
    i = ss.parse("@T.prim_func\ndef f(i: T.int64, Y: T.Buffer((1,), 'int64')):\n    Y[0] = T.shift_right(i, 3)").body
    from stridesmith.ir.arith.simplify import simplify

    assert "i // 8" in repr(simplify(i)) or "//" in str(simplify(i))


def _folded(name: str, a: int, b: int, kind: str) -> Expr:
    from stridesmith.ir.arith.simplify import simplify

    return simplify(Call(name, (Const(a, kind), Const(b, kind)), kind))


@pytest.mark.parametrize("kind", INTEGERS)
def test_constants_are_folded_as_they_are_computed(kind: str) -> None:
    """The simplifier gives what Python's integers do, wrapped around to the type."""
    values = sorted({int(v) for v in numbers(kind)})
    for name in (*BIT_CALLS, *SHIFT_CALLS, *TRUNCATED_CALLS):
        for a in values[::3]:
            for b in values[::2]:
                if b or name not in TRUNCATED_CALLS:
                    assert _folded(name, a, b, kind) == Const(dtypes.wrap(_defined(name, a, b, kind), kind), kind)
