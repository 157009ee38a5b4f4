"""A compiled network as a library: one function whose steps are the calls of its plan.

The arena becomes scratch memory, packed constants become constants of the library, and what the plan packs or unpacks
in Python does a program: the first and the last steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...backends.export.library import Constant, Function, Given, Library, Place, Scratch, Step, aligned
from ...backends.export.names import function_name
from ...backends.lower import lower
from ...errors import UsageError
from ...search.calling.packing import pack_program, unpack_program
from ..edges import plain
from .plan import ARENA, CONSTANTS

if TYPE_CHECKING:
    from ...backends.artifact import Argument
    from ...backends.executable import Place as Planned
    from ...backends.lower import Lowered
    from ...ir.stmt import PrimFunc
    from ...ir.target import Target
    from ..network import Network
    from .kernels import Kernel
    from .plan import Plan


def library_of(network: Network, kernels: Mapping[str, Kernel], plan: Plan, name: str, target: Target) -> Library:
    """The library `name` of a planned network.  Raises UsageError for one that has operators without programs."""
    if target.kind != "cpu":
        raise UsageError(f"networks leave for CPUs, but `{network.name}` was compiled for {target.kind}")
    for node in network.called:
        raise UsageError(
            f"`{network.name}` cannot leave: its operator `{node.name}` ({node.op}) is no program and runs in Python"
        )
    for given in network.outputs:
        if given in network.constants or given in network.inputs:
            raise UsageError(f"`{network.name}` cannot leave: its output `{given}` is computed by nothing")
    name = function_name(name)
    parts = _Parts(network, kernels, plan, target)
    steps = [*parts.packed_inputs(), *parts.kernels(), *parts.unpacked_outputs()]
    parameters = tuple(
        replace(plain(network.tensors[tensor]), name=tensor, is_output=number >= len(network.inputs))
        for number, tensor in enumerate((*network.inputs, *network.outputs))
    )
    size = aligned(plan.blocks[ARENA])
    results = ", ".join(f"`{output}`" for output in network.outputs)
    function = Function(name, f"Compute {results}", parameters, tuple(steps), size, initial=parts.initial)
    about, texts = f"the network {network.name}", {"stridesmith": parts.text(), "tvm": parts.text("tvm")}
    return Library(name, target, (function,), parts.constants, about, texts)


class _Parts:
    """The steps of a network, and the constants that they use."""

    def __init__(self, network: Network, planned: Mapping[str, Kernel], plan: Plan, target: Target) -> None:
        self.network, self.planned, self.plan, self.target = network, planned, plan, target
        self._lowered: dict[int, Lowered] = {}
        self._programs: list[PrimFunc] = []
        self._lent = {block: tensor for tensor, block in plan.lent.items()}
        self.constants = {_constant(place): array.tobytes() for place, array in plan.packed}
        self.initial = tuple((place.offset, _constant(place)) for place, _ in plan.packed if place.block == ARENA)

    def kernels(self) -> list[Step]:
        """The calls of the plan, each with its program lowered again."""
        return [
            Step(self._program(node), tuple(self._place(place) for place in call.places))
            for node, call in self.plan.calls.items()
        ]

    def text(self, dialect: str | None = None) -> str:
        """The scheduled programs of the operators, each once."""
        return "\n".join(func.script(dialect=dialect) for func in self._programs)

    def packed_inputs(self) -> list[Step]:
        """Inputs that do not lie as the caller has them."""
        return [
            Step(lower(pack_program(argument, self.target), self.target), (Given(name), place))
            for name, argument, place in self._moved(self.network.inputs)
        ]

    def unpacked_outputs(self) -> list[Step]:
        """Outputs that do not lie as the caller wants them."""
        return [
            Step(lower(unpack_program(argument, self.target), self.target), (place, Given(name)))
            for name, argument, place in self._moved(self.network.outputs)
        ]

    def _moved(self, tensors: tuple[str, ...]) -> list[tuple[str, Argument, Place]]:
        """Tensors of the arena that the caller gives or takes."""
        places, layouts = self.plan.places, self.plan.sharing.layouts
        known = [name for name in tensors if name in places and name not in self.plan.lent]
        return [(n, replace(layouts[n].argument, name="t"), self._place(places[n])) for n in known]

    def _program(self, node: str) -> Lowered:
        kernel = self.planned[node]
        if id(kernel) not in self._lowered:
            func = kernel.program()
            self._lowered[id(kernel)] = lower(func, self.target)
            self._programs.append(replace(func, name=f"{kernel.task.work.name}_{len(self._programs)}"))
        return self._lowered[id(kernel)]

    def _place(self, place: Planned) -> Place:
        if place.block == ARENA:
            return Scratch(place.offset)
        if place.block == CONSTANTS:
            return Constant(_constant(place))
        return Given(self._lent[place.block], place.offset)


def _constant(place: Planned) -> str:
    return f"{'initial' if place.block == ARENA else 'c'}{place.offset}"
