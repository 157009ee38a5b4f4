"""From a model to a network: a program for each node whose operator has a builder, the rest foreign."""

from __future__ import annotations

import os
from dataclasses import dataclass

from onnx import ModelProto

from ..network import Foreign, Network, Operator
from ..operators.algebra import in_integers
from ..operators.building import network_of, programs
from ..operators.graph import Node
from ..operators.simplify import simplify
from .graph import ModelGraph, refusing
from .old_versions import as_newest
from .reading import load
from .resolve import Shapes, resolve


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


def read(source: str | os.PathLike[str] | bytes | ModelProto, inputs: Shapes | None = None) -> Network:
    """The network of an ONNX model, from its path, its bytes or itself.

    `inputs` gives the shapes that the model leaves open.  Raises StorageError for what is no readable model,
    ModelProblem for one that is not valid or says too little.
    """
    return import_model(source, inputs).network


def import_model(source: str | os.PathLike[str] | bytes | ModelProto, inputs: Shapes | None = None) -> Imported:
    """`read`, with what became of each node."""
    model, weights = load(source)
    graph = resolve(model, weights, inputs or {})
    in_integers(graph)
    simplify(graph)
    nodes: list[Operator | Foreign] = []
    fates = [Fate(*note) for note in graph.notes]
    for node in graph.nodes:
        built = _built(graph, node)
        nodes += built
        names = ", ".join(part.func.name for part in built if isinstance(part, Operator))
        fates.append(Fate(node.name or node.outputs[0], node.op, names or "foreign"))
    return Imported(network_of(graph, nodes), tuple(fates))


def _built(graph: ModelGraph, node: Node) -> list[Operator | Foreign]:
    """The programs of a node, or the node as a foreign one."""
    with refusing(node):
        built = programs(graph, node)
    if built is not None:
        return [*built]
    outputs = tuple(name for name in node.outputs if name)
    name = node.name or node.outputs[0]
    shapes = {read: graph.types[read].shape for read in node.reads}
    told = as_newest(node, graph.opset(node), shapes, graph.constants)
    return [Foreign(name, node.op, graph.model(told).SerializeToString(), told.reads, outputs)]
