"""Floats that become integers: saturating, NaN as 0, halves to the even neighbour, in vectors of every width."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_programs import run
from legal_programs import agree

from stridesmith.backends.host import host_cpu
from stridesmith.backends.legal.conversions import clamped
from stridesmith.backends.lower import Lowered
from stridesmith.ir.dtypes import with_lanes
from stridesmith.ir.expr import Broadcast, Buffer, Call, Cast, Const, Expr, Load, Ramp, Var, binary, const
from stridesmith.ir.stmt import For, Store
from stridesmith.ir.target import Target
from stridesmith.ir.type_check import TypeFault, check_types

i = Var("i")
COUNT = 240
NUMBERS = np.concatenate([
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 254.5, 255.5, 127.5, -128.5, 3e9, -3e9, 1e38,
     2**31],
    np.random.default_rng(0).uniform(-400, 400, COUNT - 18),
]).astype(np.float32)  # fmt: skip
ENDS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-(2**15), 2**15 - 1), "int32": (-(2**31), 2**31 - 1)}
TARGETS = {"any": Target(), "this": host_cpu()}


def clip(value: Expr, low: float, high: float, lanes: int, swapped: bool = False) -> Expr:
    ends = [Const(end, "float32") if lanes == 1 else Broadcast(Const(end, "float32"), lanes) for end in (low, high)]
    if swapped:
        return binary("min", binary("max", ends[0], value), ends[1])
    return binary("max", binary("min", value, ends[1]), ends[0])


def converted(dtype: str, lanes: int, target: Target, wrap: object = None) -> np.ndarray:
    """The numbers as integers, `lanes` at a time; `wrap` makes the float that is converted of each."""
    source, out = Buffer("x", (COUNT,), "float32"), Buffer("y", (COUNT,), dtype)
    at = i if lanes == 1 else Ramp(i * lanes, const(1), lanes)
    value: Expr = Load(source, (at,))
    value = wrap(value, lanes) if callable(wrap) else value
    store = Store(out, (at,), Cast(with_lanes(dtype, lanes), value))
    return run(For(i, const(COUNT // lanes), store), {source: NUMBERS}, out, target=target)


def saturated(values: np.ndarray, dtype: str) -> np.ndarray:
    low, high = ENDS[dtype]
    return np.clip(np.where(np.isnan(values), 0, values.astype(np.float64)), low, high).astype(np.int64)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ENDS)
@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 16, 20])
def test_conversions_saturate(dtype: str, lanes: int, target: str) -> None:
    """Truncated towards zero, whatever the float is; NaN gives 0."""
    got = converted(dtype, lanes, TARGETS[target])
    np.testing.assert_array_equal(got, saturated(np.trunc(NUMBERS), dtype))


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("dtype", ENDS)
@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("ends", [(-256.0, 256.0), (0.0, 6.5), (-3.25, 100.0), (-300.0, 5e9)])
def test_what_is_clipped_and_rounded_first(dtype: str, lanes: int, ends: tuple[float, float], swapped: bool) -> None:
    """Both sides of a clip may be written in any order; ends that are no whole numbers are rounded with the rest."""

    def wrap(x: Expr, count: int) -> Expr:
        return Call("nearbyint", (clip(x, *ends, count, swapped),), x.dtype)

    got = converted(dtype, lanes, TARGETS["this"], wrap)
    clipped = np.where(np.isnan(NUMBERS), np.nan, np.clip(NUMBERS, np.float32(ends[0]), np.float32(ends[1])))
    np.testing.assert_array_equal(got, saturated(np.rint(clipped), dtype))


@pytest.mark.parametrize("dtype", ENDS)
@pytest.mark.parametrize("rounds", [False, True])
def test_they_are_nodes_that_mean_the_same(dtype: str, rounds: bool) -> None:
    """What no int32 is asks nobody for; where the range is not known the conversion stays."""
    source, out = Buffer("x", (COUNT,), "float32"), Buffer("y", (COUNT,), dtype)
    at = (Ramp(i * 8, const(1), 8),)
    value: Expr = Load(source, at)
    value = Call("nearbyint", (clip(value, -300.0, 1e6, 8),), value.dtype) if rounds else value
    program = Lowered("program", (source, out), (), For(i, const(30), Store(out, at, Cast(f"{dtype}x8", value))))
    changed = agree(program, TARGETS["any"], [NUMBERS, np.zeros(COUNT, dtype)])
    assert changed == (dtype != "int32" or rounds)


def test_what_gives_an_int32_takes_a_float32() -> None:
    """Of as many lanes, and one."""
    for args, dtype in (((const(1),), "int32"), ((const(1.0),), "int32x4"), ((const(1.0),), "int8")):
        with pytest.raises(TypeFault, match="takes a float32 and gives an int32, each of as many lanes"):
            check_types(Call("round_to_int32", args, dtype))
    with pytest.raises(TypeFault, match="`trunc_to_int32` takes 1 arguments, but has 0"):
        check_types(Call("trunc_to_int32", (), "int32"))


def test_only_what_stays_in_32_bits_needs_no_care() -> None:
    """The largest of 32 bits is no float32; where a clip ends below it, or the integers are narrower, all fits."""
    x = Load(Buffer("x", (4,), "float32"), (const(0),))
    assert clamped(Cast("int32", x)) is None
    assert clamped(Cast("int32", clip(x, -1.0, 2.0**31, 1))) is None
    assert clamped(Cast("int32", clip(x, float("nan"), 5.0, 1))) is None
    inside = clamped(Cast("int32", clip(x, -1.0, 2.0**31 - 128, 1)))
    assert inside is not None and inside.bounds == (-1.0, 2.0**31 - 128)
    narrow = clamped(Cast("int8", clip(x, -1e9, 50.0, 1)))
    assert narrow is not None and narrow.bounds == (-128.0, 50.0)
    assert clamped(Cast("int64", x)) is None
    assert clamped(Cast("int8", Load(Buffer("d", (4,), "float64"), (const(0),)))) is None
