"""Numbers of which programs have only the bits: conversions of all of them, against ml_dtypes and ONNX's own."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from stridesmith.backends.devices import discover
from stridesmith.models.api import compiled, network_of
from stridesmith.models.evaluate import evaluate
from stridesmith.models.onnx import read

ml_dtypes = pytest.importorskip("ml_dtypes")
Array = np.ndarray[Any, Any]
TYPES = {
    "float8_e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ, "float8_e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ,
    "float8_e8m0fnu": TensorProto.FLOAT8E8M0, "float4_e2m1fn": TensorProto.FLOAT4E2M1, "int2": TensorProto.INT2,
    "uint2": TensorProto.UINT2, "float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16,
    "uint8": TensorProto.UINT8, "int8": TensorProto.INT8,
}  # fmt: skip
FLOATS = [name for name in TYPES if name.startswith("float8")]


def made(nodes: list[onnx.NodeProto], given: str, shape: tuple[int, ...], known: dict[str, Array]) -> onnx.ModelProto:
    """A model that reads `x` of the type `given` and gives `y`."""
    x = helper.make_tensor_value_info("x", TYPES[given], shape)
    constants = [numpy_helper.from_array(array, name) for name, array in known.items()]
    graph = helper.make_graph(nodes, "codes", [x], [onnx.ValueInfoProto(name="y")], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)


def result(model: onnx.ModelProto, x: Array) -> Array:
    """What programs alone give."""
    network = read(model)
    assert not network.foreign
    return evaluate(network, {"x": x})["y"]


def cast(x: Array, to: str, **values: Any) -> Array:
    return result(made([helper.make_node("Cast", ["x"], ["y"], to=TYPES[to], **values)], str(x.dtype), x.shape, {}), x)


def same(found: Array, wanted: Array) -> None:
    """Equal numbers of one type, NaN included, zeros with their sign."""
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    one, other = found.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(np.signbit(one) & ~np.isnan(one), np.signbit(other) & ~np.isnan(other))


def odd_floats() -> Array:
    """Numbers between and beside those of few bits, ties among them, and what is no number."""
    rng = np.random.default_rng(0)
    drawn = [(rng.standard_normal(400) * 2.0**size) for size in (-130, -20, -12, -6, 0, 4, 8, 15, 40, 126)]
    ties = [n * 2.0**size for n in (1, 3, 5, 7, 9, 15, 17, 29, 31) for size in range(-20, 16)]
    x = np.concatenate([*drawn, ties, np.negative(ties), [0.0, -0.0, np.inf, -np.inf, np.nan, 240, 248, 61440]])
    return x.astype(np.float32)


@pytest.mark.parametrize("kind", [name for name in TYPES if name not in ("float32", "float16", "uint8", "int8")])
def test_every_code_is_its_number(kind: str) -> None:
    """All bytes as float32, float16 and integers, as ml_dtypes reads them; of 4 bits the upper half is 0."""
    x = np.arange(16 if kind == "float4_e2m1fn" else 256, dtype=np.uint8).view(kind)
    with np.errstate(over="ignore"):
        for to in ["float32", "float16"] + ["int8"] * ("int" in kind):
            same(cast(x, to), x.astype(to))


@pytest.mark.parametrize("kind, saturate", itertools.product([*FLOATS[:2], "float4_e2m1fn"], [0, 1]))
@pytest.mark.parametrize("given", ["float32", "float16"])
def test_floats_are_rounded_to_the_nearest(kind: str, saturate: int, given: str) -> None:
    """Ties to even, beyond the largest number to it or to NaN, as ml_dtypes rounds."""
    with np.errstate(over="ignore"):
        x = odd_floats().astype(given)
    ends = ml_dtypes.finfo(kind)
    wanted = np.clip(x, ends.min, ends.max) if saturate and "8" in kind else x
    same(cast(x, kind, saturate=saturate), wanted.astype(kind))


@pytest.mark.parametrize("kind", ["float8_e5m2fnuz", "float4_e2m1fn", "float8_e8m0fnu"])
def test_kernels_convert_as_the_interpreter_does(kind: str) -> None:
    """There and back, compiled: vectors of integers and floats with the same bits."""
    x, target = odd_floats()[:1001], discover("cpu", 1)
    nodes = [helper.make_node("Cast", ["x"], ["c"], to=TYPES[kind]), helper.make_node("Cast", ["c"], ["y"], to=1)]
    network = read(made(nodes, "float32", x.shape, {}))
    same(np.asarray(compiled(network_of(network, target), target)(x)), evaluate(network, {"x": x})["y"])


@pytest.mark.parametrize("way, saturate", itertools.product(["up", "down", "nearest"], [0, 1]))
def test_powers_of_two(way: str, saturate: int) -> None:
    """In every way of rounding, as ONNX's own conversion."""
    x = odd_floats()
    wanted = numpy_helper.to_float8e8m0(x, bool(saturate), way)
    same(cast(x, "float8_e8m0fnu", round_mode=way, saturate=saturate), wanted)


@pytest.mark.parametrize("kind", ["int2", "uint2"])
def test_integers_of_two_bits(kind: str) -> None:
    """Of floats the whole part, of which two bits count, and of bytes these bits."""
    x = np.array([-3.7, -2.2, -1.5, 0.5, 1.5, 2.5, 3.9, 100, 1e6], np.float32)
    same(cast(x, kind), x.astype(kind))
    whole = np.arange(-128, 128).astype(np.int8)
    same(cast(whole, kind), whole.astype(kind))


@pytest.mark.parametrize("kind", ["float8_e4m3fnuz", "float8_e5m2fnuz", "float4_e2m1fn", "int2", "uint2"])
def test_scaled(kind: str) -> None:
    """QuantizeLinear and DequantizeLinear with scales of places, against what the definitions say."""
    x = np.random.default_rng(1).standard_normal((4, 7)).astype(np.float32) * 3
    scale = np.array([0.5, 1.25, 2.0, 0.75], np.float32)
    zero = np.array([0, 1, 1, 0] if "int" in kind else [0] * 4).astype(kind)
    there = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], axis=0)
    found = result(made([there], "float32", x.shape, {"s": scale, "z": zero}), x)
    apart = x / scale[:, None]
    if "int" in kind:
        ends = ml_dtypes.iinfo(kind)
        wanted = np.clip(np.rint(apart) + zero.astype(int)[:, None], int(ends.min), int(ends.max)).astype(kind)
    else:
        wanted = np.clip(apart, ml_dtypes.finfo(kind).min, ml_dtypes.finfo(kind).max).astype(kind)
    same(found, wanted)
    back = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], axis=0)
    numbers = result(made([back], kind, x.shape, {"s": scale, "z": zero}), found)
    np.testing.assert_array_equal(
        numbers, (found.astype(np.float32) - zero.astype(np.float32)[:, None]) * scale[:, None]
    )


def test_codes_are_moved_and_passed() -> None:
    """A compiled model takes them as ml_dtypes has them or as bytes, moves them, and gives bytes."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("Reshape", ["t", "shape"], ["y"]),
    ]
    x = np.arange(12, dtype=np.uint8).reshape(3, 4).view("float8_e4m3fnuz")
    target = discover("cpu", 1)
    network = network_of(read(made(nodes, "float8_e4m3fnuz", (3, 4), {"shape": np.array([2, 6])})), target)
    model, wanted = compiled(network, target), x.view(np.uint8).T.reshape(2, 6)
    for given in (x, x.view(np.uint8)):
        np.testing.assert_array_equal(model(given), wanted)
    with pytest.raises(TypeError, match="must have dtype uint8, but got float8_e5m2fnuz"):
        model(x.view("float8_e5m2fnuz"))


def test_of_what_programs_have_no_number_is_foreign() -> None:
    """Rounded twice it would be another number: a float64 goes through the reference implementation."""
    x = np.array([0.1, 3.0])
    types = {**TYPES, "float64": TensorProto.DOUBLE}
    node = helper.make_node("Cast", ["x"], ["y"], to=types["float8_e4m3fnuz"])
    graph = helper.make_graph(
        [node], "codes", [helper.make_tensor_value_info("x", types["float64"], (2,))], [onnx.ValueInfoProto(name="y")]
    )
    network = read(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13))
    assert network.foreign
    same(evaluate(network, {"x": x})["y"], x.astype("float8_e4m3fnuz"))
    target = discover("cpu", 1)
    found = compiled(network_of(network, target), target)(x)
    np.testing.assert_array_equal(found.astype(np.float32), x.astype("float8_e4m3fnuz").astype(np.float32))
