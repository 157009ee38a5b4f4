"""A graph of ATen operators as one of `models.operators`: each node by the table, what is known computed now.

Values that never change, which are weights of modules and what is computed of them alone, are constants.  Each other
node is tried: it is *supported* where the table has its operator, where all of its tensors lie on the CPU with fixed
shapes, and where builders make programs of all that it becomes.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, fx

from ..models.network import Array
from ..models.operators.building import programs
from ..models.operators.graph import Graph, Node
from .aten import TABLE
from .call import Call, Unsupported, type_of
from .free_sizes import SIZED

OPSET = 24
"""The version of ONNX's operators that the table speaks."""

LARGEST_FOLDED = 1 << 30
"""Bytes of a result that is computed ahead of time."""


class Conversion:
    """What has become of each node of a graph, by the node's name.

    `names` has the tensor that a node's value is; several nodes may share one, since copies and aliases are none here.
    `emitted` has the operators of each supported node; those of a node that only names another tensor are none.  What
    is computed of constants alone is taken from a `shared` conversion of the same graph at other sizes.
    """

    def __init__(self, module: fx.GraphModule, known: Mapping[str, Tensor], shared: Conversion | None = None) -> None:
        self._shared = shared
        self.graph = Graph("torch", (), (), {}, {}, [], {"": OPSET})
        self.names: dict[str, str | tuple[str, ...]] = {}
        self.emitted: dict[str, list[Node]] = {}
        self.known: dict[str, Tensor] = {}
        self.refused: dict[str, str] = {}
        for node in module.graph.nodes:
            if node.op == "placeholder":
                self._given(node, known.get(node.name))
            elif node.op == "get_attr":
                self._given(node, getattr(module, str(node.target)))
            elif node.op == "call_function":
                self._call(node)

    def is_supported(self, node: fx.Node) -> bool:
        """Whether programs compute the node."""
        return node.name in self.emitted

    def is_constant(self, node: fx.Node) -> bool:
        """Whether the node's value is known."""
        return node.name in self.known

    def _given(self, node: fx.Node, value: object) -> None:
        """A tensor that comes from outside, which is a constant where its `value` is known."""
        if isinstance(value, Tensor):
            self._constant(node, value)
        else:
            self._opaque(node)

    def _opaque(self, node: fx.Node) -> None:
        """A tensor that PyTorch computes; parts can read it if they can have one of its type."""
        if (found := type_of(node.meta.get("val"))) is not None:
            self.names[node.name] = node.name
            self.graph.types[node.name] = found

    def _constant(self, node: fx.Node, value: Tensor) -> None:
        array = array_of(value)
        if array is None:
            return
        self.known[node.name], self.names[node.name] = value, node.name
        self.graph.constant(node.name, array)

    def _call(self, node: fx.Node) -> None:
        if node.target is operator.getitem:
            self._item(node)
        elif not self._folded(node):
            try:
                self._converted(node)
            except Unsupported as why:
                self.refused[node.name] = str(why)
                self._opaque(node)

    def _item(self, node: fx.Node) -> None:
        """One of the results of a node that has several."""
        source, at = node.args
        assert isinstance(source, fx.Node)
        names = self.names.get(source.name)
        if isinstance(names, tuple) and isinstance(at, int) and at < len(names) and source.name in self.emitted:
            self.names[node.name], self.emitted[node.name] = names[at], []
        else:
            self._opaque(node)

    def _folded(self, node: fx.Node) -> bool:
        """Compute the node now, if all that it reads is known and it gives the same each time."""
        target, found = node.target, type_of(node.meta.get("val"))
        if not isinstance(target, torch._ops.OpOverload) or found is None or found.nbytes > LARGEST_FOLDED:
            return False
        if torch.Tag.nondeterministic_seeded in target.tags or target._schema.is_mutable:
            return False
        if not all(self.is_constant(source) for source in node.all_input_nodes):
            return False
        if self._shared is not None and not node.meta[SIZED] and self._shared.is_constant(node):
            self.known[node.name], self.names[node.name] = self._shared.known[node.name], node.name
            self.graph.constant(node.name, self._shared.graph.constants[node.name])
            return True
        arguments, named = fx.node.map_arg((node.args, node.kwargs), lambda source: self.known[source.name])
        with torch.no_grad():
            value = target(*arguments, **named)
        if not isinstance(value, Tensor) or value.device.type != "cpu":
            return False
        self._constant(node, value)
        return self.is_constant(node)

    def _converted(self, node: fx.Node) -> None:
        """The operators of a node, each with programs; raises Unsupported where one has none."""
        convert = TABLE.get(str(node.target))
        if convert is None:
            raise Unsupported(f"there is no program for {node.target}")
        call = Call(node, self.names, self.graph)
        result = convert(call)
        for made in call.nodes:
            if not programs(self.graph.trial(), made):
                raise Unsupported(f"no program covers these arguments of {node.target}")
        self.names[node.name], self.emitted[node.name] = result, call.nodes


def array_of(value: Tensor) -> Array | None:
    """A tensor as a C-contiguous array, without a copy where it lies so; None for types that NumPy has not."""
    if type(value) not in (Tensor, torch.nn.Parameter) or type_of(value) is None:
        return None
    return np.ascontiguousarray(value.detach().numpy()).reshape(tuple(value.shape))
