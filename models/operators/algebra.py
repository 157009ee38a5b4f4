"""Convolutions and products between dequantised operands and a quantised result, computed in bytes.

With ``x = (q - zx) sx``, constant weights ``w = (p - zw) sw[c]`` and a result that is quantised by sy and zy::

    quantise(sum x w + b[c])  =  clip(round(sum (q - zx) (p - zw) (sx sw[c] / sy) + b[c] / sy) + zy)

and without the last step floats, ``sum (q - zx) (p - zw) (sx sw[c]) + b[c]``.  Scales and shifts by constants that
follow, such as a normalisation, change the factors and b; a Relu or Clip in between is an end of the clip.  Both sides
are equal but for rounding in floats: a quantised result differs by one step at most, where the value is as good as
halfway between two.  That holds where no sum of bytes leaves 32 bits, which is proven from the weights, or from the
number of products; others stay in floats, which do not wrap around.

Scales, shifts, sums and products of dequantised operands alone are one pass over bytes, with factors that are known:

    quantise((q - zx) sx a[c] + b[c])    =  clip(round(q (sx a[c] / sy) + (b[c] - zx sx a[c]) / sy) + zy)
    quantise((q - zx) sx + (p - zw) sw)  =  clip(round(q (sx / sy) + p (sw / sy) - (zx sx + zw sw) / sy) + zy)
    quantise((q - zx) sx (p - zw) sw)    =  clip(round((q - zx) (p - zw) (sx sw / sy)) + zy)

What moves values, or takes the largest ones, does so with the bytes, where operands and result have one scale and one
zero point: ``quantise(pool((q - z) s)) = pool(q)``.  Operands of Concat that have others are brought to those first.

The nodes around stay as they are, and go where nothing else reads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ir.dtypes import int_range
from ..network import Array
from .building import programs
from .graph import OWN_DOMAIN, Graph, Node, Quantised, Type
from .integers import BYTES, folded
from .simplify import affine_of, operand_of

Vector = NDArray[np.float64]
Rewrite = Callable[[Graph, Node, Mapping[str, Node], "_Result"], "list[Node] | None"]

NOTHING, OPEN = np.zeros(1), (-math.inf, math.inf)
FURTHEST = 256
"""More steps than lie between any two bytes."""
SCALED = ("BatchNormalization", "Add", "Sub", "Mul", "Div", "Relu", "Clip")
"""Operators between dequantised tensors that are one pass over bytes."""
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
    """The node whose result is computed, and by what it is quantised; a scale of None leaves floats.

    Quantised is ``clip(v gain[c] + offset[c])`` of the value v, with the clip between `low` and `high`.
    """

    node: Node
    dtype: str = "float32"
    scale: float | None = None
    zero: int = 0
    gain: Vector = field(default_factory=lambda: np.ones(1))
    offset: Vector = field(default_factory=lambda: np.zeros(1))
    low: float = -math.inf
    high: float = math.inf

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest byte."""
        least, most = int_range(self.dtype)
        if self.scale is None:
            return 0, 0
        low, high = (min(max(end / self.scale, -FURTHEST), FURTHEST) for end in (self.low, self.high))
        return (min(max(round(low) + self.zero, least), most), min(max(round(high) + self.zero, least), most))

    @property
    def is_plain(self) -> bool:
        """Whether the value is quantised as it is."""
        return bool(np.all(self.gain == 1) and not np.any(self.offset) and (self.low, self.high) == OPEN)


def in_integers(graph: Graph) -> None:
    """Rewrite the graph as this module says."""
    made_by = {name: node for node in graph.nodes for name in node.outputs}
    users = graph.users()
    replaced: dict[int, list[Node]] = {}
    for node in graph.nodes:
        rewrite = _REWRITES.get(node.op) if not node.domain else None
        result = None if rewrite is None else _result_of(graph, node, users)
        if rewrite is None or result is None or id(result.node) in replaced:
            continue
        trial = graph.trial()
        found = rewrite(trial, node, made_by, result)
        if found and all(programs(trial.trial(), part) is not None for part in found):
            for part in found:
                for name in set(part.inputs) & (set(trial.constants) - set(graph.constants)):
                    graph.constant(name, trial.constants[name])
                graph.types.update((name, trial.types[name]) for name in part.outputs)
                graph.taken.update(part.outputs)
            replaced[id(result.node)] = found
            graph.note(node, "computed in bytes")
    if replaced:
        graph.nodes = [part for node in graph.nodes for part in replaced.get(id(node), [node])]
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
    """How far a node's result is nobody else's: up to the quantised one, or the node itself.

    What a node of `SCALED` does to a single tensor is part of it.
    """
    axis = len(graph.types[node.outputs[0]].shape) - 1 if node.op == "MatMul" else 1
    last, found = node, _Result(node)
    varying = [name for name in node.inputs if name not in graph.constants]
    if node.op in SCALED and len(varying) == 1:
        own = _step(graph, node, varying[0], axis, found)
        if own is None:
            return found
        found = own
    while (following := _only_user(graph, last, users)) is not None:
        step = _step(graph, following, last.outputs[0], axis, found)
        if step is None:
            break
        last, found = following, step
    if following is None or following.op != "QuantizeLinear" or following.domain:
        return _Result(node)
    scale, zero = (graph.constants.get(name) for name in (*following.inputs[1:], "")[:2])
    dtype = graph.types[following.outputs[0]].dtype
    is_plain = scale is not None and scale.size == 1 and _are_scales(scale)
    is_plain &= following.inputs[0] == last.outputs[0] and (len(following.inputs) < 3 or zero is not None)
    if not is_plain or scale is None or dtype not in BYTES or (zero is not None and zero.size != 1):
        return _Result(node)
    start = 0 if zero is None else int(zero.reshape(()))
    return replace(found, node=following, dtype=dtype, scale=float(scale.reshape(())), zero=start)


def _step(graph: Graph, node: Node, source: str, axis: int, found: _Result) -> _Result | None:
    """What is quantised after one node more, of `source`: a clip, or a scale and a shift that come before any clip."""
    if node.domain or any(node.outputs[1:]):
        return None
    if node.op == "Relu":
        return replace(found, low=max(found.low, 0.0), high=max(found.high, 0.0))
    if node.op == "Clip" and node.inputs[0] == source:
        ends = [graph.constants.get(name) if name else None for name in (*node.inputs[1:], "", "")[:2]]
        is_open = any(name and end is None for name, end in zip(node.inputs[1:], ends, strict=False))
        if is_open or {"min", "max"} & set(node.values) or any(end is not None and end.size != 1 for end in ends):
            return None
        low, high = (given if end is None else float(end.reshape(())) for end, given in zip(ends, OPEN, strict=True))
        low, high = (min(max(end, low), high) for end in (found.low, found.high))
        return replace(found, low=low, high=high) if low <= high else None
    is_clipped = (found.low, found.high) != OPEN
    at = None if is_clipped or len(graph.types[node.outputs[0]].shape) <= axis else operand_of(graph, node)
    affine = None if at is None or node.inputs[at] != source else affine_of(graph, node, at, axis)
    if affine is None or not (np.isfinite(affine.scale).all() and np.isfinite(affine.shift).all()):
        return None
    return replace(found, gain=found.gain * affine.scale, offset=found.offset * affine.scale + affine.shift)


def _are_scales(scale: Array) -> bool:
    """Whether a scale keeps the order of numbers, and has an inverse."""
    return bool(np.all(np.isfinite(scale)) and np.all(np.greater(scale, 0)))


def _only_user(graph: Graph, node: Node, users: Mapping[str, Sequence[Node]]) -> Node | None:
    readers = users.get(node.outputs[0], ())
    return readers[0] if len(readers) == 1 and node.outputs[0] not in graph.outputs else None


def _conv(graph: Graph, node: Node, made_by: Mapping[str, Node], result: _Result) -> list[Node] | None:
    x, w = _bytes_of(graph, node.inputs[0], made_by), graph.quantised.get(node.inputs[1])
    if x is None or w is None:
        return None
    weights, scale = _folded(w, 0), _along(w, 0)
    bias = _bias(graph, node, 2)
    if weights is None or scale is None or bias is None or bias.size not in (1, len(weights)):
        return None
    rows = weights.astype(np.float64).reshape(len(weights), -1)
    scaled = _scaled(x.scale * scale, bias, result)
    if scaled is None or _reach(graph, x, np.abs(rows).sum(axis=1), scaled) > MOST:
        return None
    vectors = _epilogue(-x.zero * rows.sum(axis=1), scaled, len(weights))
    inputs = [x.tensor, _constant(graph, node, weights), *_named(graph, node, vectors)]
    return [_node("ConvOfBytes", node, result, inputs, {"fill": x.zero})]


def _conv_transpose(
    graph: Graph, node: Node, made_by: Mapping[str, Node], result: _Result
) -> list[Node] | None:  # fmt: skip
    """Transposed convolutions, whose zero point the program takes care of: not every place meets all weights."""
    x, w = _bytes_of(graph, node.inputs[0], made_by), graph.quantised.get(node.inputs[1])
    groups = int(node.values.get("group", 1))
    if x is None or w is None or w.data.ndim < 3:
        return None
    weights, scale, bias = _folded(w, 1), _along(w, 1), _bias(graph, node, 2)
    channels = groups * w.data.shape[1]
    if weights is None or scale is None or bias is None or bias.size not in (1, channels):
        return None
    scale = np.tile(scale, groups) if scale.size > 1 else scale
    rows = np.abs(weights.astype(np.float64)).reshape(groups, -1, w.data.shape[1], math.prod(w.data.shape[2:]))
    scaled = _scaled(x.scale * scale, bias, result)
    if scaled is None or _reach(graph, x, rows.sum(axis=(1, 3)), scaled) > MOST:
        return None
    vectors = _epilogue(NOTHING, scaled, channels)
    inputs = [x.tensor, _constant(graph, node, weights), *_named(graph, node, vectors)]
    return [_node("ConvTransposeOfBytes", node, result, inputs, {"fill": x.zero})]


def _matmul(graph: Graph, node: Node, made_by: Mapping[str, Node], result: _Result) -> list[Node] | None:
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
        scaled = _scaled(np.full(1, a.scale * b.scale), bias, result)
        if scaled is None or _reach(graph, a, np.full(1, float(count * _largest(graph, b))), scaled) > MOST:
            return None
        inputs = [a.tensor, b.tensor, *_named(graph, node, _epilogue(NOTHING, scaled, channels))]
        return [_node("MatMulOfBytes", node, result, inputs, {"fill": a.zero, "other": b.zero})]
    turned = bool(values.get("transB", 0))
    axis = 0 if turned else w.data.ndim - 1
    weights, scale = _folded(w, axis), _along(w, axis)
    if weights is None or scale is None or weights.ndim < 2 or bias.size not in (1, channels):
        return None
    weights = np.ascontiguousarray(weights.T) if turned else weights
    columns = np.abs(weights.astype(np.float64)).sum(axis=-2)
    scaled = _scaled(a.scale * scale, bias, result)
    if scaled is None or _reach(graph, a, columns, scaled) > MOST:
        return None
    vectors = _named(graph, node, _epilogue(NOTHING, scaled, channels))
    inputs = [a.tensor, _constant(graph, node, weights), *vectors]
    return [_node("MatMulOfBytes", node, result, inputs, {"fill": a.zero, "other": 0})]


def _largest(graph: Graph, operand: _Bytes) -> int:
    """How far bytes may lie from their zero point."""
    low, high = int_range(graph.types[operand.tensor].dtype)
    return max(operand.zero - low, high - operand.zero)


def _reach(graph: Graph, operand: _Bytes, weights: Vector, scaled: _Scaled) -> float:
    """The largest that a sum of bytes, counted from their zero points, may be with what is added to it.

    `weights` are the sums of the absolute weights of each channel.  What is added up on the way may wrap around.
    """
    steps = NOTHING if scaled.steps is None else scaled.steps
    return float(_largest(graph, operand) * weights.max(initial=0.0) + np.abs(steps).max(initial=0.0))


def _moved(graph: Graph, node: Node, made_by: Mapping[str, Node], result: _Result) -> list[Node] | None:
    """What only moves values, or takes the largest, of the bytes themselves."""
    if result.scale is None or not result.is_plain or any(node.outputs[1:]):
        return None
    count = len(node.inputs) if node.op == "Concat" else 1
    tensors, before = [], []
    for name in node.inputs[:count]:
        operand = _bytes_of(graph, name, made_by)
        if operand is None:
            return None
        tensor = operand.tensor
        if (operand.scale, operand.zero, graph.types[tensor].dtype) != (result.scale, result.zero, result.dtype):
            if node.op != "Concat":
                return None
            tensor = graph.fresh(f"{name}/bytes")
            graph.types[tensor] = Type(graph.types[name].shape, result.dtype)
            into = replace(result, node=replace(result.node, outputs=(tensor,)))
            made = _rescaled(graph, node, operand, into)
            if made is None:
                return None
            before.append(made)
        tensors.append(tensor)
    return [*before, replace(node, inputs=(*tensors, *node.inputs[count:]), outputs=result.node.outputs)]


def _scaled_alone(graph: Graph, node: Node, made_by: Mapping[str, Node], result: _Result) -> list[Node] | None:
    """Scales, shifts and clips of one dequantised tensor, or the sum or product of two."""
    operands = [_bytes_of(graph, name, made_by) for name in node.inputs if name not in graph.constants]
    if result.scale is None or any(operand is None for operand in operands) or any(node.outputs[1:]):
        return None
    if len(operands) == 1 and operands[0] is not None:
        made = _rescaled(graph, node, operands[0], result)
        return None if made is None else [made]
    if len(operands) != 2 or node.op not in ("Add", "Sub", "Mul") or result.gain.size + result.offset.size > 2:
        return None
    a, b = (operand for operand in operands if operand is not None)
    gain, offset = float(result.gain[0]) / result.scale, float(result.offset[0]) / result.scale
    if node.op == "Mul":
        numbers = [np.full(1, operand.zero, np.int32) for operand in (a, b)]
        numbers += [np.full(1, number, np.float32) for number in (a.scale * b.scale * gain, offset)]
    else:
        factors = a.scale * gain, (-b.scale if node.op == "Sub" else b.scale) * gain
        offset -= a.zero * factors[0] + b.zero * factors[1]
        numbers = [np.full(1, number, np.float32) for number in (*factors, offset)]
    if not all(np.isfinite(number).all() for number in numbers):
        return None
    inputs = [a.tensor, b.tensor, *_named(graph, node, numbers)]
    return [_node("MulOfBytes" if node.op == "Mul" else "AddOfBytes", node, result, inputs, {})]


def _rescaled(graph: Graph, node: Node, operand: _Bytes, result: _Result) -> Node | None:
    """Bytes of another scale and zero point, with what is done in between."""
    assert result.scale is not None
    factor = np.asarray(operand.scale * result.gain / result.scale)
    addend = np.asarray(result.offset / result.scale - operand.zero * factor)
    channels = graph.types[operand.tensor].shape[1] if max(factor.size, addend.size) > 1 else 1
    vectors = [np.broadcast_to(vector, (channels,)).astype(np.float32) for vector in (factor, addend)]
    if not all(np.isfinite(vector).all() for vector in vectors):
        return None
    return _node("AffineOfBytes", node, result, [operand.tensor, *_named(graph, node, vectors)], {})


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


@dataclass(frozen=True)
class _Scaled:
    """A sum in steps of the result, ``v factor[c] + addend[c]``; of the addend as a number of `steps` of the sum, too.

    These are None where some are not whole.
    """

    factor: Vector
    addend: Vector
    steps: Vector | None


def _scaled(scale: Vector, bias: Vector, result: _Result) -> _Scaled | None:
    """What becomes of sums of a scale and their bias; None where float32 does not hold it.

    A bias that is a whole number of steps of the sum, as of quantised models, can be added to the sum.
    """
    scale, bias = scale * result.gain, bias * result.gain + result.offset
    unit = 1.0 if result.scale is None else result.scale
    found = _Scaled(scale / unit, bias / unit, None)
    if not max(np.abs(found.factor).max(), np.abs(found.addend).max()) < np.finfo(np.float32).max:
        return None
    if not np.all(scale):
        return found
    steps = bias / scale
    missed = np.abs(bias - np.rint(steps) * scale)
    allowed = np.maximum(ROUNDED * np.abs(bias), 0.0 if result.scale is None else UNSEEN * result.scale)
    is_whole = bool(np.all(missed <= allowed) and np.all(np.abs(steps) < 2**30))
    return replace(found, steps=np.rint(steps)) if is_whole else found


def _epilogue(total: Vector, scaled: _Scaled, channels: int) -> list[Array | None]:
    """The vectors ``shift``, ``factor`` and ``addend`` of `integers.Epilogue`; `total` is what sums lack."""
    steps = NOTHING if scaled.steps is None else scaled.steps
    shift = np.broadcast_to(total + steps, (channels,)).astype(np.int64).astype(np.int32)
    factor, addend = (np.broadcast_to(v, (channels,)).astype(np.float32) for v in (scaled.factor, scaled.addend))
    return [shift if np.any(shift) else None, factor, addend if scaled.steps is None else None]


def _named(graph: Graph, node: Node, vectors: Sequence[Array | None]) -> list[str]:
    """The names of new constants; of absent ones nothing."""
    return ["" if v is None else _constant(graph, node, v) for v in vectors]


def _node(op: str, node: Node, result: _Result, inputs: Sequence[str], zeros: Mapping[str, int]) -> Node:
    """A node for the programs of `integers` and `bytewise`."""
    low, high = result.ends
    values: dict[str, Any] = {**node.values, **zeros, "zero": result.zero, "low": low, "high": high}
    given = list(inputs)
    while not given[-1]:
        given.pop()
    return Node(op, OWN_DOMAIN, node.name, tuple(given), result.node.outputs, values)


def _constant(graph: Graph, node: Node, value: Array) -> str:
    name = graph.fresh(f"{node.outputs[0]}/bytes")
    graph.constant(name, np.ascontiguousarray(value))
    return name


_REWRITES: Mapping[str, Rewrite] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    **dict.fromkeys(("MatMul", "Gemm"), _matmul),
    **dict.fromkeys(MOVING, _moved),
    **dict.fromkeys(SCALED, _scaled_alone),
}
