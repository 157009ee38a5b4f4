"""The plan of a network: a place in memory for everything, and the calls of its kernels.

::

    block 0    the arena: what is written in a run, by liveness
    block 1    constants, packed once for each kernel that wants them in another way
    block 2..  inputs, then outputs that the caller gives memory for
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...backends.artifact import Argument
from ...backends.data import Array, pack
from ...backends.executable import Call, Memory, Place, numpy_dtype
from ...backends.kernel import BACKENDS
from ...ir.layout.layout import Layout
from ...ir.target import Target
from ..network import Network, Operator
from ..views import Sharing, sharing_of
from .in_place import overwriting
from .kernels import Kernel, passed
from .memory import Arena, Span, best_fit

ARENA, CONSTANTS, FIRST_LENT = 0, 1, 2


@dataclass(frozen=True)
class Plan:
    """Where tensors lie and what is called.

    `sharing` tells which tensors lie in the caller's memory and which inside of others; `lent` are the former, each
    with its block; `packed` what is written once, constants and padding; `calls` are those of the operators that have
    something to do, by name, in their order.
    """

    sharing: Sharing
    places: Mapping[str, Place]
    lent: Mapping[str, int]
    packed: Sequence[tuple[Place, Array]]
    calls: Mapping[str, Call]
    blocks: Sequence[int]


def plan(network: Network, kernels: Mapping[str, Kernel], target: Target, in_place: bool = True) -> Plan:
    """Places for all tensors, workspaces and packed constants.

    Where memory is lent, operators that are proven to read first write over their input, unless `in_place` is false:
    a kernel that does so is another one than its record tells.
    """
    sharing = sharing_of(network, target)
    alignment = BACKENDS[target.kind]().alignment
    lent = {name: number for number, name in enumerate(sharing.lent, FIRST_LENT)}
    initialised = [name for name, lying in sharing.layouts.items() if lying.initialised]
    if target.kind == "cpu" and in_place:
        kernels = overwriting(network, kernels, sharing)
    owners = _owners(network, kernels, sharing)
    arena = best_fit(_spans(network, kernels, sharing, owners), alignment)
    places = {name: _place(owners[name], lent, arena) for name in sharing.layouts}
    constants, packed = _constants(network, kernels, alignment)
    calls = {
        node.name: _call(network, node, kernels[node.name], places, constants, arena)
        for node in network.nodes
        if isinstance(node, Operator) and node.name not in sharing.idle
    }
    for name in initialised:
        argument = sharing.layouts[name].argument
        packed.append((places[name], pack(argument, np.zeros(argument.logical_shape, numpy_dtype(argument.dtype)))))
    size = max((place.offset + array.nbytes for place, array in packed if place.block == CONSTANTS), default=1)
    return Plan(sharing, places, lent, packed, calls, (max(arena.nbytes, 1), max(size, 1), *[0] * len(lent)))


def _place(owned: tuple[str, int], lent: Mapping[str, int], arena: Arena) -> Place:
    """The place of a tensor that begins `offset` bytes inside of another one."""
    owner, offset = owned
    return Place(lent[owner], offset) if owner in lent else Place(ARENA, arena.offsets[owner] + offset)


def _owners(network: Network, kernels: Mapping[str, Kernel], sharing: Sharing) -> dict[str, tuple[str, int]]:
    """The tensor in whose memory each tensor lies, maybe itself, and the bytes from the beginning of that."""
    found = {name: sharing.root(name) for name in sharing.layouts}
    for node in network.nodes:
        over = kernels[node.name].over if node.name in kernels else None
        if over is not None:
            names = (*node.inputs, *node.outputs)
            found[names[over[1]]] = found[names[over[0]]]
    return found


def _spans(
    network: Network, kernels: Mapping[str, Kernel], sharing: Sharing, owners: Mapping[str, tuple[str, int]]
) -> list[Span]:
    """What the arena holds: steps are numbers of nodes, inputs come before the first, and the last one never ends."""
    end = len(network.nodes)
    used: dict[str, list[int]] = {name: [-1] for name in network.inputs}
    spans: list[Span] = []
    for step, node in enumerate(network.nodes):
        for name in (*node.inputs, *node.outputs):
            used.setdefault(name, []).append(step)
        if node.name in kernels and node.name not in sharing.idle:
            for number, workspace in enumerate(_workspaces(kernels[node.name])):
                spans.append(Span(_workspace(node.name, number), workspace.nbytes, step, step))
    for name in network.outputs:
        used.setdefault(name, []).append(end)  # a constant may leave that no operator reads
    steps: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    for name, (owner, offset) in owners.items():
        always = [-1, end] if sharing.layouts[name].initialised else []
        steps.setdefault(owner, []).extend((*used[name], *always))
        # The room of a part in a slot, which nothing touches, may end behind the whole.
        sizes[owner] = max(sizes.get(owner, 0), offset + sharing.layouts[name].nbytes)
    spans += [
        Span(owner, sizes[owner], min(found), max(found)) for owner, found in steps.items() if owner not in sharing.lent
    ]
    return spans


def _constants(
    network: Network, kernels: Mapping[str, Kernel], alignment: int
) -> tuple[dict[tuple[str, Layout], Place], list[tuple[Place, Array]]]:
    """A place for every constant in every layout that a kernel wants, and the packed arrays."""
    places: dict[tuple[str, Layout], Place] = {}
    packed: list[tuple[Place, Array]] = []
    end = 0
    for node in network.nodes:
        if not isinstance(node, Operator) or node.name not in kernels:
            continue
        for name, argument in passed(node, kernels[node.name]):
            if name not in network.constants or (key := _key(name, argument)) in places:
                continue
            array = pack(argument, _bits(network.constants[name], argument.dtype))
            places[key] = Place(CONSTANTS, end)
            packed.append((places[key], array))
            end += -(-max(array.nbytes, 1) // alignment) * alignment
    return places, packed


def _bits(array: Array, dtype: str) -> Array:
    """A constant as NumPy holds elements of its type; floats that it does not have as their bits."""
    held = numpy_dtype(dtype)
    return array if array.dtype == held else array.view(held)


def _key(name: str, argument: Argument) -> tuple[str, Layout]:
    layout = argument.layout
    return name, Layout.plain(layout.logical_shape) if layout.is_in_place else layout


def _call(
    network: Network,
    node: Operator,
    kernel: Kernel,
    places: Mapping[str, Place],
    constants: Mapping[tuple[str, Layout], Place],
    arena: Arena,
) -> Call:
    found = [
        constants[_key(name, argument)] if name in network.constants else places[name]
        for name, argument in passed(node, kernel)
    ]
    found += [Place(ARENA, arena.offsets[_workspace(node.name, number)]) for number in range(len(_workspaces(kernel)))]
    return Call(kernel.compiled.artifact, tuple(found))


def _workspaces(kernel: Kernel) -> list[Memory]:
    return [Memory(n, tuple(s), d, k) for n, s, d, k in kernel.compiled.artifact["workspaces"]]


def _workspace(node: str, number: int) -> str:
    """The span of a workspace; no tensor has such a name, since the two parts are apart by a character of its own."""
    return f"{node}\0{number}"
