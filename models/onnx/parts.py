"""The nodes that take the place of one: how operators of other domains are said in those of ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from ...errors import ModelProblem
from ..network import Array
from ..operators.graph import OWN_DOMAIN, Node, Type
from .graph import ModelGraph, ModelNode, model_node

VERSION = 21
"""The version of ONNX's operators that parts are of, whatever the model's is."""


class Parts:
    """The nodes that compute what `whole` does, in order; its inputs go by their number, other tensors by name."""

    def __init__(self, graph: ModelGraph, whole: ModelNode) -> None:
        self.graph, self.whole = graph, whole
        self.nodes: list[ModelNode] = []
        self._named: set[str] = set()

    def has(self, at: int) -> bool:
        """Whether an optional input is there."""
        return at < len(self.whole.inputs) and bool(self.whole.inputs[at])

    def wants(self, at: int) -> bool:
        """Whether something reads an output."""
        return at < len(self.whole.outputs) and bool(self.whole.outputs[at])

    def type(self, at: int = 0) -> Type:
        """The type of an input."""
        return self.graph.types[self.whole.inputs[at]]

    def shape(self, at: int = 0) -> tuple[int, ...]:
        """The shape of an input."""
        return self.type(at).shape

    def known(self, at: int) -> Array | None:
        """The value of an input, where it is there and known."""
        return self.graph.constants.get(self.whole.inputs[at]) if self.has(at) else None

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value, or the default that the operator gives it."""
        return self.whole.values.get(name, default)

    def refused(self, why: str) -> ModelProblem:
        """The error that says what the whole has that there is not."""
        return ModelProblem(f"the node {self.whole} has {why}")

    def add(self, op: str, inputs: Sequence[int | str], into: int | Sequence[int] = -1, **values: Any) -> str:
        """Add a node; the name of its first result.

        The results are the outputs `into` of the whole, by number, or a new tensor.
        """
        places = [into] if isinstance(into, int) else into
        outputs = [self._fresh(op) if at < 0 else self._output(at) for at in places]
        attributes = [helper.make_attribute(name, value) for name, value in values.items() if value is not None]
        made = model_node(op, "", self._name(op), [self._input(name) for name in inputs], outputs, attributes)
        self.nodes.append(replace(made, version=VERSION))
        return outputs[0]

    def own(self, op: str, inputs: Sequence[int | str], result: Type, into: int = -1, **values: Any) -> str:
        """Add an operator that only this package has, whose result has a known type."""
        return self.owns(op, inputs, [result], [into], **values)[0]

    def owns(
        self, op: str, inputs: Sequence[int | str], results: Sequence[Type], into: Sequence[int | None], **values: Any
    ) -> list[str]:
        """Add an operator that only this package has; the names of its results, of which None in `into` has none."""
        outputs = ["" if at is None else self._fresh(op) if at < 0 else self._output(at) for at in into]
        names = tuple(self._input(name) for name in inputs)
        made = model_node(op, OWN_DOMAIN, self._name(op), names, outputs)
        self.nodes.append(replace(made, values={**values, "results": tuple(results)}))
        return outputs

    def constant(self, value: Any, dtype: str = "") -> str:
        """A constant, of the type that the value has or of another one."""
        array = np.asarray(value, dtype or None)
        name = self._fresh("constant")
        self.graph.constant(name, array)
        return name

    def number(self, value: float, like: int = 0) -> str:
        """A constant number of the type of an input."""
        return self.constant(value, self.type(like).dtype)

    def cast(self, name: int | str, dtype: str) -> str:
        """A tensor in another type."""
        return self.add("Cast", [name], to=element_type(dtype))

    def reshaped(self, name: int | str, shape: Sequence[int]) -> str:
        """A tensor's elements in another shape."""
        return self.add("Reshape", [name, self.constant(list(shape), "int64")])

    def sliced(self, name: int | str, axis: int, first: int, end: int, step: int = 1) -> str:
        """A part of a tensor along one dimension."""
        bounds = [self.constant([number], "int64") for number in (first, end, axis, step)]
        return self.add("Slice", [name, *bounds])

    def _input(self, name: int | str) -> str:
        if isinstance(name, str):
            return name
        return self.whole.inputs[name] if name < len(self.whole.inputs) else ""

    def _output(self, at: int) -> str:
        return self.whole.outputs[at] if at < len(self.whole.outputs) else ""

    def _fresh(self, what: str) -> str:
        return self.graph.fresh(f"{self.whole.outputs[0]}/{what}")

    def _name(self, op: str) -> str:
        """A name of its own for a node."""
        name = f"{self.whole.name or self.whole.outputs[0]}/{op}"
        while name in self._named:
            name += "'"
        self._named.add(name)
        return name


def element_type(dtype: str) -> int:
    """A type as ONNX numbers it."""
    return int(TensorProto.STRING if dtype == "object" else helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def is_own(node: Node) -> bool:
    """Whether only this package has a node's operator."""
    return node.domain == OWN_DOMAIN
