"""What vanishes before there is a program: nodes without effect, and nodes of constants alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator

from ...errors import ModelProblem
from ..evaluate import evaluate
from ..network import Array
from ..operators.building import network_of, programs
from ..operators.graph import Graph, Node, Quantised, Type
from .graph import ModelGraph
from .old_versions import as_newest

LARGEST_FOLDED, LARGEST_FOLDED_TOTAL = 2**31, 2**34
"""Bytes that the results of one folded node, and of all together, may have."""

FREE_OF_SHAPE = frozenset({"NonZero", "Unique", "Compress", "NonMaxSuppression", "SequenceAt", "StringSplit"})
"""What has results of a shape that only its inputs' values tell, but that are never much larger than these."""

NOT_FOLDED = frozenset({
    "Loop", "Scan", "If", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli",
    "Multinomial", "QLinearMatMul", "QLinearConv",
})  # fmt: skip
"""What is not the same in each run, may run for ever, or is not always what the reference makes of it."""

BY_PROGRAMS = frozenset({
    "AveragePool", "BatchNormalization", "ConvTranspose", "Erf", "GlobalMaxPool", "LRN", "LogSoftmax",
    "LpNormalization", "LpPool", "MaxPool", "PRelu", "Resize", "Upsample",
})  # fmt: skip
"""What is not always what the reference makes of it, and is computed by its own programs."""

RESHAPING = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile"})
NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1, "Pow": 1}
COMMUTING = frozenset({"Add", "Mul"})


def without_effect(node: Node, graph: Graph, result: Type | None) -> str | None:
    """The input that a node gives unchanged, if it does nothing else."""
    if node.domain or not node.inputs or not node.inputs[0] or any(node.outputs[1:]) or result is None:
        return None
    first = node.inputs[0]
    if node.op == "Identity":
        return first
    if node.op == "Dropout":
        training = node.inputs[2] if len(node.inputs) > 2 else ""
        is_off = not training or (training in graph.constants and not bool(graph.constants[training]))
        return first if is_off else None
    if result != graph.types[first] and node.op not in COMMUTING:
        return None
    single = node.op in ("Concat", "Sum", "Max", "Min", "Mean") and len(node.inputs) == 1
    if node.op in RESHAPING or node.op in ("Cast", "CastLike") or single:
        return first
    if node.op in NEUTRAL:
        sides = [(first, node.inputs[1])] + [(node.inputs[1], first)] * (node.op in COMMUTING)
        for kept, other in sides:
            value = graph.constants.get(other)
            if value is not None and graph.types[kept] == result and np.all(value == NEUTRAL[node.op]):
                return kept
    return None


def is_foldable(node: Node, types: Sequence[Type | None], known: Mapping[str, Array], folded: int = 0) -> bool:
    """Whether a node can be computed now, in bounded memory: so many bytes have been before it."""
    if not node.domain and node.op in ("Shape", "Size"):
        return True
    if node.op in NOT_FOLDED or len(known) < len(node.reads):
        return False
    sizes = [found.nbytes for found in types if found is not None]
    unknown = any(found is None and name for found, name in zip(types, node.outputs, strict=True))
    limit = min(LARGEST_FOLDED, LARGEST_FOLDED_TOTAL - folded)
    return sum(sizes) <= limit and (not unknown or node.op in FREE_OF_SHAPE)


def evaluated(graph: ModelGraph, node: Node, types: Sequence[Type | None]) -> list[Array] | None:
    """The outputs of a node of constants; None where the reference implementation fails on it."""
    if not node.domain and node.op in ("Shape", "Size"):
        shape = graph.types[node.inputs[0]].shape
        if node.op == "Size":
            return [np.array(graph.types[node.inputs[0]].size, np.int64)]
        return [np.array(shape[slice(node.values.get("start", 0), node.values.get("end"))], np.int64)]
    if not node.domain and node.op in BY_PROGRAMS:
        return _by_programs(graph, node, types)
    given = {name: graph.constants[name] for name in node.reads}
    if (origin := quantised(graph, node)) is not None:
        return [origin.values()]
    shapes = {name: array.shape for name, array in given.items()}
    try:
        told = as_newest(node, graph.opset(node), shapes, given)
    except ModelProblem:
        return None  # there may be a program for it
    values = reference(graph.model(told), {name: given[name] for name in told.reads})
    if values is None or not all(isinstance(value, (np.ndarray, np.generic)) for value in values):
        return None
    made = {name: np.asarray(value) for name, value in zip([n for n in node.outputs if n], values, strict=True)}
    for name, found in zip(node.outputs, types, strict=True):
        if name and found is not None and found.dtype in ("int32", "uint32") and made[name].dtype.kind in "iu":
            made[name] = made[name].astype(found.dtype)  # of which the reference makes longer ones in sums
        if name and found is not None and (made[name].shape != found.shape or str(made[name].dtype) != found.dtype):
            return None
    return [made.get(name, np.empty(0)) for name in node.outputs]


def quantised(graph: ModelGraph, node: Node) -> Quantised | None:
    """The constants that a DequantizeLinear makes floats of; None for any other node, and for blocks of scales."""
    if node.op != "DequantizeLinear" or node.domain or node.values.get("block_size", 0):
        return None
    if node.values.get("output_dtype", 0):
        return None
    data, scale, *zero = (graph.constants[name] for name in node.inputs if name)
    if data.dtype.kind not in "iu" or scale.ndim > 1 or scale.dtype not in (np.float32, np.float16):
        return None
    return Quantised(data, scale, zero[0] if zero else np.zeros((), data.dtype), node.values.get("axis", 1))


def _by_programs(graph: ModelGraph, node: Node, types: Sequence[Type | None]) -> list[Array] | None:
    """The outputs of a node of constants as its programs mean them; None where it has none."""
    trial, wanted = graph.trial(), {n: found for n, found in zip(node.outputs, types, strict=True) if n}
    if any(found is None for found in wanted.values()):
        return None
    trial.types.update({name: found for name, found in wanted.items() if found is not None})
    built = programs(trial, node)
    if built is None:
        return None
    found = evaluate(network_of(replace(trial, inputs=(), outputs=tuple(wanted)), built), {})
    return [found.get(name, np.empty(0)) for name in node.outputs]


def refuse_unknown(model: Any, node: Node) -> None:
    """Raise ModelProblem where the reference implementation of ONNX has no such operator."""
    try:
        ReferenceEvaluator(model)
    except Exception as error:
        raise ModelProblem(
            f"for the node {node} there is no program here, and the reference implementation of ONNX, which runs such "
            f"nodes, cannot run it either: {type(error).__name__}"
        ) from None


def reference(model: Any, given: Mapping[str, Array]) -> list[Any] | None:
    """The outputs of a model by the reference implementation of ONNX, or None where it fails."""
    try:
        values: list[Any] = ReferenceEvaluator(model).run(None, dict(given))
    except Exception:  # the reference implementation raises what NumPy and its own asserts raise
        return None
    return values
