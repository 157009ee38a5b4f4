"""A graph of operators by name, between the format that a model comes in and a network of programs.

Operators have the names, inputs and attributes that ONNX gives them, whatever the model was written in: its operator
set is the vocabulary, of which `Graph.opsets` says the version.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from ..network import Array

OWN_DOMAIN = "stridesmith"
"""Operators that `simplify` makes; ONNX knows none of them."""


@dataclass(frozen=True)
class Type:
    """Shape and element type of a tensor, the type as NumPy names it; texts are of type object."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.size * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Node:
    """An operator and its tensors by name; an optional one that is absent is the empty text."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, Any] = field(default_factory=dict)
    """The attributes as Python and NumPy values."""
    version: int = 0
    """The version of its operator set; 0 for the one that the graph has of its domain."""

    @property
    def outer(self) -> tuple[str, ...]:
        """Names that graphs among the attributes use and do not define."""
        return ()

    @property
    def reads(self) -> tuple[str, ...]:
        """All tensors that the node needs, each once."""
        return tuple(dict.fromkeys(name for name in (*self.inputs, *self.outer) if name))

    def __str__(self) -> str:
        called = f" `{self.name}`" if self.name else ""
        return f"{self.op}{called} (of `{self.outputs[0]}`)" if self.outputs else f"{self.op}{called}"


@dataclass(frozen=True)
class Choice(Node):
    """A choice at run time: the first input, of one element, says which of two graphs computes the results.

    The other inputs are those of both graphs, in their order, and the results are their outputs.  A text in the place
    of a graph says why it cannot be computed, which is an error when it is chosen.
    """

    branches: tuple[Graph | str, Graph | str] = ("", "")


@dataclass(frozen=True)
class Repetition(Node):
    """A loop at run time: ``condition, states, parts = body(number, condition, states, others)``, again and again.

    The inputs are the largest number of runs and the condition of the first, both of one element, the first `states`,
    and the others, which are the same in each run; the outputs the last states, and then the parts of all runs, whose
    number is known, along a new first dimension.
    """

    body: Graph = field(kw_only=True)
    states: int = field(kw_only=True)


@dataclass(frozen=True)
class Quantised:
    """The bytes of a constant that stands in a model as ``(data - zero) scale``.

    `scale` and `zero` are numbers, or one for each place of the dimension `axis`.
    """

    data: Array
    scale: Array
    zero: Array
    axis: int

    def values(self) -> Array:
        """The numbers in floats, of the type of the scale; those of halves are computed in float32."""
        along = [-1 if d == self.axis % max(self.data.ndim, 1) else 1 for d in range(self.data.ndim)]
        scale, zero = (v.reshape(along) if v.size > 1 else v.reshape(()) for v in (self.scale, self.zero))
        apart = self.data.astype(np.int64) - zero.astype(np.int64)
        wide = np.float64 if scale.dtype == np.float64 else np.float32
        found: Array = np.multiply(apart.astype(wide), scale.astype(wide)).astype(scale.dtype)
        return found


@dataclass
class Graph:
    """Nodes in order; `types` has every tensor, `constants` those whose value is known."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: MutableMapping[str, Type]
    constants: MutableMapping[str, Array]
    nodes: list[Node]
    opsets: Mapping[str, int]
    quantised: dict[str, Quantised] = field(default_factory=dict)
    """What the model has bytes of, by the names of its constants in floats."""
    notes: list[tuple[str, str, str]] = field(default_factory=list)
    """Name and type of a node that is no longer there, and what became of it."""
    taken: set[str] = field(default_factory=set)
    """Names that are no tensor's yet, but cannot be had."""

    def note(self, node: Node, became: str) -> None:
        """Say what became of a node that has gone."""
        self.notes.append((node.name or node.outputs[0], node.op, became))

    def opset(self, node: Node) -> int:
        """The version of the operators of a node's domain."""
        return node.version or self.opsets.get(node.domain, 0)

    def trial(self) -> Graph:
        """The same graph, in which a node is built to see whether it can be: tensors that are made stay out of this."""
        types, constants = ChainMap({}, self.types), ChainMap({}, self.constants)
        return replace(self, types=types, constants=constants, taken={*self.taken})

    def fresh(self, name: str) -> str:
        """The name, or one like it where that is another tensor's; nobody else is given it."""
        while name in self.types or name in self.taken:
            name += "'"
        self.taken.add(name)
        return name

    def constant(self, name: str, array: Array) -> None:
        """A tensor whose value is known."""
        self.constants[name] = array
        self.types[name] = Type(array.shape, str(array.dtype))

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
