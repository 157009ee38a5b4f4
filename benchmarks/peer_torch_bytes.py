"""PyTorch's operators on bytes for a network of one convolution or product (`league_types.py`), weights prepacked.

Two ways: oneDNN's operators on plain bytes, which Inductor calls after PyTorch's quantisation of exported graphs, and
those on quantised tensors of the engine ``x86``, which eager modules of `torch.ao` call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from peer_forms import Forms
from torch import Tensor

PRODUCTS = ("Conv", "MatMul")
KNOWN = {"DequantizeLinear", "QuantizeLinear", "Add", "Relu", "Clip", *PRODUCTS}


@dataclass(frozen=True)
class Bytes:
    """An operator on bytes: its weights ``[co, ci / groups, kh, kw]`` or ``[n, k]`` and how all numbers are counted."""

    is_conv: bool
    weights: Tensor
    weight_scales: Tensor
    bias: Tensor
    x_scale: float
    x_zero: int
    y_scale: float
    y_zero: int
    activation: str
    attributes: dict[str, Any]


def is_of_bytes(model: onnx.ModelProto) -> bool:
    """Whether a network is one convolution or product between DequantizeLinear and QuantizeLinear."""
    kinds = [node.op_type for node in model.graph.node]
    ends = {"DequantizeLinear", "QuantizeLinear"}
    return set(kinds) <= KNOWN and ends <= set(kinds) and sum(kind in PRODUCTS for kind in kinds) == 1


def bytes_of(model: onnx.ModelProto) -> Bytes:
    """The numbers of such a network, whose weights and bias are dequantised constants."""
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    makers = {node.output[0]: node for node in model.graph.node}
    [product] = [node for node in model.graph.node if node.op_type in PRODUCTS]
    [last] = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    is_conv = product.op_type == "Conv"

    def dequantised(name: str) -> list[Any]:
        return [constants.get(given) for given in makers[name].input]

    _, x_scale, x_zero = dequantised(product.input[0])
    weights, scales, _ = dequantised(product.input[1])
    if is_conv:
        bias_name = product.input[2]
    else:
        [added] = [node for node in model.graph.node if node.op_type == "Add"]
        bias_name = added.input[1]
    bias, bias_scales, *_ = dequantised(bias_name)
    activation = makers[last.input[0]].op_type
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in product.attribute}
    return Bytes(
        is_conv=is_conv,
        weights=torch.from_numpy(np.ascontiguousarray(weights if is_conv else weights.T)),
        weight_scales=torch.from_numpy(scales.copy()), bias=torch.from_numpy((bias * bias_scales).astype(np.float32)),
        x_scale=float(x_scale), x_zero=int(x_zero),
        y_scale=float(constants[last.input[1]]), y_zero=int(constants[last.input[2]]),
        activation=activation if activation in ("Relu", "Clip") else "", attributes=attributes,
    )  # fmt: skip


def byte_forms(model: onnx.ModelProto, x: Tensor) -> Forms:
    """Each way in which PyTorch does an operator on bytes; a Clip to 6 is a rectifier where the scale ends below 6."""
    found = bytes_of(model)
    if found.activation == "Clip" and (255 - found.y_zero) * found.y_scale > 6:
        return Forms(missing={"onednn": "PyTorch has no clip of bytes here"})
    forms = Forms()
    for name, make in (("onednn", _onednn), ("x86", _x86)):
        try:
            forms.calls[name] = make(found, x)
            forms.calls[name]()
        except Exception as error:  # a way that lacks such an operator is named, not fatal
            forms.calls.pop(name, None)
            forms.missing[name] = f"{type(error).__name__}: {error}"[:200]
    return forms


def _window(found: Bytes) -> tuple[list[int], list[int], list[int], int]:
    """Strides, padding, dilations and groups; the padding is that of both ends."""
    pads = found.attributes["pads"]
    return found.attributes["strides"], pads[: len(pads) // 2], found.attributes["dilations"], found.attributes["group"]


def _onednn(found: Bytes, x: Tensor) -> Callable[[], Any]:
    ops = torch.ops.onednn
    zeros = torch.zeros(len(found.weight_scales), dtype=torch.int32)
    post = "relu" if found.activation else "none"
    counted: tuple[Any, ...] = (found.y_scale, found.y_zero, torch.uint8, post, [], "")
    if not found.is_conv:
        packed = ops.qlinear_prepack(found.weights, list(x.shape))
        scale, zero = found.x_scale, found.x_zero
        return lambda: ops.qlinear_pointwise(
            x, scale, zero, packed, found.weight_scales, zeros, found.bias, *counted
        )  # fmt: skip
    strides, pads, dilations, groups = _window(found)
    packed = ops.qconv_prepack(
        found.weights, found.weight_scales, found.x_scale, found.x_zero, strides, pads, dilations, groups, list(x.shape)
    )

    def run() -> Tensor:
        last = x.contiguous(memory_format=torch.channels_last)
        y: Tensor = ops.qconv2d_pointwise(
            last, found.x_scale, found.x_zero, packed, found.weight_scales, zeros, found.bias, strides, pads, dilations,
            groups, *counted,
        )  # fmt: skip
        return y.contiguous()

    return run


def _x86(found: Bytes, x: Tensor) -> Callable[[], Any]:
    ops = torch.ops.quantized
    torch.backends.quantized.engine = "x86"
    zeros = torch.zeros(len(found.weight_scales), dtype=torch.int64)
    weights = torch._make_per_channel_quantized_tensor(found.weights, found.weight_scales.double(), zeros, 0)
    given = torch._make_per_tensor_quantized_tensor(x, found.x_scale, found.x_zero)
    if not found.is_conv:
        packed = ops.linear_prepack(weights, found.bias)
        call = ops.linear_relu if found.activation else ops.linear
        return lambda: call(given, packed, found.y_scale, found.y_zero).int_repr()
    packed = ops.conv2d_prepack(weights, found.bias, *_window(found))
    call = ops.conv2d_relu if found.activation else ops.conv2d
    return lambda: call(given, packed, found.y_scale, found.y_zero).int_repr().contiguous()
