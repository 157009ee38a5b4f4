"""Scales and shifts with known factors go into the convolution or product before them.

With ``[c]`` an index of output channels and all factors constant:

1. ``BatchNormalization(x) = x a[c] + b[c]``, an `Affine`, with ``a = scale / sqrt(variance + epsilon)`` and
   ``b = bias - mean a``;
2. ``Affine(x) s[c] + t[c]`` is one `Affine`; so is what is written as Mul, Add, Sub or Div by constants;
3. ``(sum w[c, ...] x + d[c]) s[c] + t[c] = sum (w s)[c, ...] x + (d s + t)[c]`` for Conv, ConvTranspose and Gemm.

Each is done only where nothing else reads what lies between, in float64, rounded once, and where the new scales, or
the weights of every output channel, keep their digits in the type of the result, as in float16 from 6e-5 to 65504.
Nothing is done to what decides a step (`steps`), where a division by 0.1 is another than a product with 10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..network import Array
from .graph import OWN_DOMAIN, Graph, Node
from .site import is_native
from .steps import deciding

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Affine:
    """``x scale[c] + shift[c]`` along the channels of x."""

    scale: Vector
    shift: Vector


def simplify(graph: Graph) -> None:
    """Rewrite the graph as this module says."""
    users, decisive = graph.users(), deciding(graph)
    nodes: list[Node] = []
    place: dict[str, int] = {}
    for node in graph.nodes:
        at = None if decisive.intersection(node.outputs) else operand_of(graph, node)
        source = "" if at is None else node.inputs[at]
        before = nodes[place[source]] if source in place else None
        axis = len(graph.types[source].shape) - 1 if before is not None and before.op == "MatMul" else 1
        affine = None if at is None else affine_of(graph, node, at, axis)
        if affine is not None and before is not None and len(users[source]) == 1 and source not in graph.outputs:
            merged = _merged(graph, before, node, affine)
            if merged is not None:
                nodes[place[source]] = merged
                place[node.outputs[0]] = place[source]
                graph.note(node, f"part of {before.op} {before.name or before.outputs[0]}")
                continue
        if affine is not None and node.op == "BatchNormalization" and _is_held(graph, node, affine):
            graph.note(node, "a scale and a shift")
            node = _as_node(graph, node, source, affine)
        place.update(dict.fromkeys((name for name in node.outputs if name), len(nodes)))
        nodes.append(node)
    graph.nodes = nodes
    graph.prune()


def operand_of(graph: Graph, node: Node) -> int | None:
    """The number of the one input of an operator of rule 1 or 2 that is not constant, if its type is the result's."""
    if node.domain not in ("", OWN_DOMAIN) or node.op not in (
        "BatchNormalization",
        "Affine",
        "Mul",
        "Add",
        "Sub",
        "Div",
    ):
        return None
    candidates = [at for at, name in enumerate(node.inputs) if name not in graph.constants]
    if len(candidates) != 1 or any(node.outputs[1:]):
        return None
    source, result = graph.types[node.inputs[candidates[0]]], graph.types[node.outputs[0]]
    is_float = result.dtype in ("float16", "float32", "float64") and is_native(result)
    return candidates[0] if source == result and is_float and len(result.shape) > 1 else None


def affine_of(graph: Graph, node: Node, at: int, axis: int) -> Affine | None:
    """What a node does to its input `at`, if that is a scale and a shift along `axis`."""
    shape = graph.types[node.outputs[0]].shape
    channels = shape[axis]
    values = [graph.constants[name].astype(np.float64) for k, name in enumerate(node.inputs) if k != at]
    if node.op == "BatchNormalization":
        if at != 0 or axis != 1 or node.values.get("training_mode", 0) or len(values) != 4:
            return None
        scale, bias, mean, variance = values
        factor = scale / np.sqrt(variance + node.values.get("epsilon", 1e-5))
        return Affine(factor, bias - mean * factor)
    if node.op == "Affine":
        return Affine(values[0], values[1]) if axis == 1 else None
    vector = _along(values[0], len(shape), axis, channels)
    one, none = np.ones(1), np.zeros(1)
    if vector is None or (node.op == "Div" and (at == 1 or not vector.all())):
        return None
    if node.op in ("Mul", "Div"):
        return Affine(vector if node.op == "Mul" else 1 / vector, none)
    return Affine(one if at == 0 or node.op == "Add" else -one, -vector if node.op == "Sub" and at == 0 else vector)


def _along(value: Vector, rank: int, axis: int, channels: int) -> Vector | None:
    """A constant as one number, or one for each channel; None where it varies along another dimension."""
    if value.size == 1:
        return value.reshape(1)
    wanted = tuple(channels if at == axis else 1 for at in range(rank))
    return value.reshape(channels) if (1,) * (rank - value.ndim) + value.shape == wanted else None


def _merged(graph: Graph, before: Node, node: Node, affine: Affine) -> Node | None:
    """One node for `before` and the scale and shift after it, by rules 2 and 3."""
    weights = graph.constants.get(before.inputs[1]) if len(before.inputs) > 1 else None
    if before.op in _SCALED and not before.domain and weights is not None:
        return _SCALED[before.op](graph, before, node, affine, weights)
    at = operand_of(graph, before)
    first = None if at is None else affine_of(graph, before, at, 1)
    if (
        at is None
        or first is None
        or max(first.scale.size, first.shift.size, affine.scale.size, affine.shift.size) == 1
    ):
        return None
    both = Affine(first.scale * affine.scale, first.shift * affine.scale + affine.shift)
    if not _is_held(graph, node, both):
        return None
    return _as_node(graph, node, before.inputs[at], both)


def _is_held(graph: Graph, node: Node, affine: Affine) -> bool:
    """Whether the type of a node's result holds the numbers, and the scales with all digits."""
    limits = np.finfo(graph.types[node.outputs[0]].dtype)
    scale, shift = np.abs(affine.scale), np.abs(affine.shift)
    normal = (limits.tiny <= scale) & (scale <= limits.max)
    return bool(np.all(normal | (scale == 0)) and np.all(shift <= limits.max))


def _as_node(graph: Graph, node: Node, source: str, affine: Affine) -> Node:
    """An `Affine` of `source` in the place of `node`."""
    found = graph.types[node.outputs[0]]
    scale, shift = (np.broadcast_to(vector, found.shape[1:2]) for vector in (affine.scale, affine.shift))
    inputs = (source, _constant(graph, node, "scale", scale), _constant(graph, node, "shift", shift))
    return Node("Affine", OWN_DOMAIN, node.name, inputs, node.outputs)


def _constant(graph: Graph, node: Node, what: str, value: Vector) -> str:
    """A new constant for a node, rounded to the type of its result."""
    name = graph.fresh(f"{node.outputs[0]}/{what}")
    graph.constant(name, np.ascontiguousarray(value).astype(graph.types[node.outputs[0]].dtype))
    return name


def _keeps_digits(dtype: str, weights: Vector, contracted: tuple[int, ...], bias: Vector) -> bool:
    """Whether all is finite in `dtype`, and the largest weight of each output channel a normal number.

    `contracted` are the dimensions of the weights that belong to one output channel.
    """
    limits = np.finfo(dtype)
    largest = np.abs(weights).max(axis=contracted, initial=0.0)
    normal = (limits.tiny <= largest) & (largest <= limits.max)
    return bool(np.all(normal | (largest == 0)) and np.all(np.abs(bias) <= limits.max))


def _scaled_conv(graph: Graph, before: Node, node: Node, affine: Affine, weights: Array) -> Node | None:
    """Weights ``[co, ...]``; those of a transposed convolution are ``[ci, co of a group, ...]``."""
    found = graph.types[before.outputs[0]]
    channels = found.shape[1]
    scale = np.broadcast_to(affine.scale, (channels,))
    wide = weights.astype(np.float64)
    if before.op == "Conv":
        wide = wide * scale.reshape(-1, *[1] * (wide.ndim - 1))
        contracted = tuple(range(1, wide.ndim))
    else:
        groups = before.values.get("group", 1)
        parts = wide.reshape(groups, -1, *wide.shape[1:])
        wide = parts * scale.reshape(groups, 1, -1, *[1] * (wide.ndim - 2))
        contracted = (1, *range(3, wide.ndim))
    bias = np.zeros(channels)
    if len(before.inputs) > 2 and before.inputs[2]:
        if before.inputs[2] not in graph.constants:
            return None
        bias = graph.constants[before.inputs[2]].astype(np.float64)
    bias = bias * affine.scale + affine.shift
    if not _keeps_digits(found.dtype, wide, contracted, bias):
        return None
    names = [_constant(graph, node, "weights", wide.reshape(weights.shape)), _constant(graph, node, "bias", bias)]
    return replace(before, inputs=(before.inputs[0], *names), outputs=node.outputs)


def _scaled_gemm(graph: Graph, before: Node, node: Node, affine: Affine, weights: Array) -> Node | None:
    wide, values, found = weights.astype(np.float64), before.values, graph.types[before.outputs[0]]
    is_turned = bool(values.get("transB", 0))
    wide = wide * (affine.scale[:, None] if is_turned else affine.scale)
    bias = np.zeros(found.shape[1])
    if len(before.inputs) > 2 and before.inputs[2]:
        if before.inputs[2] not in graph.constants:
            return None
        bias = bias + graph.constants[before.inputs[2]].astype(np.float64) * values.get("beta", 1.0)
    bias = bias * affine.scale + affine.shift
    if not _keeps_digits(found.dtype, wide, (int(is_turned),), bias):
        return None
    names = [_constant(graph, node, "weights", wide), _constant(graph, node, "bias", bias)]
    attributes = {name: value for name, value in values.items() if name != "beta"}
    return Node("Gemm", "", before.name, (before.inputs[0], *names), node.outputs, attributes)


def _scaled_matmul(graph: Graph, before: Node, node: Node, affine: Affine, weights: Array) -> Node | None:
    if np.any(affine.shift) or weights.ndim < 2:
        return None
    wide = weights.astype(np.float64) * affine.scale
    if not _keeps_digits(graph.types[before.outputs[0]].dtype, wide, (wide.ndim - 2,), affine.shift):
        return None
    name = _constant(graph, node, "weights", wide)
    return Node("MatMul", "", before.name, (before.inputs[0], name), node.outputs)


_SCALED: Mapping[str, Callable[[Graph, Node, Node, Affine, Array], Node | None]] = {
    "Conv": _scaled_conv, "ConvTranspose": _scaled_conv, "Gemm": _scaled_gemm, "MatMul": _scaled_matmul,
}  # fmt: skip
