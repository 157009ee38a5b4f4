"""Loop and Scan of few iterations that are known, written out one after the other, and SequenceMap.

::

    y, s = Scan(s0, x)    ->    s1, y0 = body(s0, x[0]);  s2, y1 = body(s1, x[1]);  ...;  y = [y0, y1, ...]

A Loop is written out where its number of iterations is a constant and its condition true in each of them: where the
body hands its condition on, or has a constant for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import GraphProto, TensorProto, helper, numpy_helper

from ..network import Array
from .graph import ModelGraph, ModelNode, constant_names, model_node, node_of, with_names

MOST_NODES = 512
"""Nodes that the iterations may have together: more would be as many programs to compile."""


def unrolled(node: ModelNode, graph: ModelGraph, known: Mapping[str, Array]) -> list[ModelNode] | None:
    """The nodes of all iterations; None for any other node, and where these are not known, none, or too many."""
    if node.domain or node.op not in ("Loop", "Scan"):
        return None
    body: GraphProto = node.values["body"]
    writer = _Writer(node, graph, body)
    count = loop_count(node, body, known) if node.op == "Loop" else writer.scan_count()
    if not count or count * max(1, len(body.node)) > MOST_NODES or body.sparse_initializer:
        return None
    return list(writer.loop(count) if node.op == "Loop" else writer.scan(count))


def mapped(node: ModelNode, graph: ModelGraph, lists: MutableMapping[str, list[str]]) -> list[ModelNode]:
    """The nodes of a SequenceMap, its body for each place; the sequences that it gives are put into `lists`."""
    return list(_Writer(node, graph, node.values["body"]).each(lists))


def loop_count(node: ModelNode, body: GraphProto, known: Mapping[str, Array]) -> int:
    """The iterations of a Loop; 0 where they are not known."""
    limit, condition = (node.inputs[at] if at < len(node.inputs) else "" for at in (0, 1))
    if limit not in known or (condition and (condition not in known or not bool(known[condition].reshape(-1)[0]))):
        return 0
    return int(known[limit].reshape(-1)[0]) if _goes_on(body) else 0


def _goes_on(body: GraphProto) -> bool:
    """Whether the condition that a body computes is the one that it is given, or a constant that is true."""
    made = {name: proto for proto in body.node for name in proto.output}
    constants = {tensor.name: tensor for tensor in body.initializer}
    name = body.output[0].name
    while name in made:
        inner = node_of(made[name])
        if inner.op in ("Identity", "Cast") and not inner.domain:
            name = inner.inputs[0]
        elif inner.op == "Constant" and "value" in inner.values:
            return bool(np.asarray(inner.values["value"]).reshape(-1)[0])
        else:
            return False
    if name in constants:
        return bool(numpy_helper.to_array(constants[name]).reshape(-1)[0])
    return len(body.input) > 1 and name == body.input[1].name


class _Writer:
    """Writes out the iterations of one node, each with names of its own."""

    def __init__(self, node: ModelNode, graph: ModelGraph, body: GraphProto) -> None:
        self.node, self.graph, self.body = node, graph, body
        self.prefix = next(name for name in node.outputs if name)
        self.shared = {name: self.fresh(name) for name in sorted(constant_names(body))}

    def fresh(self, name: str) -> str:
        """A name of the outer graph that nothing has."""
        return self.graph.fresh(f"{self.prefix}/{name}")

    def loop(self, count: int) -> Iterator[ModelNode]:
        """The iterations of a Loop, each of which is given its number and the condition."""
        yield from self._constants()
        states = list(self.node.inputs[2:])
        condition = self.fresh("condition")
        yield _constant(condition, np.ones((), np.bool_))
        collected: list[list[str]] = []
        for number in range(count):
            counter = self.fresh(f"{number}/number")
            yield _constant(counter, np.asarray(number, np.int64))
            results = yield from self._iteration(number, [counter, condition, *states])
            states = results[1 : 1 + len(states)]
            collected.append(results[1 + len(states) :])
        yield from self._results(states, collected, [0] * len(self.node.outputs), [0] * len(self.node.outputs))

    def scan_count(self) -> int:
        """The extent of what a Scan goes along; 0 in versions whose tensors have a batch besides."""
        if self.graph.opset(self.node) < 9:
            return 0
        first = len(self.node.inputs) - int(self.node.values["num_scan_inputs"])
        shape = self.graph.types[self.node.inputs[first]].shape
        return shape[self._list("scan_input_axes", len(self.node.inputs) - first)[0]]

    def scan(self, count: int) -> Iterator[ModelNode]:
        """The iterations of a Scan, each of which is given a slice of what is scanned."""
        yield from self._constants()
        scanned = int(self.node.values["num_scan_inputs"])
        states, sources = list(self.node.inputs[:-scanned]), self.node.inputs[-scanned:]
        axes, turned = self._list("scan_input_axes", scanned), self._list("scan_input_directions", scanned)
        collected: list[list[str]] = []
        for number in range(count):
            slices = []
            for source, axis, backwards in zip(sources, axes, turned, strict=True):
                place, part = self.fresh(f"{number}/place"), self.fresh(f"{number}/{source}")
                yield _constant(place, np.asarray(count - 1 - number if backwards else number, np.int64))
                yield model_node("Gather", "", part, (source, place), (part,), [helper.make_attribute("axis", axis)])
                slices.append(part)
            results = yield from self._iteration(number, [*states, *slices])
            collected.append(results[len(states) :])
            states = results[: len(states)]
        made = len(self.node.outputs) - len(states)
        yield from self._results(
            states, collected, self._list("scan_output_axes", made), self._list("scan_output_directions", made)
        )

    def each(self, lists: MutableMapping[str, list[str]]) -> Iterator[ModelNode]:
        """The body for each tensor of the sequences that it is given, which are all as long as the first."""
        yield from self._constants()
        found: list[list[str]] = []
        for number in range(len(lists[self.node.inputs[0]])):
            given = [lists[name][number] if name in lists else name for name in self.node.inputs]
            found.append((yield from self._iteration(number, given)))
        for at, name in enumerate(self.node.outputs):
            lists[name] = [results[at] for results in found]

    def _list(self, name: str, count: int) -> list[int]:
        return [int(number) for number in self.node.values.get(name, [0] * count)]

    def _constants(self) -> Iterator[ModelNode]:
        """The weights of the body, which all iterations read."""
        for tensor in self.body.initializer:
            yield _constant(self.shared[tensor.name], tensor)

    def _iteration(self, number: int, given: Sequence[str]) -> Any:
        """Yield the nodes of one iteration; returns the names of its results."""
        own = [name for proto in self.body.node for name in proto.output if name]
        names = {**self.shared, **{item.name: name for item, name in zip(self.body.input, given, strict=True)}}
        names |= {name: self.fresh(f"{number}/{name}") for name in own}
        for proto in self.body.node:
            part = node_of(proto)
            inputs, outputs = (tuple(names.get(n, n) for n in side) for side in (part.inputs, part.outputs))
            attributes = [with_names(attribute, names) for attribute in part.attributes]
            called = f"{self.node.name or self.prefix}/{number}/{part.name or part.op}"
            yield model_node(part.op, part.domain, called, inputs, outputs, attributes)
        return [names.get(item.name, item.name) for item in self.body.output]

    def _results(
        self, states: Sequence[str], collected: Sequence[Sequence[str]], axes: Sequence[int], turned: Sequence[int]
    ) -> Iterator[ModelNode]:
        """The last states, and what the iterations gave, put together along a dimension of its own."""
        for name, state in zip(self.node.outputs, states, strict=False):
            if name:
                yield model_node("Identity", "", f"{name} at the end", (state,), (name,))
        wanted = self.node.outputs[len(states) :]
        for at, (name, axis, backwards) in enumerate(zip(wanted, axes, turned, strict=False)):
            if not name:
                continue
            parts = []
            for number, results in enumerate(collected):
                part = self.fresh(f"{number}/{name}")
                yield from self._unsqueezed(results[at], part, axis)
                parts.append(part)
            parts = parts[::-1] if backwards else parts
            yield model_node("Concat", "", name, parts, (name,), [helper.make_attribute("axis", axis)])

    def _unsqueezed(self, source: str, target: str, axis: int) -> Iterator[ModelNode]:
        if self.graph.opset(self.node) < 13:
            attributes = [helper.make_attribute("axes", [axis])]
            yield model_node("Unsqueeze", "", target, (source,), (target,), attributes)
            return
        axes = self.fresh(f"{target}/axes")
        yield _constant(axes, np.asarray([axis], np.int64))
        yield model_node("Unsqueeze", "", target, (source, axes), (target,))


def _constant(name: str, value: Array | TensorProto) -> ModelNode:
    """A constant, which has all types in the version 9 of the operators, whatever the model's is."""
    tensor = value if isinstance(value, TensorProto) else numpy_helper.from_array(np.asarray(value))
    attribute = helper.make_attribute("value", tensor)
    return replace(model_node("Constant", "", name, (), (name,), [attribute]), version=9)
