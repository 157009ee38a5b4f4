"""The tuning tasks of a network: each program once, however many operators it is the program of.

Two operators share a task where their programs are equal up to names and the same of their inputs are constants,
which are packed ahead of time, while all other tensors lie as the program has them.  The program of a task has the
names of its canonical form, so that the records of equal layers of any two models meet.  Where the constants of all
operators are more than the second caches hold, each run reads them from memory, and they are ``streamed``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..ir.passes.renaming import canonical
from ..ir.stmt import PrimFunc
from ..ir.target import Target
from ..search.tasks.interface import Interface
from ..search.tasks.task import Task
from ..space.interface import Who
from ..space.workloads import from_func
from .network import Network, Operator
from .views import sharing_of


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
    """The tasks of all operators that have something to do, in the order in which a run meets them first.

    Those of branches come after all others.
    """
    groups: dict[tuple[str, ...], tuple[Task, list[Operator]]] = {}
    for part in network.parts:
        weights, idle = weights_of(part, target), sharing_of(part, target).idle
        for node in part.nodes:
            if isinstance(node, Operator) and node.name not in idle:
                task = task_of(node.func, words_of(part, node, weights), target, weights.nbytes)
                groups.setdefault(task.key, (task, []))[1].append(node)
    return tuple(NetworkTask(task, tuple(nodes)) for task, nodes in groups.values())


def task_of(func: PrimFunc, words: Sequence[Who], target: Target, network_bytes: int | None = None) -> Task:
    """The task of a program whose parameters lie as `words` say; it is called as the program is.

    `network_bytes` are those of all constants of the network that it is a part of.
    """
    known = canonical(func)
    interface: Interface = {buffer.name: word for buffer, word in zip(known.buffers, words, strict=True)}
    return Task(replace(from_func(known), name=func.name), target, interface, network_bytes)


class Weights(NamedTuple):
    """What is said of the constants of a network, and the bytes of all that its operators read."""

    word: Who
    nbytes: int


def weights_of(network: Network, target: Target) -> Weights:
    """Constants are ``streamed`` where the second caches do not hold all of them together."""
    used = {name for node in network.nodes for name in node.inputs if name in network.constants}
    nbytes = sum(network.constants[name].nbytes for name in used)
    caches = target.cores or 1  # a GPU's second cache is one
    return Weights("streamed" if nbytes > target.l2_bytes * caches else "constant", nbytes)


def words_of(network: Network, node: Operator, weights: Weights) -> tuple[Who, ...]:
    """Who chooses the layout of each parameter of an operator's program."""
    return tuple(weights.word if name in network.constants else "fixed" for name in (*node.inputs, *node.outputs))
