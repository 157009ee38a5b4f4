"""ATen's operators in the words of ONNX: for each that is known here, the operators that compute the same.

A function of the `TABLE` gets a `Call`, emits operators, and returns the tensor that is the result, or a tuple of those
that are read.  It raises Unsupported for arguments that it does not cover; what is not here stays with PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from torch import fx

from ..models.operators.graph import OWN_DOMAIN
from .call import Call, Result, Unsupported
from .recurrent import rnn_layer

Convert: TypeAlias = Callable[[Call], Result]


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
    """``self op alpha other``; comparisons have operands of one type and a result that is a bool."""

    def convert(call: Call) -> Result:
        first, second = call["self"], call["other"]
        dtype = call.type(call.called(first if isinstance(first, fx.Node) else second)).dtype
        call.require_result(dtype, "bool")
        left, right = call.operand("self", dtype), call.operand("other", dtype)
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
        bounds = [call.operand(name, dtype) if call.has(name) else "" for name in (low, high)]
        return call.last("Clip", [tensor, *bounds])

    return convert


def _elu(call: Call) -> Result:
    if (call["scale"], call["input_scale"]) != (1, 1):
        raise Unsupported("only an elu without scales has a program")
    return call.last("Elu", [call.tensor("self")], alpha=call["alpha"])


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


def _vector(call: Call, name: str, size: Sequence[int], default: float) -> str:
    """An optional tensor, or a constant of its shape."""
    return call.tensor(name) if call.has(name) else call.constant(np.full(size, default, call.result(0).dtype))


def _batch_norm(call: Call) -> Result:
    call.only_first()
    channels = call.shape("input")[1:2]
    factors = [_vector(call, name, channels, default) for name, default in (("weight", 1), ("bias", 0))]
    inputs = [call.tensor("input"), *factors, call.tensor("running_mean"), call.tensor("running_var")]
    return (call.last("BatchNormalization", inputs, 0, epsilon=call["eps"]),)


def _layer_norm(call: Call) -> Result:
    call.only_first()
    size = call.numbers("normalized_shape")
    inputs = [call.tensor("input"), _vector(call, "weight", size, 1)]
    inputs += [call.tensor("bias")] if call.has("bias") else []
    return (call.last("LayerNormalization", inputs, 0, axis=-len(size), epsilon=call["eps"]),)


def _group_norm(call: Call) -> Result:
    """Groups are the channels of an instance normalisation of rows; factors of the own channels follow."""
    call.only_first()
    shape, groups = call.shape("input"), call["group"]
    dtype = call.result(0).dtype
    one, none = (call.constant(np.full(groups, value, dtype)) for value in (1, 0))
    rows = (shape[0], groups, math.prod(shape[1:]) // groups)
    grouped = call.part("Reshape", [call.tensor("input")], rows)
    normal = call.part("InstanceNormalization", [grouped, one, none], rows, epsilon=call["eps"])
    back = call.part("Reshape", [normal], shape)
    factors = [_vector(call, name, shape[1:2], default) for name, default in (("weight", 1), ("bias", 0))]
    return (call.last("Affine", [back, *factors], 0, OWN_DOMAIN),)


def _softmax(op: str) -> Convert:
    def convert(call: Call) -> Result:
        if call["half_to_float"]:
            raise Unsupported(f"{call.node.target} changes the type")
        return call.last(op, [call.tensor("self")], axis=call.axis("dim", len(call.shape("self"))))

    return convert


def _attention(call: Call) -> Result:
    """``softmax(q k' scale + mask) v``."""
    call.only_first()
    query, key, value = (call.tensor(name) for name in ("query", "key", "value"))
    shape, seen = call.shape("query"), call.shape("key")[-2]
    rank, scores = len(shape), (*shape[:-1], seen)
    if call["dropout_p"] or call.type(key).shape[:-2] != shape[:-2]:
        raise Unsupported("attention with dropout, or with keys that queries share, has no program")
    dtype = call.type(query).dtype
    scale = call["scale"] if call.has("scale") else 1 / math.sqrt(shape[-1])
    order = [*range(rank - 2), rank - 1, rank - 2]
    if dtype == "float16":  # products would pass its largest number before they are scaled
        query, scale = call.part("Mul", [query, call.number(scale, dtype)], shape), 1.0
    turned = call.part("Transpose", [key], (*shape[:-2], shape[-1], seen), perm=order)
    product = call.part("MatMul", [query, turned], scores)
    logits = product if scale == 1.0 else call.part("Mul", [product, call.number(scale, dtype)], scores)
    if call["is_causal"]:
        later = np.triu(np.full((shape[-2], seen), -np.inf, dtype), 1)
        logits = call.part("Add", [logits, call.constant(later)], scores)
    if not call.has("attn_mask"):
        return (call.last("MatMul", [call.part("Softmax", [logits], scores, axis=rank - 1), value], 0),)
    wide = "float32" if dtype == "float16" else dtype  # in which PyTorch adds a mask of -65504, and scores stay apart
    mask = call.operand("attn_mask", dtype)
    if wide != dtype:
        logits = call.part("Cast", [logits], scores, wide)
        mask = call.part("Cast", [mask], call.type(mask).shape, wide)
    shares = call.part("Where", _shares(call, call.part("Add", [logits, mask], scores), rank - 1), scores, wide)
    if wide != dtype:
        shares = call.part("Cast", [shares], scores, dtype)
    return (call.last("MatMul", [shares, value], 0),)


def _safe_softmax(call: Call) -> Result:
    tensor = call.tensor("self")
    if call.type(tensor) != call.result() or not call.shape("self"):
        raise Unsupported(f"{call.node.target} changes the type, or has no dimensions")
    return call.last("Where", _shares(call, tensor, call.axis("dim", len(call.shape("self")))))


def _shares(call: Call, logits: str, axis: int) -> list[str]:
    """The operands of a choice: a softmax, but 0 for rows of -inf alone, where it would divide nothing by nothing.

    The lowest number is not -inf: a row of it alone has equal shares.
    """
    shape, dtype = call.type(logits).shape, call.type(logits).dtype
    rows = tuple(1 if at == axis else extent for at, extent in enumerate(shape))
    none, zero = call.number(-math.inf, dtype), call.number(0, dtype)
    highest = call.part("ReduceMax", [logits], rows, axes=[axis], keepdims=1)
    is_empty = call.part("Equal", [highest, none], rows, "bool")
    some = call.part("Where", [is_empty, zero, logits], shape, dtype)
    return [is_empty, zero, call.part("Softmax", [some], shape, axis=axis)]


def _pool_values(call: Call, rank: int) -> dict[str, Any]:
    size, padding = call.numbers("kernel_size", rank), call.numbers("padding", rank)
    stride = call.numbers("stride", rank) or size
    return {"kernel_shape": size, "strides": stride, "pads": padding * 2, "ceil_mode": int(call["ceil_mode"])}


def _max_pool(call: Call) -> Result:
    call.only_first()
    rank = 3 if "3d" in str(call.node.target) else 2
    if len(call.shape("self")) != rank + 2:
        raise Unsupported("pooling without a batch has no program")
    values = _pool_values(call, rank) | {"dilations": call.numbers("dilation", rank)}
    return (call.last("MaxPool", [call.tensor("self")], 0, **values),)


def _average_pool(rank: int) -> Convert:
    def convert(call: Call) -> Result:
        if len(call.shape("self")) != rank + 2 or call.has("divisor_override"):
            raise Unsupported(f"{call.node.target} without a batch, or with a divisor, has no program")
        values = _pool_values(call, rank) | {"count_include_pad": int(call["count_include_pad"])}
        return call.last("AveragePool", [call.tensor("self")], **values)

    return convert


def _adaptive_pool(call: Call) -> Result:
    """The mean of windows that are all alike, where sizes divide."""
    shape, result = call.shape("self")[2:], call.result().shape[2:]
    if len(call.shape("self")) != 4 or any(size % out for size, out in zip(shape, result, strict=True)):
        raise Unsupported("only an adaptive pooling whose windows are all alike has a program")
    size = [whole // out for whole, out in zip(shape, result, strict=True)]
    return call.last("AveragePool", [call.tensor("self")], kernel_shape=size, strides=size)


def _reduced(op: str) -> Convert:
    def convert(call: Call) -> Result:
        tensor = call.tensor("self")
        rank = len(call.type(tensor).shape)
        axes = [at % rank for at in call.numbers("dim")] or list(range(rank))
        if call.type(tensor).dtype != call.result().dtype or not rank:
            raise Unsupported(f"{call.node.target} changes the type")
        return call.last(op, [tensor], axes=axes, keepdims=int(call["keepdim"]))

    return convert


def _reshape(call: Call) -> Result:
    return call.last("Reshape", [call.tensor("self")])


def _permute(call: Call) -> Result:
    rank = len(call.shape("self"))
    return call.last("Transpose", [call.tensor("self")], perm=[at % rank for at in call.numbers("dims")])


def _transpose(call: Call) -> Result:
    rank = len(call.shape("self"))
    first, second = (0, rank - 1) if not call.has("dim0") else (call.axis("dim0", rank), call.axis("dim1", rank))
    order = list(range(rank))
    order[first], order[second] = order[second], order[first]
    return call.last("Transpose", [call.tensor("self")], perm=order)


def _expand(call: Call) -> Result:
    return call.last("Expand", [call.tensor("self")])


def _sliced(call: Call, axis: int, taken: slice, shape: Sequence[int]) -> str:
    """The elements of `self` whose places along an axis a slice takes."""
    numbers = (taken.start, taken.stop, axis, taken.step)
    return call.part("Slice", [call.tensor("self"), *(call.constant(np.array([n], np.int64)) for n in numbers)], shape)


def _slice(call: Call) -> Result:
    shape = call.shape("self")
    axis, (step,) = call.axis("dim", len(shape)), call.numbers("step")
    start, end = ((call.numbers(name) or [default])[0] if call.has(name) else default
                  for name, default in (("start", 0), ("end", shape[axis])))  # fmt: skip
    start, end, _ = slice(start, end).indices(shape[axis])
    return _sliced(call, axis, slice(start, end, step), call.result().shape)


def _select(call: Call) -> Result:
    shape = call.shape("self")
    axis, (index,) = call.axis("dim", len(shape)), call.numbers("index")
    start = index % shape[axis]
    kept = [1 if at == axis else extent for at, extent in enumerate(shape)]
    return call.last("Reshape", [_sliced(call, axis, slice(start, start + 1, 1), kept)])


def _cat(call: Call) -> Result:
    parts = [call.called(part) for part in call["tensors"]]
    result = call.result()
    if any(call.type(part).dtype != result.dtype or len(call.type(part).shape) != len(result.shape) for part in parts):
        raise Unsupported("cat mixes types or ranks")
    return call.last("Concat", parts, axis=call.axis("dim", len(result.shape)))


def _stack(call: Call) -> Result:
    """A concatenation of the tensors, each with a new dimension of extent 1."""
    rank = len(call.result().shape)
    axis = call.axis("dim", rank)
    wide = [1 if at == axis else extent for at, extent in enumerate(call.result().shape)]
    if any(call.type(call.called(part)).dtype != call.result().dtype for part in call["tensors"]):
        raise Unsupported("stack mixes types")
    parts = [call.part("Reshape", [call.called(part)], wide) for part in call["tensors"]]
    return call.last("Concat", parts, axis=axis)


def _split(call: Call) -> Result:
    return call.split(call.tensor("self"), call.axis("dim", len(call.shape("self"))))


def _pad(call: Call) -> Result:
    rank, pads = len(call.shape("self")), call.numbers("pad")
    front, end = [0] * rank, [0] * rank
    for at in range(len(pads) // 2):
        front[rank - 1 - at], end[rank - 1 - at] = pads[2 * at], pads[2 * at + 1]
    dtype = call.result().dtype
    return call.last("Pad", [call.tensor("self"), call.constant(np.array(front + end)), call.operand("value", dtype)])


def _repeat(call: Call) -> Result:
    if len(call.shape("self")) != len(call.result().shape):
        raise Unsupported("repeat with new dimensions has no program")
    return call.last("Tile", [call.tensor("self")])


def _embedding(call: Call) -> Result:
    return call.last("Gather", [call.tensor("weight"), call.tensor("indices")], axis=0)


VIEWS = ("view", "_unsafe_view", "unsqueeze", "squeeze.dim", "squeeze.dims", "squeeze")
"""What costs PyTorch nothing, since it is the same memory."""


def _unbind(call: Call) -> Result:
    """Each element of a dimension as a tensor without it."""
    shape = call.shape("self")
    axis, tensor = call.axis("dim", len(shape)), call.tensor("self")
    rest = (*shape[:axis], *shape[axis + 1 :])
    places = [call.constant(np.asarray(at, np.int64)) for at in range(shape[axis])]
    return tuple(call.part("Gather", [tensor, place], rest, axis=axis) for place in places)


_BY_NAME: Mapping[str, Convert] = {
    **{name: _unary(op) for name, op in {
        "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "erf": "Erf",
        "reciprocal": "Reciprocal", "floor": "Floor", "ceil": "Ceil", "round": "Round", "neg": "Neg", "abs": "Abs",
        "sinh": "Sinh", "cosh": "Cosh", "acosh": "Acosh", "asinh": "Asinh", "atanh": "Atanh",
        "logical_not": "Not", "bitwise_not": "Not", "silu": "Swish", "hardswish": "HardSwish", "mish": "Mish",
    }.items()},
    "sign": _sign,
    "hardsigmoid": _unary("HardSigmoid", alpha=1 / 6, beta=0.5),
    "gelu": _with("Gelu", approximate="approximate"),
    "leaky_relu": _with("LeakyRelu", alpha="negative_slope"),
    "elu": _elu,
    "softplus": _softplus,
    "hardtanh": _clamp("min_val", "max_val"),
    "clamp": _clamp("min", "max"),
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
    "_native_batch_norm_legit_no_training": _batch_norm,
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "_softmax": _softmax("Softmax"),
    "_log_softmax": _softmax("LogSoftmax"),
    "_safe_softmax": _safe_softmax,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "max_pool2d_with_indices": _max_pool,
    "max_pool3d_with_indices": _max_pool,
    "avg_pool1d": _average_pool(1),
    "avg_pool2d": _average_pool(2),
    "avg_pool3d": _average_pool(3),
    "_adaptive_avg_pool2d": _adaptive_pool,
    "mean.dim": _reduced("ReduceMean"),
    "sum.dim_IntList": _reduced("ReduceSum"),
    "amax": _reduced("ReduceMax"),
    "amin": _reduced("ReduceMin"),
    **dict.fromkeys(VIEWS, _reshape),
    "permute": _permute,
    "transpose.int": _transpose,
    "t": _transpose,
    "expand": _expand,
    "slice.Tensor": _slice,
    "select.int": _select,
    "cat": _cat,
    "stack": _stack,
    "split_with_sizes": _split,
    "split.Tensor": _split,
    "constant_pad_nd": _pad,
    "repeat": _repeat,
    "embedding": _embedding,
    "unbind.int": _unbind,
    "mkldnn_rnn_layer": rnn_layer,
}  # fmt: skip


def _overload(name: str) -> str:
    return f"aten.{name}" if "." in name else f"aten.{name}.default"


TABLE: Mapping[str, Convert] = {_overload(name): convert for name, convert in _BY_NAME.items()}
FREE = frozenset(f"torch.ops.{_overload(name)}" for name in VIEWS)
