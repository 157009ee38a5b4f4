"""How each tensor of a network lies in memory, as its programs agree on it, and what its padding holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from ..backends import data
from ..backends.artifact import Argument
from ..backends.executable import numpy_dtype
from ..errors import UsageError
from ..ir.caches import cached
from ..ir.layout.layout import Layout
from ..ir.layout.pad_value import Encoded
from ..ir.stmt import PrimFunc
from .network import Network, Operator, Tensor


@dataclass(frozen=True)
class EdgeLayout:
    """How a tensor lies between the operator that writes it and those that read it.

    `initialised` says that no kernel writes the padding that its consumers read: it is written once, before the
    first run, and nothing else may use its memory.
    """

    argument: Argument
    initialised: bool = False

    @property
    def layout(self) -> Layout:
        """The layout of the tensor: where elements lie, and what its padding holds."""
        return self.argument.layout

    @property
    def nbytes(self) -> int:
        """Bytes of memory, padding included."""
        return nbytes(self.argument)

    @property
    def reach(self) -> int:
        """Bytes up to the end of what may be touched: padding of which nothing is said may not."""
        if not self.layout.pads or self.layout.pad_value is not None:
            return self.nbytes
        return (int(self.layout.positions.max(initial=-1)) + 1) * numpy_dtype(self.argument.dtype).itemsize


def nbytes(argument: Argument) -> int:
    """Bytes of the physical memory of an argument."""
    return prod(argument.physical_shape) * numpy_dtype(argument.dtype).itemsize


def arguments_of(node: Operator) -> list[tuple[str, Argument]]:
    """The tensor that an operator passes for each parameter of its program, and how that asks it to lie."""
    return list(zip((*node.inputs, *node.outputs), _arguments(node.func), strict=True))


@cached(1024)
def _arguments(func: PrimFunc) -> tuple[Argument, ...]:
    return data.arguments_of(func)


def host_tensors(network: Network) -> frozenset[str]:
    """The tensors that no program touches: they stay what foreign operators and the caller make of them."""
    touched = {name for node in network.nodes if isinstance(node, Operator) for name in (*node.inputs, *node.outputs)}
    return frozenset(network.tensors) - touched - frozenset(network.constants)


def layouts_of(network: Network) -> dict[str, EdgeLayout]:
    """The layout of every tensor that a program touches and that is no constant.

    Raises UsageError where a producer and a consumer disagree, or where padding holds something else than is read.
    """
    found: dict[str, EdgeLayout] = {}
    writers: dict[str, Encoded] = {}
    elsewhere = host_tensors(network) | frozenset(network.constants)
    for node in network.nodes:
        if not isinstance(node, Operator):
            for name in (*node.inputs, *node.outputs):
                if name and name not in elsewhere:
                    found.setdefault(name, EdgeLayout(plain(network.tensors[name])))
            continue
        for name, argument in arguments_of(node):
            if name in network.constants:
                continue
            if name in node.outputs:
                writers[name] = argument.layout.pad_value
            if name not in found:
                found[name] = EdgeLayout(argument)
            elif not found[name].layout.same_memory(argument.layout):
                wanted, lying = _text(argument.layout), _text(found[name].layout)
                raise UsageError(f"`{node.name}` takes `{name}` as {wanted}, but it lies as {lying}")
            if name in node.inputs and argument.pads and argument.layout.promises:
                found[name] = _padded(network, name, found[name], argument.layout.pad_value, writers.get(name))
    return found


def lendable(network: Network, layouts: Mapping[str, EdgeLayout]) -> list[str]:
    """Inputs and outputs that kernels, and nothing else, use where the caller has them."""
    written = {name for node in network.nodes if isinstance(node, Operator) for name in node.outputs}
    foreign = {name for node in network.called for name in (*node.inputs, *node.outputs)}
    names = [*network.inputs, *(name for name in network.outputs if name in written)]
    known = [n for n in dict.fromkeys(names) if n in layouts and n not in foreign]
    return [n for n in known if layouts[n].layout.is_in_place]


def _padded(network: Network, name: str, known: EdgeLayout, wanted: Encoded, written: Encoded) -> EdgeLayout:
    """The layout of a tensor whose consumer reads padding that holds `wanted`, and whose producer has `written`."""
    if known.layout.promises and known.layout.pad_value != wanted:
        raise UsageError(f"padding of `{name}` would have to hold both {known.layout.pad_text} and {wanted}")
    held = replace(known.argument, layout=replace(known.layout, pad_value=wanted))
    if name in network.inputs or written == wanted:
        return EdgeLayout(held, known.initialised)
    if written == "undef":
        raise UsageError(f"a kernel reads {wanted} in the padding of `{name}`, whose producer leaves anything there")
    return EdgeLayout(held, True)


def plain(tensor: Tensor) -> Argument:
    """A tensor as the network has it."""
    return Argument(tensor.name, Layout.plain(tensor.shape), tensor.dtype)


def _text(layout: Layout) -> str:
    if layout.is_in_place:
        return "the network has it"
    return f"`{layout.index_map.text}` of shape {list(layout.physical_shape)}"
