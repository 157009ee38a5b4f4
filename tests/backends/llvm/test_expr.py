"""Values that generated code computes, against NumPy and Python."""

import re

import numpy as np
import pytest
from cpu_programs import lowered, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stridesmith.backends.errors import CodegenError
from stridesmith.backends.llvm.types import ModuleText, float_literal, literal
from stridesmith.backends.passes.vectorize import vectorize_loops
from stridesmith.backends.render.llvm import Context, Printer
from stridesmith.backends.render.llvm_module import generate
from stridesmith.ir.expr import (
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Load,
    Not,
    Ramp,
    Select,
    Var,
    const,
    if_then_else,
    maximum,
    minimum,
)
from stridesmith.ir.numbers import bfloat16_bits
from stridesmith.ir.stmt import For, Let, Store
from stridesmith.ir.target import Target

i, j = Var("i"), Var("j")


def over(count, value, *, dtype="float32"):
    """A buffer and the loop that fills element i of it with `value`."""
    out = Buffer("out", (count,), dtype)
    return out, For(i, const(count), Store(out, (i,), value))


def elementwise(value_of, arrays, dtype, lanes=1):
    """``out[i] = value_of(a[i], b[i], ...)`` through generated code, `lanes` at a time."""
    count = len(arrays[0][1])
    buffers = {Buffer(f"in{n}", (count,), kind): data for n, (kind, data) in enumerate(arrays)}
    out = Buffer("out", (count,), dtype)
    index = i if lanes == 1 else Ramp(i * lanes, const(1), lanes)
    loads = [Load(b, (index,)) for b in buffers]
    return run(For(i, const(count // lanes), Store(out, (index,), value_of(*loads))), buffers, out)


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_integer_division_rounds_towards_minus_infinity(dtype, lanes):
    """`//` and `%` agree with NumPy for every pair of signs."""
    info = np.iinfo(dtype)
    low = max(info.min, -100) + 1 if info.min < 0 else 0
    rng = np.random.default_rng(0)
    a = rng.integers(low, 101, 64).astype(dtype)
    b = rng.integers(low, 101, 64).astype(dtype)
    b[b == 0] = 7
    arrays = [(dtype, a), (dtype, b)]
    np.testing.assert_array_equal(elementwise(lambda x, y: Binary("//", x, y), arrays, dtype, lanes), a // b)
    np.testing.assert_array_equal(elementwise(lambda x, y: Binary("%", x, y), arrays, dtype, lanes), a % b)


@pytest.mark.parametrize("divisor", [1, 2, 3, 8, -3, -4])
@pytest.mark.parametrize("offset", [0, 5, -17, -64])
def test_index_division_agrees_with_python(divisor, offset):
    """Division of an index that may be negative is corrected, of one that may not is exact too."""
    q, b = over(40, Cast("int32", Binary("//", i * 3 + offset, const(divisor))), dtype="int32")
    np.testing.assert_array_equal(run(b, {}, q), [(n * 3 + offset) // divisor for n in range(40)])
    r, b = over(40, Cast("int32", Binary("%", i * 3 + offset, const(divisor))), dtype="int32")
    np.testing.assert_array_equal(run(b, {}, r), [(n * 3 + offset) % divisor for n in range(40)])


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_minimum_and_maximum_propagate_nan(dtype, lanes):
    """A NaN on either side is the result, for every float type."""
    values = np.array([1, -2, np.nan, np.nan, 3, np.inf, -np.inf, 0] * 2, np.float32)
    others = np.array([2, -3, 1.0, np.nan, np.nan, np.nan, 5, -1] * 2, np.float32)
    pack, unpack = codec(dtype)
    arrays = [(dtype, pack(values)), (dtype, pack(others))]
    np.testing.assert_array_equal(unpack(elementwise(minimum, arrays, dtype, lanes)), np.minimum(values, others))
    np.testing.assert_array_equal(unpack(elementwise(maximum, arrays, dtype, lanes)), np.maximum(values, others))


def codec(dtype):
    """Functions between float32 arrays and the physical arrays of `dtype`."""
    if dtype != "bfloat16":
        return lambda a: a.astype(dtype), lambda a: a.astype(np.float32)
    return (
        lambda a: bfloat16_bits(a),
        lambda a: (a.astype(np.uint32) << 16).view(np.float32),
    )


def test_bfloat16_rounds_to_nearest_even():
    """Casting float32 to bfloat16 and arithmetic in it round as the reference does, ties to even included."""
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.standard_normal(250) * 10, [1 + 2**-8, 1 + 3 * 2**-8, np.inf, np.nan, 3.4e38, 0.0]])
    values = values.astype(np.float32)
    expected = bfloat16_bits(values)
    got = elementwise(lambda x: Cast("bfloat16", x), [("float32", values)], "bfloat16")
    np.testing.assert_array_equal(got, expected)
    wide = elementwise(lambda x: Cast("float32x4", x + x), [("bfloat16", expected)], "float32", 4)
    np.testing.assert_array_equal(wide, (expected.astype(np.uint32) << 16).view(np.float32) * 2)


@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 12, 16, 32])
def test_every_float32_rounds_to_bfloat16_as_the_reference_does(lanes):
    """All upper halves, with lower ones about the middle: subnormal numbers, infinities and NaN, alone and in vectors.

    The instruction of AVX512_BF16 makes zeros of subnormal numbers, which a bfloat16 can hold.
    """
    rng = np.random.default_rng(lanes)
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    upper = np.concatenate([np.arange(1 << 16), rng.integers(0, 1 << 16, 1 << 14)]).astype(np.uint32)[:, None] << 16
    values = np.ravel(upper | lower).view(np.float32)
    values = values[: len(values) // 96 * 96]
    kind = "bfloat16" if lanes == 1 else f"bfloat16x{lanes}"
    got = elementwise(lambda x: Cast(kind, x), [("float32", values)], "bfloat16", lanes)
    np.testing.assert_array_equal(got, bfloat16_bits(values))


@pytest.mark.parametrize("source", ["bool", "int8", "int32", "int64", "uint8", "float16", "float32", "float64"])
@pytest.mark.parametrize(
    "target", ["bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64"]
)
def test_casts_agree_with_numpy(source, target):
    """Every conversion of values that fit is NumPy's, in scalars and vectors."""
    values = np.array([0, 1, 2, 3, 100, 7, 42, 0], np.float64).astype(source)
    if source not in ("bool", "uint8") and target not in ("bool", "uint8"):
        values = values * np.array([1, -1] * 4).astype(source)
    for lanes in (1, 4):
        kind = target if lanes == 1 else f"{target}x{lanes}"
        got = elementwise(lambda x, k=kind: Cast(k, x), [(source, values)], target, lanes)
        np.testing.assert_array_equal(got, values.astype(target))


def test_float64_narrows_with_one_rounding():
    """A float64 just above the middle of two float16 values rounds up; by way of float32 it would round to even."""
    values = np.array([1 + 2**-11 + 2**-40, 1 + 2**-11, 1 - 2**-40, 1e300, -1e300, np.nan, 2**-25 + 2**-60, 65519.999])
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16)
    np.testing.assert_array_equal(elementwise(lambda x: Cast("float16", x), [("float64", values)], "float16"), expected)


def test_float_to_integer_saturates():
    """What does not fit becomes the nearest end of the type, NaN becomes 0; nothing is undefined."""
    values = np.array([3.9, -3.9, 1e10, -1e10, np.nan, np.inf], np.float32)
    got = elementwise(lambda x: Cast("int32", x), [("float32", values)], "int32")
    np.testing.assert_array_equal(got, [3, -3, 2**31 - 1, -(2**31), 0, 2**31 - 1])


def test_integers_wrap():
    """Arithmetic of fixed width is modulo its power of two, and never undefined."""
    a = np.array([127, -128, 100, 5], np.int8)
    got = elementwise(lambda x, y: x + y, [("int8", a), ("int8", a)], "int8", 4)
    np.testing.assert_array_equal(got, a + a)
    big = np.array([2**62, -(2**62), 3], np.int64)
    got = elementwise(lambda x, y: x * y + x, [("int64", big), ("int64", big)], "int64")
    np.testing.assert_array_equal(got, big * big + big)


def test_conditions_and_booleans():
    """Comparisons, logic and select work on scalars and vectors, and on bools in memory."""
    a = np.arange(16, dtype=np.float32)
    flags = np.arange(16) % 3 == 0

    def value(x, f):
        return Select(Binary("or", Not(f), Binary("<", x, Broadcast(const(4.0), 8))), x, Broadcast(const(-1.0), 8))

    got = elementwise(value, [("float32", a), ("bool", flags)], "float32", 8)
    np.testing.assert_array_equal(got, np.where(~flags | (a < 4), a, -1))
    got = elementwise(
        lambda x, f: Binary("and", f, Binary(">", x, const(4.0))), [("float32", a), ("bool", flags)], "bool"
    )
    np.testing.assert_array_equal(got, flags & (a > 4))


def test_if_then_else_is_lazy():
    """The side that is not chosen is not evaluated: an address far outside is never touched."""
    a = Buffer("a", (8,))
    far = Load(a, (i * (1 << 40),))
    out, body = over(8, if_then_else(i < 1, far, Load(a, (i,)) * const(2.0)))
    data = np.arange(1, 9, dtype=np.float32)
    np.testing.assert_array_equal(run(body, {a: data}, out), [1, *(data[1:] * 2)])


def test_vector_conditional_masks_its_loads():
    """Lanes whose condition is false read nothing, contiguous or not, nested or not."""
    a = Buffer("a", (8,))
    out = Buffer("out", (16,))
    lane = Ramp(const(0), const(1), 16)
    cond = Binary("<", lane, Broadcast(const(8), 16))
    zeros = Broadcast(const(0.0), 16)
    outer = Binary(">", lane, Broadcast(const(2), 16))
    data = np.arange(1, 9, dtype=np.float32)
    for index in (lane, lane * Broadcast(const(1 << 40), 16)):
        inside = if_then_else(Binary("<", index, Broadcast(const(8), 16)), Load(a, (index,)), zeros)
        expected = data if index is lane else [1, *[0] * 7]
        np.testing.assert_array_equal(run(Store(out, (lane,), inside), {a: data}, out), [*expected, *[0] * 8])
    nested = if_then_else(outer, if_then_else(cond, Load(a, (lane,)), zeros), Broadcast(const(9.0), 16))
    np.testing.assert_array_equal(run(Store(out, (lane,), nested), {a: data}, out), [9, 9, 9, *data[3:], *[0] * 8])


@pytest.mark.parametrize("stride", [-1, 0, 1, 2, 5])
def test_strided_vector_access(stride):
    """Loads and stores of any constant stride reach exactly their elements."""
    a, out = Buffer("a", (64,)), Buffer("out", (64,))
    data = np.arange(64, dtype=np.float32)
    index = Ramp(const(40), const(stride), 4)
    got = run(Store(out, (Ramp(const(0), const(1), 4),), Load(a, (index,))), {a: data}, out)
    np.testing.assert_array_equal(got[:4], 40 + stride * np.arange(4))
    if stride:
        got = run(Store(out, (index,), Load(a, (Ramp(const(0), const(1), 4),))), {a: data}, out)
        np.testing.assert_array_equal(got[40 + stride * np.arange(4)], np.arange(4))
        assert np.isnan(got).sum() == 60


@pytest.mark.parametrize("dtype, lanes", [("float32", 8), ("int32", 4), ("int8", 16), ("float64", 6)])
def test_every_second_element_is_picked_out_of_two_vectors(dtype, lanes):
    """The vectors end with the last element that is asked for: nothing past the buffer is read."""
    a, out = Buffer("a", (2 * lanes - 1,), dtype), Buffer("out", (lanes,), dtype)
    data = np.arange(2 * lanes - 1).astype(dtype)
    body = Store(out, (Ramp(const(0), const(1), lanes),), Load(a, (Ramp(const(0), const(2), lanes),)))
    np.testing.assert_array_equal(run(body, {a: data}, out), data[::2])
    text = generate(lowered(body, a, out), Target(threads=1))
    assert text.count("shufflevector") == 1
    assert f"ptr %p.a, i64 {lanes - 1}" in text
    assert "insertelement" not in text


@pytest.mark.parametrize(
    "place, lanes, vectors",
    [
        (lambda v: v // 2, 8, 1),  # the nearest pixel of an image of half the width
        (lambda v: (v * 28) // 56, 16, 1),
        (lambda v: v // 16, 16, 0),  # one element
        (lambda v: v % 2 * 40 + v // 2, 8, 2),  # two rows in turns
        (lambda v: v % 4 * 20 + v // 4, 16, 4),
        (lambda v: (v + 1) // 2, 8, 2),
        (lambda v: v * 3, 16, 3),
        (lambda v: v * -1 + 30, 8, 1),
        (lambda v: v * 7 % 60, 8, 0),  # far apart: one by one
        (lambda v: v // 2 * 20, 8, 0),
    ],
)
def test_lanes_at_constant_distances_are_picked_out_of_few_vectors(place, lanes, vectors):
    """Whatever quotients and remainders of the lane an index has; nothing outside of the buffer is read."""
    lane, number = Var("lane"), Var("number")
    reads = [int(place(n)) for n in range(2 * lanes)]
    a, out = Buffer("a", (max(reads) + 1,)), Buffer("out", (2 * lanes,))
    data = np.arange(max(reads) + 1, dtype=np.float32)
    store = Store(out, (number * lanes + lane,), Load(a, (place(number * lanes + lane),)))
    vectors_of_lanes = vectorize_loops(For(lane, const(lanes), store, kind="vectorized"), Target(threads=1))
    body = For(number, const(2), vectors_of_lanes)
    np.testing.assert_array_equal(run(body, {a: data}, out), data[reads])
    text = generate(lowered(body, a, out), Target(threads=1))
    assert len(re.findall(r"load <", text)) == vectors


@pytest.mark.parametrize("size, loads", [(64, 1), (62, 4)])
def test_lanes_of_one_aligned_block_are_picked_out_of_it(size, loads):
    """Two channels of groups of four, out of the same vector for both; not where a buffer ends within a block."""
    lane, number = Var("lane"), Var("number")
    a, out = Buffer("a", (size,)), Buffer("out", (96,))
    data = np.arange(size, dtype=np.float32)
    at = number * 16 + lane
    value = Load(a, (at // 4 * 4 + 1,)) - Load(a, (at // 4 * 4,))
    store = Store(out, (number * 16 + lane,), value + Load(a, (at // 4 * 4,)))
    vectors_of_lanes = vectorize_loops(For(lane, const(16), store, kind="vectorized"), Target(threads=1))
    got = run(For(number, const(3), vectors_of_lanes, kind="unrolled"), {a: data}, out)
    np.testing.assert_array_equal(got[:48], np.arange(48) // 4 * 4 + 1)
    text = generate(lowered(For(number, const(3), vectors_of_lanes), a, out), Target(threads=1))
    assert len(re.findall(r"load <", text)) == loads


def test_vector_index_arithmetic():
    """Ramps add, scale, divide and compare lane by lane, also where the result is no ramp."""
    a, out = Buffer("a", (64,)), Buffer("out", (8,))
    data = np.arange(64, dtype=np.float32) * 3
    lane = Ramp(i, const(2), 8)
    eight = Ramp(const(0), const(1), 8)
    cases = {
        "fold": (lane * Broadcast(const(3), 8) - lane + eight, lambda n: 2 * n),
        "quotient": (Binary("//", lane, Broadcast(const(3), 8)), lambda n: n // 3),
        "modulo": (Binary("%", lane, Broadcast(const(5), 8)), lambda n: n % 5),
        "least": (minimum(lane, Broadcast(const(7), 8)), lambda n: np.minimum(n, 7)),
    }
    for name, (index, reference) in cases.items():
        body = For(i, const(5), Store(out, (eight,), Load(a, (index,))))
        n = 4 + 2 * np.arange(8)
        expected = reference(n) + (np.arange(8) if name == "fold" else 0)
        np.testing.assert_array_equal(run(body, {a: data}, out), expected * 3, err_msg=name)


def test_data_dependent_index():
    """An index may come from memory, in a scalar and in a vector."""
    rng = np.random.default_rng(2)
    order = rng.permutation(16)
    data = rng.standard_normal(16).astype(np.float32)
    a, idx, out = Buffer("a", (16,)), Buffer("idx", (16,), "int32"), Buffer("out", (16,))
    scalar = For(i, const(16), Store(out, (i,), Load(a, (Cast("int64", idx[i]),))))
    np.testing.assert_array_equal(run(scalar, {a: data, idx: order}, out), data[order])
    lane = Ramp(i * 4, const(1), 4)
    vector = For(i, const(4), Store(out, (lane,), Load(a, (Cast("int64x4", Load(idx, (lane,))),))))
    np.testing.assert_array_equal(run(vector, {a: data, idx: order}, out), data[order])


def test_let_binds_an_index_and_a_value():
    """A let's value is computed once and its name stands for it."""
    a, out = Buffer("a", (32,)), Buffer("out", (8,))
    data = np.arange(32, dtype=np.float32)
    x, v = Var("x"), Var("v", "float32")
    body = For(i, const(8), Let(x, i * 4, Let(v, Load(a, (x,)), Store(out, (i,), v * v))))
    np.testing.assert_array_equal(run(body, {a: data}, out), data[::4] ** 2)


@st.composite
def index_expressions(draw, depth=3):
    """An int64 expression over i and j, and the same as a Python function."""
    if depth == 0 or draw(st.booleans()):
        leaf = draw(st.sampled_from(["i", "j", "const"]))
        if leaf == "const":
            value = draw(st.integers(-9, 9))
            return const(value), lambda env: value
        return (i if leaf == "i" else j), lambda env: env[leaf]
    op = draw(st.sampled_from(["+", "-", "*", "//", "%", "min", "max"]))
    a, fa = draw(index_expressions(depth=depth - 1))
    b, fb = draw(index_expressions(depth=depth - 1))
    if op in ("//", "%"):
        divisor = draw(st.sampled_from([-4, -3, 1, 2, 3, 6, 8]))
        b, fb = const(divisor), lambda env: divisor
    functions = {
        "+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y, "//": lambda x, y: x // y,
        "%": lambda x, y: x % y, "min": min, "max": max,
    }  # fmt: skip
    return Binary(op, a, b), lambda env: functions[op](fa(env), fb(env))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(index_expressions(), min_size=6, max_size=6), st.sampled_from(["serial", "unrolled"]))
def test_index_arithmetic_equals_python(cases, kind):
    """Any index expression, folded, hoisted or unrolled, has Python's value, and so have comparisons of two."""
    shape = (5, 7)
    out, flag = Buffer("out", (35 * 6,), "int64"), Buffer("flag", (35 * 3,), "bool")
    stores = [Store(out, (const(n) + (i * 7 + j) * 6,), case[0]) for n, case in enumerate(cases)]
    pairs = [("<", 0, 1), ("==", 2, 3), (">=", 4, 5)]
    stores += [
        Store(flag, (const(n) + (i * 7 + j) * 3,), Binary(op, cases[a][0], cases[b][0]))
        for n, (op, a, b) in enumerate(pairs)
    ]
    from stridesmith.ir.stmt import seq

    got, flags = run(For(i, const(shape[0]), For(j, const(shape[1]), seq(stores), kind)), {}, out, flag)
    points = [{"i": x, "j": y} for x in range(5) for y in range(7)]
    expected = [[case[1](env) for case in cases] for env in points]
    np.testing.assert_array_equal(got.reshape(-1, 6), expected)
    compare = {"<": np.less, "==": np.equal, ">=": np.greater_equal}
    table = np.array(expected)
    for n, (op, a, b) in enumerate(pairs):
        np.testing.assert_array_equal(flags.reshape(-1, 3)[:, n], compare[op](table[:, a], table[:, b]))


@pytest.mark.parametrize(("value", "text"), [(1.0, "0x3FF0000000000000"), (0.1, "0x3FB99999A0000000")])
def test_float_literals_are_exact(value, text):
    """A float32 constant is rounded before it is written."""
    assert float_literal(value, "float32") == text


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (Var("unbound", "float32"), "variable `unbound` is used outside of the loop or let that defines it"),
        (Cast("float32", Binary("/", Var("i"), Const(2))), "`/` of integers is not defined; use `//`"),
        (Call("gamma", (const(1.0),)), "no code for the function `gamma`"),
        (Cast("float32", Call("exp", (const(1),), "int64")), "`exp` is defined for floats, but got int64"),
    ],
)
def test_what_has_no_code_is_refused(value, sentence):
    """Each refusal says what it met and which rule it breaks."""
    out, body = over(4, value)
    with pytest.raises(CodegenError, match=sentence.replace("(", r"\(")):
        run(body, {}, out)


def test_zeros_of_either_sign_have_literals_of_their_own():
    """Which zero was written before does not show."""
    positive, negative = "0x0000000000000000", "0x8000000000000000"
    assert [literal(zero, "float32") for zero in (0.0, -0.0, 0.0)] == [positive, negative, positive]
    assert literal(-0.0, "float64x2") == f"<double {negative}, double {negative}>"


def test_an_index_that_reads_memory_is_read_where_it_is_asked_for():
    """A load beside a constant has no branch, but the load in its index stays inside of the condition."""
    at, table, out = Buffer("at", (4,), "int64"), Buffer("table", (10,)), Buffer("out", (8,))
    value = if_then_else(i < 4, table[minimum(maximum(at[i], 0), 9)], const(0.0))
    body = For(i, const(8), Store(out, (i,), value))
    text = generate(lowered(body, at, table, out), Target(threads=1))
    assert text.index("\nthen") < text.index("load i64, ptr %v")
    places, numbers = np.array([3, -1, 12, 9]), np.arange(10, dtype=np.float32)
    np.testing.assert_array_equal(run(body, {at: places, table: numbers}, out), [3, 0, 9, 9, 0, 0, 0, 0])


def test_expressions_of_one_address_are_evaluated_each_by_itself():
    """What is known of an expression that is gone is not said of one that lies where it lay."""
    out = Printer(Context(ModuleText()), "f", ())
    for number in range(50):
        assert out.value(Binary("<", const(number), const(25))) is (number < 25)
        assert out.value(Not(const(number < 25))) is (number >= 25)
        assert out.dtype(Broadcast(const(number), 4)) == "int64x4"
        assert out.dtype(Cast("int32", const(number))) == "int32"
