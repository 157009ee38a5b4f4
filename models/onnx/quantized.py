"""Products of bytes for which there is no program as a whole, taken apart so that they are rounded as ONNX's text says.

    ``y = saturate(round(x / y_scale) + y_zero)``,    ``x = a_scale b_scale (sum of (a - a_zero) (b - b_zero) + bias)``

where halves go to the even neighbour before `y_zero` is added; the reference implementation adds it before, which is
another number for halves where it is odd.  The sum is of int32 (MatMulInteger, ConvInteger), the rest float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import AttributeProto, TensorProto, helper

from ..network import Array
from ..operators.building import programs
from ..operators.graph import Type
from .graph import ModelGraph, ModelNode, model_node

INTEGER = {"QLinearMatMul": "MatMulInteger", "QLinearConv": "ConvInteger"}


def as_integers(node: ModelNode, graph: ModelGraph, result: Type | None) -> list[ModelNode] | None:
    """The sum and its rounding as nodes, as of scales that are computed.

    None for what is no such product, has numbers for rows or columns, or has a program.
    """
    if node.domain or node.op not in INTEGER or len(node.inputs) < 8 or not all(node.inputs[:8]) or result is None:
        return None
    trial = graph.trial()
    trial.types[node.outputs[0]] = result
    if programs(trial, node) is not None:
        return None
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.inputs[:8]
    types, around = graph.types, (1,) * (len(graph.types[a].shape) - 2)
    scales, zeros = graph.constants.get(b_scale), graph.constants.get(b_zero)
    if types[b_scale].size > 1:
        if node.op != "QLinearConv" or scales is None or scales.shape != types[b].shape[:1]:
            return None
        b_scale = _constant(graph, node, "scales", scales.reshape(-1, *around))
    if zeros is not None and len(np.unique(zeros)) == 1:  # those of channels are mostly the same, as weights have none
        b_zero = _constant(graph, node, "zero", zeros.reshape(-1)[0])
    single = (a_scale, a_zero, b_zero, y_scale, y_zero)
    if any(types[name].size != 1 for name in single) or types[a_scale].dtype != "float32":
        return None
    bias = graph.constants.get(node.inputs[8]) if len(node.inputs) > 8 and node.inputs[8] else None
    if bias is None and any(node.inputs[8:]):
        return None
    made = _Parts(graph, node)
    total = made.add(INTEGER[node.op], [a, b, a_zero, b_zero], attributes=node.attributes)
    if bias is not None:
        total = made.add("Add", [total, _constant(graph, node, "bias", bias.reshape(-1, *around))])
    scale = made.add("Div", [made.add("Mul", [a_scale, b_scale]), y_scale])
    single_precision = [helper.make_attribute("to", int(TensorProto.FLOAT))]
    scaled = made.add("Mul", [made.add("Cast", [total], attributes=single_precision), scale])
    one = _constant(graph, node, "one", np.ones(types[y_zero].shape, np.float32))
    made.add("QuantizeLinear", [scaled, one, y_zero], node.outputs[0])
    return made.nodes


class _Parts:
    """The nodes that take the place of one, in order."""

    def __init__(self, graph: ModelGraph, whole: ModelNode) -> None:
        self.graph, self.whole = graph, whole
        self.nodes: list[ModelNode] = []

    def add(
        self, op: str, inputs: Sequence[str], output: str = "", attributes: Sequence[AttributeProto] = ()
    ) -> str:  # fmt: skip
        """Add a node; the name of its result, a new one where none is given."""
        output = output or self.graph.fresh(f"{self.whole.outputs[0]}/{op}")
        name = f"{self.whole.name or self.whole.outputs[0]}/{op}"
        self.nodes.append(model_node(op, "", name, inputs, [output], attributes))
        return output


def _constant(graph: ModelGraph, node: ModelNode, what: str, value: Array) -> str:
    name = graph.fresh(f"{node.outputs[0]}/{what}")
    graph.constant(name, np.asarray(value))
    return name
