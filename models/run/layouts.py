"""How each tensor of a network lies in memory, as its kernels agree on it, and what its padding holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...backends.artifact import Argument
from ...backends.data import is_in_place
from ...errors import UsageError
from ..network import Network, Operator, Tensor
from .kernels import Kernel

HOLDS_NOTHING = ("", "undef")


@dataclass(frozen=True)
class EdgeLayout:
    """How a tensor lies between the operator that writes it and those that read it.

    `initialised` says that no kernel writes the padding that its consumers read: it is written once, before the
    first run, and nothing else may use its memory.
    """

    argument: Argument
    initialised: bool = False


def arguments_of(node: Operator, kernel: Kernel) -> list[tuple[str, Argument]]:
    """The tensor that an operator passes for each parameter of its kernel, and what that says of it."""
    left_out = -1 if kernel.over is None else kernel.over[0]
    names = [name for number, name in enumerate((*node.inputs, *node.outputs)) if number != left_out]
    return list(zip(names, kernel.compiled.layouts, strict=True))


def host_tensors(network: Network) -> frozenset[str]:
    """The tensors that no program touches: they stay what foreign operators and the caller make of them."""
    touched = {name for node in network.nodes if isinstance(node, Operator) for name in (*node.inputs, *node.outputs)}
    return frozenset(network.tensors) - touched - frozenset(network.constants)


def layouts_of(network: Network, kernels: Mapping[str, Kernel]) -> dict[str, EdgeLayout]:
    """The layout of every tensor that a program touches and that is no constant.

    Raises UsageError where a producer and a consumer disagree, or where padding holds something else than is read.
    """
    found: dict[str, EdgeLayout] = {}
    writers: dict[str, str] = {}
    elsewhere = host_tensors(network) | frozenset(network.constants)
    for node in network.nodes:
        if not isinstance(node, Operator):
            for name in (*node.inputs, *node.outputs):
                if name and name not in elsewhere:
                    found.setdefault(name, EdgeLayout(plain(network.tensors[name])))
            continue
        for name, argument in arguments_of(node, kernels[node.name]):
            if name in network.constants:
                continue
            if name in node.outputs:
                writers[name] = argument.pad_value
            if name not in found:
                found[name] = EdgeLayout(argument)
            elif not same_memory(found[name].argument, argument):
                raise UsageError(
                    f"`{node.name}` takes `{name}` as {_text(argument)}, but it lies as {_text(found[name].argument)}"
                )
            if name in node.inputs and argument.pads and argument.pad_value not in HOLDS_NOTHING:
                found[name] = _padded(network, name, found[name], argument, writers.get(name))
    return found


def _padded(network: Network, name: str, known: EdgeLayout, argument: Argument, written: str | None) -> EdgeLayout:
    """The layout of a tensor whose consumer reads padding that holds `argument.pad_value`."""
    wanted = argument.pad_value
    if known.argument.pad_value not in (*HOLDS_NOTHING, wanted):
        raise UsageError(f"padding of `{name}` would have to hold both {known.argument.pad_value} and {wanted}")
    held = replace(known.argument, pad_value=wanted)
    if name in network.inputs or written == wanted:
        return EdgeLayout(held, known.initialised)
    if written == "undef":
        raise UsageError(f"a kernel reads {wanted} in the padding of `{name}`, whose producer leaves anything there")
    return EdgeLayout(held, True)


def same_memory(a: Argument, b: Argument) -> bool:
    """Whether two kernels mean the same memory by a tensor."""
    if is_in_place(a) or is_in_place(b):
        return is_in_place(a) and is_in_place(b)
    return (a.index_map, a.physical_shape) == (b.index_map, b.physical_shape)


def plain(tensor: Tensor) -> Argument:
    """A tensor as the network has it."""
    return Argument(tensor.name, tensor.shape, tensor.shape, tensor.dtype)


def _text(argument: Argument) -> str:
    if is_in_place(argument):
        return "the network has it"
    return f"`{argument.index_map}` of shape {list(argument.physical_shape)}"
