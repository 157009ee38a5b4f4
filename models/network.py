"""A network: tensors by name, and the operators that compute them, in an order in which they can run.

An operator is a program of `ir` whose buffer parameters are its inputs and then its outputs, or one that Python calls:
a foreign one, which runs through the reference implementation of ONNX, a choice between two networks, or a look-up of
texts.  A network is a value: importing makes one, fusion and agreement make others of it, and `evaluate` says what it
means.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..ir import dtypes
from ..ir.numbers import BITS, HALF_BYTES, boundary_dtype
from ..ir.passes.renaming import canonical
from ..ir.stmt import PrimFunc

Array: TypeAlias = NDArray[np.generic]


CARRIED: Mapping[str, str] = dict.fromkeys(
    ("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn", "int2", "uint2"), "uint8"
)
"""Types of numbers that programs have as their bits, and the type of these."""


@dataclass(frozen=True)
class Tensor:
    """What passes between operators, in its logical shape.

    `dtype` is the type in which programs have it, `told` that of its numbers, where programs have only their bits.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    told: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor without padding."""
        return int(np.prod(self.shape, dtype=np.int64)) * dtypes.nbytes(self.dtype)


@dataclass(frozen=True)
class Operator:
    """A program and the tensors that it is called with.

    `func.buffers` are the `inputs` in their order and then the `outputs`; the program has no other parameters,
    reads no output before it has written it, and writes every element of each.  A parameter that has a layout of its
    own (`func.layouts`) is the tensor in that layout.  The results of one that is `apart` take the memory of no input.
    """

    name: str
    func: PrimFunc
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    apart: bool = False


REFERENCE = "reference"


@dataclass(frozen=True)
class Foreign:
    """An operator that has no program here and runs through the reference implementation of ONNX.

    `model` is a serialised ONNX model of this one node; `op` is its type, as reports name it.  The model's inputs
    and outputs have the names of the tensors.  Where `by` names another implementation, that one runs it, on so many
    `threads` (`models.fallback`).  Where only contents say how long its results are, they have `at_most` the shapes
    that are told of them.
    """

    name: str
    op: str
    model: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    by: str = REFERENCE
    threads: int = 1
    at_most: bool = False


@dataclass(frozen=True)
class Lookup:
    """Texts by the numbers that programs compute, such as names of classes: ``y[i] = table[x[i]]``.

    A number that the table has not is taken as the nearest one that it has.
    """

    name: str
    table: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    op: str = "Lookup"


@dataclass(frozen=True)
class Cut:
    """The first elements of a tensor along `axis`, so many as the second input says, which is of one element.

    The tensor that it gives is told with the shape of all of them, which is the largest that it can have.
    """

    name: str
    axis: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    op: str = "Cut"


@dataclass(frozen=True)
class Branches:
    """Two networks, of which the first input says at run time which one computes the outputs.

    It is of one element; the other inputs are those of both networks in their order, and `outputs` are their outputs.
    A text in the place of a network says why it cannot run.
    """

    name: str
    networks: tuple[Network | str, Network | str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    op: str = "If"

    def passed(self, network: Network) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
        """Tensors of the node, and those of one of its networks that they are."""
        return (self.inputs[1:], network.inputs), (self.outputs, network.outputs)

    def mapped(self, change: Callable[[Network], Network]) -> Branches:
        """The node with each of its networks as `change` makes it."""
        first, second = (part if isinstance(part, str) else change(part) for part in self.networks)
        return replace(self, networks=(first, second))


@dataclass(frozen=True)
class Loop:
    """A network that runs again and again: ``condition, states, parts = body(number, condition, states, others)``.

    `inputs` are the most runs that there may be and the condition of the first, both of one element, the first of so
    many `states`, and the others, which are the same in each run; `outputs` are the last states, and then the parts of
    all runs along a new first dimension.
    """

    name: str
    body: Network
    states: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    op: str = "Loop"

    @property
    def networks(self) -> tuple[Network]:
        """The network that runs."""
        return (self.body,)

    def passed(self, network: Network) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
        """Tensors of the node, and those of its network that they are; parts of all runs are none of these."""
        last = slice(1, 1 + self.states)
        return (self.inputs[2:], network.inputs[2:]), (self.outputs[: self.states], network.outputs[last])

    def mapped(self, change: Callable[[Network], Network]) -> Loop:
        """The node with its network as `change` makes it."""
        return replace(self, body=change(self.body))


Called: TypeAlias = Foreign | Lookup | Cut | Branches | Loop
"""What Python runs between calls of kernels; tensors pass as ONNX has them."""
Node: TypeAlias = Operator | Called


@dataclass(frozen=True)
class Network:
    """Tensors, constants among them, and operators in an order in which they can run."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, Tensor]
    constants: Mapping[str, Array] = field(repr=False)
    nodes: tuple[Node, ...]

    @cached_property
    def signature(self) -> str:
        """What tells networks apart: their programs, and the tensors that pass between them."""
        text = hashlib.sha256()
        for node in self.nodes:
            what = _signature(node)
            text.update(repr((node.name, what, node.inputs, node.outputs)).encode())
        text.update(repr((self.inputs, self.outputs, sorted(self.constants))).encode())
        return text.hexdigest()

    @cached_property
    def producer(self) -> Mapping[str, Node]:
        """The node that writes a tensor; inputs and constants have none."""
        return {name: node for node in self.nodes for name in node.outputs}

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """The place of each node in their order, by its name."""
        return {node.name: number for number, node in enumerate(self.nodes)}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes that read a tensor, in order and each once; none for what only leaves the network."""
        found: dict[str, list[Node]] = {name: [] for name in self.tensors}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                found[name].append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    @property
    def called(self) -> tuple[Called, ...]:
        """The nodes that Python runs."""
        return tuple(node for node in self.nodes if not isinstance(node, Operator))

    @property
    def parts(self) -> tuple[Network, ...]:
        """The network itself, and those of its branches and loops, theirs included."""
        inner = (part for node in self.nodes if isinstance(node, Branches | Loop) for part in node.networks)
        return (self, *(found for part in inner if isinstance(part, Network) for found in part.parts))

    @property
    def foreign(self) -> tuple[Foreign, ...]:
        """The operators that run through the reference implementation of ONNX, those in branches included."""
        return tuple(node for part in self.parts for node in part.nodes if isinstance(node, Foreign))

    @property
    def without_cuts(self) -> tuple[Network, Mapping[int, tuple[int, int]]]:
        """The network that gives the whole of what it would cut at its end, and its count as another output.

        Beside it, for the number of each such output, its axis and the number of the output that is its count.
        """
        outputs, ends = list(self.outputs), {}
        nodes = list(self.nodes)
        known = {*self.inputs, *self.constants}
        for node in self.nodes:
            if not isinstance(node, Cut) or self.outputs.count(node.outputs[0]) != 1 or self.consumers[node.outputs[0]]:
                continue
            whole, count = node.inputs
            if whole in known or whole in outputs:
                continue
            at = self.outputs.index(node.outputs[0])
            outputs[at] = whole
            if count not in outputs:
                outputs.append(count)
            ends[at] = node.axis, outputs.index(count)
            nodes.remove(node)
        return replace(self, nodes=tuple(nodes), outputs=tuple(outputs)) if ends else self, ends

    def with_nodes(self, nodes: tuple[Node, ...], tensors: Mapping[str, Tensor] | None = None) -> Network:
        """The network with other nodes, and other tensors if they are given."""
        return replace(self, nodes=nodes, tensors=self.tensors if tensors is None else tensors)

    def with_branches(self, change: Callable[[Network], Network]) -> Network:
        """The network with `change` applied to the networks of its branches and loops."""
        if not any(isinstance(node, Branches | Loop) for node in self.nodes):
            return self
        return self.with_nodes(tuple(n.mapped(change) if isinstance(n, Branches | Loop) else n for n in self.nodes))


def _signature(node: Node) -> str:
    """What a node computes, as a text."""
    if isinstance(node, Operator):
        return canonical(node.func).script()
    if isinstance(node, Branches):
        return repr([part if isinstance(part, str) else part.signature for part in node.networks])
    if isinstance(node, Loop):
        return f"{node.op} {node.states} {node.body.signature}"
    if isinstance(node, Cut):
        return f"{node.op} {node.axis}"
    return repr(node.table) if isinstance(node, Lookup) else node.op


def named_apart(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """The nodes with unique names: where an earlier node has the same, that of the first result is appended."""
    found: list[Node] = []
    taken: set[str] = set()
    for node in nodes:
        name = node.name if node.name not in taken else f"{node.name} -> {node.outputs[0]}"
        while name in taken:
            name += "'"
        taken.add(name)
        found.append(node if name == node.name else replace(node, name=name))
    return tuple(found)


def problems(network: Network) -> Iterator[str]:
    """What is wrong with a network, one sentence each: nothing for a network that can run."""
    known = {*network.inputs, *network.constants}
    for name, count in Counter(node.name for node in network.nodes).items():
        if count > 1:
            yield f"{count} nodes are called `{name}`"
    for name in (*network.inputs, *network.constants, *network.outputs):
        if name not in network.tensors:
            yield f"`{name}` is no tensor of the network"
    yield from _wrong_constants(network)
    for node in network.nodes:
        for name in node.inputs:
            if name not in known:
                yield f"`{node.name}` reads `{name}`, which nothing before it computes"
        for name in node.outputs:
            if name in known:
                yield f"`{node.name}` writes `{name}`, which there is already"
        known.update(node.outputs)
        if isinstance(node, Operator):
            yield from _misfits(network, node)
        elif isinstance(node, Branches | Loop):
            yield from _misfits_of(network, node)
    for name in network.outputs:
        if name not in known:
            yield f"nothing computes the output `{name}`"


def _wrong_constants(network: Network) -> Iterator[str]:
    """A sentence for each constant whose array has another shape or type than its tensor."""
    for name, array in network.constants.items():
        tensor = network.tensors.get(name)
        if tensor and tensor.told == str(array.dtype) and array.shape == tensor.shape:
            continue
        # NumPy has the bits of some types alone.
        is_held = tensor and tensor.dtype in (*BITS, *HALF_BYTES) and array.dtype == boundary_dtype(tensor.dtype)
        told = tensor.dtype if tensor and is_held else str(array.dtype)
        if tensor and (array.shape, told) != (tensor.shape, tensor.dtype):
            found, wanted = f"{array.dtype}{list(array.shape)}", f"{tensor.dtype}{list(tensor.shape)}"
            yield f"constant `{name}` is {found}, its tensor {wanted}"


def _misfits_of(network: Network, node: Branches | Loop) -> Iterator[str]:
    """What is wrong with the networks in a node, and where their tensors are not those of the node."""
    for part in node.networks:
        if isinstance(part, str):
            continue
        yield from problems(part)
        for outer, inner in node.passed(part):
            theirs = [(t.shape, t.dtype, t.told) for t in map(part.tensors.__getitem__, inner)]
            if theirs != [(t.shape, t.dtype, t.told) for t in map(network.tensors.__getitem__, outer)]:
                yield f"`{node.name}` passes `{', '.join(outer)}` for `{', '.join(inner)}`, of other types or shapes"


def _misfits(network: Network, node: Operator) -> Iterator[str]:
    """A sentence for each parameter of a program that is not the tensor it is called with."""
    names = (*node.inputs, *node.outputs)
    if len(names) != len(node.func.params) or len(names) != len(node.func.buffers):
        yield f"`{node.name}` passes {len(names)} tensors to a program with {len(node.func.params)} parameters"
        return
    for name, buffer in zip(names, node.func.buffers, strict=True):
        tensor, shape = network.tensors.get(name), node.func.logical_shape(buffer)
        if tensor is None:
            yield f"`{node.name}` names `{name}`, which is no tensor of the network"
        elif (tensor.shape, tensor.dtype) != (shape, buffer.dtype):
            yield (
                f"`{node.name}` passes `{name}`, {tensor.dtype}{list(tensor.shape)}, "
                f"for `{buffer.name}`, {buffer.dtype}{list(shape)}"
            )
