"""From a model to a network: a program for each node whose operator has a builder, the rest foreign."""

from __future__ import annotations

import os
from dataclasses import dataclass

from onnx import ModelProto

from ...errors import ModelProblem, ProgramError, ShapeError
from ..network import Foreign, Network, Operator, Tensor, problems
from .builders import BUILDERS
from .builders.site import Site, is_native
from .graph import Graph, Node
from .reading import load
from .resolve import Shapes, resolve
from .simplify import simplify


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
    simplify(graph)
    nodes: list[Operator | Foreign] = []
    fates = [Fate(*note) for note in graph.notes]
    for node in graph.nodes:
        built = _built(graph, node)
        nodes += built
        programs = ", ".join(part.func.name for part in built if isinstance(part, Operator))
        fates.append(Fate(node.name or node.outputs[0], node.op, programs or "foreign"))
    network = _network(graph, nodes)
    for problem in problems(network):
        raise ModelProblem(f"the model cannot be made a network: {problem}")
    return Imported(network, tuple(fates))


def _built(graph: Graph, node: Node) -> list[Operator | Foreign]:
    """The programs of a node, or the node as a foreign one."""
    builder = BUILDERS.get((node.domain, node.op))
    site = Site(graph, node)
    touched = [name for name in (*node.reads, *node.outputs) if name and name not in graph.constants]
    if builder is not None and not node.outer and all(is_native(graph.types[name]) for name in touched):
        try:
            built = builder(site)
        except (ShapeError, ProgramError):
            built = None
        if built is not None:
            return [*built]
    outputs = tuple(name for name in node.outputs if name)
    name = node.name or node.outputs[0]
    return [Foreign(name, node.op, graph.model(node).SerializeToString(), node.reads, outputs)]


def _network(graph: Graph, nodes: list[Operator | Foreign]) -> Network:
    """The network of what was built, with the tensors and constants that it uses."""
    needed = {*graph.outputs, *(name for node in nodes for name in node.inputs)}
    used = {*graph.inputs, *needed, *(name for node in nodes for name in node.outputs)}
    tensors = {name: Tensor(name, found.shape, found.dtype) for name, found in graph.types.items() if name in used}
    constants = {name: array for name, array in graph.constants.items() if name in needed}
    return Network(graph.name, graph.inputs, graph.outputs, tensors, constants, tuple(nodes))
