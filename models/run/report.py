"""Where the time of a model goes: a row for each operator, timed inside of whole runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...backends.executable import Memory
from ...ir.expr import Call, Const, Expr, Load
from ...ir.stmt import stores
from ..edges import arguments_of
from ..network import Foreign, Network, Node, Operator

if TYPE_CHECKING:
    from ...ir.stmt import PrimFunc
    from ...search.tasks.task import Roof
    from .kernels import Kernel


@dataclass(frozen=True)
class Row:
    """One operator of a model.

    `program` is the name of its program, or its ONNX type where that runs by the reference implementation (`origin`
    "fallback"); other origins are "tuned", "estimated" and "untuned", "called" of branches, loops, look-ups of texts
    and cuts, which Python does, and "view" of an operator that has nothing to do because its tensors lie in one
    another.  `recorded_us` is what the kernel took when it was tuned by itself.
    `layouts` has a text for each tensor that it passes, constants left out; `copied` are the bytes that it moves
    without computing: its own intermediates, and all of an operator that only moves.
    """

    operator: str
    program: str
    latency_us: float
    share: float
    origin: str
    record: str
    recorded_us: float | None
    layouts: tuple[str, ...]
    copied: int
    only_moves: bool
    gflops: float
    roofline: float | None

    @property
    def is_fallback(self) -> bool:
        """Whether it runs by the reference implementation of ONNX."""
        return self.origin == "fallback"


def report(
    network: Network, kernels: Mapping[str, Kernel], seconds: Mapping[str, float], roof: Roof | None = None
) -> tuple[Row, ...]:
    """A row for each operator with its seconds, in the order of the network; with the device's `roof`, shares of it."""
    total = sum(seconds.values())
    return tuple(_row(network, node, kernels.get(node.name), seconds[node.name], total, roof) for node in network.nodes)


def _row(network: Network, node: Node, kernel: Kernel | None, seconds: float, total: float, roof: Roof | None) -> Row:
    share = seconds / total if total else 0.0
    if not isinstance(node, Operator):
        origin = "fallback" if isinstance(node, Foreign) else "called"
        names = [name for name in (*node.inputs, *node.outputs) if name and name not in network.constants]
        layouts = tuple(f"{name}: as given" for name in names)
        return Row(node.name, node.op, seconds * 1e6, share, origin, "", None, layouts, 0, False, 0.0, None)
    lying = tuple(f"{n}: {a.layout}" for n, a in arguments_of(node) if n not in network.constants)
    if kernel is None:
        return Row(node.name, node.func.name, 0.0, 0.0, "view", "", None, lying, 0, True, 0.0, None)
    task, record = kernel.task, kernel.record
    moves = only_moves(node.func)
    own = sum(Memory(n, tuple(s), d, k).nbytes for n, s, d, k in kernel.compiled.artifact["workspaces"])
    written = sum(network.tensors[name].nbytes for name in node.outputs)
    return Row(
        node.name, node.func.name, seconds * 1e6, share, kernel.origin, record.id if record else "",
        record.latency_us if record else None, lying,
        own + written * moves, moves, task.work.flops / seconds * 1e-9,
        roof.of(task.work).fraction(task, seconds * 1e6) if roof else None,
    )  # fmt: skip


def only_moves(func: PrimFunc) -> bool:
    """Whether every store of a program puts down an element as it was read, or a number where there is none."""
    return all(_is_moved(store.value) for store in stores(func.body))


def _is_moved(value: Expr) -> bool:
    if isinstance(value, Call) and value.name == "if_then_else":
        return all(_is_moved(branch) for branch in value.args[1:])
    return isinstance(value, Load | Const)


def copied_share(rows: Sequence[Row]) -> float:
    """The share of the time that goes to operators that only move."""
    return sum(row.share for row in rows if row.only_moves)
