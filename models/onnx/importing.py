"""From a model to a network: a program for each node whose operator has a builder, the rest called by Python."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from onnx import ModelProto, TensorProto

from ..inputs import Given, Shapes
from ..network import Branches, Cut, Foreign, Lookup, Loop, Network, Operator
from ..network import Node as NetworkNode
from ..operators.algebra import in_integers
from ..operators.building import network_of, programs
from ..operators.cropping import crop
from ..operators.graph import OWN_DOMAIN, Choice, Graph, Node, Repetition
from ..operators.simplify import simplify
from .graph import ModelGraph, constant_names, refusing
from .old_versions import as_newest
from .reading import load
from .resolve import resolve


@dataclass(frozen=True)
class Fate:
    """What became of a node of the model: programs, a foreign operator, a constant, or nothing that is left."""

    node: str
    op: str
    became: str


@dataclass(frozen=True)
class Imported:
    """A network and what became of each node of its model."""

    network: Network
    fates: tuple[Fate, ...]


def read(source: str | os.PathLike[str] | bytes | ModelProto, inputs: Given | Shapes | None = None) -> Network:
    """The network of an ONNX model, from its path, its bytes or itself.

    `inputs` gives the shapes that the model leaves open, or these and values of inputs.  Raises StorageError for what
    is no readable model, ModelProblem for one that is not valid or says too little.
    """
    return import_model(source, inputs).network


Shaped: TypeAlias = "dict[str, tuple[int | str, ...] | None]"
"""The extents of inputs as a file has them, numbers and names; None where it says nothing of them."""


@dataclass(frozen=True)
class Reader:
    """A model to be read several times: `read` with what is given of its inputs, of which the file tells `shapes`.

    `whole` gives the model as bytes, or None where some of its weights lie in other files.
    """

    read: Callable[[Given], Network]
    shapes: Shaped
    whole: Callable[[], bytes | None]


def reader(source: str | os.PathLike[str] | bytes | ModelProto) -> Reader:
    """The reader of a model, whose file itself is read once.  Raises as `read` does."""
    model, weights = load(source)
    constants = constant_names(model.graph)
    shapes: Shaped = {}
    for item in model.graph.input:
        if item.name not in constants:
            dims = item.type.tensor_type.shape.dim
            extents = tuple(d.dim_value if d.HasField("dim_value") else str(d.dim_param) for d in dims)
            shapes[item.name] = extents if item.type.tensor_type.HasField("shape") else None

    def read_with(given: Given) -> Network:
        weights.total = 0
        return _network(resolve(model, weights, given), [])

    def whole() -> bytes | None:
        if any(tensor.data_location == TensorProto.EXTERNAL for tensor in model.graph.initializer):
            return None
        text: bytes = model.SerializeToString(deterministic=True)
        return text

    return Reader(read_with, shapes, whole)


def import_model(
    source: str | os.PathLike[str] | bytes | ModelProto, inputs: Given | Shapes | None = None
) -> Imported:  # fmt: skip
    """`read`, with what became of each node."""
    model, weights = load(source)
    fates: list[Fate] = []
    return Imported(_network(resolve(model, weights, Given.of(inputs)), fates), tuple(fates))


def _network(graph: ModelGraph, fates: list[Fate]) -> Network:
    """The network of a graph; what became of its nodes is added to `fates`."""
    in_integers(graph)
    crop(graph)
    simplify(graph)
    nodes: list[NetworkNode] = []
    fates += [Fate(*note) for note in graph.notes]
    for node in graph.nodes:
        built = _built(graph, node, fates)
        nodes += built
        names = ", ".join(_called(part) for part in built)
        fates.append(Fate(node.name or node.outputs[0], node.op, names))
    return network_of(graph, nodes)


def _called(node: NetworkNode) -> str:
    """What a node became."""
    if isinstance(node, Operator):
        return node.func.name
    names = {Foreign: "foreign", Lookup: "a table of texts", Branches: "two networks", Loop: "a network", Cut: "cut"}
    return names[type(node)]


def _built(graph: ModelGraph, node: Node, fates: list[Fate]) -> list[NetworkNode]:
    """The programs of a node, or what Python calls for it."""
    outputs = tuple(name for name in node.outputs if name)
    name = node.name or node.outputs[0]
    if isinstance(node, Choice):
        return [Branches(name, _branches(node, name, fates), node.inputs, outputs)]
    if isinstance(node, Repetition):
        assert isinstance(node.body, ModelGraph)
        body = _named(_network(node.body, fates), f"{name}/body/")
        return [Loop(name, body, node.states, node.inputs, outputs)]
    if node.domain == OWN_DOMAIN and node.op == "Lookup":
        return [Lookup(name, node.values["table"], node.inputs, outputs)]
    if node.domain == OWN_DOMAIN and node.op == "Cut":
        return [Cut(name, node.values["axis"], node.inputs, outputs)]
    with refusing(node):
        built = programs(graph, node)
    if built is not None:
        return [*built]
    shapes = {read: graph.types[read].shape for read in node.reads}
    told = as_newest(node, graph.opset(node), shapes, graph.constants)
    at_most = not graph.at_most.isdisjoint(outputs)
    return [Foreign(name, node.op, graph.model(told).SerializeToString(), told.reads, outputs, at_most=at_most)]


def _branches(node: Choice, name: str, fates: list[Fate]) -> tuple[Network | str, Network | str]:
    """The networks of both branches of a choice, whose operators have names of their own in the whole model."""
    found: list[Network | str] = []
    for which, graph in zip(("then", "else"), node.branches, strict=True):
        if isinstance(graph, ModelGraph):
            found.append(_named(_network(graph, fates), f"{name}/{which}/"))
        else:
            assert not isinstance(graph, Graph)
            found.append(graph)
    return found[0], found[1]


def _named(network: Network, prefix: str) -> Network:
    """The network with a prefix before all names of operators."""
    named = tuple(replace(node, name=prefix + node.name) for node in network.nodes)
    return network.with_nodes(named).with_branches(lambda part: _named(part, prefix))
