"""Nodes as ONNX's reference implementation understands them.

It knows only the newest version of each operator, and computes some attributes in another way than ONNX says: what
can be said in its terms is rewritten, and what cannot is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy as np
from onnx import AttributeProto, helper

from ...errors import ModelProblem
from ..network import Array
from ..operators.graph import Node
from ..operators.normalisations import row_of
from .graph import ModelNode, node_of, node_proto

Shapes = Mapping[str, tuple[int, ...]]

FLATTENING = ("Softmax", "LogSoftmax", "Hardmax")
"""Operators that take everything from `axis` on as one row before version 13, and one dimension since."""
MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""What modes of GridSample are called since version 20."""
DEFAULT_ACTIVATIONS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
ROWS_OF = {"MatMulInteger": (2,), "QLinearMatMul": (1, 2)}
"""The inputs that may be numbers for each row of the first one."""
LENGTHS = ("align_corners", "tf_crop_and_resize", "pytorch_half_pixel")
"""Modes of Resize in which the length of the result decides where its places lie in the input."""
SEQUENCE_LENS = 4
"""The place of `sequence_lens` among the inputs of a recurrent operator."""


def as_newest(node: Node, version: int, shapes: Shapes, constants: Mapping[str, Array]) -> Node:
    """A node of a version of its operator, as the reference computes the same, with the graphs inside of it.

    `shapes` and `constants` are what is known of its inputs.  Raises ModelProblem where the reference would compute
    something else.
    """
    if node.domain:
        return node
    if isinstance(node, ModelNode) and node.graphs:
        node = _with_graphs(node, version)
    if node.op == "GridSample" and version < 20 and node.values.get("mode") in MODES:
        return _with(node, mode=MODES[node.values["mode"]])
    if node.op == "RoiAlign" and version < 16:
        return _with(node, coordinate_transformation_mode="output_half_pixel")
    if _flattens(node, version, shapes):
        raise _misread(node, f"takes one dimension where version {version} takes all from `axis` on")
    if node.op in FLATTENING and version < 13:
        (first, *_) = row_of(node.values.get("axis"), len(shapes[node.inputs[0]]), version)
        return _with(node, axis=first)
    if node.op in DEFAULT_ACTIVATIONS:
        return _recurrent(node, shapes, constants)
    if node.op == "Scan" and version < 9:
        raise _misread(node, "has no dimension of rows, which the tensors of its version 8 begin with")
    if why := _otherwise(node, shapes) or _lengths(node, shapes, constants):
        raise _misread(node, why)
    return node


def _otherwise(node: Node, shapes: Shapes) -> str:
    """What the reference computes in another way than ONNX says; empty where there is nothing."""
    values = node.values
    auto = str(values.get("auto_pad", "NOTSET"))
    widens = any(int(d) > 1 for d in values.get("dilations", ()))
    if node.op in ("AveragePool", "LpPool") and widens and auto.startswith("SAME"):
        return f"pads for `auto_pad` {auto} without `dilations`"
    if node.op == "LpPool" and values.get("ceil_mode", 0):
        return "counts elements beyond the border for `ceil_mode`"
    if node.op == "MaxPool" and any(node.outputs[1:]):
        if auto == "SAME_LOWER":
            return "pads at the end for `auto_pad` SAME_LOWER"
        if not widens and all(int(s) == 1 for s in values.get("strides", ())):
            return "counts places in windows of stride 1 as in others"
    if node.op == "Scan" and any(int(a) for n in ("scan_input_axes", "scan_output_axes") for a in values.get(n, ())):
        return "scans the first dimension alone"
    for at in ROWS_OF.get(node.op, ()):
        if at < len(node.inputs) and prod(shapes.get(node.inputs[at], ())) > 1:
            return f"takes a number for each row of input {at} as one for each column"
    if node.op == "QLinearConv":
        image, scales = (shapes.get(node.inputs[at], ()) for at in (0, 4))
        if len(image) != 4 and prod(scales) > 1:
            return "takes scales of channels for images of two dimensions alone"
    return ""


def _lengths(node: Node, shapes: Shapes, constants: Mapping[str, Array]) -> str:
    """Whether Resize says where places lie by lengths, which the reference takes for products that are not whole."""
    if node.op != "Resize":
        return ""
    way = node.values.get("coordinate_transformation_mode", "half_pixel")
    scales = constants.get(node.inputs[2]) if len(node.inputs) > 2 else None
    shape = shapes.get(node.inputs[0])
    if way not in LENGTHS or scales is None or shape is None:
        return ""
    axes = [int(at) for at in node.values.get("axes", range(len(shape)))]
    lengths = [float(scale) * shape[at] for at, scale in zip(axes, scales.reshape(-1), strict=False)]
    if all(length == int(length) and (length != 1 or way != "pytorch_half_pixel") for length in lengths):
        return ""
    return f"takes lengths that are not whole for `coordinate_transformation_mode` {way}"


def _flattens(node: Node, version: int, shapes: Shapes) -> bool:
    """Whether several dimensions are a row of an operator, or that is not known."""
    if node.domain or node.op not in FLATTENING or version >= 13:
        return False
    shape = shapes.get(node.inputs[0])
    row = None if shape is None else row_of(node.values.get("axis"), len(shape), version)
    return shape is None or not row or prod(shape[at] for at in row[1:]) != 1


def _recurrent(node: Node, shapes: Shapes, constants: Mapping[str, Array]) -> Node:
    """A recurrent operator without lengths of sequences that are all the longest one, which the reference ignores."""
    if len(node.inputs) > SEQUENCE_LENS and node.inputs[SEQUENCE_LENS]:
        lengths, shape = constants.get(node.inputs[SEQUENCE_LENS]), shapes.get(node.inputs[0])
        if lengths is None or shape is None or np.any(lengths != shape[1 if node.values.get("layout") else 0]):
            raise _misread(node, "ignores `sequence_lens`")
        inputs = [name if at != SEQUENCE_LENS else "" for at, name in enumerate(node.inputs)]
        node = replace(node, inputs=tuple(inputs))
    count = 2 if node.values.get("direction") == "bidirectional" else 1
    if node.values.get("activations", DEFAULT_ACTIVATIONS[node.op] * count) != DEFAULT_ACTIVATIONS[node.op] * count:
        raise _misread(node, "ignores `activations`")
    if ignored := next((name for name in ("clip", "input_forget") if node.values.get(name)), ""):
        raise _misread(node, f"ignores `{ignored}`")
    return node


def _misread(node: Node, why: str) -> ModelProblem:
    return ModelProblem(f"the node {node} has no program here, and the reference implementation of ONNX {why}")


def _with_graphs(node: ModelNode, version: int) -> ModelNode:
    """The node with the nodes of its graphs as the reference understands them; of their inputs nothing is known."""
    found = []
    for attribute in node.attributes:
        told = AttributeProto()
        told.CopyFrom(attribute)
        for graph in [told.g] if told.HasField("g") else told.graphs:
            for proto in graph.node:
                inner = node_of(proto)
                newest = as_newest(inner, version, {}, {})
                if newest is not inner:
                    proto.CopyFrom(node_proto(newest))
        found.append(told)
    return node.with_attributes(found)


def _with(node: Node, **attributes: str | int) -> Node:
    """The node with other attributes."""
    if not isinstance(node, ModelNode):
        raise TypeError(f"{node} is no node of a model")
    kept = [a for a in node.attributes if a.name not in attributes]
    made = [helper.make_attribute(name, value) for name, value in attributes.items()]
    return node.with_attributes((*kept, *made))
