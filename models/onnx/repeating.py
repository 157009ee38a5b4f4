"""Loops that are not written out: networks that run as often as a count and a condition say, and Scans as such."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from onnx import GraphProto, ValueInfoProto, helper

from ...errors import ModelProblem
from ..network import Array
from ..operators.graph import Repetition, Type
from .graph import ModelGraph, ModelNode, constant_names, invalid, with_names
from .loops import loop_count
from .parts import Parts

MOST = np.iinfo(np.int64).max
"""The runs of a loop without a count."""


Reader: TypeAlias = "Callable[[GraphProto, Mapping[str, Type]], ModelGraph]"
"""Makes a graph of the body of a loop, whose inputs have these types."""


def repetition(
    node: ModelNode, graph: ModelGraph, known: Mapping[str, Array], types: Sequence[Type | None], read: Reader
) -> bool:
    """Add the loop that a node is; False for any other node, and for a loop that cannot be, of known `types`.

    Raises ModelProblem where these are not known and a state changes its shape or type from run to run, or it depends
    on contents how many parts a result has.
    """
    if node.domain or node.op != "Loop":
        return False
    try:
        _add(node, graph, known, read)
    except ModelProblem:
        if any(found is None and name for found, name in zip(types, node.outputs, strict=True)):
            raise
        return False
    return True


def _add(node: ModelNode, graph: ModelGraph, known: Mapping[str, Array], read: Reader) -> None:
    body: GraphProto = node.values["body"]
    limit, condition, *states = (*node.inputs, "", "")[: max(2, len(node.inputs))]
    results = (*node.outputs, *[""] * (len(body.output) - 1 - len(node.outputs)))
    if len(body.input) != 2 + len(states) or not len(states) < len(body.output) == 1 + len(results):
        raise invalid(node, f"its body takes {len(body.input)} tensors and gives {len(body.output)}")
    singles = [Type((1,) * len(item.type.tensor_type.shape.dim), dtype)
               for item, dtype in zip(body.input, ("int64", "bool"), strict=False)]  # fmt: skip
    given = dict(zip((i.name for i in body.input), (*singles, *(graph.types[name] for name in states)), strict=True))
    part = read(body, given)
    if len(part.outputs) != len(body.output):
        raise ModelProblem(f"the body of the node {node} gives a sequence, and is no loop whose runs are known")
    for name, result in zip(states, part.outputs[1:], strict=False):
        if part.types[result] != graph.types[name]:
            shown = " and then ".join(f"{t.dtype}{list(t.shape)}" for t in (graph.types[name], part.types[result]))
            raise ModelProblem(
                f"the state `{name}` of the node {node} is {shown}, so that its shape depends on the contents of its "
                "inputs; such a model cannot be compiled"
            )
    count, wanted = loop_count(node, body, known), [at for at in range(len(states), len(results)) if results[at]]
    if wanted and not count:
        raise ModelProblem(
            f"the shape of `{results[wanted[0]]}`, which the node {node} computes, depends on the contents of its "
            "inputs, which say how often it runs; such a model cannot be compiled"
        )
    called = node.name or next(name for name in node.outputs if name)
    outputs = [name or graph.fresh(f"{called}/state") for name in results[: len(states)]]
    graph.types.update(zip(outputs, (graph.types[name] for name in states), strict=True))
    for at in wanted:
        found = part.types[part.outputs[1 + at]]
        graph.types[results[at]] = Type((count, *found.shape), found.dtype)
    part.outputs = (*part.outputs[: 1 + len(states)], *(part.outputs[1 + at] for at in wanted))
    part.prune()
    needed = {*part.outputs, *(name for inner in part.nodes for name in inner.reads)}
    others = tuple(name for name in part.inputs if name not in given and name in needed)
    part.inputs = (*given, *others)
    p = Parts(graph, node)
    inputs = (limit or p.constant(np.asarray(MOST)), condition or p.constant(np.asarray(True)), *states, *others)
    made = (*outputs, *(results[at] for at in wanted))
    graph.nodes.append(Repetition("Loop", "", node.name, inputs, made, body=part, states=len(states)))


def as_loop(node: ModelNode, graph: ModelGraph, types: Sequence[Type | None]) -> list[ModelNode] | None:
    """A Scan as a Loop whose body takes its slices itself; None for any other node, and where shapes are not known."""
    if node.domain or node.op != "Scan" or graph.opset(node) < 9:
        return None
    p, body = Parts(graph, node), node.values["body"]
    scanned = int(node.values["num_scan_inputs"])
    first = len(node.inputs) - scanned
    made, own = len(node.outputs) - first, {i.name for i in body.input} | constant_names(body)
    if any(found is None and name for found, name in zip(types, node.outputs, strict=True)):
        return None
    axes, turned = (node.values.get(f"scan_input_{what}", [0] * scanned) for what in ("axes", "directions"))
    count = graph.types[node.inputs[first]].shape[axes[0]]
    own |= {name for inner in body.node for name in inner.output if name}
    names = {name: graph.fresh(f"{node.outputs[0]}/{name}") for name in sorted(own)}
    number, goes_on, last = (graph.fresh(f"{node.outputs[0]}/{what}") for what in ("number", "goes_on", "last"))
    inner = GraphProto(name=body.name)
    inner.input.extend(helper.make_tensor_value_info(name, kind, []) for name, kind in ((number, 7), (goes_on, 9)))
    inner.input.extend(ValueInfoProto(name=names[item.name], type=item.type) for item in body.input[:first])
    end = p.constant(np.asarray(count - 1))
    for at, item in enumerate(body.input[first:]):
        place = number
        if turned[at]:
            place = graph.fresh(f"{node.outputs[0]}/place")
            inner.node.append(helper.make_node("Sub", [end, number], [place]))
        source = node.inputs[first + at]
        inner.node.append(helper.make_node("Gather", [source, place], [names[item.name]], axis=axes[at]))
    for tensor in body.initializer:
        inner.initializer.append(tensor)
        inner.initializer[-1].name = names[tensor.name]
    for proto in body.node:
        inner.node.append(proto)
        new = inner.node[-1]
        new.input[:], new.output[:] = ([names.get(n, n) for n in side] for side in (proto.input, proto.output))
        renamed = [with_names(attribute, names) for attribute in proto.attribute]
        del new.attribute[:]
        new.attribute.extend(renamed)
    inner.node.append(helper.make_node("Identity", [goes_on], [last]))
    inner.output.append(ValueInfoProto(name=last))
    inner.output.extend(ValueInfoProto(name=names.get(item.name, item.name)) for item in body.output)
    axes, turned = (node.values.get(f"scan_output_{what}", [0] * made) for what in ("axes", "directions"))
    plain = [at < first or not (axes[at - first] or turned[at - first]) for at in range(len(node.outputs))]
    into = [at if is_plain else -1 for at, is_plain in enumerate(plain)]
    p.add("Loop", [p.constant(np.asarray(count)), p.constant(np.asarray(True)), *range(first)], into, body=inner)
    p.nodes[-1] = replace(p.nodes[-1], version=node.version)
    results = p.nodes[-1].outputs
    for at in (at for at, is_plain in enumerate(plain) if not is_plain and node.outputs[at]):
        found, result = results[at], types[at]
        assert result is not None
        rank, axis = len(result.shape), axes[at - first] % len(result.shape)
        if turned[at - first]:
            found = p.sliced(found, 0, count - 1, -count - 1, -1)
        p.add("Transpose", [found], at, perm=[*range(1, axis + 1), 0, *range(axis + 1, rank)])
    return p.nodes
