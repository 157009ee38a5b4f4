"""Mathematical functions of generated code against float64 references."""

import math

import numpy as np
import pytest
from cpu_programs import run

from stridesmith.backends.exponential import COEFFICIENTS
from stridesmith.backends.host import host_cpu
from stridesmith.backends.llvm.math import _EXP_OF_AN_EIGHTH
from stridesmith.ir.expr import Buffer, Call, Cast, Load, Ramp, Var, const
from stridesmith.ir.stmt import For, Store
from stridesmith.ir.target import Target

i = Var("i")

REFERENCES = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "sin": np.sin,
    "cos": np.cos,
    "atan": np.arctan,
}


def apply(name, arrays, dtype, lanes, target=None):
    """The function of generated code on each element, `lanes` at a time."""
    count = arrays[0].size
    buffers = {Buffer(f"in{n}", (count,), dtype): a for n, a in enumerate(arrays)}
    out = Buffer("out", (count,), dtype)
    kind = dtype if lanes == 1 else f"{dtype}x{lanes}"
    index = i if lanes == 1 else Ramp(i * lanes, const(1), lanes)
    value = Call(name, tuple(Load(b, (index,)) for b in buffers), kind)
    return run(For(i, const(count // lanes), Store(out, (index,), value)), buffers, out, target=target)


def inputs(name, dtype):
    """Arguments over the whole domain, dense where the function bends."""
    rng = np.random.default_rng(0)
    wide = np.concatenate([rng.uniform(-87, 87, 4000), rng.uniform(-1.5, 1.5, 4000), np.exp(rng.uniform(-80, 3, 4000))])
    if name in ("log", "sqrt", "rsqrt"):
        wide = np.abs(wide)
    return wide.astype(dtype)


def units(got, exact, dtype):
    """The largest error in units of the last place of `dtype`, subnormal results measured absolutely."""
    info = np.finfo(dtype)
    spacing = np.maximum(np.abs(exact), info.tiny) * info.eps
    return float(np.max(np.abs(got.astype(np.float64) - exact) / spacing))


ANY_CPU, THIS_CPU = Target(), host_cpu()
"""With what a CPU is known to have, `exp` takes its powers of two from a table."""


@pytest.mark.parametrize("target", [ANY_CPU, THIS_CPU], ids=["any", "this"])
@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_float32_functions_are_within_two_units(name, lanes, target):
    """Own polynomials and hardware instructions err by at most two units in the last place (sigmoid three)."""
    x = inputs(name, np.float32)
    exact = REFERENCES[name](x.astype(np.float64))
    assert units(apply(name, [x], "float32", lanes, target), exact, np.float32) <= (3 if name == "sigmoid" else 2)


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_float64_functions_are_within_four_units(name):
    """float64 goes through the C library, in vectors too."""
    x = inputs(name, np.float64)
    exact = REFERENCES[name](x)
    assert units(apply(name, [x], "float64", 4), exact, np.float64) <= 4


@pytest.mark.parametrize("name", ["exp", "tanh", "erf", "sqrt", "floor"])
def test_float16_functions_round_the_float32_value(name):
    """A narrow type computes in float32 and rounds once."""
    x = np.linspace(0.01, 3, 256).astype(np.float16)
    exact = REFERENCES[name](x.astype(np.float64))
    assert units(apply(name, [x], "float16", 8), exact, np.float16) <= 0.51


@pytest.mark.parametrize("target", [ANY_CPU, THIS_CPU], ids=["any", "this"])
@pytest.mark.parametrize("lanes", [1, 4, 8])
def test_special_values(lanes, target):
    """Ends, zeros and NaN are those of the C library."""
    nan, inf = np.nan, np.inf
    cases = {
        "exp": ([-inf, inf, nan, 0, -200, 200, -1e30, 1e30], [0, inf, nan, 1, 0, inf, 0, inf]),
        "log": ([0, -0.0, -1, inf, nan, 1, -inf, 1e-45], [-inf, -inf, nan, inf, nan, 0, nan, math.log(2**-149)]),
        "tanh": ([-inf, inf, nan, 0, -50, 50, 1e-30, -0.0], [-1, 1, nan, 0, -1, 1, 1e-30, 0]),
        "erf": ([-inf, inf, nan, 0, -50, 50, 1e-30, -0.0], [-1, 1, nan, 0, -1, 1, 2e-30 / math.sqrt(math.pi), 0]),
        "sigmoid": ([-inf, inf, nan, 0, -200, 200, 1e-30, -0.0], [0, 1, nan, 0.5, 0, 1, 0.5, 0.5]),
    }
    for name, (x, expected) in cases.items():
        got = apply(name, [np.array(x, np.float32)], "float32", lanes, target)
        np.testing.assert_allclose(got, np.array(expected, np.float32), rtol=3e-7, err_msg=name)


def test_the_polynomials_of_exponentials_are_as_accurate_as_they_say():
    """``1 + r + r**2 P(r)`` is within 0.43 units of 2**-24 of e**r where most arguments are, 1.3 at the largest."""
    half, sixteenth = math.log(2) / 2, math.log(2) / 16
    for coefficients, low, high, bound in (
        (COEFFICIENTS, -half, half, 0.43),
        (COEFFICIENTS, half, 2 * half, 1.3),
        (_EXP_OF_AN_EIGHTH, -sixteenth, sixteenth, 0.44),
    ):
        r = np.linspace(low, high, 10001)
        error = np.polynomial.Polynomial((1, 1, *coefficients))(r) / np.exp(r) - 1
        assert np.max(np.abs(error)) * 2**24 <= bound


@pytest.mark.parametrize("target", [ANY_CPU, THIS_CPU], ids=["any", "this"])
@pytest.mark.parametrize("lanes", [1, 8])
def test_exponentials_at_the_ends_of_their_range(lanes, target):
    """Accurate from the least to the largest normal result; subnormal below, then 0, and infinity beyond."""
    least, largest = np.float32(-87.33654), np.float32(88.72283)
    below, above = np.nextafter(least, -np.inf, dtype=np.float32), np.float32(88.7229)
    x = np.concatenate([np.linspace(-87.3365, -86.5, 500), np.linspace(88, 88.67, 500)]).astype(np.float32)
    assert units(apply("exp", [x], "float32", lanes, target), np.exp(x.astype(np.float64)), np.float32) <= 2
    x = np.append(np.linspace(88.67, 88.7228, 511), largest).astype(np.float32)
    bound = 16 if lanes == 8 and target is THIS_CPU else 2
    assert units(apply("exp", [x], "float32", lanes, target), np.exp(x.astype(np.float64)), np.float32) <= bound
    x = np.array([below, -100, above, 100, least, largest, 0, 0], np.float32)
    got = apply("exp", [x], "float32", lanes, target)
    np.testing.assert_array_equal(got[1:4], [0, np.inf, np.inf])
    np.testing.assert_allclose(got[0], 2.0**-126, rtol=1e-5)
    assert 1.17e-38 < got[4] < 1.18e-38 and 3.4e38 < got[5] < np.inf


@pytest.mark.parametrize("lanes", [1, 8, 16])
@pytest.mark.parametrize("name", ["sin", "cos", "atan"])
def test_angles_are_right_over_the_range_of_float32(name, lanes):
    """Two units in the last place for every exponent, also next to multiples of pi / 2, where digits cancel."""
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 0x7F800000, 1 << 15, dtype=np.uint32) | (rng.integers(0, 2, 1 << 15, np.uint32) << 31)
    near = (rng.integers(-41700, 41700, 1 << 13) * (np.pi / 2)).astype(np.float32)
    x = np.concatenate([bits.view(np.float32), near, np.nextafter(near, np.float32(np.inf))])
    exact = REFERENCES[name](x.astype(np.float64))
    assert units(apply(name, [x], "float32", lanes), exact, np.float32) <= 2
    got = apply(name, [np.array([np.nan, np.inf, -np.inf, 0] * 4, np.float32)], "float32", lanes)[:4]
    wanted = {"sin": [np.nan] * 3 + [0], "cos": [np.nan] * 3 + [1], "atan": [np.nan, np.pi / 2, -np.pi / 2, 0]}
    np.testing.assert_allclose(got, np.array(wanted[name], np.float32), rtol=2e-7)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_power_and_fused_multiply_add(dtype):
    """`pow` is the C library's; `fma` rounds once."""
    rng = np.random.default_rng(3)
    a, b = (rng.uniform(0.5, 2, 64).astype(dtype) for _ in range(2))
    np.testing.assert_allclose(apply("pow", [a, b], dtype, 8), a**b, rtol=4 * np.finfo(dtype).eps)
    one = np.full(8, 1 + np.finfo(dtype).eps, dtype)
    got = apply("fma", [one, one, np.full(8, -1, dtype)], dtype, 8)
    np.testing.assert_array_equal(got, 2 * np.finfo(dtype).eps + np.finfo(dtype).eps ** 2)


def test_integer_absolute_value():
    """The absolute value of an integer stays an integer, of an index too."""
    x = np.array([-3, 5, -128, 0], np.int8)
    np.testing.assert_array_equal(apply("abs", [x], "int8", 4), np.abs(x))
    out = Buffer("out", (5,), "int64")
    got = run(For(i, const(5), Store(out, (i,), Call("abs", (i - 3,), "int64"))), {}, out)
    np.testing.assert_array_equal(got, [3, 2, 1, 0, 1])


def test_bfloat16_function():
    """A bfloat16 argument is widened, and the result rounded to bfloat16."""
    a, out = Buffer("a", (8,), "bfloat16"), Buffer("out", (8,))
    bits = (np.arange(1, 9, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    lane = (Ramp(const(0), const(1), 8),)
    value = Cast("float32x8", Call("sqrt", (Load(a, lane),), "bfloat16x8"))
    np.testing.assert_allclose(run(Store(out, lane, value), {a: bits}, out), np.sqrt(np.arange(1, 9)), rtol=2**-8)
