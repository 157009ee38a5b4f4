"""The types of a node's results by ONNX's own inference, and what never reaches it.

ONNX's code in C++ takes numbers of dimensions as they come, reads memory outside of shapes, and looks into the graphs
of If, Loop and Scan by itself.  So each node is looked at first, and so are those in inner graphs, whose types are
inferred one by one on the way.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence

import onnx
from onnx import GraphProto, TensorProto, TypeProto, helper

from ...errors import ModelProblem
from .graph import ModelGraph, ModelNode, invalid, node_of, node_proto

PLACES = frozenset({
    "axis", "axes", "batch_axis", "batch_dims", "perm", "q_num_axes", "time_axis", "scan_input_axes",
    "scan_output_axes",
})  # fmt: skip
"""Attributes that count dimensions, which ONNX's shape inference does not compare with those that there are."""

UNKNOWN_RANK = 8
"""Dimensions that a tensor of unknown shape is taken to have at most; ONNX then infers nothing from it, either."""

Types = Mapping[str, TypeProto]
Data = Mapping[str, TensorProto]
"""The values of small constants."""


def inferred(graph: ModelGraph, node: ModelNode, types: Types, data: Data) -> dict[str, TypeProto]:
    """The types of a node's outputs by name, as far as ONNX can tell.  Raises ModelProblem for an invalid node."""
    proto = node_proto(node)
    if node.op == "BatchNormalization" and not node.domain and node.values.get("training_mode"):
        proto.output.extend([""] * (3 - len(proto.output)))  # ONNX asks for all, also for those that nothing reads
    try:
        found: dict[str, TypeProto] = onnx.shape_inference.infer_node_outputs(
            graph.schema(node),
            proto,
            dict(types),
            dict(data),
            None,
            graph.opset_ids(node),
            graph.ir_version,
        )
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError) as error:
        # The last line of the error, without the place in ONNX's source.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise invalid(node, (lines[-1] if lines else type(error).__name__).rstrip(".")[:300]) from None
    return found


def refuse_unsafe(graph: ModelGraph, node: ModelNode, types: Types, data: Data) -> None:
    """Raise ModelProblem for what ends ONNX's shape inference in C++, or makes it go on for ever.

    `types` are those of the tensors that the node and its inner graphs can read, as far as they are known.
    """
    ranks = [_rank(types.get(name)) for name in node.reads]
    rank = max((UNKNOWN_RANK if found is None else found for found in ranks), default=0)
    for name, value in node.values.items() if PLACES.intersection(node.values) else ():
        numbers = value if isinstance(value, list) else [value]
        for number in numbers if name in PLACES else []:
            if not isinstance(number, int) or abs(number) > rank + len(numbers):
                raise invalid(node, f"its `{name}` is {number}, but its inputs have {rank} dimensions")
    if node.op == "Split" and node.values.get("num_outputs", len(node.outputs)) != len(node.outputs):
        raise invalid(node, f"it has {len(node.outputs)} results, and not as many as its `num_outputs`")
    equation = str(node.values.get("equation", ""))
    if node.op == "Einsum" and not (equation.isascii() and set(re.sub("[A-Za-z]", "", equation)) <= set(",.-> ")):
        raise invalid(node, f"its equation is {equation[:40]!r}")
    for inner in node.graphs:
        given = _scanned(graph, node, types) if node.op == "Scan" else ()
        _refuse_unsafe_inside(graph, inner, types, data, given)


def _refuse_unsafe_inside(
    graph: ModelGraph, inner: GraphProto, types: Types, data: Data, given: Sequence[TypeProto | None]
) -> None:
    """`refuse_unsafe` for the nodes of an inner graph, whose inputs are `given` where ONNX knows more than they say."""
    known, values = dict(types), {tensor.name: tensor for tensor in inner.initializer}
    known |= {item.name: item.type for item in (*inner.value_info, *inner.input)}
    known |= {item.name: found for item, found in zip(inner.input, given, strict=False) if found is not None}
    known |= {n: helper.make_tensor_type_proto(t.data_type, list(t.dims)) for n, t in values.items()}
    values = {**data, **values}
    for proto in inner.node:
        part = node_of(proto)
        refuse_unsafe(graph, part, known, values)
        if all(name in known for name in part.reads):
            # What is not valid in a graph of its own is left to ONNX, whose message is of the whole.
            with contextlib.suppress(ModelProblem):
                known |= inferred(graph, part, {name: known[name] for name in part.reads}, values)


def _scanned(graph: ModelGraph, node: ModelNode, types: Types) -> list[TypeProto | None]:
    """What the graph of a Scan is given: each state whole, and of each tensor that is scanned a slice."""
    if graph.opset(node) < 9:
        return []
    found = [types.get(name) for name in node.inputs]
    states = len(found) - int(node.values["num_scan_inputs"])
    axes = node.values.get("scan_input_axes", [0] * (len(found) - states))
    return [*found[:states], *(_slice(whole, axis) for whole, axis in zip(found[states:], axes, strict=True))]


def _slice(whole: TypeProto | None, axis: int) -> TypeProto | None:
    """A tensor's type without one of its dimensions."""
    rank = _rank(whole)
    if whole is None or rank is None:
        return None
    made = TypeProto()
    made.CopyFrom(whole)
    del made.tensor_type.shape.dim[axis % rank if rank else 0]
    return made


def _rank(found: TypeProto | None) -> int | None:
    """The number of dimensions of a tensor; None where it is not known."""
    if found is None or not found.HasField("tensor_type") or not found.tensor_type.HasField("shape"):
        return None
    return len(found.tensor_type.shape.dim)
