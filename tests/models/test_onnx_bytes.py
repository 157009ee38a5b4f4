"""Operators of ``com.microsoft`` on bytes, against NumPy, and against ONNX Runtime where that is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import value

from stridesmith.models.evaluate import evaluate
from stridesmith.models.network import Operator
from stridesmith.models.onnx import read

Array = np.ndarray[Any, Any]
XS, XZ, WS, YS, YZ = np.float32(0.02), 114, np.float32(0.03), np.float32(0.0437), 9
SCALES = {
    "xs": np.asarray(XS), "xz": np.uint8(XZ), "ws": np.asarray(WS), "wz": np.uint8(90), "ys": np.asarray(YS),
    "yz": np.uint8(YZ),
}  # fmt: skip


def drawn(dtype: type, *shape: int, seed: int = 0) -> Array:
    """Numbers from the one end of a type to the other."""
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


def made(op: str, names: str, arrays: dict[str, Array], known: dict[str, Any], **values: Any) -> onnx.ModelProto:
    """A model of one node; ``-`` stands for an input that is left out."""
    given = ["" if name == "-" else name for name in names.split()]
    node = helper.make_node(op, given, ["y"], "node", domain="com.microsoft", **values)
    inputs = [value(name, array.shape, str(array.dtype)) for name, array in arrays.items()]
    tensors = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in known.items() if n in given]
    graph = helper.make_graph([node], "one", inputs, [onnx.ValueInfoProto(name="y")], tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def result(model: onnx.ModelProto, arrays: dict[str, Array]) -> tuple[Array, list[str]]:
    """What programs alone give, and their names."""
    network = read(model)
    assert not network.foreign
    names = [n.func.name for n in network.nodes if isinstance(n, Operator)]
    (found,) = evaluate(network, arrays).values()
    return found, names


def floats(x: Array, scale: Any = XS, zero: Any = XZ) -> Array:
    return (x.astype(np.int64) - np.asarray(zero, np.int64)) * np.asarray(scale, np.float64)


def quantised(y: Array, scale: Any = YS, zero: int = YZ, dtype: type = np.uint8) -> Array:
    limits = np.iinfo(dtype)
    return np.clip(np.rint(y / np.float64(scale)) + zero, limits.min, limits.max).astype(dtype)


def within_a_step(found: Array, wanted: Array) -> None:
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    apart = np.abs(found.astype(np.int64) - wanted.astype(np.int64))
    assert apart.max() <= 1 and (apart > 0).mean() <= 0.02


A, B = drawn(np.uint8, 2, 3, 6, 5), drawn(np.uint8, 2, 3, 6, 5, seed=1)


@pytest.mark.parametrize("op, apply", [("Add", np.add), ("Mul", np.multiply)])
@pytest.mark.parametrize("other", [B, B[:, :, :1], B[0, 0, 0]])
def test_sums_and_products(op: str, apply: Callable[[Array, Array], Array], other: Array) -> None:
    """Of two tensors, one of which may be repeated: one pass over bytes."""
    arrays = {"x": A, "w": other}
    found, names = result(made(f"QLinear{op}", "x xs xz w ws wz ys yz", arrays, SCALES), arrays)
    within_a_step(found, quantised(apply(floats(A), floats(other, WS, 90))))
    assert names == ["bytewise"]


def test_functions_of_one_tensor() -> None:
    """A sigmoid, and a line that bends, with the slope that ONNX has for it by default and with another."""
    found, _ = result(made("QLinearSigmoid", "x xs xz ys yz", {"x": A}, SCALES), {"x": A})
    within_a_step(found, quantised(1 / (1 + np.exp(-floats(A)))))
    for alpha in (None, 0.3):
        values = {} if alpha is None else {"alpha": alpha}
        found, _ = result(made("QLinearLeakyRelu", "x xs xz ys yz", {"x": A}, SCALES, **values), {"x": A})
        x = floats(A)
        within_a_step(found, quantised(np.where(x < 0, x * (0.01 if alpha is None else alpha), x)))


@pytest.mark.parametrize("last", [False, True])
def test_means(last: bool) -> None:
    """Of whole images and of windows, with channels in either place; the border counts where it is asked for."""
    x = np.ascontiguousarray(A.transpose(0, 2, 3, 1)) if last else A
    back = (0, 2, 3, 1) if last else (0, 1, 2, 3)
    model = made("QLinearGlobalAveragePool", "x xs xz ys yz", {"x": x}, SCALES, channels_last=int(last))
    within_a_step(result(model, {"x": x})[0], quantised(floats(A).mean((2, 3), keepdims=True)).transpose(back))
    for counts in (0, 1):
        values = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 0], "strides": [2, 1], "count_include_pad": counts}
        model = made("QLinearAveragePool", "x xs xz ys yz", {"x": x}, SCALES, channels_last=int(last), **values)
        within_a_step(result(model, {"x": x})[0], quantised(windows(floats(A), counts, 0)).transpose(back))
        values |= {"ceil_mode": 1}
        model = made("QLinearAveragePool", "x xs xz ys yz", {"x": x}, SCALES, channels_last=int(last), **values)
        within_a_step(result(model, {"x": x})[0], quantised(windows(floats(A), counts, 1)).transpose(back))


def windows(x: Array, counts: int, beyond: int) -> Array:
    """Means over 3 by 2, in steps of 2 and 1, of images with a border of a row; `beyond` for windows that reach out."""
    rows = 3 + beyond
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1 + beyond), (0, 0)))
    inside = np.pad(np.ones_like(x), ((0, 0), (0, 0), (1, 1 + beyond), (0, 0)))
    total, count = np.zeros((2, 3, rows, 4)), np.zeros((2, 3, rows, 4))
    for i in range(3):
        for j in range(2):
            total += padded[:, :, i : i + 2 * rows - 1 : 2, j : j + 4][:, :, :rows]
            count += inside[:, :, i : i + 2 * rows - 1 : 2, j : j + 4][:, :, :rows]
    return total / (6 if counts else count)


def test_parts_of_a_whole() -> None:
    """Each part has a scale and a zero point; those of the result stay as they are."""
    arrays, known = {"x": A, "w": B[:, :2]}, SCALES
    found, names = result(made("QLinearConcat", "ys yz x xs xz w ys yz", arrays, known, axis=1), arrays)
    within_a_step(found[:, :3], quantised(floats(A)))
    np.testing.assert_array_equal(found[:, 3:], B[:, :2])
    assert "dequantizelinear" not in names


@pytest.mark.parametrize("opset", [11, 13])
def test_softmax(opset: int) -> None:
    """Along one dimension, or along all from the axis on as ONNX had it before version 13."""
    known = SCALES | {"ys": np.float32(1 / 256), "yz": np.uint8(0)}
    found, _ = result(made("QLinearSoftmax", "x xs xz ys yz", {"x": A}, known, axis=2, opset=opset), {"x": A})
    e, over = np.exp(floats(A)), (2,) if opset == 13 else (2, 3)
    within_a_step(found, quantised(e / e.sum(over, keepdims=True), 1 / 256, 0))


def test_choices() -> None:
    condition = np.random.default_rng(3).random(A.shape) < 0.5
    arrays = {"c": condition, "x": A, "w": B}
    found, _ = result(made("QLinearWhere", "c x xs xz w ws wz ys yz", arrays, SCALES), arrays)
    within_a_step(found, quantised(np.where(condition, floats(A), floats(B, WS, 90))))


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("gives_bytes", [True, False])
def test_gemm(turned: int, alpha: float, gives_bytes: bool) -> None:
    """Scales for each column, a bias in steps of the sum; in bytes, and the result bytes or floats."""
    x, w = drawn(np.uint8, 5, 22), drawn(np.int8, 22, 6)
    scales = np.linspace(0.01, 0.02, 6).astype(np.float32)
    known = SCALES | {
        "w": w.T.copy() if turned else w, "ws": scales, "wz": np.zeros(6, np.int8),
        "ys": np.float32(0.5), "c": drawn(np.int16, 6).astype(np.int32),
    }  # fmt: skip
    names = "x xs xz w ws wz c" + " ys yz" * gives_bytes
    found, programs = result(made("QGemm", names, {"x": x}, known, transB=turned, alpha=alpha), {"x": x})
    value = alpha * ((x.astype(np.int64) - XZ) @ w + known["c"]) * np.float64(XS) * scales
    if gives_bytes:
        within_a_step(found, quantised(value, 0.5))
        assert programs == ["matmul_of_bytes"]
    else:
        np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-3)
        assert programs[0] == "matmul_of_bytes"


@pytest.mark.parametrize("zero", ["none", "one", "columns"])
@pytest.mark.parametrize("has_bias", [True, False])
def test_products_whose_scale_is_computed(zero: str, has_bias: bool) -> None:
    """Floats that are quantised on the way, and bytes with a scale, by weights with a zero point for each column."""
    rng = np.random.default_rng(0)
    x, q, w = rng.standard_normal((4, 22)).astype(np.float32), drawn(np.uint8, 4, 22), drawn(np.uint8, 22, 6)
    zeros = {"none": np.zeros(1), "one": np.full(1, 130), "columns": drawn(np.uint8, 6)}[zero].astype(np.uint8)
    known: dict[str, Any] = {
        "w": w, "ws": np.linspace(0.01, 0.02, 6).astype(np.float32), "wz": zeros,
        "bias": rng.standard_normal(6).astype(np.float32), "xs": XS, "xz": np.uint8(XZ),
    }  # fmt: skip
    weights = floats(w, known["ws"], zeros)
    bias = known["bias"] if has_bias else 0.0
    end = " bias" * has_bias
    found, programs = result(
        made("MatMulIntegerToFloat", f"q w xs ws xz {'-' if zero == 'none' else 'wz'}{end}", {"q": q}, known), {"q": q}
    )
    np.testing.assert_allclose(found, floats(q) @ weights + bias, rtol=1e-4, atol=1e-3)
    assert "matmul_of_bytes" in programs
    low, high = min(0.0, float(x.min())), max(0.0, float(x.max()))
    step = (high - low) / 255
    rounded = (np.clip(np.rint(x / step) + np.rint(-low / step), 0, 255) - np.rint(-low / step)) * step
    found, _ = result(
        made("DynamicQuantizeMatMul", f"x w ws {'-' if zero == 'none' else 'wz'}{end}", {"x": x}, known), {"x": x}
    )
    np.testing.assert_allclose(found, rounded @ weights + bias, rtol=1e-3, atol=2e-2)


def test_against_onnxruntime() -> None:
    """One of each, where ONNX Runtime is installed; its own results are within a step as well."""
    runtime = pytest.importorskip("onnxruntime")
    cases = [
        ("QLinearAdd", "x xs xz w ws wz ys yz", {}), ("QLinearMul", "x xs xz w ws wz ys yz", {}),
        ("QLinearSigmoid", "x xs xz ys yz", {}), ("QLinearLeakyRelu", "x xs xz ys yz", {"alpha": 0.2}),
        ("QLinearGlobalAveragePool", "x xs xz ys yz", {}), ("QLinearConcat", "ys yz x xs xz w ws wz", {"axis": 2}),
        ("QLinearAveragePool", "x xs xz ys yz",
         {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4, "ceil_mode": 1, "count_include_pad": 1}),
    ]  # fmt: skip
    for op, names, values in cases:
        arrays = {"x": A, **({"w": B} if " w " in names else {})}
        model = made(op, names, arrays, SCALES, **values)
        session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        within_a_step(result(model, arrays)[0], session.run(None, arrays)[0])
