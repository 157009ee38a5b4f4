"""The operators of networks of several sizes in groups that are the same ones at each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir.stmt import PrimFunc
from ...ir.target import Target
from ..fusion import fused, together, with_tidied
from ..network import Network, Operator
from ..views import moves
from .lifting import may_be_lifted


class Groups:
    """The groups of a first network, as far as all others that were added can have them.

    A network that is added later mostly has all groups that were found: then these are what a search with it would
    find, since what it adds can only refuse.  An operator that gives its input in another shape costs nothing where it
    stands, and stays there.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._known: list[dict[str, Operator]] = []
        self._merges: list[tuple[str, str, Operator]] = []
        self._nodes: list[str] = []
        self._first: Network | None = None

    def of(self, networks: Sequence[Network]) -> list[list[Operator]]:
        """The groups of networks, each with its operator of every one; those of an earlier call come first here."""
        if self._first is networks[0] and all(self._added(network) for network in networks[len(self._known) :]):
            return self._found()
        return self._searched(networks)

    def _found(self) -> list[list[Operator]]:
        return [[own[name] for own in self._known] for name in self._nodes]

    def _added(self, network: Network) -> bool:
        """Whether a network has all groups, which are kept then."""
        own = _tidied(network)
        for first, second, one in self._merges:
            made = together(own[first], own[second])
            if made is None or not may_be_lifted([one.func, made.func]):
                return False
            own[one.name] = replace(made, name=one.name)
        self._known.append(own)
        return True

    def _searched(self, networks: Sequence[Network]) -> list[list[Operator]]:
        """The groups from anew."""
        first, *others = networks
        self._first, self._merges = first, []
        known = [_tidied(network) for network in others]

        def accept(one: Operator, two: Operator, both: Operator) -> bool:
            if any(is_view(op, [op.func], first) for op in (one, two)):
                return False
            found = []
            for own in known:
                made = together(own[one.name], own[two.name])
                if made is None or not may_be_lifted([both.func, made.func]):
                    return False
                found.append(made)
            for own, made in zip(known, found, strict=True):
                own[both.name] = replace(made, name=both.name)
            self._merges.append((one.name, two.name, both))
            return True

        result = fused(first, self.target, accept)
        grouped = {node.name: node for node in result.nodes if isinstance(node, Operator)}
        self._nodes, self._known = list(grouped), [grouped, *known]
        return self._found()


def _tidied(network: Network) -> dict[str, Operator]:
    return {node.name: node for node in with_tidied(network).nodes if isinstance(node, Operator)}


def is_view(op: Operator, funcs: Sequence[PrimFunc], network: Network) -> bool:
    """Whether an operator gives its one input as it lies, in another shape, in memory that is the network's."""
    if len(op.inputs) != 1 or len(op.outputs) != 1:
        return False
    if op.outputs[0] in network.outputs or op.inputs[0] in network.constants:
        return False
    for func in funcs:
        found, result = moves(func), func.buffers[-1]
        if len(found) != 1 or found[0].distance or found[0].count != result.size or func.buffers[0].size != result.size:
            return False
    return True
