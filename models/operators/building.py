"""From a graph to a network: a program for each node whose operator has a builder."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ModelProblem, ProgramError, ShapeError
from .. import network as networks
from ..network import CARRIED, Network, Operator, Tensor
from . import BUILDERS, CARRYING
from .graph import Graph, Node
from .site import Site, is_native


def programs(graph: Graph, node: Node) -> list[Operator] | None:
    """The operators of a node; None where no builder covers it."""
    builder = BUILDERS.get((node.domain, node.op))
    touched = [name for name in (*node.reads, *node.outputs) if name and name not in graph.constants]
    if builder is None or node.outer or not all(is_native(graph.types[name]) for name in touched):
        return None
    if (node.domain, node.op) not in CARRYING and any(graph.types[n].dtype in CARRIED for n in (*node.reads, *touched)):
        return None
    try:
        return builder(Site(graph, node))
    except (ShapeError, ProgramError):
        return None


def network_of(graph: Graph, nodes: Sequence[networks.Node]) -> Network:
    """The network of what was built, with the tensors and constants that it uses, each node with a name of its own."""
    needed = {*graph.outputs, *(name for node in nodes for name in node.inputs)}
    used = {*graph.inputs, *needed, *(name for node in nodes for name in node.outputs)}
    tensors = {
        name: Tensor(name, found.shape, CARRIED.get(found.dtype, found.dtype), found.dtype * (found.dtype in CARRIED))
        for name, found in graph.types.items()
        if name in used
    }
    constants = {name: array for name, array in graph.constants.items() if name in needed}
    network = Network(graph.name, graph.inputs, graph.outputs, tensors, constants, networks.named_apart(nodes))
    for problem in networks.problems(network):
        raise ModelProblem(f"the model cannot be made a network: {problem}")
    return network
