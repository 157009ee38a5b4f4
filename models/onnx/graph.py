"""A model between its file and a network: nodes with known shapes, and ONNX's own form of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TypeProto, helper, numpy_helper

from ...errors import ModelProblem, StridesmithError
from ..operators.graph import Graph, Node, Type


@dataclass(frozen=True)
class ModelNode(Node):
    """A node as a model has it: `attributes` are what `values` was read from, graphs and their types included."""

    attributes: tuple[AttributeProto, ...] = ()

    def with_attributes(self, attributes: Sequence[AttributeProto]) -> ModelNode:
        """The node with other attributes."""
        return replace(self, values=_Values(attributes), attributes=tuple(attributes))

    @property
    def graphs(self) -> list[GraphProto]:
        """The node's subgraphs, as those of If and Loop."""
        return [g for a in self.attributes for g in ([a.g] if a.HasField("g") else a.graphs)]

    @cached_property
    def outer(self) -> tuple[str, ...]:
        """Names that the graphs among the attributes use and do not define."""
        return tuple(dict.fromkeys(name for graph in self.graphs for name in free_names(graph)))


@dataclass
class ModelGraph(Graph):
    """The graph of a model in the format's version `ir_version`."""

    ir_version: int = 8
    at_most: set[str] = field(default_factory=set)
    """Results of which only contents say how long they are, with the largest shape as their type."""

    def schema(self, node: Node) -> onnx.defs.OpSchema:
        """ONNX's definition of a node's operator.  Raises ModelProblem where there is none."""
        version = self.opset(node)
        try:
            return onnx.defs.get_schema(node.op, version, node.domain)
        except onnx.defs.SchemaError:
            called = f"{node.domain}::{node.op}" if node.domain else node.op
            raise ModelProblem(
                f"the model uses the operator `{called}`, which ONNX does not define"
                f"{f' in version {version} of its operators' if version else ''}; it cannot be run here"
            ) from None

    def model(self, *nodes: Node) -> ModelProto:
        """An ONNX model of `nodes`, which takes and gives tensors by their names here."""
        made = {name for node in nodes for name in node.outputs if name}
        reads = dict.fromkeys(name for node in nodes for name in node.reads if name not in made)
        given = [helper.make_value_info(name, type_proto(self.types[name])) for name in reads]
        results = [onnx.ValueInfoProto(name=n) for n in dict.fromkeys(o for node in nodes for o in node.outputs) if n]
        for result in results:
            if result.name in self.types:
                result.type.CopyFrom(type_proto(self.types[result.name]))
        graph = helper.make_graph([node_proto(node) for node in nodes], "node", given, results)
        return helper.make_model(graph, opset_imports=self.opset_ids(*nodes), ir_version=self.ir_version)

    def opset_ids(self, *nodes: Node) -> list[onnx.OperatorSetIdProto]:
        """The operator sets of the model, those of `nodes` in the version that these have."""
        versions = {**self.opsets, **{node.domain: node.version for node in nodes if node.version}}
        return [helper.make_opsetid(domain, version) for domain, version in versions.items()]


def typed(shape: Sequence[int], element: int) -> Type:
    """A tensor's type; `element` is a number of `onnx.TensorProto.DataType`."""
    return Type(tuple(shape), str(helper.tensor_dtype_to_np_dtype(element)))


def type_proto(found: Type) -> TypeProto:
    """A type as ONNX writes it."""
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(np.dtype(found.dtype)), found.shape)


def node_proto(node: Node) -> NodeProto:
    """A node as ONNX writes it."""
    if not isinstance(node, ModelNode):
        return helper.make_node(node.op, node.inputs, node.outputs, node.name, domain=node.domain, **node.values)
    made = helper.make_node(node.op, node.inputs, node.outputs, node.name, domain=node.domain)
    made.attribute.extend(node.attributes)
    return made


def model_node(
    op: str,
    domain: str,
    name: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    attributes: Sequence[AttributeProto] = (),
) -> ModelNode:
    """A node with ONNX's attributes."""
    return ModelNode(op, domain, name, tuple(inputs), tuple(outputs), _Values(attributes), attributes=tuple(attributes))


def node_of(proto: NodeProto) -> ModelNode:
    """A node as a model has it."""
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    return model_node(proto.op_type, domain, proto.name, proto.input, proto.output, proto.attribute)


def ordered(nodes: Sequence[ModelNode]) -> list[ModelNode]:
    """The nodes in an order in which each comes after those whose results it reads; a circle is cut somewhere."""
    makers = {name: at for at, node in enumerate(nodes) for name in node.outputs if name}
    found: list[ModelNode] = []
    seen: set[int] = set()
    for start in range(len(nodes)):
        waiting = [(start, False)]
        while waiting:
            at, is_ready = waiting.pop()
            if is_ready:
                found.append(nodes[at])
            elif at not in seen:
                seen.add(at)
                waiting.append((at, True))
                waiting += [(makers[name], False) for name in reversed(nodes[at].reads) if name in makers]
    return found


def constant_names(graph: GraphProto) -> set[str]:
    """The names of a graph's weights, sparse ones included."""
    return {t.name for t in graph.initializer} | {s.values.name for s in graph.sparse_initializer}


def free_names(graph: GraphProto) -> Iterator[str]:
    """Names that a graph uses and that are defined around it."""
    known = {i.name for i in graph.input} | constant_names(graph) | {name for n in graph.node for name in n.output}
    for proto in graph.node:
        yield from (name for name in node_of(proto).reads if name not in known)
    yield from (output.name for output in graph.output if output.name not in known)


class _Values(Mapping[str, Any]):
    """The attributes as Python and NumPy values, each converted when it is asked for."""

    def __init__(self, attributes: Sequence[AttributeProto]) -> None:
        self._attributes = {a.name: a for a in attributes}

    def __getitem__(self, name: str) -> Any:
        return _value(self._attributes[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)


def with_names(attribute: AttributeProto, names: Mapping[str, str]) -> AttributeProto:
    """An attribute whose graphs call the tensors around them by other names."""
    if not attribute.HasField("g") and not attribute.graphs:
        return attribute
    made = AttributeProto()
    made.CopyFrom(attribute)
    for graph in [made.g] if made.HasField("g") else made.graphs:
        _rename(graph, names)
    return made


def _rename(graph: GraphProto, names: Mapping[str, str]) -> None:
    own = {i.name for i in graph.input} | constant_names(graph)
    own |= {name for node in graph.node for name in node.output}
    outer = {old: new for old, new in names.items() if old not in own}
    for node in graph.node:
        node.input[:] = [outer.get(name, name) for name in node.input]
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                _rename(inner, outer)
    for output in graph.output:
        output.name = outer.get(output.name, output.name)


def _value(attribute: AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if attribute.type == AttributeProto.TENSOR:
        return numpy_helper.to_array(value)
    if attribute.type == AttributeProto.STRINGS:
        return [text.decode("utf-8", "replace") for text in value]
    return list(value) if attribute.type in (AttributeProto.INTS, AttributeProto.FLOATS) else value


@contextlib.contextmanager
def refusing(node: Node) -> Iterator[None]:
    """What goes wrong in here because a node has not what its operator needs is a ModelProblem that names the node."""
    try:
        yield
    except StridesmithError:
        raise
    except (ValueError, LookupError, TypeError, ArithmeticError, AssertionError) as error:
        why = " ".join(str(error).split())[:200]
        raise invalid(node, f"it has not what its operator needs ({type(error).__name__}: {why})") from error


def invalid(node: Node, why: str) -> ModelProblem:
    """The error for a node that is not what ONNX defines."""
    return ModelProblem(f"the node {node} is not valid: {why}; check the model with `onnx.checker`")
