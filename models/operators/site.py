"""What a builder is given: a node with the shapes, types and constants around it, and the means to make operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...ir.caches import cached
from ...ir.dtypes import SCALAR_TYPES, is_float, is_storage
from ...ir.script.parser import parse
from ...ir.stmt import PrimFunc
from ...ir.verify.rules import verify
from ...space.workloads.precision import Precision, plain, precision
from ...space.workloads.text import Program
from ..network import CARRIED, Array, Operator
from .graph import Graph, Node, Type

LETTERS = "ijklmnopqrstuvw"
"""Names of loops over the dimensions of a tensor; after the last one come ii, jj, ..."""


class Site:
    """A node of a graph, seen by its builder; inputs and outputs go by their number."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self.graph = graph
        self.node = node
        self.opset = graph.opset(node)
        self._made = 0

    @property
    def count(self) -> int:
        """How many inputs there are, absent ones at the end not counted."""
        return len(self.node.inputs)

    def has(self, at: int) -> bool:
        """Whether an optional input is there."""
        return at < len(self.node.inputs) and bool(self.node.inputs[at])

    def wants(self, at: int) -> bool:
        """Whether something reads an output."""
        return at < len(self.node.outputs) and bool(self.node.outputs[at])

    def type(self, at: int = 0) -> Type:
        """The type in which programs have an input."""
        return held(self.graph.types[self.node.inputs[at]])

    def told(self, at: int = 0) -> str:
        """The element type of an input's numbers, of which programs may have only the bits."""
        return self.graph.types[self.node.inputs[at]].dtype

    def told_result(self, at: int = 0) -> str:
        """The element type of an output's numbers."""
        return self.graph.types[self.node.outputs[at]].dtype

    def shape(self, at: int = 0) -> tuple[int, ...]:
        """The shape of an input."""
        return self.type(at).shape

    def dtype(self, at: int = 0) -> str:
        """The element type of an input."""
        return self.type(at).dtype

    def result(self, at: int = 0) -> Type:
        """The type in which programs have an output."""
        return held(self.graph.types[self.node.outputs[at]])

    def constant(self, at: int) -> Array | None:
        """The value of an input that is known; None where it is not, or is absent."""
        return self.graph.constants.get(self.node.inputs[at]) if self.has(at) else None

    def integers(self, at: int, attribute: str = "") -> list[int] | None:
        """Numbers that newer versions take as an input and older ones as an attribute; None where absent."""
        if self.has(at):
            value = self.constant(at)
            return None if value is None else [int(number) for number in value.reshape(-1)]
        found = self.node.values.get(attribute)
        return None if found is None else [int(number) for number in found]

    def is_open(self, at: int) -> bool:
        """Whether an input is there, but not known."""
        return self.has(at) and self.constant(at) is None

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute's value, or the default that the operator gives it, which ONNX has in float32."""
        if isinstance(default, float) and self.node.inputs and self.dtype() == "float64":
            default = float(np.float32(default))  # in the other types it is the same number as it is written
        return self.node.values.get(name, default)

    def axis(self, name: str = "axis", default: int = 0, rank: int | None = None) -> int:
        """An attribute that counts dimensions, from the end where it is negative."""
        value = int(self.attribute(name, default))
        return value + (len(self.shape()) if rank is None else rank) if value < 0 else value

    def new_constant(self, array: Array) -> str:
        """A constant of the network that the model does not have."""
        self._made += 1
        name = self.graph.fresh(f"{self.node.outputs[0]}/constant{self._made}")
        self.graph.constant(name, array)
        return name

    def new_tensor(self, shape: tuple[int, ...], dtype: str) -> str:
        """A tensor between two operators of one node."""
        self._made += 1
        name = self.graph.fresh(f"{self.node.outputs[0]}/part{self._made}")
        self.graph.types[name] = Type(shape, dtype)
        return name

    def operator(self, text: str, inputs: Sequence[int | str], output: int | str = 0) -> Operator:
        """The program `text`, called with inputs of the node by number, or with other tensors by name."""
        names = tuple(self.node.inputs[at] if isinstance(at, int) else at for at in inputs)
        into = self.node.outputs[output] if isinstance(output, int) else output
        name = self.node.name or self.node.outputs[0]
        return Operator(name if output == 0 else f"{name} -> {into}", program(text), names, (into,))


Built: TypeAlias = "list[Operator] | None"
Builder: TypeAlias = Callable[[Site], Built]
"""The operators for a node; None for what the builder does not cover, which then stays foreign."""


@cached(4096)
def program(text: str) -> PrimFunc:
    """The program of a text, verified."""
    func = parse(text)
    assert isinstance(func, PrimFunc)
    verify(func)
    return func


def held(found: Type) -> Type:
    """A type as programs have it: of some numbers the bits."""
    return Type(found.shape, CARRIED[found.dtype]) if found.dtype in CARRIED else found


def is_native(found: Type) -> bool:
    """Whether programs can have a tensor of this type."""
    return held(found).dtype in SCALAR_TYPES and all(extent > 0 for extent in found.shape)


def rounding(dtype: str) -> Precision:
    """What element-wise programs compute in: halves in float32, what is only kept in a wider type, others in itself."""
    if is_storage(dtype):
        return Precision(dtype, "float32" if is_float(dtype) else dtype.replace("int4", "int8"), dtype)
    return precision(dtype) if dtype in ("float16", "bfloat16") else plain(dtype)


def letters(rank: int) -> list[str]:
    """A loop's name for each dimension."""
    return [LETTERS[at % len(LETTERS)] * (1 + at // len(LETTERS)) for at in range(rank)]


def new_program(name: str, dtype: str) -> Program:
    """A program that computes element-wise from and into `dtype`."""
    return Program(name, rounding(dtype))
