"""The parts of a graph that programs can compute, each cut out as a module of its own and made a network.

PyTorch's own partitioner finds the largest parts that can be called as one.  What is only another view of a result's
memory is left to PyTorch, where it costs nothing and lies as callers expect (`strides`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from ..models.api import forms
from ..models.forms import Forms
from ..models.network import Network, Operator
from ..models.operators.building import network_of, programs
from ..models.operators.graph import Graph
from ..models.operators.simplify import simplify
from .aten import FREE
from .conversion import Conversion
from .recurrent import CONVERT as RECURRENT
from .strides import leave_views

if TYPE_CHECKING:
    from ..ir.target import Target

WORTH_IT_ALONE = [
    *(f"torch.ops.{name}" for name in RECURRENT),
    *(
        f"torch.ops.aten.{name}.default"
        for name in (
            "convolution", "addmm", "mm", "bmm", "native_layer_norm", "native_group_norm", "_softmax",
            "_scaled_dot_product_flash_attention_for_cpu",
        )
    ),
]  # fmt: skip
"""What may be a part of one operator; other operators are nothing to gain with alone."""


@dataclass
class Part:
    """What was cut out of a graph: `node` calls it, `module` has it in PyTorch, and `forms` as networks.

    For `forms` see `models.forms`.  `constants` names the inputs whose values the network has.
    Result k of the module is result ``outputs[k]`` of the network.
    """

    node: fx.Node
    module: fx.GraphModule
    forms: Forms
    constants: frozenset[str]
    outputs: tuple[int, ...]

    @property
    def network(self) -> Network:
        """The form that is tuned."""
        return self.forms[0]

    @property
    def inputs(self) -> tuple[fx.Node, ...]:
        """The inputs of the network in order, as nodes of the graph, which other parts' kernels may replace."""
        return tuple(source for source in self.node.all_input_nodes if source.name not in self.constants)


@dataclass
class Divided:
    """A graph in which each part is one call of a module; `refused` says of nodes why they are in none.

    `known` are the values of nodes that are constants, by name; `lost` says of parts whose kernels were not faster, or
    not right, by how much.
    """

    module: fx.GraphModule
    parts: list[Part]
    refused: Mapping[str, str]
    known: Mapping[str, Tensor]
    lost: dict[str, str] = field(default_factory=dict)


class _Supported(OperatorSupportBase):
    def __init__(self, conversion: Conversion) -> None:
        self._conversion = conversion

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: fx.Node) -> bool:  # noqa: ARG002
        return self._conversion.is_supported(node)


def divided(module: fx.GraphModule, known: Mapping[str, Tensor], target: Target, winograd: bool) -> Divided:
    """The graph with its parts cut out; `known` are the inputs that are constants, by name."""
    conversion = Conversion(module, known)
    partitioner = CapabilityBasedPartitioner(
        module, _Supported(conversion), non_compute_ops=sorted(FREE),
        allowed_single_node_partition_ops=WORTH_IT_ALONE,
    )  # fmt: skip
    found = partitioner.propose_partitions()
    for partition in found:
        leave_views(module, partition, conversion)
    found = [partition for partition in found if any(conversion.emitted[node.name] for node in partition.nodes)]
    module = fuse_by_partitions(
        module, [partition.nodes for partition in found], prefix="stridesmith_part", always_return_tuple=True
    )
    calls = [n for n in module.graph.nodes if n.op == "call_module" and str(n.target).startswith("stridesmith_part")]
    for call in calls:  # what a part gives has a new node, and its tensor's name: another part may read it
        results = _results(getattr(module, str(call.target)))
        for user in call.users:
            result = results[int(user.args[1])]
            conversion.names[user.name], user.meta["val"] = conversion.names[result.name], result.meta["val"]
    parts = [
        part
        for node in calls
        if (part := _part(node, getattr(module, str(node.target)), conversion, target, winograd)) is not None
    ]
    return Divided(module, parts, conversion.refused, conversion.known)


def _part(node: fx.Node, module: fx.GraphModule, conversion: Conversion, target: Target, winograd: bool) -> Part | None:
    """The network of what a module computes; None where rewriting has made something that no builder covers."""
    inputs = tuple(source for source in node.all_input_nodes if not conversion.is_constant(source))
    results = [conversion.names[result.name] for result in _results(module)]
    names = [name for name in results if isinstance(name, str)]
    whole, computing = conversion.graph, [inner for inner in module.graph.nodes if inner.op == "call_function"]
    graph = Graph(
        f"torch_{node.target}", tuple(str(conversion.names[source.name]) for source in inputs),
        tuple(dict.fromkeys(names)), dict(whole.types), dict(whole.constants),
        [made for inner in computing for made in conversion.emitted[inner.name]], whole.opsets,
    )  # fmt: skip
    graph.prune()
    simplify(graph)
    operators: list[Operator] = []
    for made in graph.nodes:
        built = programs(graph, made)
        if built is None:
            return None
        operators += built
    if not operators or len(names) < len(results):
        return None
    networks = forms(network_of(graph, operators), target, winograd=winograd)
    constants = frozenset(source.name for source in node.all_input_nodes) - {source.name for source in inputs}
    return Part(node, module, networks, constants, tuple(graph.outputs.index(name) for name in names))


def _results(module: fx.GraphModule) -> tuple[fx.Node, ...]:
    (values,) = module.graph.output_node().args
    found: Any = values if isinstance(values, (tuple, list)) else (values,)
    return tuple(found)
