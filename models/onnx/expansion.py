"""Operators that ONNX itself writes as others: taken apart where no builder knows the whole."""

from __future__ import annotations

import onnx
from onnx import AttributeProto, inliner

from ..operators import BUILDERS
from .graph import ModelGraph, ModelNode, model_node, node_of, with_names


def expanded(node: ModelNode, graph: ModelGraph) -> list[ModelNode] | None:
    """The body that ONNX's definition gives a node; None where there is none, or a builder.

    Where more than the first result is wanted, the body is taken: builders mostly make only that.
    """
    has_builder = (node.domain, node.op) in BUILDERS and not any(node.outputs[1:])
    if has_builder or node.domain not in ("", "ai.onnx.preview.training") or node.outer:
        return None
    schema = graph.schema(node)
    if not schema.has_function and not schema.has_context_dependent_function:
        return None
    try:
        model = inliner.inline_selected_functions(
            graph.model(_with_defaults(node, schema)),
            [(node.domain or "", node.op)],
            exclude=False,
            inline_schema_functions=True,
        )
    except (RuntimeError, ValueError):
        return None
    parts = [node_of(proto) for proto in model.graph.node]
    imported = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}
    if any(part.op == node.op for part in parts) or any(graph.opsets.get(d, v) != v for d, v in imported.items()):
        return None
    kept = {*node.inputs, *node.outputs, ""}
    inner = dict.fromkeys(name for p in parts for name in (*p.inputs, *p.outputs))
    called = {name: name if name in kept else graph.fresh(f"{node.outputs[0]}/{name}") for name in inner}
    return [
        model_node(
            part.op, part.domain, f"{node.name or node.outputs[0]}/{part.name or part.op}",
            [called[name] for name in part.inputs], [called[name] for name in part.outputs],
            [with_names(attribute, called) for attribute in part.attributes],
        )
        for part in parts
    ]  # fmt: skip


def _with_defaults(node: ModelNode, schema: onnx.defs.OpSchema) -> ModelNode:
    """The node with each attribute that it leaves to its default, which the bodies of ONNX do not know."""
    given = {attribute.name for attribute in node.attributes}
    wanted = [a.default_value for name, a in schema.attributes.items() if name not in given]
    attributes = (*node.attributes, *(a for a in wanted if a.type != AttributeProto.UNDEFINED))
    return model_node(node.op, node.domain, node.name, node.inputs, node.outputs, attributes)
