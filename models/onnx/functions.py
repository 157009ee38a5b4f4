"""Functions that a model defines, put in the places of their calls.

ONNX's own code does that, in C++, and takes whatever memory comes of functions that call others several times: 30 that
each call the next one twice are a billion nodes.  Not all of its versions notice a function that calls itself.  So the
calls are followed here first, each function once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from google.protobuf.message import DecodeError
from onnx import FunctionProto, ModelProto, NodeProto, checker, inliner

from ...errors import ModelProblem
from .reading import LARGEST_FILE, refuse_unbounded

DEEPEST_CALLS = 32
"""How many functions may call each other in a row."""
MOST_NODES = 1 << 20
"""Nodes of a model whose functions are in their places."""

Key: TypeAlias = tuple[str, str, str]
"""Domain, name and overload of a function."""


class Size(NamedTuple):
    """What stands in the place of calls: nodes, their bytes, and the functions in a row that it takes."""

    nodes: int = 0
    nbytes: int = 0
    depth: int = 0


def inlined(model: ModelProto) -> ModelProto:
    """The model with the bodies of its own functions in the place of their calls.

    Raises ModelProblem where that does not end, or becomes too large.
    """
    functions = {_key(function.domain, function.name, function.overload): function for function in model.functions}
    _refuse_large(_Sizes(functions).of(model.graph.node, ()), "the model")
    try:
        found: ModelProto = inliner.inline_local_functions(model)
    except (RuntimeError, ValueError, DecodeError, checker.ValidationError) as error:
        raise ModelProblem(f"the functions that the model defines cannot be put in their places: {error}") from None
    refuse_unbounded(found.graph)
    return found


class _Sizes:
    """The size of each function, looked at once."""

    def __init__(self, functions: Mapping[Key, FunctionProto]) -> None:
        self.functions = functions
        self.known: dict[Key, Size] = {}

    def of(self, nodes: Iterable[NodeProto], within: tuple[Key, ...]) -> Size:
        """The size of nodes, those in inner graphs among them, inside of the functions `within`."""
        found = Size()
        for node in nodes:
            key = _key(node.domain, node.op_type, node.overload)
            part = self._of_function(key, within) if key in self.functions else Size(1, _own_bytes(node))
            found = _added(found, part)
            for attribute in node.attribute:
                for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                    found = _added(found, self.of(graph.node, within))
        return found

    def _of_function(self, key: Key, within: tuple[Key, ...]) -> Size:
        if key in within:
            raise ModelProblem(f"the model's function `{key[1]}` calls itself, so that it has no end")
        if len(within) < DEEPEST_CALLS and key not in self.known:
            size = self.of(self.functions[key].node, (*within, key))
            self.known[key] = size._replace(depth=size.depth + 1)
        found = self.known.get(key, Size(depth=DEEPEST_CALLS))
        if len(within) + found.depth > DEEPEST_CALLS:
            raise ModelProblem(f"more than {DEEPEST_CALLS} functions of the model call each other in a row")
        _refuse_large(found, f"the model's function `{key[1]}`")
        return found


def _refuse_large(size: Size, what: str) -> None:
    if size.nodes > MOST_NODES or size.nbytes > LARGEST_FILE:
        raise ModelProblem(
            f"{what}, with the functions that it calls in their places, has {size.nodes} nodes of {size.nbytes} bytes; "
            f"there may be {MOST_NODES} nodes of {LARGEST_FILE} bytes"
        )


def _added(one: Size, other: Size) -> Size:
    return Size(one.nodes + other.nodes, one.nbytes + other.nbytes, max(one.depth, other.depth))


def _own_bytes(node: NodeProto) -> int:
    """Bytes of a node without those of the nodes in its graphs, which are counted by themselves."""
    size: int = node.ByteSize()
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            size -= sum(inner.ByteSize() for inner in graph.node)
    return size


def _key(domain: str, name: str, overload: str) -> Key:
    return ("" if domain == "ai.onnx" else domain, name, overload)
