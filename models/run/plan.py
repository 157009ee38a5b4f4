"""The plan of a network: a place in memory for everything, and the calls of its kernels.

::

    block 0    the arena: what is written in a run, by liveness
    block 1    constants, packed once for each kernel that wants them in another way
    block 2..  inputs, then outputs that the caller gives memory for
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ...backends.artifact import Argument
from ...backends.data import Array, is_in_place, pack
from ...backends.executable import Call, Memory, Place, numpy_dtype
from ..network import Network, Operator
from .in_place import overwriting
from .kernels import Kernel
from .layouts import EdgeLayout, arguments_of, layouts_of
from .memory import Arena, Span, best_fit

ARENA, CONSTANTS, FIRST_LENT = 0, 1, 2


@dataclass(frozen=True)
class Plan:
    """Where tensors lie and what is called.

    `lent` are the tensors in the caller's memory, each with its block; `packed` what is written once, constants and
    padding; `calls` belong to the operators, in their order, that have kernels.
    """

    layouts: Mapping[str, EdgeLayout]
    places: Mapping[str, Place]
    lent: Mapping[str, int]
    packed: Sequence[tuple[Place, Array]]
    calls: Sequence[Call]
    blocks: Sequence[int]


def plan(
    network: Network, kernels: Mapping[str, Kernel], alignment: int, lends: bool = True, in_place: bool = True
) -> Plan:
    """Places for all tensors, workspaces and packed constants; `lends` where the caller's memory can be used.

    Where memory is lent, operators that are proven to read first write over their input, unless `in_place` is false:
    a kernel that does so is another one than its record tells.
    """
    layouts = layouts_of(network, kernels)
    lent = dict(zip(_lendable(network, layouts), range(FIRST_LENT, len(network.tensors) + FIRST_LENT), strict=False))
    lent = lent if lends else {}
    if lends and in_place:
        initialised = {name for name, lying in layouts.items() if lying.initialised}
        kernels = overwriting(network, kernels, layouts, frozenset({*lent, *initialised, *network.outputs}))
    shared = _shared(network, kernels)
    arena = best_fit(_spans(network, kernels, layouts, lent, shared), alignment)
    places = {
        name: Place(ARENA, arena.offsets[shared.get(name, name)])
        for name in layouts
        if shared.get(name, name) in arena.offsets
    }
    places.update((name, Place(block, 0)) for name, block in lent.items())
    constants, packed = _constants(network, kernels, alignment)
    calls: list[Call] = []
    for node in network.nodes:
        if isinstance(node, Operator):
            calls.append(_call(network, node, kernels[node.name], places, constants, arena))
    packed += [
        (places[name], pack(lying.argument, np.zeros(lying.argument.logical_shape, numpy_dtype(lying.argument.dtype))))
        for name, lying in layouts.items()
        if lying.initialised
    ]
    size = max((place.offset + array.nbytes for place, array in packed if place.block == CONSTANTS), default=1)
    return Plan(layouts, places, lent, packed, calls, (max(arena.nbytes, 1), max(size, 1), *[0] * len(lent)))


def _shared(network: Network, kernels: Mapping[str, Kernel]) -> dict[str, str]:
    """For each tensor that takes the memory of another one, the first in that memory."""
    found: dict[str, str] = {}
    for node in network.nodes:
        over = kernels[node.name].over if isinstance(node, Operator) else None
        if over is not None:
            names = (*node.inputs, *node.outputs)
            found[names[over[1]]] = found.get(names[over[0]], names[over[0]])
    return found


def _lendable(network: Network, layouts: Mapping[str, EdgeLayout]) -> Iterable[str]:
    """Inputs and outputs that kernels, and nothing else, use where the caller has them."""
    written = {name for node in network.nodes if isinstance(node, Operator) for name in node.outputs}
    foreign = {name for node in network.foreign for name in (*node.inputs, *node.outputs)}
    names = [*network.inputs, *(name for name in network.outputs if name in written)]
    known = [n for n in dict.fromkeys(names) if n in layouts and n not in foreign]
    return [n for n in known if is_in_place(layouts[n].argument)]


def _spans(
    network: Network, kernels: Mapping[str, Kernel], layouts: Mapping[str, EdgeLayout], lent: Mapping[str, int],
    shared: Mapping[str, str],
) -> list[Span]:  # fmt: skip
    """What the arena holds: steps are numbers of nodes, inputs come before the first, and the last one never ends."""
    first = dict.fromkeys(network.inputs, -1)
    last = dict.fromkeys(network.inputs, -1)
    spans: list[Span] = []
    for step, node in enumerate(network.nodes):
        for name in node.outputs:
            first[name] = last[name] = step
        last.update((name, step) for name in node.inputs if name not in network.constants)
        if isinstance(node, Operator):
            for number, memory in enumerate(_workspaces(kernels[node.name])):
                spans.append(Span(_workspace(node.name, number), memory.nbytes, step, step))
    end = len(network.nodes)
    last.update((name, end) for name in network.outputs)
    for name, owner in shared.items():
        last[owner] = max(last[owner], last[name])
    for name in first:
        if name in lent or name in network.constants or name in shared:
            continue
        lying = layouts.get(name)
        if lying is None:
            continue
        begin, stop = (-1, end) if lying.initialised else (first[name], last[name])
        spans.append(Span(name, nbytes(lying.argument), begin, stop))
    return spans


def nbytes(argument: Argument) -> int:
    """Bytes of the physical memory of an argument."""
    return prod(argument.physical_shape) * numpy_dtype(argument.dtype).itemsize


def _constants(
    network: Network, kernels: Mapping[str, Kernel], alignment: int
) -> tuple[dict[tuple[str, str, tuple[int, ...], str], Place], list[tuple[Place, Array]]]:
    """A place for every constant in every layout that a kernel wants, and the packed arrays."""
    places: dict[tuple[str, str, tuple[int, ...], str], Place] = {}
    packed: list[tuple[Place, Array]] = []
    end = 0
    for node in network.nodes:
        if not isinstance(node, Operator):
            continue
        for name, argument in arguments_of(node, kernels[node.name]):
            if name not in network.constants or (key := _key(name, argument)) in places:
                continue
            array = pack(argument, _bits(network.constants[name], argument.dtype))
            places[key] = Place(CONSTANTS, end)
            packed.append((places[key], array))
            end += -(-max(array.nbytes, 1) // alignment) * alignment
    return places, packed


def _bits(array: Array, dtype: str) -> Array:
    """A constant as NumPy holds elements of its type; bfloat16 as its bits."""
    held = numpy_dtype(dtype)
    return array if array.dtype == held else array.view(held)


def _key(name: str, argument: Argument) -> tuple[str, str, tuple[int, ...], str]:
    if is_in_place(argument):
        return name, "", (), ""
    return name, argument.index_map, argument.physical_shape, argument.pad_value


def _call(
    network: Network,
    node: Operator,
    kernel: Kernel,
    places: Mapping[str, Place],
    constants: Mapping[tuple[str, str, tuple[int, ...], str], Place],
    arena: Arena,
) -> Call:
    found = [
        constants[_key(name, argument)] if name in network.constants else places[name]
        for name, argument in arguments_of(node, kernel)
    ]
    found += [
        Place(ARENA, arena.offsets[_workspace(node.name, number)]) for number in range(len(_workspaces(kernel)))
    ]
    return Call(kernel.compiled.artifact, tuple(found))


def _workspaces(kernel: Kernel) -> list[Memory]:
    return [Memory(n, tuple(s), d, k) for n, s, d, k in kernel.compiled.artifact["workspaces"]]


def _workspace(node: str, number: int) -> str:
    """The span of a workspace; no tensor has such a name, since the two parts are apart by a character of its own."""
    return f"{node}\0{number}"
