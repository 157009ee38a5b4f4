"""The order of dimensions in which tensors of a network of free sizes lie between its operators.

    y[n, c, h, w]   ->   y[n, h, w, c]         h and w are free

Vectors along a dimension that is a number are whole at all sizes, and only rows are cut by the end of a free one.  The
choice is that of a network of one shape (`models.unmeasured`), between the order of ONNX and one other for all tensors,
made in the middle of the ranges; no free dimension comes last anew.  What an operator passes on as it lies, in another
shape, stays in the order of ONNX.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...ir.stmt import Assume, Block, For, If, Seq, Store, walk_stmts
from ...ir.target import Target
from ..alternatives import alternatives, is_slot, whole_rows
from ..chosen import Chosen
from ..kinds import copy_kind
from ..network import Network, Operator
from ..tasks import tasks_of
from ..unmeasured import LEAST_FLOPS, liked
from .grouping import is_view
from .reordering import Order, reordered


@dataclass(frozen=True)
class Orders:
    """The order in which tensors are `written`, and `read` by operators that read a copy in another one.

    Those that are named in neither lie as ONNX has them.
    """

    written: Mapping[str, Order] = field(default_factory=dict)
    read: Mapping[tuple[str, str], Order | None] = field(default_factory=dict)

    def shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The extents of a tensor as it lies, for those that ONNX has."""
        return _permuted(shape, self.written.get(name))

    def applied(self, network: Network) -> Network:
        """The network in this order, in which nothing says that it ever had another one; copies are operators."""
        if not self.written and not self.read:
            return network
        tensors = {n: replace(t, shape=self.shape(n, t.shape)) for n, t in network.tensors.items()}
        copies: dict[tuple[str, Order | None], Operator] = {}
        behind: dict[str, list[Operator]] = {}
        nodes: list[Operator] = []
        for node in network.nodes:
            assert isinstance(node, Operator)
            inputs = []
            for name in node.inputs:
                order, own = self._read(node, name), self.written.get(name)
                if order == own:
                    inputs.append(name)
                    continue
                if (name, order) not in copies:
                    tensor = network.tensors[name]
                    label = "".join(map(str, order or range(len(tensor.shape))))
                    func, made = reordered(copy_kind(tensor).func, (own, order)), f"{name} as {label}"
                    copies[name, order] = copy = Operator(f"copy to {made}", func, (name,), (made,))
                    tensors[made] = replace(tensor, name=made, shape=_permuted(tensor.shape, order))
                    maker = network.producer.get(name)
                    behind.setdefault(maker.name if maker else "", []).append(copy)
                inputs += copies[name, order].outputs
            orders = [self._read(node, name) for name in node.inputs]
            orders += [self.written.get(name) for name in node.outputs]
            nodes.append(replace(node, inputs=tuple(inputs), func=reordered(node.func, tuple(orders))))
        placed = [*behind.get("", ())]
        for node in nodes:
            placed += [node, *behind.get(node.name, ())]
        return network.with_nodes(tuple(placed), tensors)

    def _read(self, node: Operator, name: str) -> Order | None:
        """The order in which an operator reads a tensor."""
        at = node.name, name
        return self.read[at] if at in self.read else self.written.get(name)


AS_ONNX = Orders()


def _permuted(shape: tuple[int, ...], order: Order | None) -> tuple[int, ...]:
    return shape if order is None else tuple(shape[dim] for dim in order)


def orders_of(networks: Sequence[Network], middle: int, target: Target) -> Orders:
    """The orders that the estimate likes best for networks of several sizes, equal operators in groups.

    It is asked at the one with the number `middle`, and not at all where that is small.
    """
    network = networks[middle]
    if sum(item.weight * item.task.work.flops for item in tasks_of(network, target)) < LEAST_FLOPS:
        return AS_ONNX
    free = {
        name: {dim for dim, extents in enumerate(zip(*(n.tensors[name].shape for n in networks), strict=True))
               if len(set(extents)) > 1}
        for name in network.tensors
    }  # fmt: skip
    some = alternatives(network, target, stay=frozenset(_staying(networks)), free=free)
    layouts = {name: tuple(k for k in whole_rows(own) if not is_slot(k)) for name, own in some.items()}
    return _orders(liked(network, layouts, target))


def _staying(networks: Sequence[Network]) -> Iterator[str]:
    """Tensors that operators pass on as they lie, and those of programs that are more than nests of loops."""
    for instances in zip(*(network.nodes for network in networks), strict=True):
        ops = [op for op in instances if isinstance(op, Operator)]
        nests = all(isinstance(stmt, Assume | Block | For | If | Seq | Store) for stmt in walk_stmts(ops[0].func.body))
        if not nests or is_view(ops[0], [op.func for op in ops], networks[0]):
            yield from (*ops[0].inputs, *ops[0].outputs)


def _orders(chosen: Chosen) -> Orders:
    """What was chosen for one shape, in terms of no shape."""
    written = {name: tuple(dim.dim for dim in layout.dims) for name, layout in chosen.written.items()}
    read = {at: tuple(dim.dim for dim in layout.dims) for at, layout in chosen.read.items()}
    return Orders(
        {name: order for name, order in written.items() if order != tuple(range(len(order)))},
        {at: None if order == tuple(range(len(order))) else order for at, order in read.items()},
    )
