"""Convolutions and products between dequantised operands and a quantised result, computed in bytes.

With ``x = (q - zx) sx``, constant weights ``w = (p - zw) sw[c]`` and a result that is quantised by sy and zy::

    quantise(sum x w + b[c])  =  clip(round(sum (q - zx) (p - zw) (sx sw[c] / sy) + b[c] / sy) + zy)

and without the last step floats, ``sum (q - zx) (p - zw) (sx sw[c]) + b[c]``.  A Relu in between is the lower end of
the clip.  Both sides are equal but for rounding in floats: a quantised result differs by one step at most, where the
value is as good as halfway between two.  That holds where no sum of bytes leaves 32 bits, which is proven from the
weights, or from the number of products; others stay in floats, which do not wrap around.

What moves values, or takes the largest ones, does so with the bytes, where operands and result have one scale and one
zero point: ``quantise(pool((q - z) s)) = pool(q)``.

The nodes around stay as they are, and go where nothing else reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ir.dtypes import int_range
from ..network import Array
from .building import programs
from .graph import OWN_DOMAIN, Graph, Node, Quantised
from .integers import BYTES, folded

Vector = NDArray[np.float64]

PRODUCTS = ("Conv", "MatMul", "Gemm")
MOVING = ("MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Concat")
"""Operators whose results are some of the values of their first operand, and of all of them for Concat."""
MOST = 2**31 - 1
"""What a sum of bytes, with what is added to it, may reach."""
ROUNDED, UNSEEN = 2.0**-22, 1e-3
"""How far a bias may be from a whole number of steps of the sum, to be one: of itself, or of a step of the result."""


@dataclass(frozen=True)
class _Bytes:
    """An operand that a DequantizeLinear gives: the tensor of bytes, and its scale and zero point."""

    tensor: str
    scale: float
    zero: int


@dataclass(frozen=True)
class _Result:
    """The node whose result is computed, and by what it is quantised; a scale of None leaves floats."""

    node: Node
    dtype: str = "float32"
    scale: float | None = None
    zero: int = 0
    is_positive: bool = False


def in_integers(graph: Graph) -> None:
    """Rewrite the graph as this module says."""
    made_by = {name: node for node in graph.nodes for name in node.outputs}
    users = graph.users()
    replaced: dict[int, Node] = {}
    for node in graph.nodes:
        if node.op in (*PRODUCTS, *MOVING) and not node.domain:
            result = _result_of(graph, node, users)
            rewrite = _conv if node.op == "Conv" else _matmul if node.op in PRODUCTS else _moved
            trial = graph.trial()
            found = rewrite(trial, node, made_by, result)
            if found is not None and programs(trial.trial(), found) is not None:
                for name in set(found.inputs) & (set(trial.constants) - set(graph.constants)):
                    graph.constant(name, trial.constants[name])
                replaced[id(result.node)] = found
                graph.note(node, "computed in bytes")
    if replaced:
        graph.nodes = [replaced.get(id(node), node) for node in graph.nodes]
        graph.prune()


def _bytes_of(graph: Graph, name: str, made_by: Mapping[str, Node]) -> _Bytes | None:
    """The bytes that a tensor is dequantised from, by one scale; None where it is not."""
    node = made_by.get(name)
    if node is None or node.op != "DequantizeLinear" or node.domain or node.values.get("block_size", 0):
        return None
    scale = graph.constants.get(node.inputs[1])
    zero = graph.constants.get(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else np.zeros(1, np.int32)
    kinds = graph.types[node.inputs[0]].dtype in BYTES and graph.types[name].dtype == "float32"
    if not kinds or scale is None or zero is None or scale.size != 1 or zero.size != 1 or not _are_scales(scale):
        return None
    return _Bytes(node.inputs[0], float(scale.reshape(())), int(zero.reshape(())))


def _result_of(graph: Graph, node: Node, users: Mapping[str, Sequence[Node]]) -> _Result:
    """How far a node's result is nobody else's: up to the quantised one, or the node itself."""
    last, is_positive = node, False
    following = _only_user(graph, last, users)
    if following is not None and following.op == "Relu" and not following.domain:
        last, is_positive = following, True
        following = _only_user(graph, last, users)
    is_quantised = following is not None and following.op == "QuantizeLinear" and not following.domain
    if following is None or not is_quantised or following.inputs[0] != last.outputs[0]:
        return _Result(node)
    scale, zero = (graph.constants.get(name) for name in (*following.inputs[1:], "")[:2])
    dtype = graph.types[following.outputs[0]].dtype
    is_plain = scale is not None and scale.size == 1 and _are_scales(scale)
    is_plain &= len(following.inputs) < 3 or zero is not None
    if not is_plain or scale is None or dtype not in BYTES or (zero is not None and zero.size != 1):
        return _Result(node)
    start = 0 if zero is None else int(zero.reshape(()))
    return _Result(following, dtype, float(scale.reshape(())), start, is_positive)


def _are_scales(scale: Array) -> bool:
    """Whether a scale keeps the order of numbers, and has an inverse."""
    return bool(np.all(np.isfinite(scale)) and np.all(np.greater(scale, 0)))


def _only_user(graph: Graph, node: Node, users: Mapping[str, Sequence[Node]]) -> Node | None:
    readers = users.get(node.outputs[0], ())
    return readers[0] if len(readers) == 1 and node.outputs[0] not in graph.outputs else None


def _conv(graph: Graph, node: Node, made_by: Mapping[str, Node], result: _Result) -> Node | None:
    x, w = _bytes_of(graph, node.inputs[0], made_by), graph.quantised.get(node.inputs[1])
    if x is None or w is None:
        return None
    weights, scale = _folded(w, 0), _along(w, 0)
    bias = _bias(graph, node, 2)
    if weights is None or scale is None or bias is None or bias.size not in (1, len(weights)):
        return None
    rows = weights.astype(np.float64).reshape(len(weights), -1)
    if _reach(graph, x, np.abs(rows).sum(axis=1), bias / (x.scale * scale)) > MOST:
        return None
    vectors = _epilogue(-x.zero * rows.sum(axis=1), x.scale * scale, bias, result, len(weights))
    operands = x.tensor, _constant(graph, node, weights)
    return _node(graph, "ConvOfBytes", node, result, operands, vectors, {"fill": x.zero})


def _matmul(graph: Graph, node: Node, made_by: Mapping[str, Node], result: _Result) -> Node | None:
    """Products with constant weights, and such of two tensors, whose zero points are both known."""
    values = node.values
    is_gemm = node.op == "Gemm"
    if is_gemm and (values.get("transA", 0) or values.get("alpha", 1.0) != 1 or values.get("beta", 1.0) != 1):
        return None
    a = _bytes_of(graph, node.inputs[0], made_by)
    channels = graph.types[node.outputs[0]].shape[-1] if graph.types[node.outputs[0]].shape else 0
    bias = _bias(graph, node, 2) if is_gemm else np.zeros(1)
    if a is None or bias is None or not channels or len(graph.types[node.inputs[0]].shape) < 2:
        return None
    w = graph.quantised.get(node.inputs[1])
    if w is None:
        b = None if is_gemm else _bytes_of(graph, node.inputs[1], made_by)
        if b is None or len(graph.types[node.inputs[1]].shape) < 2:
            return None
        count = graph.types[node.inputs[0]].shape[-1]
        if _reach(graph, a, np.full(1, float(count * _largest(graph, b))), np.zeros(1)) > MOST:
            return None
        vectors = _epilogue(np.zeros(1), np.full(1, a.scale * b.scale), bias, result, channels)
        zeros = {"fill": a.zero, "other": b.zero}
        return _node(graph, "MatMulOfBytes", node, result, (a.tensor, b.tensor), vectors, zeros)
    turned = bool(values.get("transB", 0))
    axis = 0 if turned else w.data.ndim - 1
    weights, scale = _folded(w, axis), _along(w, axis)
    if weights is None or scale is None or weights.ndim < 2 or bias.size not in (1, channels):
        return None
    weights = np.ascontiguousarray(weights.T) if turned else weights
    columns = np.abs(weights.astype(np.float64)).sum(axis=-2)
    if _reach(graph, a, columns, bias / (a.scale * scale)) > MOST:
        return None
    vectors = _epilogue(np.zeros(1), a.scale * scale, bias, result, channels)
    names = a.tensor, _constant(graph, node, weights)
    return _node(graph, "MatMulOfBytes", node, result, names, vectors, {"fill": a.zero, "other": 0})


def _largest(graph: Graph, operand: _Bytes) -> int:
    """How far bytes may lie from their zero point."""
    low, high = int_range(graph.types[operand.tensor].dtype)
    return max(operand.zero - low, high - operand.zero)


def _reach(graph: Graph, operand: _Bytes, weights: Vector, steps: Vector) -> float:
    """The largest that a sum of bytes, counted from their zero points, may be with a bias of so many `steps`.

    `weights` are the sums of the absolute weights of each channel.  What is added up on the way may wrap around.
    """
    return float(_largest(graph, operand) * weights.max(initial=0.0) + np.abs(steps).max(initial=0.0))


def _moved(graph: Graph, node: Node, made_by: Mapping[str, Node], result: _Result) -> Node | None:
    """What only moves values, or takes the largest, of the bytes themselves."""
    if result.node is node or result.is_positive or any(node.outputs[1:]):
        return None
    count = len(node.inputs) if node.op == "Concat" else 1
    operands = [_bytes_of(graph, name, made_by) for name in node.inputs[:count]]
    for operand in operands:
        if operand is None or (operand.scale, operand.zero) != (result.scale, result.zero):
            return None
        if graph.types[operand.tensor].dtype != result.dtype:
            return None
    tensors = [operand.tensor for operand in operands if operand is not None]
    return replace(node, inputs=(*tensors, *node.inputs[count:]), outputs=result.node.outputs)


def _folded(w: Quantised, axis: int) -> Array | None:
    """The bytes of weights without their zero point; None where that differs along another dimension."""
    if str(w.data.dtype) not in BYTES or (w.zero.size > 1 and w.axis % w.data.ndim != axis):
        return None
    return folded(w.data, w.zero, axis)


def _along(w: Quantised, axis: int) -> Vector | None:
    """The scale of weights as a number, or one for each place of the output's channels."""
    if not _are_scales(w.scale):
        return None
    if w.scale.size == 1:
        return w.scale.astype(np.float64).reshape(1)
    fits = w.scale.ndim == 1 and w.axis % w.data.ndim == axis
    return w.scale.astype(np.float64) if fits else None


def _bias(graph: Graph, node: Node, at: int) -> Vector | None:
    """The bias of a node, 0 where it has none; None where it is not known."""
    if len(node.inputs) <= at or not node.inputs[at]:
        return np.zeros(1)
    bias = graph.constants.get(node.inputs[at])
    if bias is None or bias.shape[-1:] not in ((), (bias.size,)):
        return None
    return bias.astype(np.float64).reshape(-1)


def _epilogue(total: Vector, scale: Vector, bias: Vector, result: _Result, channels: int) -> list[Array | None]:
    """The vectors ``shift``, ``factor`` and ``addend`` of `integers.Epilogue`.

    A bias that is a whole number of steps of the sum, as of quantised models, is added to the sum.
    """
    steps = np.broadcast_to(bias / scale, (channels,))
    missed = np.abs(bias - np.rint(steps) * scale)
    allowed = np.maximum(ROUNDED * np.abs(bias), 0.0 if result.scale is None else UNSEEN * result.scale)
    is_whole = bool(np.all(missed <= allowed) and np.all(np.abs(steps) < 2**30))
    shift = np.broadcast_to(total + (np.rint(steps) if is_whole else 0), (channels,)).astype(np.int64).astype(np.int32)
    unit = 1.0 if result.scale is None else result.scale
    factor = np.broadcast_to(scale / unit, (channels,)).astype(np.float32)
    addend = None if is_whole else np.broadcast_to(bias / unit, (channels,)).astype(np.float32)
    return [shift if np.any(shift) else None, factor, addend]


def _node(
    graph: Graph,
    op: str,
    node: Node,
    result: _Result,
    operands: tuple[str, str],
    vectors: Sequence[Array | None],
    zeros: Mapping[str, int],
) -> Node | None:
    low, high = int_range(result.dtype) if result.dtype in BYTES else (0, 0)
    values: dict[str, Any] = {**node.values, **zeros, "zero": result.zero, "low": low, "high": high}
    if result.is_positive:
        values["low"] = max(low, result.zero)
    inputs = [*operands, *("" if v is None else _constant(graph, node, v) for v in vectors)]
    while not inputs[-1]:
        inputs.pop()
    return Node(op, OWN_DOMAIN, node.name, tuple(inputs), result.node.outputs, values)


def _constant(graph: Graph, node: Node, value: Array) -> str:
    name = graph.fresh(f"{node.outputs[0]}/bytes")
    graph.constant(name, np.ascontiguousarray(value))
    return name
