"""Nodes as ONNX's reference implementation understands them, which knows the newest version of each operator alone."""

from __future__ import annotations

from onnx import helper

from ...errors import ModelProblem
from ..operators.graph import Node
from .graph import ModelNode, model_node

FLATTENING = ("Softmax", "LogSoftmax", "Hardmax")
"""Operators that take everything from `axis` on as one row before version 13, and one dimension since."""
MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""What modes of GridSample are called since version 20."""
DEFAULT_ACTIVATIONS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
SEQUENCE_LENS = 4
"""The place of `sequence_lens` among the inputs of a recurrent operator."""


def as_newest(node: Node, version: int, ranks: dict[str, int]) -> Node:
    """A node of a version of its operator, as the reference computes the same; `ranks` are those of its inputs.

    Raises ModelProblem where it would compute something else.
    """
    if node.domain:
        return node
    if node.op == "GridSample" and version < 20 and node.values.get("mode") in MODES:
        return _with(node, mode=MODES[node.values["mode"]])
    if node.op == "RoiAlign" and version < 16:
        return _with(node, coordinate_transformation_mode="output_half_pixel")
    why = _ignored(node)
    if flattens(node, version, ranks):
        why = f"takes one dimension where version {version} takes all from `axis` on"
    if why:
        raise ModelProblem(f"the node {node} has no program here, and the reference implementation of ONNX {why}")
    return node


def flattens(node: Node, version: int, ranks: dict[str, int]) -> bool:
    """Whether more than one dimension is a row of an operator."""
    if node.domain or node.op not in FLATTENING or version >= 13:
        return False
    rank = ranks.get(node.inputs[0], 0)
    axis = int(node.values.get("axis", 1))
    return (axis + rank if axis < 0 else axis) < rank - 1


def _ignored(node: Node) -> str:
    """What a recurrent operator is asked for and the reference leaves out; empty where it does all."""
    if node.op not in DEFAULT_ACTIVATIONS:
        return ""
    if len(node.inputs) > SEQUENCE_LENS and node.inputs[SEQUENCE_LENS]:
        return "ignores `sequence_lens`"
    count = 2 if node.values.get("direction") == "bidirectional" else 1
    if node.values.get("activations", DEFAULT_ACTIVATIONS[node.op] * count) != DEFAULT_ACTIVATIONS[node.op] * count:
        return "ignores `activations`"
    return next((f"ignores `{name}`" for name in ("clip", "input_forget") if node.values.get(name)), "")


def _with(node: Node, **attributes: str) -> Node:
    """The node with other attributes."""
    if not isinstance(node, ModelNode):
        raise TypeError(f"{node} is no node of a model")
    kept = [a for a in node.attributes if a.name not in attributes]
    made = [helper.make_attribute(name, value) for name, value in attributes.items()]
    return model_node(node.op, node.domain, node.name, node.inputs, node.outputs, (*kept, *made))
