"""An If whose condition is not known: a choice at run time between two graphs, which read what is around them."""

from __future__ import annotations

from collections.abc import Callable

from onnx import GraphProto

from ...errors import ModelProblem
from ..operators.graph import Choice, Graph
from .graph import ModelGraph, ModelNode, invalid


def choice(node: ModelNode, graph: ModelGraph, read: Callable[[GraphProto], ModelGraph]) -> None:
    """Add the choice that a node is; `read` makes graphs of its branches.

    A branch that cannot be read is an error when it is chosen.  Raises ModelProblem where none can, and where what they
    give has not the same types and shapes.
    """
    if graph.types[node.inputs[0]].size != 1:
        raise invalid(node, f"its condition has {graph.types[node.inputs[0]].size} elements, and not one")
    made: list[ModelGraph | str] = []
    for name in ("then_branch", "else_branch"):
        try:
            made.append(read(node.values[name]))
        except ModelProblem as error:
            made.append(str(error))
    graphs = [part for part in made if not isinstance(part, str)]
    if not graphs:
        raise ModelProblem(str(made[0]))
    for part in graphs:
        if len(part.outputs) != len(node.outputs):
            raise invalid(node, f"a branch of it gives {len(part.outputs)} results, but it has {len(node.outputs)}")
    wanted = [at for at, name in enumerate(node.outputs) if name]
    for at in wanted:
        _add_type(node, graph, graphs, at)
    for part in graphs:
        part.outputs = tuple(part.outputs[at] for at in wanted)
        part.prune()
    reads = tuple(dict.fromkeys(name for part in graphs for name in _needed(part)))
    for part in graphs:
        _take(part, graph, reads)
    outputs = tuple(node.outputs[at] for at in wanted)
    graph.nodes.append(Choice("If", "", node.name, (node.inputs[0], *reads), outputs, branches=(made[0], made[1])))


def _add_type(node: ModelNode, graph: ModelGraph, parts: list[ModelGraph], at: int) -> None:
    """The type of a result, which all branches have to give."""
    found = [part.types[part.outputs[at]] for part in parts]
    if any(other != found[0] for other in found):
        shown = " and ".join(f"{one.dtype}{list(one.shape)}" for one in found)
        raise ModelProblem(
            f"the branches of the node {node} give `{node.outputs[at]}` as {shown}, so that its shape depends on the "
            "contents of its inputs; where an input chooses, give its value, as `--input NAME=VALUE` or in `values`"
        )
    graph.types[node.outputs[at]] = found[0]


def _needed(part: Graph) -> list[str]:
    """The inputs of a graph that it needs."""
    used = {*part.outputs, *(name for node in part.nodes for name in node.reads)}
    return [name for name in part.inputs if name in used]


def _take(part: Graph, around: Graph, reads: tuple[str, ...]) -> None:
    """Give a graph the inputs `reads`; those that it does not need get names that nothing in it has."""
    needed, inputs = set(_needed(part)), []
    for name in reads:
        own = name if name in needed else part.fresh(f"{name} unused")
        part.types[own] = around.types[name]
        inputs.append(own)
    part.inputs = tuple(inputs)
