"""Operators of ``com.microsoft`` on bytes, said in DequantizeLinear, operators of ONNX on floats, and QuantizeLinear.

What stands between these is computed in bytes where `operators.algebra` knows how.  Products whose scales are computed
are MatMulInteger, a scale and a bias.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from .attention import attention_of
from .microsoft import DOMAIN, Definition
from .parts import Parts


def _scalar(p: Parts, at: int) -> str:
    """A scale or zero point of one element as a tensor without dimensions."""
    known = p.known(at)
    return p.reshaped(at, ()) if known is None else p.constant(known.reshape(()))


def _floats(p: Parts, x: int, scale: int, zero: int) -> str:
    """The floats of bytes with one scale."""
    return p.add("DequantizeLinear", [x, _scalar(p, scale), *([_scalar(p, zero)] if p.has(zero) else [])])


def _bytes(p: Parts, y: str, scale: int, zero: int, like: int = 0) -> None:
    """The result as bytes: of the type of their zero point, or of input `like` where there is none."""
    start = _scalar(p, zero) if p.has(zero) else p.constant(0, p.type(like).dtype)
    p.add("QuantizeLinear", [y, _scalar(p, scale), start], 0)


def _are_single(p: Parts, *at: int) -> bool:
    """Whether scales and zero points, where they are there, are one number each."""
    return all(prod(p.shape(k)) == 1 for k in at if p.has(k))


def _of_two(op: str) -> Definition:
    def define(p: Parts) -> bool:
        if not _are_single(p, 1, 2, 4, 5, 6, 7):
            return False
        _bytes(p, p.add(op, [_floats(p, 0, 1, 2), _floats(p, 3, 4, 5)]), 6, 7)
        return True

    return define


def _of_one(op: str, *names: str) -> Definition:
    def define(p: Parts) -> bool:
        if not _are_single(p, 1, 2, 3, 4):
            return False
        _bytes(p, p.add(op, [_floats(p, 0, 1, 2)], **{name: p.attribute(name) for name in names}), 3, 4)
        return True

    return define


def _pooled(op: str, *names: str) -> Definition:
    """A mean over windows of images, whose channels may be the last dimension."""

    def define(p: Parts) -> bool:
        rank, x = len(p.shape()), _floats(p, 0, 1, 2)
        is_last = bool(p.attribute("channels_last", 0))
        if is_last:
            x = p.add("Transpose", [x], perm=[0, rank - 1, *range(1, rank - 1)])
        values = {name: p.attribute(name) for name in names}
        if values.get("ceil_mode") and values.get("count_include_pad"):
            sizes = p.shape()[1:-1] if is_last else p.shape()[2:]
            x = _with_whole_windows(p, x, sizes, values)
        y = p.add(op, [x], **values)
        _bytes(p, p.add("Transpose", [y], perm=[0, *range(2, rank), 1]) if is_last else y, 3, 4)
        return True

    return define


def _with_whole_windows(p: Parts, x: str, sizes: Sequence[int], values: dict[str, Any]) -> str:
    """The image with its border as zeros, so wide that the last windows end in it, and `values` for no more of it.

    ONNX Runtime divides by all places of a window, those beyond the border among them, which ONNX does not count.
    """
    rank, kernel = len(sizes), values["kernel_shape"]
    pads, strides = values["pads"] or [0] * (2 * rank), values["strides"] or [1] * rank
    front, end = list(pads[:rank]), []
    for size, before, after, window, step in zip(sizes, front, pads[rank:], kernel, strides, strict=True):
        count = -(-(size + before + after - window) // step) + 1
        if (count - 1) * step >= size + before:  # no window begins behind the image
            count -= 1
        end.append(max(after, (count - 1) * step + window - size - before))
    values |= {"ceil_mode": 0, "count_include_pad": 0, "pads": None}
    border = p.constant([0, 0, *front, 0, 0, *end], "int64")
    return p.add("Pad", [x, border, p.constant(0, "float32")])


def _softmax(p: Parts) -> bool:
    """Before version 13 of ONNX's operators, all dimensions from the axis on are one."""
    shape, x = p.shape(), _floats(p, 0, 1, 2)
    axis = int(p.attribute("axis", -1)) % max(len(shape), 1)
    if int(p.attribute("opset", 13)) >= 13:
        y = p.add("Softmax", [x], axis=axis)
    else:
        rows = p.reshaped(x, (prod(shape[:axis]), prod(shape[axis:])))
        y = p.reshaped(p.add("Softmax", [rows], axis=-1), shape)
    _bytes(p, y, 3, 4)
    return True


def _concat(p: Parts) -> bool:
    """The result's scale and zero point come first, then a tensor, a scale and a zero point for each part."""
    if not _are_single(p, 0, 1, *(k for k in range(2, len(p.whole.inputs)) if k % 3 != 2)):
        return False
    parts = [_floats(p, at, at + 1, at + 2) for at in range(2, len(p.whole.inputs), 3)]
    _bytes(p, p.add("Concat", parts, axis=p.attribute("axis")), 0, 1, like=2)
    return True


def _where(p: Parts) -> bool:
    _bytes(p, p.add("Where", [0, _floats(p, 1, 2, 3), _floats(p, 4, 5, 6)]), 7, 8, like=1)
    return True


def _quantize(op: str) -> Definition:
    """The operator that ONNX has by the same name."""

    def define(p: Parts) -> bool:
        p.add(op, [at for at in range(3) if p.has(at)], 0, axis=p.attribute("axis"))
        return True

    return define


def _gemm(p: Parts) -> bool:
    """``alpha as bs (sum (a - az) (b - bz) + c)``: the bias is of int32, in steps of the sum; bytes or floats."""
    turned = bool(p.attribute("transB", 0))
    if not _are_single(p, 1, 2):
        return False
    scale = _scalar(p, 4) if prod(p.shape(4)) == 1 else 4
    zero: Sequence[int | str] = [] if not p.has(5) else [5 if isinstance(scale, int) else _scalar(p, 5)]
    if p.has(5) and (prod(p.shape(5)) > 1) != isinstance(scale, int):
        return False
    b = p.add("DequantizeLinear", [3, scale, *zero], axis=0 if turned else 1)
    operands = [_floats(p, 0, 1, 2), b]
    if p.has(6):
        operands.append(p.add("Mul", [p.cast(6, "float32"), p.add("Mul", [_scalar(p, 1), scale])]))
    alpha, last = float(p.attribute("alpha", 1.0)), not p.has(7)
    y = p.add(
        "Gemm", operands, 0 if last and alpha == 1 else -1, transA=p.attribute("transA"), transB=p.attribute("transB")
    )
    if alpha != 1:
        y = p.add("Mul", [y, p.constant(alpha, "float32")], 0 if last else -1)
    if not last:
        _bytes(p, y, 7, 8)
    return True


def _scaled(p: Parts, total: str, scale: str, bias: int) -> None:
    """A sum of int32 with its scale, and a bias where there is one."""
    product = p.add("Mul", [p.cast(total, "float32"), scale], -1 if p.has(bias) else 0)
    if p.has(bias):
        p.add("Add", [product, bias], 0)


def _dynamic(p: Parts) -> bool:
    p.add("DynamicQuantizeLinear", [0], [-1, -1, -1])
    a, a_scale, a_zero = p.nodes[-1].outputs
    total = p.add("MatMulInteger", [a, 1, a_zero, *([_weights_zero(p, 3)] if p.has(3) else [])])
    _scaled(p, total, p.add("Mul", [a_scale, 2]), 4)
    return True


def _to_float(p: Parts) -> bool:
    if not _are_single(p, 2, 4):
        return False
    zeros: list[int | str] = [_scalar(p, 4) if p.has(4) else "", _weights_zero(p, 5) if p.has(5) else ""]
    while zeros and not zeros[-1]:
        zeros.pop()
    total = p.add("MatMulInteger", [0, 1, *zeros])
    _scaled(p, total, p.add("Mul", [_scalar(p, 2), 3]), 6)
    return True


def _attention(p: Parts) -> bool:
    """``QAttention(input, weights, bias, input_scale, weight_scale, mask_index, input_zero, weight_zero, past)``."""
    if not _are_single(p, 3, 6):
        return False
    zeros: list[int | str] = [_scalar(p, 6) if p.has(6) else "", _weights_zero(p, 7) if p.has(7) else ""]
    while zeros and not zeros[-1]:
        zeros.pop()
    total = p.add("MatMulInteger", [0, 1, *zeros])
    floats = p.add("Mul", [p.cast(total, "float32"), p.add("Mul", [_scalar(p, 3), 4])])
    return attention_of(p, p.add("Add", [floats, 2]), mask=5, past=8, like=2)


def _weights_zero(p: Parts, at: int) -> int | str:
    """The zero point of the second operand: one number where those of all columns are the same."""
    known = p.known(at)
    if known is not None and known.size and np.all(known == known.reshape(-1)[0]):
        return p.constant(known.reshape(-1)[0])
    return _scalar(p, at) if prod(p.shape(at)) == 1 else at


_WINDOWS: tuple[str, ...] = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")

DEFINITIONS: Mapping[tuple[str, str], Definition] = {
    (DOMAIN, "QLinearAdd"): _of_two("Add"),
    (DOMAIN, "QLinearMul"): _of_two("Mul"),
    (DOMAIN, "QLinearSigmoid"): _of_one("Sigmoid"),
    (DOMAIN, "QLinearLeakyRelu"): _of_one("LeakyRelu", "alpha"),
    (DOMAIN, "QLinearAveragePool"): _pooled("AveragePool", *_WINDOWS),
    (DOMAIN, "QLinearGlobalAveragePool"): _pooled("GlobalAveragePool"),
    (DOMAIN, "QLinearConcat"): _concat,
    (DOMAIN, "QLinearSoftmax"): _softmax,
    (DOMAIN, "QLinearWhere"): _where,
    (DOMAIN, "QuantizeLinear"): _quantize("QuantizeLinear"),
    (DOMAIN, "DequantizeLinear"): _quantize("DequantizeLinear"),
    (DOMAIN, "QGemm"): _gemm,
    (DOMAIN, "DynamicQuantizeMatMul"): _dynamic,
    (DOMAIN, "MatMulIntegerToFloat"): _to_float,
    (DOMAIN, "QAttention"): _attention,
}
"""What each of them is."""
