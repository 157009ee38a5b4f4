"""ATen's operators in the words of ONNX: for each that is known here, the operators that compute the same.

What is computed element by element and products are here, other families in modules of their own.

A function of the `TABLE` gets a `Call`, emits operators, and returns the tensor that is the result, or a tuple of those
that are read.  It raises Unsupported for arguments that it does not cover; what is not here stays with PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import fx

from ..models.operators.graph import OWN_DOMAIN
from . import attention, indexing, movement, normalisations, pooling, recurrent, reductions
from .call import Call, Convert, Result, Unsupported


def _unary(op: str, **values: Any) -> Convert:
    def convert(call: Call) -> Result:
        tensor = call.tensor("self")
        call.require_result(call.type(tensor).dtype)
        return call.last(op, [tensor], **values)

    return convert


def _with(op: str, **arguments: str) -> Convert:
    """A conversion to `op` of the tensor `self`; its attributes are arguments of the call, by their names there."""

    def convert(call: Call) -> Result:
        return call.last(op, [call.tensor("self")], **{name: call[source] for name, source in arguments.items()})

    return convert


def _binary(op: str) -> Convert:
    """``self op alpha other`` in the type of the result; comparisons have operands of one type, and give a bool."""

    def convert(call: Call) -> Result:
        first, second, dtype = call["self"], call["other"], call.result().dtype
        is_truth = dtype == "bool"
        if is_truth:
            dtype = call.type(call.called(first if isinstance(first, fx.Node) else second)).dtype
        left, right = (call.operand(name, dtype, promotes=not is_truth) for name in ("self", "other"))
        if call.has("alpha") and call["alpha"] != 1:
            right = call.part("Mul", [right, call.operand("alpha", dtype)], call.type(right).shape)
        return call.last(op, [left, right])

    return convert


def _reversed_sub(call: Call) -> Result:
    if call["alpha"] != 1:
        raise Unsupported("only an rsub with alpha = 1 has a program")
    dtype = call.type(call.tensor("self")).dtype
    return call.last("Sub", [call.operand("other", dtype), call.tensor("self")])


def _not_equal(call: Call) -> Result:
    dtype = call.type(call.tensor("self")).dtype
    same = call.part("Equal", [call.tensor("self"), call.operand("other", dtype)], call.result().shape, "bool")
    return call.last("Not", [same])


def _power(call: Call) -> Result:
    dtype = call.type(call.tensor("self")).dtype
    call.require_result(dtype)
    return call.last("Pow", [call.tensor("self"), call.operand("exponent", dtype)])


def _rsqrt(call: Call) -> Result:
    tensor = call.tensor("self")
    return call.last("Reciprocal", [call.part("Sqrt", [tensor], call.type(tensor).shape)])


def _sign(call: Call) -> Result:
    """PyTorch's sign: 0 for NaN, where ONNX has NaN."""
    tensor = call.tensor("self")
    call.require_result(call.type(tensor).dtype)
    return call.last("Sign", [tensor], None, OWN_DOMAIN)


def _clamp(low: str, high: str) -> Convert:
    def convert(call: Call) -> Result:
        tensor = call.tensor("self")
        dtype = call.type(tensor).dtype
        call.require_result(dtype)
        bounds = [call.operand(name, dtype) if name and call.has(name) else "" for name in (low, high)]
        return call.last("Clip", [tensor, *bounds])

    return convert


def _clamp_by_tensors(low: str, high: str) -> Convert:
    """Bounds that are tensors."""

    def convert(call: Call) -> Result:
        found, shape = call.tensor("self"), call.result().shape
        dtype = call.type(found).dtype
        call.require_result(dtype)
        for name, op in ((low, "Max"), (high, "Min")):
            if name and call.has(name):
                found = call.part(op, [found, call.operand(name, dtype)], shape)
        return found

    return convert


def _elu(call: Call) -> Result:
    """``scale x``, and ``scale alpha (exp(input_scale x) - 1)`` below 0; those of ``selu`` and ``celu``, too."""
    tensor, alpha, scale, inner = call.tensor("self"), call["alpha"], call["scale"], call["input_scale"]
    if inner == 1:
        op, values = ("Elu", {}) if scale == 1 else ("Selu", {"gamma": scale})
        return call.last(op, [tensor], alpha=alpha, **values)
    if scale != 1 or not math.isclose(alpha * inner, 1):
        raise Unsupported("only an elu with the scales that `elu`, `selu` and `celu` have has a program")
    return call.last("Celu", [tensor], alpha=alpha)


def _prelu(call: Call) -> Result:
    return call.last("PRelu", [call.tensor("self"), call.tensor("weight")])


def _softplus(call: Call) -> Result:
    if call["beta"] != 1 or call["threshold"] < 20:
        raise Unsupported("only a softplus with beta = 1 has a program")
    return call.last("Softplus", [call.tensor("self")])


def _where(call: Call) -> Result:
    dtype = call.result().dtype
    return call.last("Where", [call.tensor("condition"), call.operand("self", dtype), call.operand("other", dtype)])


def _masked_fill(call: Call) -> Result:
    dtype = call.type(call.tensor("self")).dtype
    return call.last("Where", [call.tensor("mask"), call.operand("value", dtype), call.tensor("self")])


def _cast(call: Call) -> Result:
    """A copy, which is nothing where the type stays."""
    tensor = call.tensor("self")
    return tensor if call.type(tensor) == call.result() else call.last("Cast", [tensor])


def _same(call: Call) -> Result:
    tensor = call.tensor("self")
    if call.type(tensor) != call.result():
        raise Unsupported(f"{call.node.target} changes the shape")
    return tensor


def _matmul(second: str) -> Convert:
    return lambda call: call.last("MatMul", [call.tensor("self"), call.tensor(second)])


def _addmm(call: Call) -> Result:
    inputs = [call.tensor("mat1"), call.tensor("mat2"), call.tensor("self")]
    return call.last("Gemm", inputs, alpha=float(call["alpha"]), beta=float(call["beta"]))


def _baddbmm(call: Call) -> Result:
    if (call["alpha"], call["beta"]) != (1, 1):
        raise Unsupported("only a baddbmm with alpha = beta = 1 has a program")
    product = call.part("MatMul", [call.tensor("batch1"), call.tensor("batch2")], call.result().shape)
    return call.last("Add", [product, call.tensor("self")])


def _convolution(call: Call) -> Result:
    rank = len(call.shape("input")) - 2
    pads = call.numbers("padding", rank)
    values = {"strides": call.numbers("stride", rank), "dilations": call.numbers("dilation", rank),
              "pads": pads * 2, "group": call["groups"]}  # fmt: skip
    inputs = [call.tensor(name) for name in ("input", "weight", "bias") if call.has(name)]
    if call["transposed"]:
        return call.last("ConvTranspose", inputs, **values, output_padding=call.numbers("output_padding", rank))
    return call.last("Conv", inputs, **values)


_BY_NAME: Mapping[str, Convert] = {
    **{name: _unary(op) for name, op in {
        "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "erf": "Erf",
        "reciprocal": "Reciprocal", "floor": "Floor", "ceil": "Ceil", "round": "Round", "neg": "Neg", "abs": "Abs",
        "sin": "Sin", "cos": "Cos", "sinh": "Sinh", "cosh": "Cosh", "acosh": "Acosh", "asinh": "Asinh",
        "atanh": "Atanh", "logical_not": "Not", "bitwise_not": "Not", "silu": "Swish", "hardswish": "HardSwish",
        "mish": "Mish",
    }.items()},
    "sign": _sign,
    "hardsigmoid": _unary("HardSigmoid", alpha=1 / 6, beta=0.5),
    "gelu": _with("Gelu", approximate="approximate"),
    "leaky_relu": _with("LeakyRelu", alpha="negative_slope"),
    "elu": _elu,
    "celu": _with("Celu", alpha="alpha"),
    "softplus": _softplus,
    "hardtanh": _clamp("min_val", "max_val"),
    "clamp": _clamp("min", "max"),
    "clamp_min": _clamp("min", ""),
    "clamp_max": _clamp("", "max"),
    "clamp.Tensor": _clamp_by_tensors("min", "max"),
    "clamp_min.Tensor": _clamp_by_tensors("min", ""),
    "clamp_max.Tensor": _clamp_by_tensors("", "max"),
    "_prelu_kernel": _prelu,
    "rsqrt": _rsqrt,
    **{f"{name}.{kind}": _binary(op) for kind in ("Tensor", "Scalar") for name, op in {
        "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "eq": "Equal", "lt": "Less", "le": "LessOrEqual",
        "gt": "Greater", "ge": "GreaterOrEqual",
    }.items()},
    "maximum": _binary("Max"),
    "minimum": _binary("Min"),
    "logical_and": _binary("And"),
    "logical_or": _binary("Or"),
    "bitwise_and.Tensor": _binary("And"),
    "bitwise_or.Tensor": _binary("Or"),
    "rsub.Scalar": _reversed_sub,
    "rsub.Tensor": _reversed_sub,
    "ne.Tensor": _not_equal,
    "ne.Scalar": _not_equal,
    "pow.Tensor_Scalar": _power,
    "pow.Tensor_Tensor": _power,
    "where.self": _where,
    "masked_fill.Scalar": _masked_fill,
    "_to_copy": _cast,
    **dict.fromkeys(("clone", "alias", "detach", "lift_fresh_copy", "contiguous"), _same),
    "mm": _matmul("mat2"),
    "bmm": _matmul("mat2"),
    "addmm": _addmm,
    "baddbmm": _baddbmm,
    "convolution": _convolution,
    **attention.CONVERT,
    **normalisations.CONVERT,
    **pooling.CONVERT,
    **reductions.CONVERT,
    **movement.CONVERT,
    **indexing.CONVERT,
}  # fmt: skip


def _overload(name: str) -> str:
    return f"aten.{name}" if "." in name else f"aten.{name}.default"


TABLE: Mapping[str, Convert] = {
    **{_overload(name): convert for name, convert in _BY_NAME.items()},
    **recurrent.CONVERT,
}
FREE = frozenset(f"torch.ops.{_overload(name)}" for name in movement.VIEWS)
