"""The parts of a graph that programs can compute, each cut out as a module of its own and made a network.

PyTorch's own partitioner finds the largest parts that can be called as one.  What is only another view of a result's
memory is left to PyTorch, where it costs nothing and lies as callers expect (`strides`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from ..errors import ModelProblem
from ..models.api import forms
from ..models.forms import Forms
from ..models.network import Network, Operator
from ..models.operators.building import network_of, programs
from ..models.operators.graph import Graph
from ..models.operators.simplify import simplify
from ..models.ranges.network import RangedNetwork
from ..models.ranges.reading import ranged
from .aten import FREE
from .call import Left
from .conversion import Conversion
from .free_sizes import FreeSizes, Point, extent_of, graph_at, is_size, sizes_in
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
    """What was cut out of a graph: `node` calls it, `module` has it in PyTorch, and here it is a network.

    `constants` names the inputs whose values the network has.  Result k of the module is result ``outputs[k]`` of the
    network.  `forms` are those of a network of one shape (`models.forms`); where shapes are free, `network` is one for
    all `sizes`, which are inputs of the graph.
    """

    node: fx.Node
    module: fx.GraphModule
    constants: frozenset[str]
    outputs: tuple[int, ...]
    forms: Forms | None
    free: RangedNetwork | None = None
    sizes: tuple[fx.Node, ...] = ()

    @property
    def network(self) -> Network:
        """The form that is tuned, of a part of one shape."""
        assert self.forms is not None
        return self.forms[0]

    @property
    def operators(self) -> int:
        """How many operators it has."""
        return len(self.network.nodes if self.free is None else self.free.nodes)

    @property
    def inputs(self) -> tuple[fx.Node, ...]:
        """The inputs of the network in order, as nodes of the graph, which other parts' kernels may replace."""
        return tuple(s for s in self.node.all_input_nodes if s.name not in self.constants and not is_size(s))


@dataclass
class Divided:
    """A graph in which each part is one call of a module; `refused` says of nodes why they are in none.

    `known_at` gives the values of nodes that are constants, by name, where sizes have some numbers; `lost` says of
    parts whose kernels were not faster, or not right, by how much.
    """

    module: fx.GraphModule
    parts: list[Part]
    refused: dict[str, str]
    sizes: FreeSizes
    known_at: Callable[[Point], Mapping[str, Tensor]]
    lost: dict[str, str] = field(default_factory=dict)

    @property
    def known(self) -> Mapping[str, Tensor]:
        """The constants where sizes are those of the first call."""
        return self.known_at(self.sizes.first)


class _Supported(OperatorSupportBase):
    def __init__(self, conversion: Conversion) -> None:
        self._conversion = conversion

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: fx.Node) -> bool:  # noqa: ARG002
        return self._conversion.is_supported(node)


def divided(
    module: fx.GraphModule, known: Mapping[str, Tensor], target: Target, winograd: bool, sizes: FreeSizes
) -> Divided:
    """The graph with its parts cut out; `known` are the inputs that are constants, by name."""
    first = Conversion(graph_at(module, sizes.first), known)
    partitioner = CapabilityBasedPartitioner(
        module, _Supported(first), non_compute_ops=sorted(FREE),
        allowed_single_node_partition_ops=WORTH_IT_ALONE,
    )  # fmt: skip
    found = partitioner.propose_partitions()
    for partition in found:
        leave_views(module, partition, first)
    found = [partition for partition in found if any(first.emitted[node.name] for node in partition.nodes)]
    whole = module
    if sizes.places:  # the graph is cut below, and looked at with other sizes
        uncut = fx.Graph()
        uncut.output(uncut.graph_copy(module.graph, {}))
        whole = fx.GraphModule(module, uncut)
    module = fuse_by_partitions(
        module, [partition.nodes for partition in found], prefix="stridesmith_part", always_return_tuple=True
    )
    calls = [n for n in module.graph.nodes if n.op == "call_module" and str(n.target).startswith("stridesmith_part")]
    results = {user: _results(getattr(module, str(call.target)))[int(user.args[1])]
               for call in calls for user in call.users}  # fmt: skip
    looks: dict[tuple[int, ...], Conversion] = {}

    def at(point: Point) -> Conversion:
        """The graph where sizes are these; what a part gives has a new node, and its tensor's name, for other parts."""
        key = tuple(point.values())
        if key not in looks:
            made = looks[key] = Conversion(graph_at(whole, point), known, first) if sizes.places else first
            made.names.update((user.name, made.names[result.name]) for user, result in results.items())
        return looks[key]

    for user, result in results.items():
        user.meta["val"] = result.meta["val"]
    given = {n.name: n for n in module.graph.nodes if n.op == "placeholder"}
    named = dict(zip(sizes.places, (list(given.values())[number] for number in sizes.places.values()), strict=True))
    parts, refused = [], dict(first.refused)
    for node in calls:
        try:
            part = _part(node, getattr(module, str(node.target)), at, _Asked(target, winograd, sizes, named))
        except (ModelProblem, Left) as error:
            refused[node.name] = str(error)
            continue
        if part is not None:
            parts.append(part)
    return Divided(module, parts, refused, sizes, lambda point: at(point).known)


@dataclass(frozen=True)
class _Asked:
    """What networks are made for; `named` are the inputs of the graph that are its sizes."""

    target: Target
    winograd: bool
    sizes: FreeSizes
    named: Mapping[str, fx.Node]


def _part(node: fx.Node, module: fx.GraphModule, at: Callable[[Point], Conversion], asked: _Asked) -> Part | None:
    """The network of what a module computes; None where rewriting has made something that no builder covers.

    Raises ModelProblem for one of free sizes that is not one network for all.
    """
    conversion = at(asked.sizes.first)
    found = _network(node, module, conversion)
    if found is None:
        return None
    network, outputs = found
    constants = frozenset(source.name for source in node.all_input_nodes if conversion.is_constant(source))
    own = sizes_in(module)
    ranges = {name: numbers for name, numbers in asked.sizes.ranges.items() if name in own}
    if not ranges:
        made = forms(network, asked.target, winograd=asked.winograd)
        return Part(node, module, constants, outputs, made)

    def read(point: Point) -> Network:
        found = _network(node, module, at({**asked.sizes.first, **point}))
        if found is None or found[1] != outputs:
            raise ModelProblem(f"`{node.target}` has no program")
        return found[0]

    part = Part(node, module, constants, outputs, None, None, tuple(asked.named[name] for name in ranges))
    extents = [tuple(map(extent_of, source.meta["val"].shape)) for source in part.inputs]
    names = [str(conversion.names[source.name]) for source in part.inputs]
    part.free = ranged(read, dict(zip(names, extents, strict=True)), ranges, asked.target)
    return part


def _network(node: fx.Node, module: fx.GraphModule, conversion: Conversion) -> tuple[Network, tuple[int, ...]] | None:
    """What a module computes at the sizes of a conversion, and which result of it each of the module's is."""
    sources = [source for source in node.all_input_nodes if not conversion.is_constant(source) and not is_size(source)]
    results = [conversion.names[result.name] for result in _results(module)]
    names = [name for name in results if isinstance(name, str)]
    whole, computing = conversion.graph, [inner for inner in module.graph.nodes if inner.op == "call_function"]
    if any(inner.name not in conversion.emitted for inner in computing):
        return None
    graph = Graph(
        f"torch_{node.target}", tuple(str(conversion.names[source.name]) for source in sources),
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
    return network_of(graph, operators), tuple(graph.outputs.index(name) for name in names)


def _results(module: fx.GraphModule) -> tuple[fx.Node, ...]:
    (values,) = module.graph.output_node().args
    found: Any = values if isinstance(values, (tuple, list)) else (values,)
    return tuple(found)
