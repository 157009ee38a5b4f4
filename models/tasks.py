"""The tuning tasks of a network: each program once, however many operators it is the program of.

Two operators share a task where their programs are equal up to names and the same of their inputs are constants,
which are packed ahead of time, while all other tensors lie as the network has them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.passes.renaming import canonical
from ..ir.target import Target
from ..search.tasks.interface import Interface
from ..search.tasks.task import Task
from ..space.workloads import from_func
from .network import Network, Operator


@dataclass(frozen=True)
class NetworkTask:
    """A task and the operators that its kernel is for, in the order of the network."""

    task: Task
    operators: tuple[Operator, ...]

    @property
    def weight(self) -> int:
        """How often a run of the network calls the kernel."""
        return len(self.operators)


def tasks_of(network: Network, target: Target) -> tuple[NetworkTask, ...]:
    """The tasks of all operators that are programs, in the order in which a run meets them first."""
    groups: dict[tuple[str, tuple[str, ...]], list[Operator]] = {}
    for node in network.nodes:
        if isinstance(node, Operator):
            words = tuple(interface_of(network, node).values())
            groups.setdefault((canonical(node.func).script(), words), []).append(node)
    return tuple(
        NetworkTask(Task(from_func(nodes[0].func), target, interface_of(network, nodes[0])), tuple(nodes))
        for nodes in groups.values()
    )


def interface_of(network: Network, node: Operator) -> Interface:
    """Who chooses the layout of each parameter of an operator's program."""
    names = (*node.inputs, *node.outputs)
    return {
        buffer.name: "constant" if name in network.constants else "fixed"
        for name, buffer in zip(names, node.func.buffers, strict=True)
    }
