"""Operators that ONNX itself writes as others: taken apart where no builder knows the whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
from onnx import AttributeProto, helper, inliner

from ..operators import BUILDERS
from .bodies import own_body
from .graph import ModelGraph, ModelNode, model_node, node_of, with_names

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview.training")


def expanded(node: ModelNode, graph: ModelGraph) -> list[ModelNode] | None:
    """The body that ONNX's definition gives a node; None where there is none, or a builder.

    Where more than the first result is wanted, the body is taken: builders mostly make only that.
    """
    if (found := own_body(node, graph)) is not None:
        return found
    has_builder = (node.domain, node.op) in BUILDERS and not any(node.outputs[1:])
    return None if has_builder else body_of(node, graph)


def body_of(node: ModelNode, graph: ModelGraph) -> list[ModelNode] | None:
    """The body that ONNX's definition gives a node, under names of its own; None where there is none."""
    if node.domain not in DOMAINS or node.outer:
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
    if node.op == "MeanVarianceNormalization":
        parts = _in_type(_with_positive_variance(parts), node, graph)
    if any(part.op == node.op and part.domain == node.domain for part in parts):
        return None
    imported = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}
    kept = {*node.inputs, *node.outputs, ""}
    inner = dict.fromkeys(name for p in parts for name in (*p.inputs, *p.outputs))
    called = {name: name if name in kept else graph.fresh(f"{node.outputs[0]}/{name}") for name in inner}
    made = [
        model_node(
            part.op, part.domain, f"{node.name or node.outputs[0]}/{part.name or part.op}",
            [called[name] for name in part.inputs], [called[name] for name in part.outputs],
            [with_names(attribute, called) for attribute in part.attributes],
        )
        for part in parts
    ]  # fmt: skip
    return [
        replace(part, version=imported[part.domain])
        if imported.get(part.domain, 0) not in (0, graph.opsets.get(part.domain))
        else part
        for part in made
    ]


def _with_positive_variance(parts: list[ModelNode]) -> list[ModelNode]:
    """``Sqrt(Sub(E[x^2], E[x]^2))`` with the difference's absolute value, since rounding may make it negative."""
    variances = {name for part in parts if part.op == "Sub" for name in part.outputs}
    made: list[ModelNode] = []
    for part in parts:
        if part.op == "Sqrt" and part.inputs[0] in variances:
            positive = f"{part.inputs[0]}_positive"
            made.append(model_node("Abs", "", positive, part.inputs, [positive], []))
            part = replace(part, inputs=(positive,))
        made.append(part)
    return made


def _in_type(parts: list[ModelNode], node: ModelNode, graph: ModelGraph) -> list[ModelNode]:
    """Parts whose constants are of float32, for inputs of other floats: float16 is computed in float32."""
    dtype = graph.types[node.inputs[0]].dtype
    if dtype == "float32":
        return parts
    x, y = node.inputs[0], node.outputs[0]
    names: dict[str, str] = {}
    made: list[ModelNode] = []

    def cast(name: str, to: str, into: str) -> ModelNode:
        code = helper.np_dtype_to_tensor_dtype(np.dtype(to))
        return model_node("Cast", "", f"{name}_cast", [name], [into], [helper.make_attribute("to", code)])

    if dtype != "float64":
        made.append(cast(x, "float32", f"{x}_wide"))
        names = {x: f"{x}_wide", y: f"{y}_wide"}
    for part in parts:
        inputs, outputs = (tuple(names.get(name, name) for name in side) for side in (part.inputs, part.outputs))
        made.append(replace(part, inputs=inputs, outputs=outputs))
        if part.op == "Constant" and dtype == "float64" and np.asarray(part.values.get("value")).dtype == np.float32:
            names[part.outputs[0]] = f"{part.outputs[0]}_wide"
            made.append(cast(part.outputs[0], dtype, names[part.outputs[0]]))
    if dtype != "float64":
        made.append(cast(f"{y}_wide", dtype, y))
    return made


def _with_defaults(node: ModelNode, schema: onnx.defs.OpSchema) -> ModelNode:
    """The node with each attribute that it leaves to its default, which the bodies of ONNX do not know."""
    given = {attribute.name for attribute in node.attributes}
    wanted = [a.default_value for name, a in schema.attributes.items() if name not in given]
    return node.with_attributes((*node.attributes, *(a for a in wanted if a.type != AttributeProto.UNDEFINED)))
