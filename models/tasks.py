"""The tuning tasks of a network: each program once, however many operators it is the program of.

Two operators share a task where their programs are equal up to names and the same of their inputs are constants,
which are packed ahead of time, while all other tensors lie as the program has them.  The program of a task has the
names of its canonical form, so that the records of equal layers of any two models meet.  Where the constants of all
operators are more than the second caches hold, each run reads them from memory, and they are ``streamed``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..ir.passes.renaming import canonical
from ..ir.stmt import PrimFunc
from ..ir.target import Target
from ..search.tasks.interface import Interface, Who
from ..search.tasks.task import Task
from ..space.workloads import from_func
from .network import Network, Operator
from .run.views import sharing_of


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
    """The tasks of all operators that have something to do, in the order in which a run meets them first."""
    word = word_of_weights(network, target)
    groups: dict[tuple[str, tuple[str, ...]], tuple[Task, list[Operator]]] = {}
    idle = sharing_of(network, target).idle
    for node in network.nodes:
        if isinstance(node, Operator) and node.name not in idle:
            task = task_of(node.func, words_of(network, node, word), target)
            groups.setdefault((task.script, tuple(task.interface.values())), (task, []))[1].append(node)
    return tuple(NetworkTask(task, tuple(nodes)) for task, nodes in groups.values())


def task_of(func: PrimFunc, words: Sequence[Who], target: Target) -> Task:
    """The task of a program whose parameters lie as `words` say; it is called as the program is."""
    known = canonical(func)
    interface: Interface = {buffer.name: word for buffer, word in zip(known.buffers, words, strict=True)}
    return Task(replace(from_func(known), name=func.name), target, interface)


def words_of(network: Network, node: Operator, weights: Who) -> tuple[Who, ...]:
    """Who chooses the layout of each parameter of an operator's program, in the word for constants that is given."""
    return tuple(weights if name in network.constants else "fixed" for name in (*node.inputs, *node.outputs))


def word_of_weights(network: Network, target: Target) -> Who:
    """``streamed`` for the constants of a network that would not fit into the second caches together."""
    used = {name for node in network.nodes for name in node.inputs if name in network.constants}
    caches = target.l2_bytes * target.threads
    return "streamed" if sum(network.constants[name].nbytes for name in used) > caches else "constant"
