"""A model between its file and a network: nodes with known shapes, and what is constant among their tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TypeProto, helper, numpy_helper

from ...errors import ModelProblem
from ..network import Array

OWN_DOMAIN = "stridesmith"
"""Operators that `simplify` makes; ONNX knows none of them."""


@dataclass(frozen=True)
class Type:
    """Shape and element type of a tensor; `element` is a number of `onnx.TensorProto.DataType`."""

    shape: tuple[int, ...]
    element: int

    @property
    def dtype(self) -> str:
        """The element type as NumPy names it."""
        return str(helper.tensor_dtype_to_np_dtype(self.element))

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.size * int(np.dtype(helper.tensor_dtype_to_np_dtype(self.element)).itemsize)

    @cached_property
    def proto(self) -> TypeProto:
        """As ONNX writes it."""
        return helper.make_tensor_type_proto(self.element, self.shape)


@dataclass(frozen=True)
class Node:
    """An operator and its tensors by name; an optional one that is absent is the empty text."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[AttributeProto, ...] = ()

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """The attributes as Python and NumPy values."""
        return {a.name: _value(a) for a in self.attributes}

    @cached_property
    def outer(self) -> tuple[str, ...]:
        """Names that the graphs among the attributes use and do not define."""
        graphs = [g for a in self.attributes for g in ([a.g] if a.HasField("g") else a.graphs)]
        return tuple(dict.fromkeys(name for graph in graphs for name in free_names(graph)))

    @property
    def reads(self) -> tuple[str, ...]:
        """All tensors that the node needs, each once."""
        return tuple(dict.fromkeys(name for name in (*self.inputs, *self.outer) if name))

    def proto(self) -> NodeProto:
        """As ONNX writes it."""
        made = helper.make_node(self.op, self.inputs, self.outputs, self.name, domain=self.domain)
        made.attribute.extend(self.attributes)
        return made

    def __str__(self) -> str:
        called = f" `{self.name}`" if self.name else ""
        return f"{self.op}{called} (of `{self.outputs[0]}`)" if self.outputs else f"{self.op}{called}"


@dataclass
class Graph:
    """Nodes in order; `types` has every tensor, `constants` those whose value is known."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: dict[str, Type]
    constants: dict[str, Array]
    nodes: list[Node]
    opsets: Mapping[str, int]
    ir_version: int
    notes: list[tuple[str, str, str]] = field(default_factory=list)
    """Name and type of a node that is no longer there, and what became of it."""

    def note(self, node: Node, became: str) -> None:
        """Say what became of a node that has gone."""
        self.notes.append((node.name or node.outputs[0], node.op, became))

    def opset(self, node: Node) -> int:
        """The version of the operators of a node's domain."""
        return self.opsets.get(node.domain, 0)

    def users(self) -> dict[str, list[Node]]:
        """The nodes that read each tensor."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.reads:
                found.setdefault(name, []).append(node)
        return found

    def rename(self, old: str, new: str) -> None:
        """Call a tensor by another name, which has a type already."""

        def called(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(new if name == old else name for name in names)

        for at, node in enumerate(self.nodes):
            if old in node.inputs or old in node.outputs:
                self.nodes[at] = replace(node, inputs=called(node.inputs), outputs=called(node.outputs))

    def prune(self) -> None:
        """Drop nodes and constants that no output needs."""
        needed, kept = set(self.outputs), []
        for node in reversed(self.nodes):
            if needed.intersection(node.outputs):
                kept.append(node)
                needed.update(node.reads)
        self.nodes = kept[::-1]
        self.constants = {name: array for name, array in self.constants.items() if name in needed}

    def model(self, *nodes: Node) -> ModelProto:
        """An ONNX model of `nodes`, which takes and gives tensors by their names here."""
        made = {name for node in nodes for name in node.outputs if name}
        reads = dict.fromkeys(name for node in nodes for name in node.reads if name not in made)
        given = [helper.make_value_info(name, self.types[name].proto) for name in reads]
        results = [onnx.ValueInfoProto(name=n) for n in dict.fromkeys(o for node in nodes for o in node.outputs) if n]
        for result in results:
            if result.name in self.types:
                result.type.CopyFrom(self.types[result.name].proto)
        graph = helper.make_graph([node.proto() for node in nodes], "node", given, results)
        opsets = [helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=self.ir_version)


def node_of(proto: NodeProto) -> Node:
    """A node as a model has it."""
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    return Node(
        proto.op_type, domain, proto.name, tuple(proto.input), tuple(proto.output), tuple(proto.attribute)
    )  # fmt: skip


def free_names(graph: GraphProto) -> Iterator[str]:
    """Names that a graph uses and that are defined around it."""
    known = {i.name for i in graph.input} | {i.name for i in graph.initializer}
    for proto in graph.node:
        node = node_of(proto)
        yield from (name for name in node.reads if name not in known)
        known.update(node.outputs)
    yield from (output.name for output in graph.output if output.name not in known)


def _value(attribute: AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if attribute.type == AttributeProto.TENSOR:
        return numpy_helper.to_array(value)
    if attribute.type == AttributeProto.STRINGS:
        return [text.decode("utf-8", "replace") for text in value]
    return list(value) if attribute.type in (AttributeProto.INTS, AttributeProto.FLOATS) else value


def invalid(node: Node, why: str) -> ModelProblem:
    """The error for a node that is not what ONNX defines."""
    return ModelProblem(f"the node {node} is not valid: {why}; check the model with `onnx.checker`")
