"""Operators of other domains than ONNX's own, each by its definition; a table for each domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from . import learning, microsoft, microsoft_bits, microsoft_bytes, microsoft_recurrent
from .graph import ModelGraph, ModelNode
from .microsoft import Definition
from .parts import Parts

DEFINITIONS: Mapping[tuple[str, str], Definition] = {
    **microsoft.DEFINITIONS, **microsoft_bytes.DEFINITIONS, **microsoft_bits.DEFINITIONS,
    **microsoft_recurrent.DEFINITIONS, **learning.DEFINITIONS,
}  # fmt: skip


def defined(node: ModelNode, graph: ModelGraph) -> Sequence[ModelNode] | None:
    """The nodes that compute what a node does; None where no definition covers it, or ONNX has one of its own."""
    define = DEFINITIONS.get((node.domain, node.op))
    if define is None or (not node.domain and is_of_onnx(node, graph)):
        return None
    parts = Parts(graph, node)
    return parts.nodes if define(parts) else None


def is_of_onnx(node: ModelNode, graph: ModelGraph) -> bool:
    """Whether ONNX defines a node's operator in its version."""
    return bool(onnx.defs.has(node.op, graph.opset(node), node.domain)) if graph.opset(node) else False
