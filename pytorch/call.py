"""A call of one of ATen's operators, as a function of the table sees it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, fx

from ..errors import InternalError
from ..models.network import Array
from ..models.operators.graph import Graph, Node, Type

Result: TypeAlias = "str | tuple[str, ...]"
"""The tensor that a node's value is, or those that the parts of its value are."""


Convert: TypeAlias = "Callable[[Call], Result]"
"""A function of the table: it emits operators, and returns the result, or raises Unsupported."""


class Left(InternalError):
    """A graph stays with PyTorch; the text says why."""


class Unsupported(InternalError):
    """A node stays with PyTorch; the text says why."""


class Call:
    """One call of an ATen operator: its arguments by the names of its schema, and what has been emitted for it."""

    def __init__(self, node: fx.Node, names: Mapping[str, Result], graph: Graph) -> None:
        self.node, self.nodes = node, list[Node]()
        self._names, self._graph = names, graph
        target = node.target
        if not isinstance(target, torch._ops.OpOverload):
            raise Unsupported(f"{target} is no operator of PyTorch's dispatcher")
        arguments = target._schema.arguments
        self._values = {a.name: a.default_value for a in arguments if a.has_default_value()}
        self._values |= {a.name: value for a, value in zip(arguments, node.args, strict=False)} | node.kwargs

    def __getitem__(self, name: str) -> Any:
        """An argument's value."""
        return self._values[name]

    def has(self, name: str) -> bool:
        """Whether an optional argument is there."""
        return self._values.get(name) is not None

    def numbers(self, name: str, rank: int = 0) -> list[int]:
        """Whole numbers; one alone stands for `rank` of them."""
        value = self._values[name]
        found = [value] if isinstance(value, int) else list(value or ())
        if not all(isinstance(number, int) for number in found):
            raise Unsupported(f"`{name}` of {self.node.target} is not known before it runs")
        return found * rank if len(found) == 1 and rank else found

    def tensor(self, name: str) -> str:
        """The tensor that an argument is."""
        return self.called(self._values[name])

    def called(self, value: Any) -> str:
        """The tensor that a node of the graph computes."""
        found = self._names.get(value.name) if isinstance(value, fx.Node) else None
        if not isinstance(found, str):
            raise Unsupported(f"{self.node.target} reads {value}, whose type or shape programs do not have")
        return found

    def type(self, tensor: str) -> Type:
        """The type of a tensor."""
        return self._graph.types[tensor]

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an argument."""
        return self.type(self.tensor(name)).shape

    def axis(self, name: str, rank: int) -> int:
        """A dimension, counted from the front."""
        (number,) = self.numbers(name)
        return number % max(rank, 1)

    def result(self, at: int | None = None) -> Type:
        """The type of the result, or of one of several."""
        value: Any = self.node.meta.get("val")
        found = type_of(value if at is None else value[at])
        if found is None:
            raise Unsupported(f"the result of {self.node.target} has a type or shape that programs do not have")
        return found

    def require_result(self, *dtypes: str) -> None:
        """Raises Unsupported for a result of any other type, such as that of an operator that promotes its operands."""
        if self.result().dtype not in dtypes:
            raise Unsupported(f"{self.node.target} changes the type")

    def constant(self, value: Array) -> str:
        """A new constant."""
        name = f"{self.node.name}/constant{len(self._graph.constants)}"
        self._graph.constant(name, value)
        return name

    def shape_of(self, extents: Sequence[int]) -> str:
        """A new constant that says a shape."""
        return self.constant(np.array(extents, np.int64))

    def known(self, name: str) -> Array | None:
        """The value of an argument that never changes; None for any other."""
        return self.constant_of(self.tensor(name))

    def constant_of(self, tensor: str) -> Array | None:
        """The value of a tensor that never changes; None for any other."""
        return self._graph.constants.get(tensor)

    def several(self, op: str, inputs: Sequence[str], results: Sequence[Type], **values: Any) -> tuple[str, ...]:
        """Emit an operator with several results, which are between others."""
        names = tuple(f"{self.node.name}/part{len(self.nodes)}.{at}" for at in range(len(results)))
        self._graph.types.update(zip(names, results, strict=True))
        self.nodes.append(Node(op, "", self.node.name, tuple(inputs), names, values))
        return names

    def number(self, value: float, dtype: str) -> str:
        """A new constant without dimensions."""
        try:
            return self.constant(np.asarray(value, dtype))
        except OverflowError as why:
            raise Unsupported(f"{self.node.target} mixes {value!r} with {dtype}, which has no such number") from why

    def operand(self, name: str, dtype: str, promotes: bool = False) -> str:
        """A tensor or number as a tensor of this type, to which an operator that `promotes` brings others."""
        value = self._values[name]
        if isinstance(value, fx.Node):
            tensor = self.tensor(name)
            if promotes:
                return self.cast(tensor, dtype)
            if self.type(tensor).dtype != dtype:
                raise Unsupported(f"{self.node.target} mixes {self.type(tensor).dtype} with {dtype}")
            return tensor
        if not isinstance(value, (bool, int, float)) or (isinstance(value, float) and "float" not in dtype):
            raise Unsupported(f"{self.node.target} mixes {value!r} with {dtype}")
        if dtype == "bool" and value not in (0, 1):
            raise Unsupported(f"{self.node.target} mixes {value!r} with bool, which has no such number")
        return self.number(value, dtype)

    def part(self, op: str, inputs: Sequence[str], shape: Sequence[int], dtype: str = "", **values: Any) -> str:
        """Emit an operator whose result is between others; its type is that of the first input, if none is given."""
        name = f"{self.node.name}/part{len(self.nodes)}"
        return self._emitted(op, inputs, name, Type(tuple(shape), dtype or self.type(inputs[0]).dtype), values)

    def last(self, op: str, inputs: Sequence[str], at: int | None = None, domain: str = "", **values: Any) -> str:
        """Emit the operator that gives the result."""
        return self._emitted(op, inputs, self.node.name, self.result(at), values, domain)

    def split(self, tensor: str, axis: int) -> tuple[str, ...]:
        """Emit the operator that cuts a tensor into all results."""
        names = tuple(f"{self.node.name}/result{at}" for at in range(len(self.node.meta["val"])))
        self._graph.types.update((name, self.result(at)) for at, name in enumerate(names))
        sizes = self.constant(np.array([self.type(name).shape[axis] for name in names], np.int64))
        self.nodes.append(Node("Split", "", self.node.name, (tensor, sizes), names, {"axis": axis}))
        return names

    def vector(self, name: str, size: Sequence[int], default: float, dtype: str) -> str:
        """An optional tensor, or a constant of its shape."""
        return self.tensor(name) if self.has(name) else self.constant(np.full(size, default, dtype))

    def sliced(self, tensor: str, axis: int, taken: slice, shape: Sequence[int]) -> str:
        """Emit the elements of a tensor whose places along an axis a slice takes."""
        numbers = (taken.start, taken.stop, axis, 1 if taken.step is None else taken.step)
        return self.part("Slice", [tensor, *(self.shape_of([number]) for number in numbers)], shape)

    def reshaped(self, tensor: str, shape: Sequence[int]) -> str:
        """Emit a tensor in another shape; nothing where it has it."""
        return tensor if self.type(tensor).shape == tuple(shape) else self.part("Reshape", [tensor], shape)

    def cast(self, tensor: str, dtype: str) -> str:
        """Emit a tensor in another type; nothing where it has it."""
        found = self.type(tensor)
        return tensor if found.dtype == dtype else self.part("Cast", [tensor], found.shape, dtype)

    def only_first(self) -> None:
        """Raise Unsupported where another result than the first is read."""
        if any(user.target is not operator.getitem or user.args[1] != 0 for user in self.node.users):
            raise Unsupported(f"only the first result of {self.node.target} has a program")

    def _emitted(
        self, op: str, inputs: Sequence[str], name: str, found: Type, values: Mapping[str, Any], domain: str = ""
    ) -> str:
        self._graph.types[name] = found
        self.nodes.append(Node(op, domain, name, tuple(inputs), (name,), values))
        return name


def type_of(value: Any) -> Type | None:
    """The type of a tensor on the CPU whose extents are numbers; None for anything else."""
    if not isinstance(value, Tensor) or value.device.type != "cpu" or value.layout != torch.strided:
        return None
    if not all(isinstance(extent, int) for extent in value.shape) or value.is_complex() or value.is_quantized:
        return None
    dtype = str(value.dtype).removeprefix("torch.")
    return Type(tuple(value.shape), dtype) if hasattr(np, dtype) or dtype == "bool" else None
