"""Integer operators of ONNX, and convolutions and products between quantised tensors, which are computed in bytes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, helper
from onnx_models import model, node
from scale import scaled

import stridesmith as ss
from stridesmith.models.evaluate import evaluate
from stridesmith.models.network import Operator
from stridesmith.models.onnx import import_model, read

Array = np.ndarray[Any, Any]
TYPES = {"u": np.uint8, "s": np.int8}


def drawn(kind: str, *shape: int, seed: int = 0) -> Array:
    """Bytes from the one end of their range to the other."""
    limits = np.iinfo(TYPES[kind])
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(TYPES[kind])


def computed(
    nodes: Sequence[NodeProto], inputs: dict[str, Array], constants: dict[str, Array], opset: int = 17,
    outputs: str = "y",
) -> tuple[dict[str, Array], list[str]]:  # fmt: skip
    """The outputs by the network's programs, run by the interpreter, and the names of these."""
    shapes = {name: array.shape for name, array in inputs.items()}
    made = model(nodes, shapes, {name: np.asarray(value) for name, value in constants.items()}, outputs, opset)
    for item in made.graph.input:
        item.type.tensor_type.elem_type = {"uint8": 2, "int8": 3, "float32": 1}[str(inputs[item.name].dtype)]
    network = read(made)
    names = [n.func.name if isinstance(n, Operator) else f"foreign {n.op}" for n in network.nodes]
    return evaluate(network, inputs), names


def wide(array: Array, zero: Array | int = 0) -> Array:
    return array.astype(np.int64) - np.asarray(zero, np.int64)


def convolved(x: Array, w: Array, pads: Sequence[int], stride: int = 1, groups: int = 1) -> Array:
    """The convolution of images whose border holds 0, in exact integers."""
    x = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    outs = [(e - k) // stride + 1 for e, k in zip(x.shape[2:], w.shape[2:], strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *outs), np.int64)
    own, mine = w.shape[0] // groups, w.shape[1]
    for o, c in itertools.product(range(w.shape[0]), range(mine)):
        for kh, kw in itertools.product(*map(range, w.shape[2:])):
            seen = x[:, o // own * mine + c, kh : kh + stride * outs[0] : stride, kw : kw + stride * outs[1] : stride]
            y[:, o] += seen[:, : outs[0], : outs[1]] * w[o, c, kh, kw]
    return y


def requantised(value: Array, zero: int, dtype: type) -> Array:
    limits = np.iinfo(dtype)
    return np.clip(np.rint(value) + zero, limits.min, limits.max).astype(dtype)


@pytest.mark.parametrize("kinds", ["us", "ss", "uu", "su"])
@pytest.mark.parametrize("zeros", [(None, None), (7, None), (7, 3), (None, 3)])
@pytest.mark.parametrize("constant", [True, False])
def test_products_of_integers(kinds: str, zeros: tuple[int | None, int | None], constant: bool) -> None:
    """MatMulInteger with and without zero points, with weights that are known and such that are not, is exact."""
    a, b = drawn(kinds[0], 3, 5, 22), drawn(kinds[1], 22, 6, seed=1)
    known = {n: np.asarray(z, TYPES[k]) for n, k, z in zip(("za", "zb"), kinds, zeros, strict=True) if z is not None}
    names = [n if n in known else "" for n in ("za", "zb")]
    while names and not names[-1]:
        names.pop()
    nodes = [helper.make_node("MatMulInteger", ["a", "b", *names], ["y"])]
    given = {"a": a} if constant else {"a": a, "b": b}
    found, programs = computed(nodes, given, {**known, **({"b": b} if constant else {})})
    want = wide(a, zeros[0] or 0) @ wide(b, zeros[1] or 0)
    assert programs == ["matmul_of_bytes"] and found["y"].dtype == np.int32
    np.testing.assert_array_equal(found["y"], want)


def test_a_zero_point_that_is_computed() -> None:
    """What DynamicQuantizeLinear gives goes into the product: a tensor without dimensions."""
    x = np.random.default_rng(0).standard_normal((4, 22)).astype(np.float32)
    b = drawn("s", 22, 6)
    nodes = [node("DynamicQuantizeLinear", "x", "q s z"), node("MatMulInteger", "q b z", "y")]
    found, programs = computed(nodes, {"x": x}, {"b": b}, outputs="q z y")
    assert programs[-1] == "matmul_of_bytes" and "foreign" not in " ".join(programs)
    np.testing.assert_array_equal(found["y"], wide(found["q"], found["z"]) @ wide(b))


@pytest.mark.parametrize("zero", [0, 7])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolutions_of_integers_have_zero_points_around_the_image(zero: int, groups: int) -> None:
    """The border of ConvInteger holds the zero point; that of weights goes into them where they stay bytes."""
    x, w = drawn("u", 2, 4, 7, 6), drawn("u", 4, 4 // groups, 3, 2) // 2 + 64
    nodes = [node("ConvInteger", "x w zx zw", "y", pads=[1, 1, 2, 0], strides=[2, 2], group=groups)]
    constants = {"w": w, "zx": np.asarray(zero, np.uint8), "zw": np.asarray(128, np.uint8)}
    found, programs = computed(nodes, {"x": x}, constants)
    assert programs == ["depthwise_conv2d_of_bytes" if groups == 4 else "conv2d_of_bytes"]
    np.testing.assert_array_equal(found["y"], convolved(wide(x, zero), wide(w, 128), [1, 1, 2, 0], 2, groups))


@pytest.mark.parametrize("pads", [[0] * 4, [1, 1, 2, 0]])
@pytest.mark.parametrize("groups, shift", [(1, 128), (2, 117), (4, 128)])
def test_convolutions_of_integers_with_a_zero_point_that_is_computed(pads: list[int], groups: int, shift: int) -> None:
    """Its product with the weights that meet the image is taken off; weights of 9 bits are kept in 16."""
    x = np.random.default_rng(0).standard_normal((2, 4, 7, 6)).astype(np.float32)
    w = np.random.default_rng(1).integers(0, 256, (4, 4 // groups, 3, 2)).astype(np.uint8)
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("ConvInteger", "q w z zw", "y", pads=pads, strides=[2, 2], group=groups),
    ]
    found, programs = computed(nodes, {"x": x}, {"w": w, "zw": np.asarray(shift, np.uint8)}, outputs="q z y")
    assert programs[-1] == "without_zero" and "foreign" not in " ".join(programs)
    wanted = convolved(wide(found["q"], found["z"]), wide(w, shift), pads, 2, groups)
    np.testing.assert_array_equal(found["y"], wanted)


@pytest.mark.parametrize("kinds", ["us", "ss"])
@pytest.mark.parametrize("has_bias", [True, False])
def test_quantised_convolutions(kinds: str, has_bias: bool) -> None:
    """QLinearConv: scales for each channel, a bias in steps of the sum, halves to the even neighbour, ends clipped."""
    x, w, dtype = drawn(kinds[0], 1, 5, 9, 8), drawn(kinds[1], 6, 5, 3, 3), TYPES[kinds[0]]
    scales = np.random.default_rng(2).uniform(0.01, 0.02, 6).astype(np.float32)
    bias = np.random.default_rng(3).integers(-999, 999, 6).astype(np.int32)
    constants = {
        "xs": np.float32(0.02), "xz": np.asarray(3, dtype), "w": w, "ws": scales, "wz": np.zeros(6, TYPES[kinds[1]]),
        "ys": np.float32(0.5), "yz": np.asarray(5, dtype),
    } | ({"b": bias} if has_bias else {})  # fmt: skip
    names = "x xs xz w ws wz ys yz" + " b" * has_bias
    found, programs = computed([node("QLinearConv", names, "y", pads=[1, 1, 1, 1])], {"x": x}, constants)
    assert programs == ["conv2d_of_bytes"]
    total = convolved(wide(x, 3), wide(w), [1, 1, 1, 1]) + has_bias * bias.astype(np.int64).reshape(-1, 1, 1)
    factor = (np.float32(0.02) * scales / np.float32(0.5)).reshape(-1, 1, 1)
    np.testing.assert_array_equal(found["y"], requantised(total.astype(np.float32) * factor, 5, dtype))


def test_quantised_products() -> None:
    """QLinearMatMul: of a value halfway between two the even one is taken, and then the zero point is added."""
    a, b = np.asarray([[1, 2], [5, 255]], np.uint8), np.asarray([[1, 3, -128], [0, 0, 127]], np.int8)
    constants = {
        "as": np.float32(1), "az": np.uint8(0), "b": b, "bs": np.float32(1), "bz": np.int8(0), "ys": np.float32(2),
        "yz": np.uint8(1),
    }  # fmt: skip
    found, programs = computed([node("QLinearMatMul", "a as az b bs bz ys yz", "y")], {"a": a}, constants)
    assert programs == ["matmul_of_bytes"]
    np.testing.assert_array_equal(found["y"], requantised((wide(a) @ wide(b)).astype(np.float32) / 2, 1, np.uint8))
    assert found["y"][0, 0] == 1 and found["y"][0, 1] == 3  # of 0.5 and 1.5


def test_weights_that_are_no_bytes_without_their_zero_point() -> None:
    """Products have their zero point as a term of its own, convolutions weights of 16 bits."""
    w = np.asarray([[0, 255], [255, 0]], np.uint8)
    nodes = [node("MatMulInteger", "a b za zb", "y")]
    constants = {"b": w, "za": np.uint8(9), "zb": np.uint8(100)}
    found, programs = computed(nodes, {"a": drawn("u", 3, 2)}, constants)
    assert programs == ["matmul_of_bytes"]
    np.testing.assert_array_equal(found["y"], wide(drawn("u", 3, 2), 9) @ wide(w, 100))
    image = [node("ConvInteger", "x w zx zw", "y")]
    constants = {"w": w.reshape(2, 2, 1, 1), "zx": np.uint8(9), "zw": np.uint8(100)}
    found, programs = computed(image, {"x": drawn("u", 1, 2, 3, 3)}, constants)
    assert programs == ["conv2d_of_bytes"]
    want = convolved(wide(drawn("u", 1, 2, 3, 3), 9), wide(w, 100).reshape(2, 2, 1, 1), [0] * 4)
    np.testing.assert_array_equal(found["y"], want)


def quantised_conv(relu: bool = False, quantises: bool = True, bias: str = "whole", opset: int = 17) -> Any:
    """Nodes between dequantised tensors as a quantiser writes them, and the constants."""
    rng = np.random.default_rng(5)
    scales = rng.uniform(0.01, 0.02, 6).astype(np.float32)
    constants: dict[str, Array] = {
        "xs": np.float32(0.02), "xz": np.uint8(114), "w": drawn("s", 6, 5, 3, 3), "ws": scales,
        "wz": np.zeros(6, np.int8), "ys": np.float32(0.7), "yz": np.uint8(9),
    }  # fmt: skip
    nodes = [
        node("DequantizeLinear", "x xs xz", "xd"), node("DequantizeLinear", "w ws wz", "wd", axis=0),
    ]  # fmt: skip
    if bias == "whole":
        constants |= {"bq": rng.integers(-999, 999, 6).astype(np.int32), "bs": np.float32(0.02) * scales,
                      "bz": np.zeros(6, np.int32)}  # fmt: skip
        nodes.append(node("DequantizeLinear", "bq bs bz", "b", axis=0))
    else:
        constants["b"] = rng.standard_normal(6).astype(np.float32)
    nodes.append(node("Conv", "xd wd b", "c", pads=[1, 1, 1, 1]))
    last = "c"
    if relu:
        nodes.append(node("Relu", "c", "r"))
        last = "r"
    nodes.append(node("QuantizeLinear", f"{last} ys yz", "y") if quantises else node("Neg", last, "y"))
    return nodes, {name: np.asarray(value) for name, value in constants.items()}


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("quantises", [True, False])
@pytest.mark.parametrize("bias", ["whole", "any"])
def test_convolutions_between_quantised_tensors(relu: bool, quantises: bool, bias: str, opset: int) -> None:
    """In bytes, within one step of the result's scale of what the nodes say in floats, or floats."""
    nodes, constants = quantised_conv(relu, quantises, bias, opset)
    x = drawn("u", 1, 5, 9, 8)
    found, programs = computed(nodes, {"x": x}, constants, opset)
    assert programs[0] == "conv2d_of_bytes" and "dequantizelinear" not in programs and "conv2d" not in programs
    if quantises:
        assert programs == ["conv2d_of_bytes"]
    scale = constants["ws"].astype(np.float64).reshape(-1, 1, 1)
    value = convolved(wide(x, 114), wide(constants["w"]), [1, 1, 1, 1]) * 0.02 * scale
    offset = constants["bq"] * 0.02 * constants["ws"].astype(np.float64) if bias == "whole" else constants["b"]
    value = value + offset.reshape(-1, 1, 1)
    value = np.maximum(value, 0) if relu else value
    if not quantises:
        np.testing.assert_allclose(found["y"], -value, rtol=1e-5, atol=1e-4)
        return
    want = requantised(value / 0.7, 9, np.uint8)
    apart = np.abs(wide(found["y"]) - wide(want))
    assert apart.max() <= 1 and (apart > 0).mean() < 0.01


def scattered(x: Array, w: Array, strides: Sequence[int], cuts: Sequence[int], dilation: int, groups: int) -> Array:
    """A transposed convolution in exact integers: each element of x is added wherever its taps reach."""
    reach = [dilation * (k - 1) + 1 for k in w.shape[2:]]
    sizes = [(e - 1) * s + r for e, s, r in zip(x.shape[2:], strides, reach, strict=True)]
    each, own = x.shape[1] // groups, w.shape[1]
    y = np.zeros((x.shape[0], own * groups, *sizes), np.int64)
    for c, o in itertools.product(range(x.shape[1]), range(own)):
        for kh, kw in itertools.product(*map(range, w.shape[2:])):
            rows = slice(kh * dilation, kh * dilation + (x.shape[2] - 1) * strides[0] + 1, strides[0])
            columns = slice(kw * dilation, kw * dilation + (x.shape[3] - 1) * strides[1] + 1, strides[1])
            y[:, c // each * own + o, rows, columns] += x[:, c] * w[c, o, kh, kw]
    return y[:, :, cuts[0] : sizes[0] - cuts[2], cuts[1] : sizes[1] - cuts[3]]


@pytest.mark.parametrize(
    "taps, strides, cuts, dilation, groups",
    [((2, 2), (2, 2), (0,) * 4, 1, 1), ((3, 3), (2, 2), (1, 1, 0, 1), 1, 1), ((3, 2), (1, 2), (0, 0, 1, 0), 2, 1),
     ((4, 4), (2, 3), (1,) * 4, 1, 2)],
)  # fmt: skip
@pytest.mark.parametrize("quantises", [True, False])
def test_transposed_convolutions_between_quantised_tensors(
    taps: tuple[int, int], strides: tuple[int, int], cuts: tuple[int, ...], dilation: int, groups: int, quantises: bool
) -> None:
    """In bytes, also where places near the edge, or between strides, meet fewer weights: those alone count."""
    rng = np.random.default_rng(2)
    x, w = drawn("u", 1, 4, 5, 4), drawn("s", 4, 3, *taps)
    scales = rng.uniform(0.01, 0.02, 3).astype(np.float32)
    constants: dict[str, Array] = {
        "xs": np.float32(0.02), "xz": np.uint8(114), "w": w, "ws": scales, "wz": np.zeros(3, np.int8),
        "ys": np.float32(0.4), "yz": np.uint8(90), "b": rng.standard_normal(3 * groups).astype(np.float32),
    }  # fmt: skip
    nodes = [
        node("DequantizeLinear", "x xs xz", "xd"), node("DequantizeLinear", "w ws wz", "wd", axis=1),
        node("ConvTranspose", "xd wd b", "c", strides=strides, pads=cuts, dilations=[dilation] * 2, group=groups),
        node("QuantizeLinear", "c ys yz", "y") if quantises else node("Neg", "c", "y"),
    ]  # fmt: skip
    found, programs = computed(nodes, {"x": x}, constants)
    assert programs[0] == "conv2d_transpose_of_bytes" and "dequantizelinear" not in programs
    scale = np.tile(scales, groups).astype(np.float64).reshape(-1, 1, 1) * 0.02
    value = scattered(wide(x, 114), wide(w), strides, cuts, dilation, groups) * scale
    value = value + constants["b"].reshape(-1, 1, 1)
    if not quantises:
        np.testing.assert_allclose(found["y"], -value, rtol=1e-5, atol=1e-4)
        return
    apart = np.abs(wide(found["y"]) - wide(requantised(value / 0.4, 90, np.uint8)))
    assert apart.max() <= 1 and (apart > 0).mean() < 0.01


@pytest.mark.parametrize("form", ["MatMul", "Gemm", "turned", "two"])
def test_products_between_quantised_tensors_are_of_bytes(form: str) -> None:
    """With constant weights, transposed ones too, and of two tensors that are computed."""
    a, b = drawn("u", 5, 22), drawn("s", 22, 6)
    constants: dict[str, Array] = {
        "as": np.float32(0.02), "az": np.uint8(114), "bs": np.float32(0.01), "bz": np.int8(-3), "ys": np.float32(0.4),
        "yz": np.uint8(100),
    }  # fmt: skip
    inputs = {"a": a}
    if form == "two":
        inputs["b"] = b
    else:
        constants["b"] = b.T.copy() if form == "turned" else b
    if form != "two":
        constants["bz"] = np.int8(0)
    nodes = [node("DequantizeLinear", "a as az", "ad"), node("DequantizeLinear", "b bs bz", "bd")]
    if form in ("MatMul", "two"):
        nodes.append(node("MatMul", "ad bd", "c"))
    else:
        constants["bias"] = np.random.default_rng(0).standard_normal(6).astype(np.float32)
        nodes.append(node("Gemm", "ad bd bias", "c", transB=int(form == "turned")))
    nodes.append(node("QuantizeLinear", "c ys yz", "y"))
    found, programs = computed(nodes, inputs, constants)
    assert programs == ["matmul_of_bytes"]
    value = wide(a, 114) @ wide(b, constants["bz"]) * 0.02 * 0.01 + constants.get("bias", np.zeros(6))
    apart = np.abs(wide(found["y"]) - wide(requantised(value / 0.4, 100, np.uint8)))
    assert apart.max() <= 1 and (apart > 0).mean() < 0.1


@pytest.mark.parametrize("count, of_bytes", [(70_000, False), (60_000, True)])
def test_sums_that_may_leave_32_bits_stay_floats(count: int, of_bytes: bool) -> None:
    """Floats do not wrap around: 70,000 products of 255 by 127 are more than 32 bits hold, and 60,000 are not."""
    a = np.full((1, count), 255, np.uint8)
    constants: dict[str, Array] = {
        "as": np.float32(1e-3), "az": np.uint8(0), "b": np.full((count, 2), 127, np.int8), "bs": np.float32(1e-3),
        "bz": np.int8(0), "ys": np.float32(20), "yz": np.uint8(0),
    }  # fmt: skip
    nodes = [node("DequantizeLinear", "a as az", "ad"), node("DequantizeLinear", "b bs bz", "bd")]
    nodes += [node("MatMul", "ad bd", "c"), node("QuantizeLinear", "c ys yz", "y")]
    found, programs = computed(nodes, {"a": a}, constants)
    assert ("matmul_of_bytes" in programs) == of_bytes
    np.testing.assert_array_equal(found["y"], np.full((1, 2), round(count * 255 * 127 * 1e-6 / 20), np.uint8))


def test_what_else_reads_stays() -> None:
    """A sum that something else reads is left in floats, for both; a scale that is computed leaves the convolution."""
    nodes, constants = quantised_conv()
    nodes.append(node("Neg", "c", "z"))
    found, programs = computed(nodes, {"x": drawn("u", 1, 5, 9, 8)}, constants, outputs="y z")
    assert programs[0] == "conv2d_of_bytes" and "quantizelinear" in programs
    np.testing.assert_allclose(requantised(-found["z"] / np.float32(0.7), 9, np.uint8), found["y"], atol=1)
    nodes, constants = quantised_conv()
    scale = constants.pop("xs")
    made = model([node("Abs", "s", "xs"), *nodes], {"x": (1, 5, 9, 8), "s": ()}, constants)
    made.graph.input[0].type.tensor_type.elem_type = 2
    names = [n.func.name for n in read(made).nodes if isinstance(n, Operator)]
    assert "conv2d" in names and "dequantizelinear" in names and scale > 0


@pytest.mark.parametrize("move", ["MaxPool", "Transpose", "Concat", "other scale", "Neg"])
def test_what_only_moves_values_moves_bytes(move: str) -> None:
    """Where operand and result have one scale and zero point; with another scale, or by another operator, in floats."""
    x = drawn("u", 1, 5, 9, 8)
    constants = {"s": np.asarray(0.02, np.float32), "z": np.uint8(114), "t": np.asarray(0.03, np.float32)}
    op = "MaxPool" if move == "other scale" else move
    attributes: dict[str, Any] = {
        "MaxPool": {"kernel_shape": [3, 3], "pads": [1] * 4}, "Transpose": {"perm": [0, 2, 3, 1]},
        "Concat": {"axis": 1},
    }.get(op, {})  # fmt: skip
    nodes = [
        node("DequantizeLinear", "x s z", "xd"), node(op, "xd xd" if op == "Concat" else "xd", "m", **attributes),
        node("QuantizeLinear", "m t z" if move == "other scale" else "m s z", "y"),
    ]  # fmt: skip
    found, programs = computed(nodes, {"x": x}, constants)
    wants = {
        "Transpose": lambda: x.transpose(0, 2, 3, 1), "Concat": lambda: np.concatenate([x, x], 1),
        "Neg": lambda: requantised(-wide(x, 114), 114, np.uint8),
    }  # fmt: skip
    assert ("dequantizelinear" in programs) == (move in ("other scale", "Neg"))
    if move in wants:
        np.testing.assert_array_equal(found["y"], wants[move]())
    else:
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        largest = np.max([padded[:, :, i : i + 9, j : j + 8] for i in range(3) for j in range(3)], axis=0)
        scale = 0.02 / 0.03 if move == "other scale" else 1
        np.testing.assert_allclose(found["y"], requantised(wide(largest, 114) * scale, 114, np.uint8), atol=scale < 1)


def random_chain(rng: np.random.Generator, channels: int) -> tuple[list[NodeProto], dict[str, Array], Any]:
    """Scales, shifts and clips by constants from `v` to `w`, as nodes, their constants, and as a function."""
    nodes, constants, steps = [], {}, []  # type: ignore[var-annotated]
    last = "v"
    for k, op in enumerate(rng.choice(["BatchNormalization", "Mul", "Add", "Sub", "Div", "Relu", "Clip"], 3)):
        made, names = f"v{k}", [f"{n}{k}" for n in "abcd"]
        many = bool(rng.integers(2))
        sign = rng.choice([-1, 1])
        vector = np.asarray(sign * rng.uniform(0.5, 1.5, (channels, 1, 1) if many else ()), np.float32)
        if op == "BatchNormalization":
            rows = [rng.uniform(0.5, 1.5, channels).astype(np.float32) for _ in names]
            constants |= dict(zip(names, rows, strict=True))
            a, b, c, d = (row.astype(np.float64).reshape(-1, 1, 1) for row in rows)
            steps.append(lambda v, a=a, b=b, c=c, d=d: (v - c) / np.sqrt(d + 1e-5) * a + b)
            nodes.append(node(op, f"{last} {' '.join(names)}", made))
        elif op == "Clip":
            low, high = sorted(rng.uniform(-2, 2, 2).astype(np.float32))
            constants |= {names[0]: low, names[1]: high}
            steps.append(lambda v, low=low, high=high: np.clip(v, low, high))
            nodes.append(node(op, f"{last} {names[0]} {names[1]}", made))
        elif op == "Relu":
            steps.append(lambda v: np.maximum(v, 0))
            nodes.append(node(op, last, made))
        else:
            apply = {"Mul": np.multiply, "Add": np.add, "Sub": np.subtract, "Div": np.divide}[op]
            constants[names[0]] = vector
            turned = op in ("Add", "Sub", "Mul") and bool(rng.integers(2))
            nodes.append(node(op, f"{names[0]} {last}" if turned else f"{last} {names[0]}", made))
            wide_vector = vector.astype(np.float64)
            steps.append(lambda v, f=apply, w=wide_vector, t=turned: f(w, v) if t else f(v, w))
        last = made
    nodes.append(node("Identity", last, "w"))
    return nodes, {name: np.asarray(value) for name, value in constants.items()}, steps


@pytest.mark.parametrize("start", ["one", "conv", "Add", "Sub", "Mul"])
@pytest.mark.parametrize("seed", range(scaled(6)))
def test_chains_between_quantised_tensors(start: str, seed: int) -> None:
    """Scales, shifts and clips of one tensor, of a convolution, of a sum or product of two: within a step of floats."""
    rng = np.random.default_rng([seed, len(start)])
    chain, constants, steps = random_chain(rng, 6)
    kinds = [str(k) for k in rng.choice(["u", "s"], 3)]
    zeros = [int(rng.integers(-100, 100)) if k == "s" else int(rng.integers(0, 200)) for k in kinds]
    scales = rng.uniform(0.01, 0.03, 3).astype(np.float32)
    constants |= {f"s{k}": s for k, s in enumerate(scales)}
    constants |= {f"z{k}": np.asarray(z, TYPES[kind]) for k, (z, kind) in enumerate(zip(zeros, kinds, strict=True))}
    a, b = drawn(kinds[0], 2, 6, 5, 4, seed=seed), drawn(kinds[1], 2, 6, 5, 4, seed=seed + 1)
    inputs, nodes = {"a": a}, [node("DequantizeLinear", "a s0 z0", "ad" if start != "one" else "v")]
    value = wide(a, zeros[0]) * np.float64(scales[0])
    if start == "conv":
        constants |= {"wq": drawn("s", 6, 6, 1, 1), "ws": np.float32(0.002), "wz": np.int8(0)}
        nodes += [node("DequantizeLinear", "wq ws wz", "wd"), node("Conv", "ad wd", "v")]
        value = convolved(wide(a, zeros[0]), wide(constants["wq"]), [0] * 4) * float(scales[0]) * 0.002
    elif start != "one":
        inputs["b"] = b
        other = wide(b, zeros[1]) * np.float64(scales[1])
        nodes += [node("DequantizeLinear", "b s1 z1", "bd"), node(start, "ad bd", "v")]
        value = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[start](value, other)
    for step in steps:
        value = step(value)
    nodes += [*chain, node("QuantizeLinear", "w s2 z2", "y")]
    found, programs = computed(nodes, inputs, {name: np.asarray(v) for name, v in constants.items()})
    want = requantised(value / np.float64(scales[2]), zeros[2], TYPES[kinds[2]])
    assert found["y"].dtype == TYPES[kinds[2]]
    apart = np.abs(wide(found["y"]) - wide(want))
    assert apart.max() <= 1 and (apart > 0).mean() < 0.01
    clips = [n.op_type for n in chain]
    ordered = all(op in ("Relu", "Clip", "Identity") for op in clips[next(iter(
        [k for k, op in enumerate(clips) if op in ("Relu", "Clip")]), len(clips)):])  # fmt: skip
    per_channel = any(np.size(v) > 1 for name, v in constants.items() if name[0] in "abcd" and name[1:].isdigit())
    if ordered and (start in ("one", "conv") or not per_channel):
        assert programs == ["conv2d_of_bytes" if start == "conv" else "bytewise"]


def test_parts_of_a_concatenation_are_brought_to_its_scale() -> None:
    """Bytes of another scale or type are scaled once, and those that have the result's stay as they are."""
    constants = {"s": np.float32(0.02), "z": np.uint8(114), "t": np.float32(0.05), "k": np.int8(-3)}
    x, w = drawn("u", 1, 3, 4, 4), drawn("s", 1, 2, 4, 4)
    nodes = [node("DequantizeLinear", "x s z", "xd"), node("DequantizeLinear", "w t k", "wd"),
             node("Concat", "xd wd", "c", axis=1), node("QuantizeLinear", "c s z", "y")]  # fmt: skip
    found, programs = computed(nodes, {"x": x, "w": w}, {n: np.asarray(v) for n, v in constants.items()})
    assert "dequantizelinear" not in programs and programs.count("bytewise") == 1
    np.testing.assert_array_equal(found["y"][:, :3], x)
    want = requantised(wide(w, -3) * np.float64(np.float32(0.05)) / np.float64(np.float32(0.02)), 114, np.uint8)
    np.testing.assert_allclose(found["y"][:, 3:], want, atol=1)


def test_the_report_says_what_was_computed_in_bytes() -> None:
    """What became of each node: the convolution is named."""
    nodes, constants = quantised_conv()
    made = model(nodes, {"x": (1, 5, 9, 8)}, constants)
    made.graph.input[0].type.tensor_type.elem_type = 2
    fates = {(fate.op, fate.became) for fate in import_model(made).fates}
    assert ("Conv", "computed in bytes") in fates


def test_compiled_code_computes_the_same() -> None:
    """The whole network by machine code, with the largest bytes in every place."""
    nodes, constants = quantised_conv(relu=True)
    made = model(nodes, {"x": (1, 5, 9, 8)}, constants)
    made.graph.input[0].type.tensor_type.elem_type = 2
    network, compiled = read(made), ss.compile(made)
    for x in (drawn("u", 1, 5, 9, 8), np.full((1, 5, 9, 8), 255, np.uint8), np.zeros((1, 5, 9, 8), np.uint8)):
        np.testing.assert_array_equal(compiled({"x": x})["y"], evaluate(network, {"x": x})["y"])


def test_a_product_of_two_computed_factors_is_finished_in_its_own_nest() -> None:
    """What the estimate likes best is built: the sums of rows and columns stand before what reads them."""
    a, b = drawn("u", 3, 33, 40), drawn("u", 3, 40, 37, seed=1)
    nodes = [
        node("DequantizeLinear", "a as az", "fa"), node("DequantizeLinear", "b bs bz", "fb"),
        node("MatMul", "fa fb", "fy"), node("QuantizeLinear", "fy ys yz", "y"),
    ]  # fmt: skip
    scales = {"as": 0.02, "bs": 0.01, "ys": 0.05}
    constants = {name: np.array(value, np.float32) for name, value in scales.items()}
    constants |= {name: np.array(value, np.uint8) for name, value in {"az": 121, "bz": 131, "yz": 120}.items()}
    made = model(nodes, {"a": a.shape, "b": b.shape}, constants, "y", 17)
    for item in made.graph.input:
        item.type.tensor_type.elem_type = 2
    run = ss.compile(made)
    assert {kernel.origin for kernel in run.kernels.values()} == {"estimated"}
    exact = (wide(a, 121) @ wide(b, 131)) * (0.02 * 0.01 / 0.05) + 120
    assert np.abs(run(a, b).astype(float) - np.clip(np.rint(exact), 0, 255)).max() <= 1
